"""Patches of several images packed in one row: which image, frame and place each of them comes from.

`grid` (N, 3) has frames, rows and columns of every image. Within a frame the patches stand block by block, `merge`
x `merge` neighbours together (1: row by row). x is (1, T, ...), T patches of all images.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def patch_images(x: Tensor, grid: Tensor) -> tuple[Tensor, Tensor]:
    """The image of every patch, and the patch's number in it. -> two (T,)"""
    counts = grid.prod(dim=-1)
    image = torch.repeat_interleave(
        torch.arange(grid.shape[0], device=x.device), counts, output_size=x.shape[1]
    )
    return image, torch.arange(x.shape[1], device=x.device) - (counts.cumsum(0) - counts)[image]


def same_image_mask(x: Tensor, grid: Tensor) -> Tensor:
    """Shows every patch those of its own image, of all its frames. -> (1, 1, T, T)"""
    image, _ = patch_images(x, grid)
    return (image == image[:, None])[None, None]


def same_frame_mask(x: Tensor, grid: Tensor) -> Tensor:
    """Shows every patch those of its own frame of its own image. -> (1, 1, T, T)"""
    image, index = patch_images(x, grid)
    frame = index // (grid[:, 1] * grid[:, 2])[image]
    return ((image == image[:, None]) & (frame == frame[:, None]))[None, None]


def patch_places(x: Tensor, grid: Tensor, merge: int) -> tuple[Tensor, Tensor]:
    """Row and column of every patch in its frame. -> two (T,)"""
    image, index = patch_images(x, grid)
    height, width = grid[image, 1], grid[image, 2]
    index = index % (height * width)
    block, inner = index // (merge * merge), index % (merge * merge)
    row = block // (width // merge) * merge + inner // merge
    return row, block % (width // merge) * merge + inner % merge


def merge_neighbours(x: Tensor, merge: int) -> Tensor:
    """Joins the channels of each block of patches. x (1, T, C) -> (T / merge ** 2, merge ** 2 * C)"""
    return x.reshape(-1, merge * merge * x.shape[-1])


def rotary_tables_grid(
    x: Tensor, rows: Tensor, columns: Tensor, frequencies: Tensor
) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the angles by row, then by column. frequencies (F,) -> two (1, 1, T, 2 * F)"""
    angles = torch.cat((rows[:, None] * frequencies, columns[:, None] * frequencies), dim=-1)[None, None]
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def positions_at_corners(table: Tensor, x: Tensor, grid: Tensor, merge: int) -> Tensor:
    """A square table stretched over each image so that their corners meet, linear between its rows.

    table (N * N, C) -> (1, T, C)
    """
    row, column = patch_places(x, grid, merge)
    image, _ = patch_images(x, grid)
    last = (grid[image, 1:] - 1).clamp(min=1)
    points = torch.stack((column / last[:, 1], row / last[:, 0]), dim=-1) * 2 - 1
    return sample_table(table, points, "bilinear", corners=True).to(x.dtype)


def positions_cubic(table: Tensor, x: Tensor, grid: Tensor, merge: int) -> Tensor:
    """A square table stretched over each image by bicubic interpolation. table (N * N, C) -> (1, T, C)"""
    row, column = patch_places(x, grid, merge)
    image, _ = patch_images(x, grid)
    size = grid[image, 1:]
    points = torch.stack(((column + 0.5) / size[:, 1], (row + 0.5) / size[:, 0]), dim=-1) * 2 - 1
    return sample_table(table, points, "bicubic", corners=False).to(x.dtype)


def sample_table(table: Tensor, points: Tensor, mode: str, corners: bool) -> Tensor:
    """A square table read between its rows. table (N * N, C), points (T, 2): x and y in [-1, 1] -> (1, T, C)"""
    side = math.isqrt(table.shape[0])
    image = table.float().unflatten(0, (side, side)).permute(2, 0, 1)[None]
    found = F.grid_sample(image, points[None, None].float(), mode, "border", corners)
    return found[0, :, 0].t()[None]


def patch_windows(x: Tensor, grid: Tensor, merge: int, window: int) -> Tensor:
    """The window of `window` x `window` patches that each patch is in, counted over all frames. -> (T,)"""
    image, index = patch_images(x, grid)
    row, column = patch_places(x, grid, merge)
    across = (grid[:, 1:] + window - 1) // window
    count = across.prod(dim=-1)
    first = (grid[:, 0] * count).cumsum(0) - grid[:, 0] * count
    frame = index // (grid[:, 1] * grid[:, 2])[image]
    return first[image] + frame * count[image] + row // window * across[image, 1] + column // window


def window_order(x: Tensor, grid: Tensor, merge: int, window: int) -> Tensor:
    """The patches window by window, those of one window as they stood. -> (T,)"""
    return patch_windows(x, grid, merge, window).argsort(stable=True)


def same_window_mask(x: Tensor, grid: Tensor, merge: int, window: int) -> Tensor:
    """Shows every patch, in window_order, those of its own window. -> (1, 1, T, T)"""
    number = patch_windows(x, grid, merge, window).sort().values
    return (number == number[:, None])[None, None]


def restore_order(x: Tensor, order: Tensor, merge: int) -> Tensor:
    """Undoes window_order for merged patches. x (T / merge ** 2, C), order (T,)"""
    return x[(order[:: merge * merge] // (merge * merge)).argsort()]
