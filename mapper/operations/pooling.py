"""One vector per sequence, and lengths after convolutions. x (B, T, W) -> (B, W)."""

from __future__ import annotations

import torch
from torch import Tensor


def pool_mean(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Mean over real positions. x (B, T, W), attention_mask (B, T) or None -> (B, W)"""
    if attention_mask is None:
        return x.mean(dim=1)
    real = (attention_mask != 0).unsqueeze(-1).to(x.dtype)
    return (x * real).sum(dim=1) / real.sum(dim=1).clamp(min=1e-9)


def frame_mask(
    x: Tensor, attention_mask: Tensor | None, kernels: tuple[int, ...], strides: tuple[int, ...]
) -> Tensor | None:
    """Mask of the frames that convolutions made of real samples.

    x (B, T, W), attention_mask (B, samples) -> (B, T)
    """
    if attention_mask is None:
        return None
    lengths = attention_mask.sum(dim=-1)
    for kernel, stride in zip(kernels, strides, strict=True):
        lengths = (lengths - kernel) // stride + 1
    return torch.arange(x.shape[1], device=x.device) < lengths[:, None]


def halved_mask(x: Tensor, mask: Tensor | None, times: int) -> Tensor | None:
    """Mask of the frames that padded convolutions of stride 2, `times` of them, made of real ones.

    x (B, T, W), mask (B, frames) -> (B, T)
    """
    if mask is None:
        return None
    lengths = mask.sum(dim=-1)
    for _ in range(times):
        lengths = (lengths - 1) // 2 + 1
    return torch.arange(x.shape[1], device=x.device) < lengths[:, None]


def zero_frames(x: Tensor, mask: Tensor | None, times: int) -> Tensor:
    """Zeros in the rows of an image of sound that halved_mask hides. x (B, C, T, F), mask (B, frames)"""
    real = halved_mask(x[:, 0], mask, times)
    return x if real is None else x * real[:, None, :, None].to(x.dtype)


def in_groups(x: Tensor, count: int) -> Tensor:
    """Each `count` neighbours beside each other; what is left at the end is left out.

    x (B, T, ...) -> (B, T // count, count, ...)
    """
    return x[:, : x.shape[1] // count * count].unflatten(1, (x.shape[1] // count, count))
