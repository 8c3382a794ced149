"""Convolutions and what stands around them."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def weight_norm(length: Tensor, direction: Tensor) -> Tensor:
    """Kernel of a weight-normed layer: the direction scaled to a length per slice."""
    axes = [axis for axis, size in enumerate(length.shape) if size == 1]
    return direction * (length / direction.norm(dim=axes, keepdim=True))


def conv_causal(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Depthwise convolution that sees no later position. x (B, C, T), weight (C, 1, kernel) -> (B, C, T)"""
    x = F.pad(x, (weight.shape[-1] - 1, 0))
    return F.conv1d(x, weight, bias, groups=weight.shape[0])
