"""Maps of an image in several sizes. Maps are (B, C, Y, X)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def last_of_sizes(maps: list[Tensor]) -> list[Tensor]:
    """The last feature map (B, C, H, W) of each size, in their order: what is left before the next step."""
    sizes = [each.shape[2:] for each in maps]
    return [each for at, each in enumerate(maps) if sizes[at] not in sizes[at + 1 :]]


def map_of_width(maps: list[Tensor], width: int) -> Tensor:
    """The coarsest map (B, width, H, W) of so many channels. IndexError where there is none."""
    return [each for each in maps if each.shape[1] == width][-1]


def resize_as(x: Tensor, like: Tensor, align_corners: bool) -> Tensor:
    """x (B, C, h, w) as large as like (B, D, H, W), by linear interpolation."""
    return F.interpolate(x, size=like.shape[2:], mode="bilinear", align_corners=align_corners)


def squared_difference(x: Tensor) -> Tensor:
    """How far unit vectors of the first half of x (2B, C, H, W) are from the other half's: (B, C, H, W)."""
    one, other = (x / (x.square().sum(dim=1, keepdim=True).sqrt() + 1e-10)).chunk(2)
    return (one - other).square()
