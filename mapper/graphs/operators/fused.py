"""Layers and calls that exporters write as several operations, put together again by `mapper.graphs.recovery.fusing`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.graphs.operators import operator


@operator("Attention", domain="mapper")
def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, scale: float) -> Tensor:
    """Attention with a mask that is added to the scores; the keys come transposed. (B, H, T, D)"""
    return F.scaled_dot_product_attention(q, k.transpose(-2, -1), v, attn_mask=mask, scale=scale)


@operator("RmsNorm", domain="mapper")
def fused_rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight, over the last axis."""
    return F.rms_norm(x, weight.shape, weight, eps)


@operator("LayerNorm", domain="mapper")
def fused_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias, over the last axis."""
    return F.layer_norm(x, weight.shape, weight, bias, eps)


@operator("Linear", domain="mapper")
def fused_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias, the weight as [outputs, inputs]."""
    return F.linear(x, weight, bias)


@operator("Silu", domain="mapper")
def fused_silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)"""
    return F.silu(x)


@operator("Gelu", domain="mapper")
def fused_gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """x * Phi(x), or its approximation by a tanh."""
    return F.gelu(x) if approximate == "none" else F.gelu(x, approximate=approximate)


@operator("Rotary", domain="mapper")
def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embeddings of channels by halves, https://arxiv.org/abs/2104.09864: x cos + rotated(x) sin"""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin
