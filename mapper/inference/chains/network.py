"""The layers of a network that is no chain, each with what stands behind it."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from mapper.architecture import Leaf
from mapper.inference.chains.elements import LINEAR, Element, roles_by_number
from mapper.inference.chains.likely import is_likely
from mapper.inference.chains.links import Link
from mapper.inference.chains.naming import natural
from mapper.inference.chains.nodes import Node
from mapper.inference.chains.order import Order
from mapper.inference.chains.owners import nodes_of
from mapper.inference.chains.texts import sayable
from mapper.rulebook.chain import ChainWords


@dataclass(frozen=True)
class Woven:
    """The layers of such a network, each with what stands behind it."""

    nodes: tuple[Node, ...]
    rest: tuple[Leaf, ...]
    bare: tuple[Leaf, ...] = ()  # tensors of no layer that expressions name
    # What each layer reads in the chain that sizes and names make of them, where nobody says otherwise.
    before: Mapping[str, str] = field(default_factory=dict)

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
    order: Order | None = None,
) -> Woven | None:
    """The network that layers are that make no chain; None where their sizes say too little, unless it `is_told` what they read.

    `told` are the names of those of which that was said; of the others an `order` that there is says it.
    """
    nodes = nodes_of(elements, told, is_told)
    if nodes is None:
        return None
    nodes.sort(key=lambda node: natural(node.name))
    woven = Woven(tuple(nodes), tuple(rest), tuple(bare), _before(order) if order else {})
    if len({node.name for node in woven.nodes}) < len(woven.nodes):
        return None  # names that no expression tells apart
    return woven if is_told or is_likely(woven.nodes, words) else None


def _before(order: Order) -> dict[str, str]:
    """The layer that each one reads in an order, but for what reads several, or not all of one."""
    found = dict(_behind(order.links))
    for head in order.heads:
        last = [link for link in order.links[: head.at + 1] if link.element.is_main][-1:]
        found |= _behind([*last, *head.links])
    return found


def _behind(links: Sequence[Link]) -> Iterator[tuple[str, str]]:
    mains = [link for link in links if link.element.is_main]
    for before, link in pairwise(mains):
        is_half = link.element.group == LINEAR and link.groups > 1
        if not (before.arms or link.arms or link.joined or link.shuffle or is_half):
            yield sayable(link.element.name), sayable(before.element.name)
