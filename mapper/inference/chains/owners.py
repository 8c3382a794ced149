"""Behind which layers of a network that is no chain norms and slopes stand."""

from __future__ import annotations

from collections.abc import Container, Sequence

from mapper.inference.chains.elements import NORM, Element, shared_folders
from mapper.inference.chains.naming import natural, number_of
from mapper.inference.chains.nodes import Node

NODES = 64  # layers of such a network


def nodes_of(elements: Sequence[Element], told: Container[str] = ()) -> list[Node] | None:
    """Each layer with its norms and slopes; None where one of these belongs to none, or there are too many.

    A norm of which it was `told` what it reads stands by itself: behind a sum, say.
    """
    mains = [element for element in elements if element.is_main]
    before: dict[int, list[Element]] = {id(main): [] for main in mains}
    behind: dict[int, list[Element]] = {id(main): [] for main in mains}
    alone: list[Node] = []
    for element in (one for one in elements if not one.is_main):
        main, follower = _owner(element, mains), _follower(element, mains)
        if element.name in told:
            alone.append(Node((element,)))
        elif main is not None:
            behind[id(main)].append(element)
        elif follower is not None:
            before[id(follower)].append(element)
        elif element.group == NORM and element.outputs not in {one.outputs for one in mains}:
            alone.append(Node((element,)))
        else:
            return None
    nodes = [*alone, *(Node((*before[id(main)], main, *behind[id(main)])) for main in mains)]
    return nodes if 2 <= len(nodes) <= NODES else None


def _owner(element: Element, mains: Sequence[Element]) -> Element | None:
    """The layer that a norm or slopes stand behind: in the same list, by the same number, or the only one so wide."""
    fit = [
        main
        for main in mains
        if main.outputs == element.outputs or (element.group != NORM and element.outputs == 1)
    ]
    place = element.leaf.place
    if place.is_element:
        listed = [main for main in _within(element, fit) if natural(main.name) < natural(element.name)]
        return max(listed, key=lambda main: natural(main.name)) if listed else None
    numbers = number_of(element.name)
    folder = [main for main in fit if main.leaf.place[:-1] == place[:-1]]
    same = [main for main in folder if number_of(main.name) == numbers]
    for found in (same, folder, _nearest(element, fit), fit):
        if len(found) == 1:
            return found[0]
    return None


def _follower(element: Element, mains: Sequence[Element]) -> Element | None:
    """The layer that reads what a norm gives that its list begins with (1603.05027)."""
    listed = _within(element, mains) if element.leaf.place.is_element else []
    after = [main for main in listed if natural(main.name) > natural(element.name)]
    is_first = len(after) == len(listed)
    first = min(after, key=lambda main: natural(main.name)) if after and is_first else None
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
