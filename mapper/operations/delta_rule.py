"""The gated delta rule (papers 2412.06464, 2510.26692): linear attention that corrects what it remembers.

    S_t = exp(g_t) * S_(t-1);   S_t += k_t (beta_t (v_t - S_t' k_t))'        y_t = S_t' q_t

q and k (B, T, H, K), v (B, T, H, V), decay g <= 0 (B, T, H, K) or (B, T, H, 1), beta (B, T, H). In chunks of
16, each solved as one triangular system; chunks one after another, as each corrects what the last one left.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def l2_normalise(x: Tensor) -> Tensor:
    """Vectors of length 1, in float32; the 1e-6 of the published kernels keeps zeros zero. (..., K)"""
    x = x.float()
    return x * torch.rsqrt(x.pow(2).sum(dim=-1, keepdim=True) + 1e-6)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    """What each position reads of the memory, with queries and keys of length 1 and a scale 1 / sqrt(K).

    q, k (B, T, G, K), v (B, T, H, V) with H a multiple of G, decay (B, T, H, K or 1), beta (B, T, H)
    -> (B, T, H, V)
    """
    dtype, length, groups = v.dtype, v.shape[1], v.shape[2] // k.shape[2]
    q = l2_normalise(q).repeat_interleave(groups, dim=2) * q.shape[-1] ** -0.5
    k = l2_normalise(k).repeat_interleave(groups, dim=2)
    q, k, v, decay, beta = (delta_chunks(part) for part in (q, k, v, decay, beta[..., None]))
    since = decay.cumsum(dim=3)  # (B, H, n, 16, K or 1)
    system = delta_pairs(k * beta, k, since)
    values = torch.linalg.solve_triangular(system, v * beta, upper=False, unitriangular=True)
    reads = torch.linalg.solve_triangular(system, k * beta * since.exp(), upper=False, unitriangular=True)
    inside, outside = delta_pairs(q, k, since), q * since.exp()
    left = since[:, :, :, -1:]
    kept, total = k * (left - since).exp(), left.exp().transpose(-1, -2)
    memory = v.new_zeros(*v.shape[:2], k.shape[-1], v.shape[-1])
    outputs = []
    for n in range(v.shape[2]):
        new = values[:, :, n] - reads[:, :, n] @ memory
        outputs.append(outside[:, :, n] @ memory + inside[:, :, n] @ new)
        memory = memory * total[:, :, n] + kept[:, :, n].transpose(-1, -2) @ new
    return torch.cat(outputs, dim=2)[:, :, :length].transpose(1, 2).to(dtype)


def exponential_gates(q: Tensor, k: Tensor, v: Tensor, strength: Tensor, decay: Tensor, eps: float) -> Tensor:
    """Mean of the values so far by weights exp(strength) q . k, which fade (mLSTM, paper 2405.04517).

    In float32; the weights' sum counts as 1 at least. q, k (B, T, H, K), v (B, T, H, V),
    strength and decay <= 0 (B, T, H) -> (B, T, H, V)
    """
    dtype, length = v.dtype, v.shape[1]
    total = decay.float().cumsum(dim=1)
    highest = total + (strength.float() - total).cummax(dim=1).values.clamp(min=0.0)
    v = torch.cat((v, torch.ones_like(v[..., :1])), dim=-1)  # the last channel sums the weights
    k = k.float() * strength.float().exp()[..., None] * q.shape[-1] ** -0.5
    q, k, v, decay = (delta_chunks(part) for part in (q, k, v, decay[..., None]))
    since = decay.cumsum(dim=3)  # (B, H, n, 16, 1)
    inside, outside = delta_pairs(q, k, since), q * since.exp()
    left = since[:, :, :, -1:]
    kept, share = k * (left - since).exp(), left.exp()
    state = v.new_zeros(*v.shape[:2], k.shape[-1], v.shape[-1])
    outputs = []
    for n in range(v.shape[2]):
        outputs.append(outside[:, :, n] @ state + inside[:, :, n] @ v[:, :, n])
        state = state * share[:, :, n] + kept[:, :, n].transpose(-1, -2) @ v[:, :, n]
    y = torch.cat(outputs, dim=2)[:, :, :length].transpose(1, 2)
    return (y[..., :-1] / (y[..., -1:].abs().clamp(min=1.0) + eps * highest.exp()[..., None])).to(dtype)


def delta_chunks(x: Tensor) -> Tensor:
    """Heads first, positions in chunks of 16, the last filled with zeros. (B, T, H, D) -> (B, H, n, 16, D)"""
    x = F.pad(x.float(), (0, 0, 0, 0, 0, -x.shape[1] % 16))
    return x.transpose(1, 2).unflatten(2, (-1, 16))


def delta_pairs(a: Tensor, b: Tensor, since: Tensor) -> Tensor:
    """Products of each row of a with the rows of b at and before it, times what is left of these.

    a, b (..., 16, K), since (..., 16, K or 1) sums of decays from the chunk's start -> (..., 16, 16)
    """
    between = since[..., :, None, :] - since[..., None, :, :]
    later = torch.ones(between.shape[-3:-1], dtype=torch.bool, device=a.device).triu(1)[..., None]
    between = between.masked_fill(later, -torch.inf).exp()
    if since.shape[-1] == 1:
        return (a @ b.transpose(-1, -2)) * between[..., 0]
    return torch.einsum("...ik,...jk,...ijk->...ij", a, b, between)
