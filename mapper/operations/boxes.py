"""Boxes by the place of a patch in an image."""

from __future__ import annotations

import torch
from torch import Tensor


def patch_box_bias(x: Tensor, height: int, width: int) -> Tensor:
    """Logits of a box around each patch: centre x and y, width and height as shares of the image.

    x (B, T, W), T = height * width, row by row -> (T, 4)
    """
    index = torch.arange(height * width, device=x.device)
    size = torch.tensor([width, height], device=x.device)
    corner = (torch.stack((index % width, index // width), dim=-1) + 1) / size
    box = torch.cat((corner, (1 / size).expand_as(corner)), dim=-1)
    return ((box + 1e-4).log() - (1e-4 - box).log1p()).to(x.dtype)


def corner_sinusoids(bbox: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Sines and cosines of how far each corner of a key's box is from the query's (BROS, 2108.04539).

    Corners are left top, right top, right bottom, left bottom. bbox (B, T, 4), left, top, right, bottom,
    or (B, T, 8), all corners; frequencies across and down (N,) -> (B, T, T, 16 * N), queries first
    """
    if bbox.shape[-1] == 4:
        bbox = bbox[..., [0, 1, 2, 1, 2, 3, 0, 3]]
    apart = bbox[:, None] - bbox[:, :, None]  # (B, T, T, 8)
    angles = apart[..., None] * torch.stack((across, down)).repeat(4, 1)
    return torch.cat((angles.sin(), angles.cos()), dim=-1).flatten(-2).to(across.dtype)
