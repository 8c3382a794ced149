"""How long maps are: what a convolution or a pooling makes of an extent, and which inputs give what a later layer reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat

LONGEST = 4096  # sizes of an input that are tried
OBLONG = 4  # times that one side is longer than the other: beyond that some answer is likelier to be wrong


@dataclass(frozen=True)
class Window:
    """A convolution or a pooling along one axis."""

    kernel: int
    stride: int = 1
    before: int = 0  # padding
    after: int = 0
    dilation: int = 1
    is_transposed: bool = False
    more: int = 0  # output padding of a transposed convolution
    is_ceiled: bool = False  # whether the last one may reach beyond what is padded

    def gives(self, extent: int) -> int:
        """The extent of what comes out."""
        reach = self.dilation * (self.kernel - 1)
        if self.is_transposed:
            return (extent - 1) * self.stride - self.before - self.after + reach + 1 + self.more
        if self.is_ceiled:
            return -((reach + 1 - extent - self.before - self.after) // self.stride) + 1
        return (extent + self.before + self.after - reach - 1) // self.stride + 1


def through(windows: Iterable[Window], extent: int) -> int:
    """What is left of an extent; 0 where nothing is."""
    for window in windows:
        extent = window.gives(extent)
        if extent < 1:
            return 0
    return extent


def inputs_for(axes: list[list[Window]], places: int) -> tuple[int, ...] | None:
    """The smallest input that leaves so many places, of equal sides where there is one; sides that no window touches are 1."""
    flat = [len(axes) > 1 and all(window.kernel == 1 for window in windows) for windows in axes]
    for side in range(1, LONGEST):
        extents = tuple(1 if is_flat else side for is_flat in flat)
        left = 1
        for windows, extent in zip(axes, extents, strict=True):
            left *= through(windows, extent)
        if left == places:
            return extents
        if left > places:
            break
    if len(axes) == 3:
        return _deep(axes, places)
    return _oblong(axes, places) if len(axes) == 2 and not any(flat) else None


def _deep(axes: list[list[Window]], places: int) -> tuple[int, ...] | None:
    """The input of one depth and two equal sides of which the fewest frames are left."""
    for count in (count for count in range(1, places + 1) if places % count == 0):
        depth, sides = _side(axes[0], count), inputs_for(axes[1:], places // count)
        if depth is not None and sides is not None:
            return (depth, *sides)
    return None


def _oblong(axes: list[list[Window]], places: int) -> tuple[int, ...] | None:
    """The input of two sides of which what is left is as alike as can be."""
    counts = [count for count in range(1, places + 1) if places % count == 0]
    pairs = [(places // count, count) for count in counts if 1 / OBLONG <= places / count**2 <= OBLONG]
    for pair in sorted(pairs, key=lambda pair: (abs(pair[0] - pair[1]), -pair[0])):
        sides = [_side(windows, left) for windows, left in zip(axes, pair, strict=True)]
        if None not in sides:
            return tuple(side for side in sides if side is not None)
    return None


def _side(windows: list[Window], left: int) -> int | None:
    """The smallest extent of which so much is left."""
    return next((extent for extent in range(1, LONGEST) if through(windows, extent) == left), None)


def numbers(text: str, count: int) -> tuple[int, ...] | None:
    """`2` or `2x1`, for each of `count` axes; None for anything else."""
    words = text.split("x")
    if not all(word.isdecimal() and len(word) < 6 for word in words) or len(words) not in (1, count):
        return None
    return tuple(map(int, words)) if len(words) == count else tuple(repeat(int(words[0]), count))


def written(values: tuple[int, ...]) -> str:
    """Numbers as an argument: `2`, or `(2, 1)`."""
    return str(values[0]) if len(set(values)) == 1 else f"({', '.join(map(str, values))})"
