"""Means of a map inside of boxes, point by point: what RoI align is by its definition (paper 1703.06870)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def roi_align(maps: Tensor, boxes: Sequence[Tensor], count: int) -> Tensor:
    """Of each map (C, Y, X) and its boxes (N, 4), left, top, right, bottom in places -> (all N, C, count, count)."""
    found = [
        _cells(image, *box.tolist(), count) for image, own in zip(maps, boxes, strict=True) for box in own
    ]
    return torch.stack(found)


def _cells(image: Tensor, left: float, top: float, right: float, bottom: float, count: int) -> Tensor:
    wide, high = max(right - left, 1.0) / count, max(bottom - top, 1.0) / count
    across, down = math.ceil(wide), math.ceil(high)  # points of a cell
    cells = torch.zeros(image.shape[0], count, count)
    for row in range(count):
        for column in range(count):
            points = [
                (top + (row + (y + 0.5) / down) * high, left + (column + (x + 0.5) / across) * wide)
                for y in range(down)
                for x in range(across)
            ]
            cells[:, row, column] = torch.stack([_at(image, *point) for point in points]).mean(0)
    return cells


def _at(image: Tensor, y: float, x: float) -> Tensor:
    """Between the four places around a point; nothing more than one place outside."""
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros(image.shape[0])
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    y, x = y - top, x - left
    above = (1 - x) * image[:, top, left] + x * image[:, top, right]
    return (1 - y) * above + y * ((1 - x) * image[:, bottom, left] + x * image[:, bottom, right])
