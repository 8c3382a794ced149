"""Patches of a video, each over some frames: where they stand, and what is turned by it."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_frames(videos: Tensor, count: int) -> Tensor:
    """Repeats what has fewer frames than one patch covers. videos (B, T, C, Y, X)"""
    return videos if videos.shape[1] >= count else videos.repeat(1, count, 1, 1, 1)


def apply_rotary_by_axis(x: Tensor, places: Tensor) -> Tensor:
    """Turns a third of each head by time, one by row and one by column; what is left over stays (V-JEPA 2).

    The frequencies stand side by side, twice, while neighbours are turned: so the published code has it.
    x (B, H, T, D), places (3, T)
    """
    size = x.shape[-1] // 3 // 2 * 2
    steps = torch.arange(size // 2, dtype=x.dtype, device=x.device) / (size / 2)
    parts = []
    for part, place in zip(x[..., : 3 * size].unflatten(-1, (3, size)).unbind(-2), places, strict=True):
        angles = (place[:, None] * (1.0 / 10000**steps)).repeat(1, 2)
        turned = torch.stack((-part[..., 1::2], part[..., ::2]), dim=-1).flatten(-2)
        parts.append(part * angles.cos() + turned * angles.sin())
    return torch.cat((*parts, x[..., 3 * size :]), dim=-1)
