"""Drawn images: shapes of several kinds, places and sizes on plain ground."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NAMES = (
    "a circle", "a ring", "a square", "the outline of a square", "a diamond", "a vertical line", "a horizontal line",
    "a plus sign",
)  # fmt: skip
"""What the images show, in turn."""


def drawn_images(count: int, side: int) -> NDArray[np.float32]:
    """So many images [count, 3, side, side] between -1 and 1, always the same."""
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[0:side, 0:side] / side
    images = [_shape(at, rows, columns, random) for at in range(count)]
    grey = np.stack(images).astype(np.float32) * 2 - 1
    return np.repeat(grey[:, None], 3, axis=1)


def _shape(
    kind: int, rows: NDArray[np.float64], columns: NDArray[np.float64], random: np.random.Generator
) -> NDArray[np.bool_]:
    """One of eight shapes somewhere about the middle."""
    y, x = rows - random.uniform(0.35, 0.65), columns - random.uniform(0.35, 0.65)
    radius = random.uniform(0.18, 0.3)
    far, most = np.hypot(x, y), np.maximum(abs(x), abs(y))
    thin = radius / 3
    shapes = (
        far < radius,
        (far < radius) & (far > radius - thin),
        most < radius,
        (most < radius) & (most > radius - thin),
        abs(x) + abs(y) < radius,
        (abs(x) < thin) & (abs(y) < radius),
        (abs(y) < thin) & (abs(x) < radius),
        (np.minimum(abs(x), abs(y)) < thin) & (most < radius),
    )
    return shapes[kind % len(shapes)]
