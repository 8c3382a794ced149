"""Layers that nobody reads though others take an input that could hold what they give: whether it stands beside it is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import TYPE_CHECKING

from mapper.inference.chains.elements import EMBEDDING, LINEAR

if TYPE_CHECKING:
    from mapper.inference.chains.nodes import Node, Sources

_INPUT = "inputs"


def ask_ends(sources: Sources) -> None:
    """Tables, and a mean and its spread, that nobody reads: a wider layer that takes an input may read them beside it."""
    for name, texts in _readings(sources):
        said, _ = sources.known[name]
        sources.open[name] = tuple(dict.fromkeys((*texts, said)))
        sources.known[name] = (said, "")


def _readings(sources: Sources) -> Iterator[tuple[str, tuple[str, ...]]]:
    entering = [node for node in sources.nodes if sources.known[node.name][0] in sources.inputs]
    for names, width in _ends(sources):
        for node in entering:
            is_row = node.first.group == LINEAR and node.first.inputs > width
            if is_row and node.name not in origins(names, sources.reads()):
                rest = _other_input(sources, node, node.first.inputs - width)
                joined = " & ".join(names)
                yield node.name, (f"{joined} & {rest}", f"{rest} & {joined}")


def _other_input(sources: Sources, node: Node, width: int) -> str:
    """An input of this width; a new one where the layer alone reads its own."""
    known = next((name for name, each in sources.inputs.items() if each == width), "")
    own = sources.known[node.name][0]
    is_own = sum(text == own for text, _ in sources.known.values()) == 1
    return known or (own if is_own else f"{_INPUT}_{len(sources.inputs) + 1}")


def _ends(sources: Sources) -> Iterator[tuple[tuple[str, ...], int]]:
    """What nobody reads, with the width of what it gives together: all tables, the first of two layers of the same sizes."""
    read = {name for names in sources.reads().values() for name in names}
    free = [node for node in sources.nodes if node.name not in read]
    tables = [node for node in free if node.first.group == EMBEDDING]
    if tables:
        yield tuple(node.name for node in tables), sum(node.gives.width for node in tables)
    for one, other in combinations(free, 2):
        is_same = _sizes(one) == _sizes(other) and sources.known[one.name][0] == sources.known[other.name][0]
        if is_same and one.first.group == LINEAR and one.first.inputs > one.gives.width:
            yield (one.name,), one.gives.width


def origins(names: Iterable[str], reads: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Layers, and all that what they give comes of."""
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += reads.get(one, ())
    return seen


def _sizes(node: Node) -> tuple[object, ...]:
    return node.first.group, node.first.inputs, node.first.outputs, node.first.kernel
