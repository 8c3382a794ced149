"""Patches of several images packed in one row: which image, frame and place each of them comes from.

`grid` (N, 3) has frames, rows and columns of every image. Within a frame the patches stand block by
block, `merge` x `merge` neighbours together (1: row by row). x is (1, T, ...), T patches of all images.
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


def same_piece_mask(piece: Tensor) -> Tensor:
    """Shows every position those of its own piece. piece (T,), a number for each -> (1, 1, T, T)"""
    return (piece == piece[:, None])[None, None]


def same_frame_mask(x: Tensor, grid: Tensor) -> Tensor:
    """Shows every patch those of its own frame of its own image. -> (1, 1, T, T)"""
    image, index = patch_images(x, grid)
    frame = index // (grid[:, 1] * grid[:, 2])[image]
    return ((image == image[:, None]) & (frame == frame[:, None]))[None, None]


def patch_coordinates(x: Tensor, grid: Tensor, merge: int) -> tuple[Tensor, Tensor]:
    """Row and column of every patch in its frame. -> two (T,)"""
    image, index = patch_images(x, grid)
    height, width = grid[image, 1], grid[image, 2]
    index = index % (height * width)
    block, inner = index // (merge * merge), index % (merge * merge)
    row = block // (width // merge) * merge + inner // merge
    return row, block % (width // merge) * merge + inner % merge


def blocks_from_rows(x: Tensor, grid: Tensor, merge: int) -> Tensor:
    """Patches that stand row by row, block by block instead. x (1, T, C)"""
    image, index = patch_images(x, grid)
    width = grid[image, 2]
    row, column = patch_coordinates(x, grid, merge)
    frame = index // (grid[image, 1] * width)
    first = (grid.prod(dim=-1).cumsum(0) - grid.prod(dim=-1))[image]
    return x[:, first + (frame * grid[image, 1] + row) * width + column]


def whole_blocks_from_rows(x: Tensor, grid: Tensor, merge: int) -> Tensor:
    """The same without the last rows and columns that fill no block of merge x merge. x (1, T, C)"""
    whole = torch.cat((grid[:, :1], grid[:, 1:] // merge * merge), dim=1)
    image = torch.repeat_interleave(torch.arange(len(grid), device=x.device), whole.prod(dim=-1))
    row, column = patch_coordinates(x[:, : len(image)], whole, merge)
    _, index = patch_images(x[:, : len(image)], whole)
    frame = index // (whole[image, 1] * whole[image, 2])
    first = (grid.prod(dim=-1).cumsum(0) - grid.prod(dim=-1))[image]
    return x[:, first + (frame * grid[image, 1] + row) * grid[image, 2] + column]


def positions_at_corners(table: Tensor, x: Tensor, grid: Tensor, merge: int) -> Tensor:
    """A square table stretched over each image so that their corners meet, linear between its rows.

    table (N * N, C) -> (1, T, C)
    """
    row, column = patch_coordinates(x, grid, merge)
    image, _ = patch_images(x, grid)
    last = (grid[image, 1:] - 1).clamp(min=1)
    points = torch.stack((column / last[:, 1], row / last[:, 0]), dim=-1) * 2 - 1
    return sample_table(table, points, "bilinear", corners=True).to(x.dtype)


def sampled_positions(table: Tensor, x: Tensor, grid: Tensor, merge: int, mode: str) -> Tensor:
    """Learned positions of a square image for images of any size, interpolated: "bicubic" or "bilinear".

    table (N * N, W), x (1, T, W), grid (images, 3) -> (1, T, W)
    """
    row, column = patch_coordinates(x, grid, merge)
    image, _ = patch_images(x, grid)
    size = grid[image, 1:]
    middles = torch.stack(((column + 0.5) / size[:, 1], (row + 0.5) / size[:, 0]), dim=-1)
    return sample_table(table, middles * 2 - 1, mode, corners=False).to(x.dtype)


def sample_table(table: Tensor, points: Tensor, mode: str, corners: bool) -> Tensor:
    """A square table read between its rows.

    table (N * N, C), points (T, 2): x and y in [-1, 1] -> (1, T, C)
    """
    side = math.isqrt(table.shape[0])
    image = table.float().unflatten(0, (side, side)).permute(2, 0, 1)[None]
    found = F.grid_sample(image, points[None, None].float(), mode, "border", corners)
    return found[0, :, 0].t()[None]


def patch_windows(x: Tensor, grid: Tensor, merge: int, window: int) -> Tensor:
    """The window of `window` x `window` patches that each patch is in, counted over all frames. -> (T,)"""
    image, index = patch_images(x, grid)
    row, column = patch_coordinates(x, grid, merge)
    across = (grid[:, 1:] + window - 1) // window
    count = across.prod(dim=-1)
    first = (grid[:, 0] * count).cumsum(0) - grid[:, 0] * count
    frame = index // (grid[:, 1] * grid[:, 2])[image]
    return first[image] + frame * count[image] + row // window * across[image, 1] + column // window


def positions_smooth(table: Tensor, x: Tensor, grid: Tensor, merge: int) -> Tensor:
    """A square table scaled to each image, smoothly also where that makes it smaller.

    table (N * N, C) -> (1, T, C)
    """
    row, column = patch_coordinates(x, grid, merge)
    image, _ = patch_images(x, grid)
    return scale_table(table, row[None], column[None], grid[image, 1][None], grid[image, 2][None]).to(x.dtype)


def scale_table(table: Tensor, rows: Tensor, columns: Tensor, heights: Tensor, widths: Tensor) -> Tensor:
    """Rows of a square table scaled to an image, linear and antialiased.

    table (N * N, C), rows and columns (B, T) of images of heights x widths, (B, T) or (B, 1) -> (B, T, C)
    """
    side = math.isqrt(table.shape[0])
    down, across = smooth_weights(rows, heights, side), smooth_weights(columns, widths, side)
    return (down[..., :, None] * across[..., None, :]).flatten(-2) @ table.float()


def smooth_weights(places: Tensor, sizes: Tensor, side: int) -> Tensor:
    """Weights of `side` places for each place on a line of another size: a triangle, wider if side > size.

    places (B, T), sizes (B, T) or (B, 1) -> (B, T, side)
    """
    scale = (side / sizes)[..., None]
    center = (places[..., None] + 0.5) * scale
    distance = (torch.arange(side, device=places.device) + 0.5 - center).abs()
    weights = (1 - distance / scale.clamp(min=1)).clamp(min=0)
    return weights / weights.sum(dim=-1, keepdim=True)


def frame_sinusoids(x: Tensor, grid: Tensor) -> Tensor:
    """Sines, then cosines, by the frame of each patch; zeros for an image of one frame. -> (1, T, C)"""
    image, index = patch_images(x, grid)
    frame = index // (grid[:, 1] * grid[:, 2])[image]
    size = x.shape[-1]
    frequencies = 1.0 / 10000.0 ** (torch.arange(0, size, 2, device=x.device).float() / size)
    angles = frame[:, None] * frequencies
    waves = torch.cat((angles.sin(), angles.cos()), dim=-1)
    return (waves * (grid[image, :1] > 1))[None].to(x.dtype)


def mean_of_frames(x: Tensor, grid: Tensor, merge: int) -> Tensor:
    """Blocks of merge x merge neighbours, row by row, each patch the mean over the frames of its image.

    x (1, T, C) -> (blocks, merge ** 2, C)
    """
    row, column = patch_coordinates(x, grid, 1)
    image, _ = patch_images(x, grid)
    patches = grid[:, 1] * grid[:, 2]
    first = patches.cumsum(0) - patches
    block = row // merge * (grid[image, 2] // merge) + column // merge
    place = first[image] + block * merge * merge + row % merge * merge + column % merge
    total = (
        torch.zeros_like(x[0]).index_add(0, place, x[0] / grid[image, :1]).unflatten(0, (-1, merge * merge))
    )
    return total[torch.arange(len(total), device=x.device) < patches.sum() // merge**2]


def grids_of_images(pixels: Tensor, sizes: Tensor | None, patch: int) -> Tensor:
    """Frames (one), rows and columns of patches of every image; without sizes all are as large as the batch.

    pixels (B, C, Y, X), sizes (B, 2) in pixels -> (B, 3)
    """
    if sizes is None:
        sizes = torch.tensor(pixels.shape[2:], device=pixels.device).expand(pixels.shape[0], 2)
    return F.pad(sizes.to(pixels.device).long() // patch, (1, 0), value=1)


def pack_images(x: Tensor, grid: Tensor) -> Tensor:
    """The patches that belong to the images, in one row. x (B, C, Y, X), grid (B, 3) -> (1, T, C)"""
    row = torch.arange(x.shape[2], device=x.device)[:, None] < grid[:, 1, None, None]
    column = torch.arange(x.shape[3], device=x.device) < grid[:, 2, None, None]
    x = x.permute(0, 2, 3, 1)[row & column]
    torch._check(x.shape[0] != 0, lambda: "no patch belongs to an image")  # a dynamic export asks
    return x[None]


def end_rows(x: Tensor, end: Tensor, grid: Tensor, merge: int) -> Tensor:
    """Merged patches with a vector behind each row of each image. x (N, C), end (C,) -> (N + rows, C)"""
    widths = torch.repeat_interleave(grid[:, 2] // merge, grid[:, 0] * (grid[:, 1] // merge))
    row = torch.repeat_interleave(torch.arange(len(widths), device=x.device), widths)
    places = torch.arange(len(x), device=x.device) + row
    return end.repeat(len(x) + len(widths), 1).index_copy(0, places, x)


def enclose_images(x: Tensor, begin: Tensor, end: Tensor, grid: Tensor, merge: int) -> Tensor:
    """What end_rows gives, with a vector before and one behind each image. -> (N + rows + 2 * images, C)"""
    counts = grid[:, 0] * (grid[:, 1] // merge) * (grid[:, 2] // merge + 1)
    image = torch.repeat_interleave(torch.arange(len(grid), device=x.device), counts)
    places = torch.arange(len(x), device=x.device) + 2 * image + 1
    last = (counts + 2).cumsum(0) - 1
    enclosed = begin.repeat(len(x) + 2 * len(grid), 1).index_copy(0, last, end.expand(len(grid), -1))
    return enclosed.index_copy(0, places, x)


def positions_nearest(table: Tensor, x: Tensor, grid: Tensor) -> Tensor:
    """The place in a square table on which each patch of an image falls. table (N * N, C) -> (1, T, C)"""
    side = math.isqrt(table.shape[0])
    row, column = patch_coordinates(x, grid, 1)
    image, _ = patch_images(x, grid)
    edges = torch.arange(1 / side, 1.0, 1 / side, device=x.device)
    rows = torch.bucketize(row / grid[image, 1], edges, right=True)
    columns = torch.bucketize(column / grid[image, 2], edges, right=True)
    return F.embedding(rows * side + columns, table)[None]
