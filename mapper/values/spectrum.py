"""The largest singular value of a map, by power iteration, and whether a matrix is what an initialiser leaves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LARGEST = 2**24  # numbers of a map whose spectral norm is estimated: 64 MB of float32
STEPS = 8
_ENOUGH = 0.01  # relative growth from which on an estimate is taken
FRESH = 384  # rows and columns of the part of a matrix that is looked at
_LEAST = (
    64,
    16_384,
)  # of rows and of columns, and of numbers: fewer hide what a few hundred steps of training moved
_SIGMAS = 5.0
# Fourth moment over the squared variance: of a uniform, of a normal, and of a normal cut off at two deviations.
SHAPES = {"uniform": 1.8, "normal": 3.0, "truncated normal": 2.3662}


def spectral_norm(matrix: Array, steps: int = STEPS) -> float:
    """An estimate from below of the largest singular value of [outputs, inputs]; within a few percent after STEPS steps."""
    vector: Array = np.random.default_rng(0).standard_normal(size=(matrix.shape[1],)).astype(matrix.dtype)
    found = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(steps):
            length = float(np.linalg.norm(vector))
            if not 0 < length < math.inf:
                break
            image = matrix @ (vector / length)
            before, found = found, float(np.linalg.norm(image))
            if not before * (1 + _ENOUGH) < found < math.inf:
                break
            vector = image @ matrix
    return found


def fresh_shape(part: Array) -> str:
    """The distribution that [rows, columns] were drawn from, each number by itself; "" where training shows.

    Drawn numbers have no mean, one of three shapes, rows and columns of one size, and no direction that they stretch more than
    chance does: the spectral norm of a random matrix is (√rows + √columns) deviations (Marchenko and Pastur 1967). Training moves one
    of these by far more than the five standard errors that are allowed here.
    """
    rows, columns = part.shape
    if min(rows, columns) < _LEAST[0] or part.size < _LEAST[1]:
        return ""
    part = part.astype(np.float64)
    variance = float(part.var())
    if not variance > 0 or abs(float(part.mean())) > _SIGMAS * math.sqrt(variance / part.size):
        return ""
    part = part / math.sqrt(variance)
    kurtosis = float(np.mean(np.square(np.square(part))))
    error = math.sqrt(24 / part.size)
    shape = next((name for name, usual in SHAPES.items() if abs(kurtosis - usual) < _SIGMAS * error), "")
    if not shape or abs(float(np.mean(part**3))) > _SIGMAS * math.sqrt(15 / part.size):
        return ""
    if not all(_is_even(way, kurtosis) for way in (part, part.T)):
        return ""
    edge = math.sqrt(rows) + math.sqrt(columns)
    return shape if spectral_norm(part, 30) <= edge * (1 + min(rows, columns) ** (-2 / 3)) else ""


def _is_even(part: Array, kurtosis: float) -> bool:
    """Whether rows of numbers of deviation 1 differ in mean and size no more than drawn ones do."""
    rows, columns = part.shape
    room = 1 + _SIGMAS * math.sqrt(2 / (rows - 1))
    sizes, means = np.square(part).mean(axis=1), part.mean(axis=1)
    return float(sizes.var()) <= room * (kurtosis - 1) / columns and float(means.var()) <= room / columns
