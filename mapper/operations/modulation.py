"""What a timestep and a text do to the states of a diffusion transformer."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Normalises each row, scales it by 1 + scale and shifts it.

    x (B, T, W), shift and scale (B, W) -> (B, T, W)
    """
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale[:, None]) + shift[:, None]


def rotary_tables_of_axes(places: Tensor, sizes: tuple[int, ...], base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles of places with several axes, each axis with its share of the channels.

    places (T, axes), sizes: channels of each axis -> two (1, 1, T, sum of sizes / 2)
    """
    angles = []
    for axis, size in enumerate(sizes):
        steps = torch.arange(0, size, 2, dtype=torch.float64, device=places.device)
        angles.append(places[:, axis, None].double() / base ** (steps / size))
    joined = torch.cat(angles, dim=-1)[None, None]
    return joined.cos().float(), joined.sin().float()


def map_positions(x: Tensor) -> Tensor:
    """The coordinates of each place of a map of any number of axes. x (B, C, ...) -> (places, axes)"""
    return torch.ones(x.shape[2:], device=x.device).nonzero()


def centred_positions(shapes: Tensor, count: int) -> Tensor:
    """Coordinates of words, then of images: each image's from its middle, the words' behind all of them.

    shapes (images, 3): number of each image's frames, rows and columns; count: words -> (count + places, 3)
    """
    images = []
    for index, (frames, rows, columns) in enumerate(shapes.tolist()):
        grid = torch.ones((frames, rows, columns), device=shapes.device).nonzero()
        start = (index, rows // 2 - rows, columns // 2 - columns)
        images.append(grid + torch.tensor(start, device=shapes.device))
    after = int((shapes[:, 1:] // 2).max())
    words = torch.arange(after, after + count, device=shapes.device)
    return torch.cat((words[:, None].expand(-1, 3), *images))


def middle_positions(table: Tensor, height: int, width: int) -> Tensor:
    """The middle of a square table of positions. table (1, N * N, W) -> (1, height * width, W)"""
    side = int(table.shape[1] ** 0.5)
    top, left = (side - height) // 2, (side - width) // 2
    grid = table.unflatten(1, (side, side))[:, top : top + height, left : left + width]
    return grid.flatten(1, 2)


def centred_sinusoids(x: Tensor, height: int, width: int, size: int, side: int) -> Tensor:
    """Sines and cosines of column and row, half of the channels each, as of `side` rows and columns.

    -> (1, height * width, size)
    """
    columns = torch.arange(width, dtype=torch.float32, device=x.device) * (side / width)
    rows = torch.arange(height, dtype=torch.float32, device=x.device) * (side / height)
    row, column = torch.meshgrid(rows, columns, indexing="ij")
    rates = 10000.0 ** (torch.arange(size // 4, dtype=torch.float64, device=x.device) * (-4 / size))
    angles = [axis.reshape(-1, 1).double() * rates for axis in (column, row)]
    table = torch.cat([half for each in angles for half in (each.sin(), each.cos())], dim=-1)
    return table[None].to(x.dtype)


def image_of_patches(x: Tensor, height: int, width: int, size: int) -> Tensor:
    """Rows of patches, whose pixels have their channels side by side, to a map.

    x (B, height * width, size * size * C) -> (B, C, height * size, width * size)
    """
    grid = x.unflatten(2, (size, size, -1)).unflatten(1, (height, width))
    return grid.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)


def map_of_patches(x: Tensor, grid: tuple[int, ...], sizes: tuple[int, ...]) -> Tensor:
    """Rows of patches, whose points have their channels side by side, to a map of any number of axes.

    x (B, patches, points of a patch * C), grid: patches along each axis, sizes: points along each; returns
    (B, C, *sizes)
    """
    sides = [size // count for size, count in zip(sizes, grid, strict=True)]
    x = x.unflatten(2, (*sides, -1)).unflatten(1, grid)
    last = 2 * len(grid) + 1
    pairs = [axis for each in range(1, len(grid) + 1) for axis in (each, each + len(grid))]
    x = x.permute(0, last, *pairs)
    for each in range(len(grid)):
        x = x.flatten(2 + each, 3 + each)
    return x
