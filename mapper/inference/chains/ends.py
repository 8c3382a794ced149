"""Layers that nobody reads, and others that take an input though they may read more: that is asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, product
from typing import TYPE_CHECKING

from mapper.inference.chains.elements import CONVOLUTION, EMBEDDING, LINEAR, RECURRENT
from mapper.inference.chains.naming import natural

if TYPE_CHECKING:
    from mapper.inference.chains.nodes import Node, Sources

_INPUT = "inputs"


def ask_ends(sources: Sources) -> None:
    """Tables, and a mean and its spread, that nobody reads: a wider layer that takes an input may read them beside it.

    What the first layers of unlike blocks in one list read is asked, too: an input is the least that they may read. So is what a
    linear layer reads that would take an input of its own beside what nobody reads.
    """
    for name, texts in (
        *_blocks(sources),
        *_readings(sources),
        *_second_inputs(sources),
        *_gated_ends(sources),
    ):
        said, _ = sources.known[name]
        sources.open[name] = tuple(dict.fromkeys((*texts, said)))
        sources.known[name] = (said, "")


def _blocks(sources: Sources) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Blocks of one list that take inputs though each gives something else: no networks side by side, which give the same."""
    read = {name for names in sources.reads().values() for name in names}
    ends: dict[tuple[object, ...], set[int]] = {}
    for node in sources.nodes:
        if node.name not in read and (home := _list_of(node)):
            ends.setdefault(home, set()).add(node.gives.width)
    for node in sources.nodes:
        said = sources.known[node.name][0]
        if said in sources.inputs and len(ends.get(_list_of(node), ())) > 1:
            yield node.name, (said,)


def _second_inputs(sources: Sources) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Layers behind tables that take an input nobody else reads, while others give what nobody reads: no part of their own says so."""
    reads = sources.reads()
    read = {name for names in reads.values() for name in names}
    if not any(node.first.group == EMBEDDING for node in sources.nodes):
        return
    for node in sources.nodes:
        said, _ = sources.known[node.name]
        is_own = said in sources.inputs and [text for text, _ in sources.known.values()].count(said) == 1
        if not is_own or node.first.group != LINEAR or len(node.first.leaf.place) > 1:
            continue
        ends = [
            one
            for one in sources.nodes
            if one.name not in read and node.name not in origins([one.name], reads)
        ]
        if ends:
            yield node.name, tuple(_weighted(sources, node, ends))


def _gated_ends(sources: Sources) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Layers that are asked about, and what nobody reads and is twice as wide: a gate halves it."""
    read = {name for names in sources.reads().values() for name in names}
    ends = [node for node in sources.nodes if node.name not in read and node.first.group == CONVOLUTION]
    for name, texts in sources.open.items():
        inputs = sources.by_name[name].first.inputs
        found = [
            end
            for end in ends
            if end.gives.width == 2 * inputs
            and not _is_numbered_behind(end.name, name)
            and name not in origins([end.name], sources.reads())
        ]
        if found:
            yield name, (*(f"glu({end.name})" for end in found), *texts)


def _is_numbered_behind(end: str, name: str) -> bool:
    """Whether numbers of the same words put a layer behind another: `layer2.0.conv2`, and `layer1.0.conv1`."""
    tops = [one.partition(".")[0] for one in (end, name)]
    return len({re.sub(r"\d+", "#", top) for top in tops}) == 1 and natural(tops[0]) > natural(tops[1])


def _weighted(sources: Sources, node: Node, ends: Iterable[Node]) -> Iterator[str]:
    """What several scores of each position make of a sequence, each a row of its own (1703.03130)."""
    for end, one in product(ends, sources.nodes):
        is_whole = end.gives.width * one.gives.width == node.first.inputs
        if is_whole and one.first.group == RECURRENT and one.name in origins([end.name], sources.reads()):
            yield f"flatten(transposed(softmax({end.name})) @ {one.name})"


def _list_of(node: Node) -> tuple[object, ...]:
    """The list of blocks that a layer stands in; () where it is none's, or one of a list of layers."""
    place = node.first.leaf.place
    at = next((at for at, part in enumerate(place[:-1]) if isinstance(part, tuple)), 0)
    return tuple(place[:at])


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


def is_spread_of_read(node: Node, nodes: Iterable[Node], reads: Mapping[str, str]) -> bool:
    """Whether a layer reads what another of its sizes does that is read on: a spread beside a mean, of which no sample is drawn."""
    read = {name for text in reads.values() for name in text.replace("(", " ").replace(")", " ").split()}
    alike = (one for one in nodes if one is not node and _sizes(one) == _sizes(node))
    return any(reads[one.name] == reads[node.name] and one.name in read for one in alike)


def _sizes(node: Node) -> tuple[object, ...]:
    return node.first.group, node.first.inputs, node.first.outputs, node.first.kernel
