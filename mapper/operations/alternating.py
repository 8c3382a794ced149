"""Alternating updates: of several streams, a layer computes one and corrects all (paper 2301.13310)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def match_size(y: Tensor, x: Tensor) -> Tensor:
    """y as large as x: with its root mean square. (..., W), (..., W) -> (..., W)"""
    own = (y**2).mean(dim=-1, keepdim=True).clamp(min=1e-5).sqrt()
    return y * (x**2).mean(dim=-1, keepdim=True).sqrt() / own


def part_streams(x: Tensor, maps: nn.ModuleList) -> Tensor:
    """x and what the maps make of it, all of one size. (B, T, W) -> (N, B, T, W)"""
    return torch.stack([x, *(match_size(part(x), x) for part in maps)])


def merge_streams(x: Tensor, maps: nn.ModuleList) -> Tensor:
    """Mean of the first stream and the others, mapped and made as large as it. (N, B, T, W) -> (B, T, W)"""
    parts = [match_size(part(stream), x[0]) for part, stream in zip(maps, x[1:], strict=True)]
    return torch.stack([x[0], *parts]).mean(dim=0)


def predict_streams(x: Tensor, weights: Tensor) -> Tensor:
    """Each stream and a mixture of all of them. x (N, B, T, W), weights (B, T, N * N) -> (N, B, T, W)"""
    return x + torch.einsum("nbtw,btmn->mbtw", x, weights.unflatten(-1, (x.shape[0], -1)))


def correct_streams(x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """Streams and what y is more than the first of them, weighed.

    x (N, B, T, W), y (B, T, W), weights (B, T, N) -> (N, B, T, W)
    """
    return x + (y - x[0]) * (weights + 1).permute(2, 0, 1)[..., None]


def add_to_others(x: Tensor, y: Tensor) -> Tensor:
    """y added to every stream but the first. x (N, B, T, W), y (B, T, W) -> (N, B, T, W)"""
    return torch.cat((x[:1], x[1:] + y))


def keep_largest(x: Tensor, share: float) -> Tensor:
    """What values have above the bound that a share of them would not reach, were they normal. (..., W)"""
    bound = torch.special.ndtri(torch.tensor(share, device=x.device)).to(x.dtype)
    return F.relu(x - x.mean(dim=-1, keepdim=True) - bound * x.std(dim=-1, keepdim=True, correction=0))


def in_table(input_ids: Tensor, rows: int) -> Tensor:
    """Ids, those that a table has no row for as 0. (B, T)"""
    return torch.where((input_ids >= 0) & (input_ids < rows), input_ids, 0)
