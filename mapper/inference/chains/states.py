"""The state that a recurrent layer begins with: the last one of another, as between an encoder and a decoder (1406.1078)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mapper.inference.chains.elements import RECURRENT
from mapper.inference.chains.ends import origins
from mapper.inference.chains.nodes import Node
from mapper.inference.chains.texts import names_in

if TYPE_CHECKING:
    from mapper.inference.chains.answers import Answers

STATE = "chain.state"
_NONE = "none"


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
