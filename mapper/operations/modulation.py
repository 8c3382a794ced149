"""What a moment and a text do to the states of a diffusion transformer."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Each row normalised, scaled by 1 + scale and shifted. x (B, T, W), shift and scale (B, W) -> (B, T, W)"""
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale[:, None]) + shift[:, None]


def place_angles(places: Tensor, sizes: tuple[int, ...], base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles of places with several axes, each axis with its share of the channels.

    places (T, axes), sizes: channels of each axis -> two (1, 1, T, sum of sizes / 2)
    """
    angles = []
    for axis, size in enumerate(sizes):
        steps = torch.arange(0, size, 2, dtype=torch.float64, device=places.device)
        angles.append(places[:, axis, None].double() / base ** (steps / size))
    joined = torch.cat(angles, dim=-1)[None, None]
    return joined.cos().float(), joined.sin().float()


def middle_positions(table: Tensor, height: int, width: int) -> Tensor:
    """The middle of a square table of positions. table (1, N * N, W) -> (1, height * width, W)"""
    side = int(table.shape[1] ** 0.5)
    top, left = (side - height) // 2, (side - width) // 2
    grid = table.unflatten(1, (side, side))[:, top : top + height, left : left + width]
    return grid.flatten(1, 2)


def centred_sinusoids(x: Tensor, side: int, width: int, base_side: int, scale: float) -> Tensor:
    """Sines and cosines of column and row, half of the channels each, as if the map had `base_side` places.

    -> (1, side * side, width)
    """
    steps = torch.arange(side, dtype=torch.float32, device=x.device) / (side / base_side) / scale
    row, column = torch.meshgrid(steps, steps, indexing="ij")
    index = torch.arange(width // 4, dtype=torch.float64, device=x.device)
    rates = 10000.0 ** (-index / (width / 4))
    parts = [axis.reshape(-1, 1).double() * rates for axis in (column, row)]
    table = torch.cat([half for part in parts for half in (part.sin(), part.cos())], dim=-1)
    return table[None].to(x.dtype)


def unpatched(x: Tensor, height: int, width: int, size: int) -> Tensor:
    """Rows of patches, whose pixels have their channels side by side, to a map.

    x (B, height * width, size * size * C) -> (B, C, height * size, width * size)
    """
    grid = x.unflatten(2, (size, size, -1)).unflatten(1, (height, width))
    return grid.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)
