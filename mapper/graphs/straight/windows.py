"""What a convolution says of its window, as torch's layers and functions take it."""

from __future__ import annotations

from dataclasses import dataclass

from mapper.graphs.graph import Node
from mapper.graphs.straight.types import axes_of, integer


@dataclass(frozen=True)
class Window:
    """Along each axis: step, gap, and the padding where it is the same on both sides; else `edges` are put around before."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[int, ...]
    groups: int
    edges: tuple[int, ...] = ()  # as `F.pad` takes them

    def keywords(self) -> list[str]:
        """What is not as usual, by keyword."""
        parts = {"stride": self.strides, "padding": self.padding, "dilation": self.dilations}
        usual = {"stride": 1, "padding": 0, "dilation": 1}
        found = [f"{word}={one_or_all(part)}" for word, part in parts.items() if set(part) != {usual[word]}]
        return found + ([f"groups={self.groups}"] if self.groups > 1 else [])

    def around(self, text: str) -> str:
        """The input with its edges."""
        return f"F.pad({text}, {self.edges})" if any(self.edges) else text


def window(node: Node, kernel: tuple[int, ...]) -> Window | None:
    """The window of a convolution; None where its padding follows from the size of the input."""
    rank = len(kernel)
    strides, gaps, edges = (axes_of(node, None, word) for word in ("strides", "dilations", "pads"))
    steps, holes = tuple(strides or [1] * rank), tuple(gaps or [1] * rank)
    way = node.attributes.get("auto_pad", b"NOTSET")
    if way in (b"SAME_UPPER", b"SAME_LOWER"):
        if set(steps) != {1}:
            return None
        totals = [gap * (size - 1) for gap, size in zip(holes, kernel, strict=True)]
        small, large = [total // 2 for total in totals], [total - total // 2 for total in totals]
        edges = small + large if way == b"SAME_UPPER" else large + small
    elif way == b"VALID" or edges is None:
        edges = [0] * 2 * rank
    if not 1 <= rank <= 3 or not len(steps) == len(holes) == rank or len(edges) != 2 * rank or min(edges) < 0:
        return None
    before, behind = tuple(edges[:rank]), tuple(edges[rank:])
    groups = integer(node, "group", 1)
    if before == behind:
        return Window(steps, holes, before, groups)
    flat = tuple(count for pair in reversed(list(zip(before, behind, strict=True))) for count in pair)
    return Window(steps, holes, (0,) * rank, groups, flat)


def one_or_all(numbers: tuple[int, ...] | list[int]) -> str:
    """One number where all are equal."""
    return str(numbers[0]) if len(set(numbers)) == 1 else str(tuple(numbers))
