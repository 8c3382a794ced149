"""Maps of an image in several sizes. Maps are (B, C, Y, X)."""

from __future__ import annotations

import torch
from torch import Tensor


def patches_as_image(x: Tensor, pixels: Tensor, size: int) -> Tensor:
    """Patches behind one class token as an image of patches.

    x (B, 1 + T, C), pixels (B, _, Y, X) -> (B, C, y, x)
    """
    grid = (pixels.shape[2] // size, pixels.shape[3] // size)
    return x[:, 1:].transpose(1, 2).unflatten(2, grid)


def whole_patches(pixels: Tensor, size: int) -> tuple[int, int]:
    """Height and width of an image without what is left of its sides behind whole patches."""
    return pixels.shape[2] // size * size, pixels.shape[3] // size * size


def coarsest_first(maps: list[Tensor]) -> list[Tensor]:
    """The same in the order from the last to the first."""
    return maps[::-1]


def sizes_above(maps: list[Tensor]) -> list[tuple[int, int]]:
    """For each map, the coarsest first: the size of the next finer one; twice its own for the finest."""
    finest = maps[0].shape
    above = [(map.shape[2], map.shape[3]) for map in maps[:-1]]
    return [*above[::-1], (2 * finest[2], 2 * finest[3])]


def split_leading(x: Tensor, count: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    """What stands before an image in a row, and the image. x (B, N + Y * X, C) -> (B, N, C), (B, C, Y, X)"""
    return x[:, :count], x[:, count:].transpose(1, 2).unflatten(2, (height, width))


def join_leading(leading: Tensor, image: Tensor) -> Tensor:
    """An image in a row, behind what stands before it. (B, N, C), (B, C, Y, X) -> (B, N + Y * X, C)"""
    return torch.cat((leading, image.flatten(2).transpose(1, 2)), dim=1)
