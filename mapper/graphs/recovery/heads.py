"""How many heads a projection is cut into: what the view of its result says."""

from __future__ import annotations

from typing import NamedTuple

from mapper.graphs.graph import Node
from mapper.graphs.recovery.figures import written
from mapper.graphs.recovery.lineage import Behind, Lineage
from mapper.graphs.recovery.scalars import whole_numbers
from mapper.graphs.recovery.wiring import Wiring


class Heads(NamedTuple):
    """The heads of one projection."""

    number: int
    size: int
    node: Node


def heads_of(wiring: Wiring, lineage: Lineage, behind: Behind) -> Heads | None:
    """The heads that a projection's result is viewed as: [..., heads, size] right behind it; None where that is not sure."""
    for node in behind.passed:
        if node.operator == "Reshape" and len(sizes := sizes_of(wiring, node.inputs[1])) > 3:
            before = lineage.behind(node.inputs[0])
            if before is None or any(_is_wide(wiring, other) for other in before.passed):
                continue
            count, size = sizes[-2:]
            width = _width(wiring, node, before)
            if not size or size < 1 or not width or width % size or count not in (-1, width // size):
                return None
            return Heads(width // size, size, node)
    return None


def _is_wide(wiring: Wiring, node: Node) -> bool:
    return node.operator == "Reshape" and len(sizes_of(wiring, node.inputs[1])) > 3


def _width(wiring: Wiring, view: Node, behind: Behind) -> int | None:
    """How many numbers of the layer's result are viewed: all of them, or one of equal parts."""
    parts = [node for node in behind.passed if node.operator in ("Split", "Slice")]
    if not parts:
        return behind.width
    node = wiring.producer(view.inputs[0])
    if node is None or parts != [node] or node.operator != "Split" or len(node.outputs) < 2:
        return None
    if len(node.inputs) > 1:
        cut = set((whole_numbers(ref) if (ref := wiring.constant(node.inputs[1])) else None) or [])
        return cut.pop() if len(cut) == 1 else None
    return behind.width // len(node.outputs) if behind.width % len(node.outputs) == 0 else None


def sizes_of(wiring: Wiring, name: str) -> list[int | None]:
    """The sizes of a view, as far as they are constants; [] where nothing is known."""
    known = _known(wiring, name)
    if known:
        return [*known]
    node = wiring.producer(name)
    if node is None or node.operator != "Concat" or node.domain:
        return []
    found: list[int | None] = []
    for part in node.inputs:
        found += _known(wiring, part) or [None]
    return found


def _known(wiring: Wiring, name: str) -> list[int]:
    """The whole numbers that a value always is; [] where that is not sure."""
    ref, node = wiring.constant(name), wiring.producers.get(name)
    if ref is not None:
        return whole_numbers(ref) or []
    number = wiring.number(name)
    said = [number] if number is not None else (written(node) or [] if node is not None else [])
    return [int(one) for one in said] if all(one.is_integer() for one in said) else []
