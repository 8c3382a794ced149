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


def split_qkv_per_head(x: Tensor, head_dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Splits a projection of [query | key | value] per head. x (B, T, H * 3 * D) -> three (B, H, T, D)"""
    q, k, v = x.unflatten(-1, (-1, 3, head_dim)).transpose(1, 2).unbind(3)
    return q, k, v


def split_partitions(x: Tensor, parts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cuts a projection stored part by part, each [first | second | third]. (B, T, 3 * N) -> 3 x (B, T, N)"""
    a, b, c = x.unflatten(-1, (parts, 3, -1)).unbind(-2)
    return a.flatten(-2), b.flatten(-2), c.flatten(-2)


def split_qkv_grouped(x: Tensor, kv_heads: int, head_dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Splits a projection stored group by group, each [queries | key | value].

    x (B, T, K * (G + 2) * D) -> query (B, K * G, T, D), key and value (B, K, T, D)
    """
    x = x.unflatten(-1, (kv_heads, -1, head_dim)).permute(0, 2, 3, 1, 4)  # (B, K, G + 2, T, D)
    return x[:, :, :-2].flatten(1, 2), x[:, :, -2], x[:, :, -1]


def project_packed_query(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Query of a stacked [query; key; value] weight (nn.MultiheadAttention).

    x (B, T, W), weight (3 * W, W)
    """
    size = weight.shape[1]
    return F.linear(x, weight[:size], bias[:size])


def project_packed_key_value(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Key and value of a stacked [query; key; value] weight.

    x (B, S, W), weight (3 * W, W) -> two (B, S, W)
    """
    size = weight.shape[1]
    k, v = F.linear(x, weight[size:], bias[size:]).chunk(2, dim=-1)
    return k, v


def norm_heads(x: Tensor, norms: nn.ModuleList) -> Tensor:
    """Gives each head its own norm. x (B, H, T, D) -> (B, H, T, D)"""
    return torch.stack([norm(head) for norm, head in zip(norms, x.unbind(1), strict=True)], dim=1)
