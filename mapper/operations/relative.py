"""Relative positions: distances, their buckets, and the biases that attention adds to its scores."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def relative_distances(x: Tensor) -> Tensor:
    """Key position minus query position. x (B, T, ...) -> (T, T) int64, queries down, keys across"""
    index = torch.arange(x.shape[1], device=x.device)
    return index - index[:, None]


def relative_buckets(distances: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Buckets of both directions: later keys take the upper half (T5 encoder, MPNet; 1910.10683).

    Any shape
    """
    half = buckets // 2
    return torch.where(distances > 0, half, 0) + bucket_logarithmic(distances.abs(), half, max_distance)


def bucket_logarithmic(lengths: Tensor, buckets: int, max_distance: int) -> Tensor:
    """One bucket per length for the lower half, then logarithmic up to max_distance.

    lengths >= 0, any shape
    """
    exact = buckets // 2
    steps = (
        torch.log(lengths.clamp(min=1).float() / exact) / math.log(max_distance / exact) * (buckets - exact)
    )
    return torch.where(lengths < exact, lengths, (exact + steps.long()).clamp(max=buckets - 1))


def masked_bias(bias: Tensor, mask: Tensor | None) -> Tensor:
    """A bias with the lowest number where the mask hides a key, once for all layers.

    bias (1, H, T, S), mask (1 or B, 1, 1 or T, S) or None -> (1 or B, H, T, S)
    """
    return bias if mask is None else torch.where(mask, bias, torch.finfo(bias.dtype).min)


def alibi_slopes(x: Tensor, heads: int) -> Tensor:
    """Slope of each head, geometric; heads beyond a power of two interleave (2108.12409).

    -> (heads,) float32
    """
    power = 2 ** math.floor(math.log2(heads))
    first = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    between = [2.0 ** (-4.0 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(first + between, dtype=torch.float32, device=x.device)


def log_buckets(distances: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Signed distances, exact up to buckets / 2, then logarithmic (DeBERTa v2, 2006.03654).

    Any shape -> int64
    """
    middle = buckets // 2
    length = distances.abs().clamp(min=middle)
    # float32 on both sides of the division, as the ceiling decides at exact multiples
    whole = torch.log(torch.tensor((max_distance - 1) / middle, device=distances.device))
    steps = torch.ceil(torch.log(length / middle) / whole * (middle - 1)) + middle
    return torch.where(distances.abs() <= middle, distances, (steps * distances.sign()).long())


def relative_scores(x: Tensor, table: Tensor, rows: Tensor) -> Tensor:
    """Scores of vectors against the row of a table that each is to be compared with.

    x (B, H, T, D), table (1, H, N, D), rows (T, S) -> (B, H, T, S)
    """
    scores = x @ table.transpose(-1, -2)
    return scores.gather(-1, rows.expand(*scores.shape[:-1], rows.shape[-1]))
