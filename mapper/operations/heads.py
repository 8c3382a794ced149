"""Projections to heads and back, and projections that are stored fused."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def rms_norm_plain(x: Tensor, eps: float) -> Tensor:
    """A norm without weights, in float32. (..., W) -> (..., W)"""
    return F.rms_norm(x.float(), x.shape[-1:], eps=eps).to(x.dtype)


def split_at(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The first `size` channels and the rest. x (..., N) -> (..., size), (..., N - size)"""
    return x[..., :size], x[..., size:]


def norm_heads(x: Tensor, norms: nn.ModuleList) -> Tensor:
    """Gives each head its own norm. x (B, H, T, D) -> (B, H, T, D)"""
    return torch.stack([norm(head) for norm, head in zip(norms, x.unbind(1), strict=True)], dim=1)
