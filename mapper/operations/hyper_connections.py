"""Hyper-connections: a layer's residual in several streams, mixed by what they give (paper 2512.24880).

x (B, T, N, W): N streams of a row of positions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def stream_weights(
    x: Tensor, weight: Tensor, base: Tensor, scale: Tensor, iterations: int, eps: float, norm_eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """What a sub-layer reads of the streams, how much of its output goes to each, and how they mix.

    weight (N * (N + 2), N * W), base (N * (N + 2),), scale (3,) -> (B, T, W), (B, T, N), (B, T, N, N)
    """
    count = x.shape[2]
    joined = F.rms_norm(x.flatten(2).float(), (count * x.shape[-1],), eps=norm_eps)
    read, write, mixing = F.linear(joined, weight.float()).split([count, count, count * count], dim=-1)
    read_base, write_base, mixing_base = base.split([count, count, count * count])
    read = torch.sigmoid(read * scale[0] + read_base) + eps
    write = 2 * torch.sigmoid(write * scale[1] + write_base)
    mixing = sinkhorn((mixing * scale[2] + mixing_base).unflatten(-1, (count, count)), iterations, eps)
    return (read[..., None] * x).sum(dim=2).to(x.dtype), write.to(x.dtype), mixing.to(x.dtype)


def sinkhorn(scores: Tensor, iterations: int, eps: float) -> Tensor:
    """Weights whose rows and columns sum to 1, by dividing by both sums in turn (Sinkhorn and Knopp).

    (..., N, N)
    """
    weights = scores.softmax(dim=-1) + eps
    weights = weights / (weights.sum(dim=-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        weights = weights / (weights.sum(dim=-1, keepdim=True) + eps)
        weights = weights / (weights.sum(dim=-2, keepdim=True) + eps)
    return weights
