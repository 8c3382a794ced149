"""The state that a recurrent layer begins with: the last one of another, as between an encoder and a decoder (1406.1078)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, permutations
from typing import TYPE_CHECKING

from mapper.inference.chains.elements import RECURRENT
from mapper.inference.chains.ends import origins
from mapper.inference.chains.nodes import Node
from mapper.inference.chains.texts import names_in

if TYPE_CHECKING:
    from mapper.architecture import Leaf
    from mapper.inference.chains.answers import Answers

STATE = "chain.state"
_NONE = "none"
_LISTED = 6  # of stored states, in a question


def stored_of(
    nodes: Sequence[Node], answers: Answers, bare: Mapping[str, Leaf]
) -> dict[str, tuple[str, ...]]:
    """Layers that begin with numbers of no layer, the same for every input, by the names of these: as told, and asked where some are as wide."""
    found = {}
    for node in (node for node in nodes if node.first.group == RECURRENT):
        leaf, count = node.first.leaf, 2 if node.first.leaf.kind.startswith("LSTM") else 1
        size = next(info.shape[1] for name, info in leaf.tensors.items() if "weight_hh" in name)
        runs = sum(word.startswith("weight_hh") for word in leaf.tensors)
        wide = [name for name, one in bare.items() if _shape(one) in _shapes(runs, size)]
        among = tuple(", ".join(names) for names in islice(permutations(wide, count), _LISTED))
        told = answers.told_at(leaf, STATE)
        value = told or (answers.find(leaf, STATE, among=(*among, _NONE)) if among else "")
        names = names_in(value or "")
        if names and set(names) <= set(wide):
            if len(names) != count:
                raise answers.refuse(
                    leaf, STATE, str(value), f"{count} needed here, as in {', '.join(wide[:count])}"
                )
            found[node.name] = names
    return found


def _shapes(runs: int, size: int) -> list[tuple[int, ...]]:
    """How a state for each layer and direction may be stored."""
    return [(runs, size), (runs, 1, size), *([(size,)] if runs == 1 else [])]


def _shape(leaf: Leaf) -> tuple[int, ...]:
    return next(iter(leaf.tensors.values())).shape


def repeated(names: Sequence[str], bare: Mapping[str, Leaf], roles: Mapping[str, str], entry: str) -> str:
    """Stored states for every input there is: the expression of one, or of several as a tuple."""
    index = {1: "[None, None]", 2: "[:, None]"}
    texts = [
        f"{roles[name]}{index.get(len(_shape(bare[name])), '')}.expand(-1, {entry}.shape[0], -1).contiguous()"
        for name in names
    ]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def states_of(nodes: Sequence[Node], reads: Mapping[str, str], answers: Answers) -> dict[str, str]:
    """Layers that begin with the state in which another ends, by their names: as told, and asked where nobody reads that one."""
    recurrent = [node for node in nodes if node.first.group == RECURRENT]
    read = {name for text in reads.values() for name in names_in(text)}
    said = {name: names_in(text) for name, text in reads.items()}
    found = {}
    for node in recurrent:
        others = [
            one.name
            for one in recurrent
            if _is_alike(one, node) and node.name not in origins([one.name], said)
        ]
        free = tuple(name for name in others if name not in read)
        told = answers.told_at(node.first.leaf, STATE)
        if not told and not free:
            continue
        value = answers.find(node.first.leaf, STATE, among=(*free, _NONE))
        if value not in (None, _NONE, *others):
            allowed = ", ".join((*others, _NONE))
            raise answers.refuse(node.first.leaf, STATE, str(value), f"possible here: {allowed}")
        if value in others:
            found[node.name] = str(value)
    return found


def _is_alike(one: Node, other: Node) -> bool:
    """Whether two layers have states of the same form: of as many layers and directions, as wide."""
    shapes = [
        {name: info.shape for name, info in node.first.leaf.tensors.items() if "weight_hh" in name}
        for node in (one, other)
    ]
    return one is not other and one.first.leaf.kind == other.first.leaf.kind and shapes[0] == shapes[1]
