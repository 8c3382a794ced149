"""Attention in windows over an image (Swin, paper 2103.14030). Images are (B, Y, X, C)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def flatten_patches(x: Tensor) -> Tensor:
    """Patches as a sequence, row by row. x (B, C, Y, X) -> (B, Y * X, C)"""
    return x.flatten(2).transpose(1, 2)


def pad_image(x: Tensor, size: int) -> Tensor:
    """Zeros below and to the right until both sides are multiples of size. x (B, C, Y, X)"""
    return F.pad(x, (0, -x.shape[3] % size, 0, -x.shape[2] % size))


def partition_windows(x: Tensor, size: int, shift: tuple[int, int]) -> Tensor:
    """Pads, shifts up and left, and cuts into windows. x (B, Y, X, C) -> (B * windows, size * size, C)"""
    x = F.pad(x, (0, 0, 0, -x.shape[2] % size, 0, -x.shape[1] % size))
    if any(shift):
        x = torch.roll(x, (-shift[0], -shift[1]), dims=(1, 2))
    x = x.unflatten(2, (-1, size)).unflatten(1, (-1, size)).transpose(2, 3)  # (B, n, m, size, size, C)
    return x.flatten(3, 4).flatten(0, 2)


def join_windows(windows: Tensor, x: Tensor, size: int, shift: tuple[int, int]) -> Tensor:
    """Undoes partition_windows of x. windows (B * windows, size * size, C), x (B, Y, X, C) -> (B, Y, X, C)"""
    height, width = x.shape[1], x.shape[2]
    rows, columns = (height + size - 1) // size, (width + size - 1) // size
    y = windows.unflatten(1, (size, size)).unflatten(0, (-1, rows, columns)).transpose(2, 3)
    y = y.flatten(3, 4).flatten(1, 2)
    if any(shift):
        y = torch.roll(y, shift, dims=(1, 2))
    return y[:, :height, :width]


def window_mask(x: Tensor, size: int, shift: tuple[int, int]) -> Tensor | None:
    """Keeps parts apart that only the shift brought together.

    x (B, Y, X, C) -> (B * windows, 1, S, S), S size ** 2
    """
    if not any(shift):
        return None
    rows, columns = (window_parts(x.shape[1 + at], size, shift[at], x.device) for at in (0, 1))
    parts = rows[:, None, :, None] * 3 + columns[None, :, None, :]  # (n, m, size, size)
    parts = parts.flatten(2).flatten(0, 1)
    mask = parts[:, None, :] == parts[:, :, None]
    return mask[:, None].repeat(x.shape[0], 1, 1, 1)


def window_parts(side: int, size: int, shift: int, device: torch.device) -> Tensor:
    """Which of three parts of a padded, shifted side each place belongs to. -> (windows, size)"""
    side = (side + size - 1) // size * size
    index = torch.arange(side, device=device)
    return ((index >= side - size).long() + (index >= side - shift).long()).unflatten(0, (-1, size))


def window_bias(table: Tensor, size: int) -> Tensor:
    """Bias of each pair in a window by its offset.

    table ((2 * size - 1) ** 2, H) -> (1, H, S, S), S size ** 2
    """
    index = torch.arange(size * size, device=table.device)
    row, column = index // size, index % size
    down, across = row[:, None] - row + size - 1, column[:, None] - column + size - 1
    return table[down * (2 * size - 1) + across].permute(2, 0, 1)[None]


def overlapping_bias(table: Tensor, size: int, outer: int) -> Tensor:
    """Bias of each place of a window for each of a larger one around it, by offset (HAT, paper 2205.04437).

    table ((size + outer - 1) ** 2, H), last the negative offsets -> (1, H, size ** 2, outer ** 2)
    """
    inner, around = (torch.arange(side, device=table.device) for side in (size, outer))
    apart = around - inner[:, None] + size - outer + 1  # (size, outer)
    index = apart[:, None, :, None] * (size + outer - 1) + apart[:, None]
    return table[index.flatten(2).flatten(0, 1)].permute(2, 0, 1)[None]


def merge_patches(x: Tensor) -> Tensor:
    """Joins each 2 x 2 patches into one.

    x (B, Y, X, C) -> (B, Y / 2, X / 2, 4 * C), down the first column first
    """
    x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
    return torch.cat((x[:, ::2, ::2], x[:, 1::2, ::2], x[:, ::2, 1::2], x[:, 1::2, 1::2]), dim=-1)


def image_bias(table: Tensor, height: int, width: int) -> Tensor:
    """Bias of each pair of places by its offset, with a class token before them (BEiT, paper 2106.08254).

    table ((2 * N - 1) ** 2 + 3, H), its last rows for class to patch, patch to class, class to itself;
    fitted to height x width patches -> (1, H, T, T) with T = 1 + height * width
    """
    side = math.isqrt(table.shape[0] - 3)
    image = table[:-3].unflatten(0, (side, side)).permute(2, 0, 1)[None]
    offsets = F.interpolate(image, (2 * height - 1, 2 * width - 1), mode="bilinear")[0].flatten(1)  # (H, ...)
    index = torch.arange(height * width, device=table.device)
    row, column = index // width, index % width
    down, across = row[:, None] - row + height - 1, column[:, None] - column + width - 1
    inner = F.pad(offsets[:, down * (2 * width - 1) + across], (1, 0, 1, 0))
    first = F.pad(table.new_ones(1, 1), (0, height * width, 0, height * width))
    to_patch = F.pad(table.new_ones(1, height * width), (1, 0, 0, height * width))
    last = table[-3:, :, None, None]
    return (inner + last[0] * to_patch + last[1] * to_patch.t() + last[2] * first)[None]


def partition_map(x: Tensor, size: int) -> Tensor:
    """Cuts an image into windows, with zeros below and to the right; 0 leaves it whole.

    x (B, Y, X, C) -> (B * windows, size, size, C)
    """
    return x if size == 0 else partition_windows(x, size, (0, 0)).unflatten(1, (size, size))


def merge_map(windows: Tensor, x: Tensor, size: int) -> Tensor:
    """Undoes partition_map of x, which may have had other channels.

    windows (B * windows, S, S, C) or (B * windows, S * S, C), x (B, Y, X, _) -> (B, Y, X, C)
    """
    channels = windows.shape[-1]
    if size == 0:
        return windows.reshape(*x.shape[:3], channels)
    return join_windows(windows.reshape(-1, size * size, channels), x, size, (0, 0))


def offset_bias(q: Tensor, rows: Tensor, columns: Tensor, grid: Tensor) -> Tensor:
    """Scores of each query with vectors for the vertical and the horizontal offset (MViTv2, 2112.01526).

    q (B, H, T, D), rows and columns (2 * N - 1, D), fitted to grid (B, Y, X, C), T = Y * X -> (B, H, T, T)
    """
    height, width = grid.shape[1], grid.shape[2]
    q = q.unflatten(2, (height, width))
    down = torch.einsum("bhyxd,ykd->bhyxk", q, offset_vectors(rows, height))
    across = torch.einsum("bhyxd,xkd->bhyxk", q, offset_vectors(columns, width))
    return (down[..., :, None] + across[..., None, :]).flatten(4).flatten(2, 3)


def offset_vectors(table: Tensor, size: int) -> Tensor:
    """The vector of each pair of places on a line. table (2 * N - 1, D), stretched -> (size, size, D)"""
    table = F.interpolate(table.t()[None], 2 * size - 1, mode="linear")[0].t()
    index = torch.arange(size, device=table.device)
    return table[index[:, None] - index + size - 1]


def side_shift(side: int, size: int, shift: int) -> int:
    """How far windows are shifted along a side: not at all where one window spans it."""
    return shift if side > size else 0


def log_offsets(x: Tensor, size: int, trained: int) -> Tensor:
    """Vertical and horizontal offset of each pair in a window, on a logarithmic scale (Swin v2, 2111.09883).

    `trained` is the side that the offsets were trained with, 0 if that is `size` -> ((2 * size - 1) ** 2, 2)
    """
    steps = torch.arange(1 - size, size, dtype=torch.float32, device=x.device)
    steps = steps / max((trained or size) - 1, 1) * 8
    steps = steps.sign() * (steps.abs() + 1).log2() / 3
    return torch.cartesian_prod(steps, steps).to(x.dtype)


def square_biases(table: Tensor, stride: int) -> Tensor:
    """Bias of every n-th place of a square for all, by how far apart their rows and columns are (LeViT).

    table (H, S * S) -> (H, n, S * S), n the places whose row and column divide by the stride
    """
    side = round(table.shape[1] ** 0.5)
    index = torch.arange(side, device=table.device)
    apart = (index[::stride, None] - index).abs()
    places = apart[:, None, :, None] * side + apart[:, None]
    return table[:, places.flatten(2).flatten(0, 1)]
