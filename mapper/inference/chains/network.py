"""The layers of a network that is no chain, each with what stands behind it."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

from mapper.architecture import Leaf
from mapper.inference.chains.elements import Element, roles_by_number
from mapper.inference.chains.likely import is_likely
from mapper.inference.chains.naming import natural
from mapper.inference.chains.nodes import Node
from mapper.inference.chains.owners import nodes_of
from mapper.rulebook.chain import ChainWords


@dataclass(frozen=True)
class Woven:
    """The layers of such a network, each with what stands behind it."""

    nodes: tuple[Node, ...]
    rest: tuple[Leaf, ...]
    bare: tuple[Leaf, ...] = ()  # tensors of no layer that expressions name

    def elements(self) -> Iterator[Element]:
        for node in self.nodes:
            yield from node.elements

    def roles(self) -> list[str]:
        """`linear_1`, `linear_2`: what each is, by number."""
        return [
            *roles_by_number(self.elements()),
            *(f"parameter_{number}" for number in range(1, len(self.bare) + 1)),
        ]

    def leaves(self) -> list[Leaf]:
        """Every leaf, those of the network with their roles."""
        own = [*(element.leaf for element in self.elements()), *self.bare]
        pairs = zip(own, self.roles(), strict=True)
        return [*(replace(leaf, role=role, facts={}) for leaf, role in pairs), *self.rest]


def woven_of(
    elements: Sequence[Element],
    rest: Sequence[Leaf],
    words: ChainWords,
    is_told: bool,
    told: Container[str],
    bare: Sequence[Leaf] = (),
) -> Woven | None:
    """The network that layers are that make no chain; None where their sizes say too little, unless it `is_told` what they read.

    `told` are the names of those of which that was said.
    """
    nodes = nodes_of(elements, told, is_told)
    if nodes is None:
        return None
    nodes.sort(key=lambda node: natural(node.name))
    woven = Woven(tuple(nodes), tuple(rest), tuple(bare))
    return woven if is_told or is_likely(woven.nodes, words) else None
