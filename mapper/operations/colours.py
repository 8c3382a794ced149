"""Images of colours before and after a network. Images are (B, C, Y, X)."""

from __future__ import annotations

import torch
from torch import Tensor


def centre_colours(x: Tensor, mean: tuple[float, ...], scale: float) -> Tensor:
    """Colours around a mean one, times a scale."""
    return (x - torch.tensor(mean, dtype=x.dtype, device=x.device).view(1, -1, 1, 1)) * scale


def restore_colours(x: Tensor, pixels: Tensor, mean: tuple[float, ...], scale: float, factor: int) -> Tensor:
    """Undoes centre_colours, and cuts to `factor` times the size of pixels."""
    image = x / scale + torch.tensor(mean, dtype=x.dtype, device=x.device).view(1, -1, 1, 1)
    return image[:, :, : pixels.shape[2] * factor, : pixels.shape[3] * factor]
