"""Behind which layers of a network that is no chain norms and slopes stand."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from operator import ne

from mapper.inference.chains.elements import NORM, Element, shared_folders
from mapper.inference.chains.naming import natural, number_of
from mapper.inference.chains.nodes import Node

NODES = 64  # layers of such a network


def nodes_of(
    elements: Sequence[Element], told: Container[str] = (), is_told: bool = False
) -> list[Node] | None:
    """Each layer with its norms and slopes; None where one of these belongs to none, or there are too many.

    A norm of which it was `told` what it reads stands by itself: behind a sum, say; and so does one that belongs to none
    where what layers read `is_told`.
    """
    mains = [element for element in elements if element.is_main]
    before: dict[int, list[Element]] = {id(main): [] for main in mains}
    behind: dict[int, list[Element]] = {id(main): [] for main in mains}
    norms = [element for element in elements if element.group == NORM]
    alone: list[Node] = []
    for element in (one for one in elements if not one.is_main):
        main, follower = _owner(element, mains, norms), _follower(element, mains)
        if element.name in told:
            alone.append(Node((element,)))
        elif main is not None:
            behind[id(main)].append(element)
        elif follower is not None:
            before[id(follower)].append(element)
        elif element.group == NORM and (is_told or element.outputs not in {one.outputs for one in mains}):
            alone.append(Node((element,)))
        else:
            return None
    nodes = [*alone, *(Node((*before[id(main)], main, *behind[id(main)])) for main in mains)]
    return nodes if 2 <= len(nodes) <= NODES else None


def _owner(element: Element, mains: Sequence[Element], norms: Sequence[Element]) -> Element | None:
    """The layer that a norm or slopes stand behind: in the same list, by the same number, or the only one so wide."""
    fit = [
        main
        for main in mains
        if main.outputs == element.outputs or (element.group != NORM and element.outputs == 1)
    ]
    place = element.leaf.place
    if place.is_element:
        if not _within(element, mains):
            return _in_list_beside(element, mains, norms)
        listed = [main for main in _within(element, fit) if natural(main.name) < natural(element.name)]
        return max(listed, key=lambda main: natural(main.name)) if listed else None
    numbers = number_of(element.name)
    folder = [main for main in fit if main.leaf.place[:-1] == place[:-1]]
    same = [main for main in folder if number_of(main.name) == numbers]
    called = [main for main in same if _differ_in_kind(element.name, main.name)]
    for found in (same, called, folder, _nearest(element, fit), fit):
        if len(found) == 1:
            return found[0]
    return None


def _differ_in_kind(one: str, other: str) -> bool:
    """Whether names differ in one word: `bn_block0_branch2a` is of `conv_block0_branch2a`."""
    words = re.split(r"[._]", one), re.split(r"[._]", other)
    return len(words[0]) == len(words[1]) and sum(map(ne, *words)) == 1


def _in_list_beside(element: Element, mains: Sequence[Element], norms: Sequence[Element]) -> Element | None:
    """The layer with the number of a norm that stands in a list of norms, in the only list of as many layers as wide."""
    place = element.leaf.place
    own = {one.leaf.place[-1]: one.outputs for one in norms if one.leaf.place[:-1] == place[:-1]}
    lists: dict[object, dict[object, Element]] = {}
    for main in (one for one in mains if one.leaf.place.is_element):
        lists.setdefault(main.leaf.place[:-1], {})[main.leaf.place[-1]] = main
    fit = [found for found in lists.values() if {at: one.outputs for at, one in found.items()} == own]
    return fit[0].get(place[-1]) if len(fit) == 1 else None


def _follower(element: Element, mains: Sequence[Element]) -> Element | None:
    """The layer that reads what a norm gives that its list begins with (1603.05027)."""
    listed = _within(element, mains) if element.leaf.place.is_element else []
    after = [main for main in listed if natural(main.name) > natural(element.name)]
    is_first = len(after) == len(listed)
    first = min(after, key=lambda main: natural(main.name)) if after and is_first else None
    if not element.leaf.place.is_element:  # `rnns.1.norm.module` is of `rnns.1.rnn`
        near = _nearest(element, mains)
        first = near[0] if len(near) == 1 else None
    return first if first is not None and first.inputs == element.outputs else None


def _within(element: Element, mains: Sequence[Element]) -> list[Element]:
    """The layers of the list that an element stands in, also in folders of it."""
    folder = element.leaf.place[:-1]
    return [main for main in mains if main.leaf.place[: len(folder)] == folder]


def _nearest(element: Element, mains: Sequence[Element]) -> list[Element]:
    """Of layers those in whose folder, or that around it, an element stands: `unit0.adn.A` is of `unit0.conv`."""
    shared = [shared_folders(element.leaf, main.leaf) for main in mains]
    most = max(shared, default=0)
    return [main for main, count in zip(mains, shared, strict=True) if count == most > 0]
