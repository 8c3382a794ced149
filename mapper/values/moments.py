"""Mean, deviation, extremes and counts of numbers that pass by in pieces, and an even sample of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.values.result import Histogram

Array = NDArray[Any]

SAMPLE = 2**14  # numbers, evenly over a tensor: a histogram of them is right within a hundredth
BINS = 16
_WIDE = 4.0  # deviations on either side that a histogram shows at most; the outer bins hold the rest


class Moments:
    """What is known of the numbers that passed so far; exact but for rounding in float64 (Chan's way to join pieces)."""

    def __init__(self, size: int, width: int = 1):
        self.count = 0  # of finite numbers
        self.seen = 0
        self.mean = 0.0
        self.squares = 0.0  # of differences from the mean
        self.min, self.max = math.inf, -math.inf
        self.zeros = self.nan = self.inf = 0
        self._step = _step(size, width)
        self._sample: list[Array] = []

    def add(self, piece: Array) -> None:
        """Take the next numbers, flat."""
        with np.errstate(over="ignore", invalid="ignore"):  # a signalling NaN is one
            self._sample.append(np.array(piece[-self.seen % self._step :: self._step], np.float64))
            self.seen += len(piece)
            low, high = float(piece.min()), float(piece.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            piece = self._finite(piece)
            if not len(piece):
                return
            low, high = float(piece.min()), float(piece.max())
        if low <= 0 <= high:
            self.zeros += len(piece) - int(np.count_nonzero(piece))
        self.min, self.max = min(self.min, low), max(self.max, high)
        self._join(piece)

    def _finite(self, piece: Array) -> Array:
        nan, finite = np.isnan(piece), np.isfinite(piece)
        self.nan += int(nan.sum())
        self.inf += int((~finite).sum() - nan.sum())
        return piece[finite]

    def _join(self, piece: Array) -> None:
        if self.min == self.max:  # a constant has no deviation, whatever rounding says
            self.count, self.mean, self.squares = self.count + len(piece), self.min, 0.0
            return
        wide = piece.astype(np.float64)
        with np.errstate(over="ignore"):
            mean = float(wide.mean())
            wide -= mean
            squares = float(np.dot(wide, wide))
            count, apart = self.count + len(piece), mean - self.mean
            self.squares += squares + apart * apart * self.count * len(piece) / count
        self.mean += apart * len(piece) / count
        self.count = count

    @property
    def std(self) -> float:
        return math.sqrt(self.squares / self.count) if self.count else math.nan

    def sample(self) -> Array:
        """Finite numbers, evenly over the tensor, float64."""
        found = np.concatenate(self._sample) if self._sample else np.empty(0)
        return found[np.isfinite(found)]

    def histogram(self) -> Histogram | None:
        """Of the sample, within four deviations; None where there is nothing to be seen."""
        sample = self.sample()
        if not len(sample) or not self.std > 0 or not math.isfinite(self.std):
            return None
        middle, usual = float(np.median(sample)), float(sample.std())
        low, high = max(self.min, middle - _WIDE * usual), min(self.max, middle + _WIDE * usual)
        if not low < high:
            return None
        places = np.clip((sample - low) * (BINS / (high - low)), 0, BINS - 1).astype(np.int64)
        return Histogram(low, high, tuple(np.bincount(places, minlength=BINS).tolist()))


def _step(size: int, width: int) -> int:
    """How far the numbers of a sample stand apart: without a common divisor with the width of a row, so that no column is left out."""
    step = max(size // SAMPLE, 1)
    while step > 1 and math.gcd(step, max(width, 1)) > 1:
        step += 1
    return step


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """At most `most` of 0 to count - 1, evenly."""
    found: NDArray[np.int64] = np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))
    return found
