"""Attention by relative position with maps of their own (Transformer-XL, paper 1901.02860; conformers)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.operations.positions import sinusoids_interleaved


def distance_waves(x: Tensor, size: int) -> Tensor:
    """Waves for the distances T - 1 down to 1 - T of a query to a key.

    x (B, T, ...) -> (1, 2 T - 1, size)
    """
    distances = torch.arange(x.shape[1] - 1, -x.shape[1], -1, device=x.device)[None]
    return sinusoids_interleaved(x, distances, size)


def shift_distances(scores: Tensor) -> Tensor:
    """Scores by distance, T - 1 first, as scores by key. (B, H, T, 2 T - 1) -> (B, H, T, T)"""
    B, H, T, D = scores.shape
    shifted = F.pad(scores, (1, 0)).view(B, H, D + 1, T)[:, :, 1:].reshape(B, H, T, D)
    return shifted[..., :T]


def clipped_distances(x: Tensor, left: int, right: int) -> Tensor:
    """Rows of a table of distances, key minus query, from -left to right. x (B, T, ...) -> (T, T)"""
    index = torch.arange(x.shape[1], device=x.device)
    return (index - index[:, None]).clamp(-left, right) + left


def distance_scores(q: Tensor, table: Tensor) -> Tensor:
    """How well each query goes with the vector of each distance.

    q (B, H, T, D), table (T, S, D) -> (B, H, T, S)
    """
    return torch.einsum("bhtd,tsd->bhts", q, table)
