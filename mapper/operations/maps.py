"""Maps of an image in several sizes. Maps are (B, C, Y, X)."""

from __future__ import annotations

from torch import Tensor


def sizes_above(maps: list[Tensor]) -> list[tuple[int, int]]:
    """For each map, the coarsest first: the size of the next finer one; twice its own for the finest."""
    finest = maps[0].shape
    above = [(map.shape[2], map.shape[3]) for map in maps[:-1]]
    return [*above[::-1], (2 * finest[2], 2 * finest[3])]
