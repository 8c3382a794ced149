"""Convolutions and what stands around them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def weight_norm(length: Tensor, direction: Tensor) -> Tensor:
    """Kernel of a weight-normed layer: the direction scaled to a length per slice (paper 1602.07868)."""
    axes = [axis for axis, size in enumerate(length.shape) if size == 1]
    return direction * (length / torch.linalg.vector_norm(direction, dim=axes, keepdim=True))


def conv_causal(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Depthwise convolution that sees no later position. x (B, T, C), weight (C, 1, kernel) -> (B, T, C)"""
    x = F.pad(x.transpose(1, 2), (weight.shape[-1] - 1, 0))
    return F.conv1d(x, weight, bias, groups=weight.shape[0]).transpose(1, 2)


def trim_even(x: Tensor, kernel: int) -> Tensor:
    """Drops the last position that padding by kernel // 2 adds to an even kernel.

    x (B, C, T') -> (B, C, T)
    """
    return x[..., :-1] if kernel % 2 == 0 else x


def pad_same(x: Tensor, kernel: int, stride: int) -> Tensor:
    """Zeros so that a convolution gives ceil(side / stride), the odd one last (TensorFlow). x (B, C, Y, X)"""
    down, across = (max(kernel - stride - (-side % -stride), 0) for side in (x.shape[2], x.shape[3]))
    return F.pad(x, (across // 2, across - across // 2, down // 2, down - down // 2))


def smooth_halved(x: Tensor, padding: str) -> Tensor:
    """Binomial weights of 3 x 3 places, every second one (paper 1904.11486). x (B, C, Y, X)"""
    line = torch.tensor([0.25, 0.5, 0.25], dtype=x.dtype, device=x.device)
    weight = (line[:, None] * line).expand(x.shape[1], 1, 3, 3)
    return F.conv2d(F.pad(x, (1, 1, 1, 1), padding), weight, None, 2, groups=x.shape[1])


def conv_standardised(x: Tensor, weight: Tensor, stride: int, padding: int, eps: float) -> Tensor:
    """Convolution whose kernels have mean 0 and variance 1 (paper 1903.10520). x (B, C, Y, X)"""
    rows = weight.flatten(1)
    rows = (rows - rows.mean(1, keepdim=True)) * torch.rsqrt(rows.var(1, correction=0, keepdim=True) + eps)
    return F.conv2d(x, rows.view_as(weight), None, stride, padding)


def positions_by_convolution(x: Tensor, weight: Tensor, bias: Tensor, index: int) -> Tensor:
    """Adds a depthwise convolution for positions to what a stage's first layer gives (paper 2102.10882).

    x (B, Y, X, C), weight (C, 1, kernel, kernel) -> (B, Y, X, C), x itself behind any other layer
    """
    if index:
        return x
    places = F.conv2d(
        x.permute(0, 3, 1, 2), weight, bias, padding=weight.shape[-1] // 2, groups=weight.shape[0]
    )
    return x + places.permute(0, 2, 3, 1)
