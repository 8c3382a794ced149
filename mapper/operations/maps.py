"""Maps of an image in several sizes. Maps are (B, C, Y, X)."""

from __future__ import annotations

from torch import Tensor


def patches_as_image(x: Tensor, pixels: Tensor, size: int) -> Tensor:
    """Patches behind one class token as an image of patches.

    x (B, 1 + T, C), pixels (B, _, Y, X) -> (B, C, y, x)
    """
    grid = (pixels.shape[2] // size, pixels.shape[3] // size)
    return x[:, 1:].transpose(1, 2).unflatten(2, grid)


def sizes_above(maps: list[Tensor]) -> list[tuple[int, int]]:
    """For each map, the coarsest first: the size of the next finer one; twice its own for the finest."""
    finest = maps[0].shape
    above = [(map.shape[2], map.shape[3]) for map in maps[:-1]]
    return [*above[::-1], (2 * finest[2], 2 * finest[3])]
