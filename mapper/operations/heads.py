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


def split_layers(x: Tensor, layers: int) -> Tensor:
    """One part for each layer. x (B, T, L * D) -> (B, T, L, D)"""
    return x.unflatten(-1, (layers, -1))


def rms_norm_plain(x: Tensor, eps: float) -> Tensor:
    """A norm without weights, in float32. (..., W) -> (..., W)"""
    return F.rms_norm(x.float(), x.shape[-1:], eps=eps).to(x.dtype)


def split_halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Cuts a fused [first | second] projection (gate and up). x (..., 2 * N) -> two (..., N)"""
    first, second = x.chunk(2, dim=-1)
    return first, second


def split_alternating(x: Tensor) -> tuple[Tensor, Tensor]:
    """Takes a fused projection apart whose outputs alternate. x (..., 2 * N) -> two (..., N): even, odd"""
    return x[..., ::2], x[..., 1::2]


def cut(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The first `size` channels and the rest. x (..., N) -> (..., size), (..., N - size)"""
    return x[..., :size], x[..., size:]


def split_qkv(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cuts a fused [query | key | value] projection in three. x (B, T, 3 * N) -> three (B, T, N)"""
    q, k, v = x.chunk(3, dim=-1)
    return q, k, v


def split_sizes(x: Tensor, first: int, second: int, third: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cuts a fused projection in three of these sizes. x (..., first + second + third)"""
    a, b, c = x.split([first, second, third], dim=-1)
    return a, b, c


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


def repeat_heads(x: Tensor, groups: int) -> Tensor:
    """Gives every query head its own copy of a shared head. x (B, K, T, D) -> (B, K * groups, T, D)"""
    B, K, T, D = x.shape
    return x[:, :, None].expand(B, K, groups, T, D).reshape(B, K * groups, T, D)


def clamp_symmetric(x: Tensor, limit: float) -> Tensor:
    """Limits every value to [-limit, limit] (clip_qkv)."""
    return torch.clamp(x, -limit, limit)


def average_in(x: Tensor, y: Tensor, count: int) -> Tensor:
    """x and y as a sum of `count` parts of one size, of which y is the last. (..., W) -> (..., W)"""
    return y * count**-0.5 + x * (1 - 1 / count) ** 0.5
