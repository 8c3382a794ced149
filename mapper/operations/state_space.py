"""Selective state spaces (Mamba, paper 2312.00752).

    h_t = exp(dt_t * a) * h_(t-1) + dt_t * b_t * x_t        y_t = h_t @ c_t

x, dt (B, T, I), a (I, N), b, c (B, T, N). Two forms of one sum: step by step where that is fastest (eager
on CPU: a state fits the cache, and nothing of size T * I * N is kept), and by chunks where a loop over T
cannot be traced or would launch T kernels. The chunked form multiplies decays, all at most 1, as an
associative scan does: it takes no logarithm of a state and no quotient. `torch.associative_scan` is a
prototype, left for when it is not.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def selective_scan(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Runs the state space over a sequence in float32.

    x, dt (B, T, I), a (I, N), b, c (B, T, N) -> (B, T, I)
    """
    dtype = x.dtype
    x, dt, a, b, c = x.float(), dt.float(), a.float(), b.float(), c.float()
    if x.device.type == "cpu" and not torch.compiler.is_compiling():
        return selective_scan_steps(x, dt, a, b, c).to(dtype)
    return selective_scan_chunks(x, dt, a, b, c).to(dtype)


def selective_scan_steps(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """selective_scan one position after another."""
    h = x.new_zeros(x.shape[0], x.shape[2], a.shape[1])
    outputs = []
    for t in range(x.shape[1]):
        h = torch.exp(dt[:, t, :, None] * a) * h + (dt[:, t] * x[:, t])[..., None] * b[:, t, None]
        outputs.append((h @ c[:, t, :, None]).squeeze(-1))
    return torch.stack(outputs, dim=1)


def selective_scan_chunks(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """selective_scan in chunks of 16 side by side: first where each ends, then all of it from its start."""
    steps = split_chunks(dt)
    factors = torch.exp(steps[..., None] * a).unbind(2)  # 16 of (B, n, I, N)
    inputs = (split_chunks(dt * x)[..., None] * split_chunks(b)[..., None, :]).unbind(2)
    h = chunk_ends(factors, inputs)
    h = F.pad(linear_scan(steps.sum(dim=2)[..., None] * a, h, levels=1), (0, 0, 0, 0, 1, -1))
    outputs = []
    for factor, u, w in zip(factors, inputs, split_chunks(c)[..., None].unbind(2), strict=True):
        h = factor * h + u
        outputs.append(h @ w)
    return join_chunks(outputs, x.shape[1]).squeeze(-1)


def linear_scan(decay: Tensor, x: Tensor, levels: int) -> Tensor:
    """h_t = exp(decay_t) * h_(t-1) + x_t for all t at once. decay <= 0 and x (B, T, I, N) -> (B, T, I, N)

    In chunks of 16; at the last level, where one element is 16 ** levels positions, as all pairs of elements.
    """
    if levels == 0:
        pairs = decay_pairs(decay.flatten(2)[:, None])[:, 0].unflatten(-1, decay.shape[2:])
        return (pairs * x[:, None]).sum(dim=2)
    steps = split_chunks(decay)
    factors, inputs = steps.exp().unbind(2), split_chunks(x).unbind(2)
    h = F.pad(linear_scan(steps.sum(dim=2), chunk_ends(factors, inputs), levels - 1), (0, 0, 0, 0, 1, -1))
    states = []
    for factor, u in zip(factors, inputs, strict=True):
        h = factor * h + u
        states.append(h)
    return join_chunks(states, x.shape[1])


def chunk_ends(factors: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> Tensor:
    """State at the end of each chunk that starts from nothing. 16 of (B, n, I, N) each -> (B, n, I, N)"""
    h = inputs[0]
    for factor, u in zip(factors[1:], inputs[1:], strict=True):
        h = factor * h + u
    return h


def split_chunks(x: Tensor) -> Tensor:
    """Chunks of 16 positions: two or more, as a count that may be 1 cannot be exported, the last of padding.

    x (B, T, ...) -> (B, n, 16, ...)
    """
    length = x.shape[1]
    x = F.pad(x, (0, 0) * (x.dim() - 2) + (0, 16 * (length // 16 + 2) - length))
    return x.unfold(1, 16, 16).movedim(-1, 2)


def join_chunks(parts: list[Tensor], length: int) -> Tensor:
    """Undoes split_chunks, from a list over the 16. 16 of (B, n, ...) -> (B, length, ...)

    A negative pad cuts the end off: a slice would need a proof that there is one.
    """
    x = torch.stack(parts, dim=2).flatten(1, 2)
    return F.pad(x, (0, 0) * (x.dim() - 2) + (0, length - x.shape[1]))


def decay_pairs(decay: Tensor) -> Tensor:
    """What is left, at each position of a chunk, of an earlier one. (B, n, C, H) -> (B, n, C, C, H)

    Each pair's decay is summed by itself: a difference of running sums would lose the small ones.
    """
    index = torch.arange(decay.shape[2], device=decay.device)
    ahead = (index - index[:, None])[:, :, None]  # the earlier position minus the later one
    between = decay[:, :, :, None].masked_fill(ahead >= 0, 0.0).cumsum(dim=2)
    return between.masked_fill(ahead > 0, -torch.inf).exp()
