"""A recurrent layer that reads what attention makes of its own last state: a loop over steps, which no expression says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mapper.inference.chains.elements import EMBEDDING, RECURRENT
from mapper.inference.chains.residuals import is_of

if TYPE_CHECKING:
    from mapper.inference.chains.nodes import Node
    from mapper.rulebook.chain import ChainWords

_LOOP = "'{0}' has room for more than '{1}' gives, and '{2}' stands beside it: where that compares its last state with another sequence (1409.0473), each step needs the one before, and no answer says such a loop"


def in_steps(nodes: Sequence[Node], words: ChainWords) -> list[str]:
    """Notes for decoders with attention at each step (paper 1409.0473): the questions asked of them lead nowhere."""
    recurrent = [node for node in nodes if node.first.group == RECURRENT]
    return [
        _LOOP.format(node.name, table.name, weighing.name)
        for node in recurrent
        if len(recurrent) > 1
        for table in _beside(node, nodes)[:1]
        if table.first.group == EMBEDDING and node.first.inputs > table.first.outputs
        for weighing in [one for one in _beside(node, nodes) if _weighs(one, words)][:1]
    ]


def _beside(node: Node, nodes: Sequence[Node]) -> list[Node]:
    """The layers of its folder, tables first."""
    top = node.first.leaf.place[:1]
    own = [one for one in nodes if one is not node and one.first.leaf.place[:1] == top]
    return sorted(own, key=lambda one: one.first.group != EMBEDDING) if len(node.first.leaf.place) > 1 else []


def _weighs(node: Node, words: ChainWords) -> bool:
    return any(is_of(part, words.weighing) for part in node.first.leaf.place)
