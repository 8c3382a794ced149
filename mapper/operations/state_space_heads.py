"""State spaces with heads (Mamba-2, paper 2405.21060): one decay for all channels of a head.

    S_t = exp(dt_t * a) * S_(t-1) + dt_t * x_t b_t'        y_t = S_t c_t

x (B, T, H, P), dt (B, T, H), a (H), b and c (B, T, G, N) with H a multiple of G. In chunks of 16: inside of
one as attention with decays for scores, between them as a scan over their states.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.operations.state_space import decay_pairs, join_chunks, linear_scan, split_chunks


def state_space_heads(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Runs the state space over a sequence in float32.

    x (B, T, H, P), dt (B, T, H), a (H), b and c (B, T, G, N) -> (B, T, H, P)
    """
    dtype, groups = x.dtype, x.shape[2] // b.shape[2]
    dt = dt.float()
    decay = split_chunks(dt * a.float())  # (B, n, 16, H), as all below
    u = split_chunks(x.float() * dt[..., None])
    b = split_chunks(b.float()).repeat_interleave(groups, dim=3)
    c = split_chunks(c.float()).repeat_interleave(groups, dim=3)
    between = decay_pairs(decay)
    inside = torch.einsum("bnthk,bnshk,bntsh,bnshp->bnthp", c, b, between, u)
    ends = torch.einsum("bnsh,bnshk,bnshp->bnhkp", between[:, :, -1], b, u).flatten(3)
    states = linear_scan(decay.sum(dim=2)[..., None], ends, levels=1)
    before = F.pad(states, (0, 0, 0, 0, 1, -1)).unflatten(3, (b.shape[-1], -1))
    since = decay.cumsum(dim=2).exp()
    y = inside + torch.einsum("bnthk,bnth,bnhkp->bnthp", c, since, before)
    return join_chunks(list(y.unbind(2)), x.shape[1]).to(dtype)
