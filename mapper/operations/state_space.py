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
    h = linear_scan(dt[..., None] * a, (dt * x)[..., None] * b[:, :, None], levels=2)
    return (h @ c[..., None]).squeeze(-1).to(dtype)


def selective_scan_steps(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """selective_scan one position after another."""
    h = x.new_zeros(x.shape[0], x.shape[2], a.shape[1])
    outputs = []
    for t in range(x.shape[1]):
        h, y = selective_step(h, x[:, t], dt[:, t], a, b[:, t], c[:, t])
        outputs.append(y)
    return torch.stack(outputs, dim=1)


def selective_step(
    h: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """One position: the next state and the output. h (B, I, N), x, dt (B, I), b, c (B, N) -> h, y (B, I)"""
    h = torch.exp(dt[..., None] * a) * h + (dt * x)[..., None] * b[:, None]
    return h, (h @ c[..., None]).squeeze(-1)


def linear_scan(decay: Tensor, x: Tensor, levels: int) -> Tensor:
    """h_t = exp(decay_t) * h_(t-1) + x_t for all t at once. decay <= 0 and x (B, T, I, N) -> (B, T, I, N)

    Chunks of 32 by doubling, then their ends by the same means; at the last level, where one element is
    32 ** levels positions, all pairs of elements. Padding by 63 leaves two chunks or more: a count that may
    be 1 cannot be exported. A negative pad cuts the end off: a slice would need a proof that it is there.
    """
    if levels == 0:
        return linear_scan_pairs(decay, x)
    padding = (0, 0, 0, 0, 0, 63)
    decays = F.pad(decay, padding).unfold(1, 32, 32)  # (B, chunks, I, N, 32)
    h, kept = F.pad(x, padding).unfold(1, 32, 32), decays.exp()
    for reach in (1, 2, 4, 8, 16):
        h = h + kept * F.pad(h, (reach, -reach))
        kept = kept * F.pad(kept, (reach, -reach), value=1.0)
    ends = linear_scan(decays.sum(dim=-1), h[..., -1], levels - 1)
    before = F.pad(ends, (0, 0, 0, 0, 1, -1))[..., None]
    h = (h + kept * before).movedim(-1, 2).flatten(1, 2)
    return F.pad(h, (0, 0, 0, 0, 0, x.shape[1] - h.shape[1]))


def linear_scan_pairs(decay: Tensor, x: Tensor) -> Tensor:
    """linear_scan as a sum over all earlier positions. decay and x (B, T, I, N) -> (B, T, I, N)

    Each pair's decay is summed by itself: a difference of running sums would lose the small ones.
    """
    index = torch.arange(x.shape[1], device=x.device)
    ahead = (index - index[:, None])[:, :, None, None]  # the earlier position minus the later one
    between = decay[:, :, None].masked_fill(ahead >= 0, 0.0).cumsum(dim=1)
    return (between.masked_fill(ahead > 0, -torch.inf).exp() * x[:, None]).sum(dim=2)
