"""Behind which layer a norm stands, where its sizes allow several and no name or number shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from mapper.architecture import Leaf
from mapper.inference.chains.answers import Answers
from mapper.inference.chains.elements import CONVOLUTION, NORM, SLOPES, Element, shared_folders
from mapper.inference.chains.links import START, Data, Link, follow, joining
from mapper.inference.chains.naming import number_of
from mapper.inference.chains.order import Order
from mapper.inference.chains.residuals import block_of
from mapper.words import parts

BEHIND, FIRST = "chain.normed", "chain.activation_before_norm"


def placed(order: Order, hints: Mapping[str, Any] | None) -> Order:
    """The order with norms where they were said to stand: behind which layer, and before or behind its slopes."""
    return _turned(_moved(order, hints), hints)


def _turned(order: Order, hints: Mapping[str, Any] | None) -> Order:
    """The order with each norm before the slopes of its layer, unless file or numbers show it or it was told."""
    told = {str(key): str(value).lower() for key, value in (hints or {}).items()}
    links = list(order.links)
    for at in unsettled(order.links, order.is_filed):
        one, other = links[at : at + 2]
        norm = one if one.element.group == NORM else other
        value = told.get(f"{norm.element.name}:{FIRST}", told.get(FIRST, "false"))
        if (one is norm) is (value == "true"):
            links[at : at + 2] = [replace(one, element=other.element), replace(other, element=one.element)]
    return replace(order, links=tuple(links))


def unsettled(links: Sequence[Link], is_filed: bool) -> list[int]:
    """Where a norm and slopes of one layer stand, and neither the file nor a list shows which comes first."""
    pairs = enumerate(pairwise(links))
    return [] if is_filed else [at for at, (one, other) in pairs if _may_turn(one.element, other.element)]


def _may_turn(one: Element, other: Element) -> bool:
    is_listed = one.leaf.place.is_element and one.leaf.place[:-1] == other.leaf.place[:-1]
    return {one.group, other.group} == {NORM, SLOPES} and not is_listed


def _moved(order: Order, hints: Mapping[str, Any] | None) -> Order:
    """The order with norms behind the layers that they were said to stand behind, where their sizes allow that."""
    told = {str(key).rpartition(":")[0]: value for key, value in (hints or {}).items() if _is_of(str(key))}
    moved = [link.element for link in order.links if link.element.group == NORM and link.element.name in told]
    elements = [link.element for link in order.links if link.element not in moved]
    for norm in moved:
        at = next((at for at, one in enumerate(elements) if one.name == told[norm.name]), None)
        if at is None:
            return order
        elements.insert(at + 1, norm)
    links = _linked(elements, order.links) if moved else None
    if links is None:
        return order
    number = {id(element): at for at, element in enumerate(elements)}
    heads = (replace(head, at=number.get(id(_read_by(order, head.at)), head.at)) for head in order.heads)
    return replace(order, links=tuple(links), heads=tuple(heads))


def _is_of(key: str) -> bool:
    return key.rpartition(":")[2] == BEHIND


def _read_by(order: Order, at: int) -> Element | None:
    return order.links[at].element if at >= 0 else None


def _linked(elements: Sequence[Element], before: Sequence[Link]) -> list[Link] | None:
    """The layers in this order; those that joined maps of earlier ones still do."""
    is_joined = {id(link.element) for link in before if link.joined}
    is_interpolated = not any(link.element.is_transposed for link in before)
    links: list[Link] = []
    for element in elements:
        data = links[-1].after if links else Data(START)
        is_read = id(element) in is_joined
        link = joining(links, element, is_interpolated) if is_read else follow(data, element)
        if link is None:
            return None
        links.append(link)
    return links


def ask(order: Order, links: Sequence[Link], answers: Answers) -> None:
    """Asks of each norm behind which layer it stands. Raises HintError for an answer that sizes do not allow.

    `links` are those of the order with the leaves that the blocks have.
    """
    taken = {link.element.name: before for before, link in pairwise(links)}
    for at in unsettled(links, order.is_filed):
        norm = links[at].element if links[at].element.group == NORM else links[at + 1].element
        answers.find(norm.leaf, FIRST, among=("false", "true"))
    among = doubtful(links) if order.is_by_names else {}
    for link in (link for link in links if link.element.group == NORM):
        name = link.element.name
        if name in among:
            value = answers.find(link.element.leaf, BEHIND, among=among[name])
        else:
            value = answers.told_at(link.element.leaf, BEHIND) or None
        if value is not None and (name not in taken or value != taken[name].element.name):
            raise answers.refuse(link.element.leaf, BEHIND, value, "the sizes allow no norm there")


def doubtful(links: Sequence[Link]) -> dict[str, tuple[str, ...]]:
    """Norms in an order by names that may stand behind several layers, each with these, that of the order first.

    Of as many norms of a width as there are layers none is: their order is that of the layers.
    """
    owners = _owners(links)
    unsure = [at for at, main in owners.items() if not _is_sure(links, at, main, owners)]
    sure = {main for at, main in owners.items() if at not in unsure}
    found: dict[str, tuple[str, ...]] = {}
    for at in unsure:
        free = [main for main in _as_wide(links, at) if main == owners[at] or main not in sure]
        alike = [other for other in unsure if owners[other] in free]
        if len(free) > len(alike):
            names = [links[main].element.name for main in (owners[at], *free)]
            found[links[at].element.name] = tuple(dict.fromkeys(names))
    return found


def main_of(links: Sequence[Link], at: int) -> Leaf:
    """The layer that a norm or slopes belong to; any other is its own, as is a norm that a numbered block begins with."""
    own = links[at].element
    found = next(link.element for link in links[at::-1] if link.element.is_main or link is links[0])
    blocks = [block_of(element) for element in (own, found)]
    is_first = bool(blocks[0]) and blocks[0] != blocks[1] and own.group == NORM
    return own.leaf if is_first else found.leaf


def _owners(links: Sequence[Link]) -> dict[int, int]:
    """The number of each norm's layer, by that of the norm."""
    found: dict[int, int] = {}
    main = -1
    for at, link in enumerate(links):
        if link.element.is_main:
            main = at
        elif link.element.group == NORM and main >= 0:
            found[at] = main
    return found


def _as_wide(links: Sequence[Link], at: int) -> list[int]:
    """The layers, but for the last one, that give what a norm reads."""
    mains = [number for number, link in enumerate(links) if link.element.is_main]
    owner = max(number for number in mains if number < at)
    after = links[owner].after
    return [
        number
        for number in mains
        if number == owner
        or (
            number != mains[-1]
            and links[number].after.width == after.width
            and links[number].after.form == after.form
        )
    ]


def _is_sure(links: Sequence[Link], at: int, main: int, owners: Mapping[int, int]) -> bool:
    """Whether a list, a folder, a number or a word that both share shows that a norm stands behind a layer."""
    norm, owner = links[at].element, links[main].element
    others = [links[number].element for number in _as_wide(links, at) if number != main]
    if norm.leaf.place.is_element:
        return owner.leaf.place[:-1] == norm.leaf.place[:-1] or _is_right_before(owner, norm)
    if norm.leaf.place[:-1] != owner.leaf.place[:-1]:
        nearest = max((shared_folders(norm.leaf, one.leaf) for one in others), default=0)
        return shared_folders(norm.leaf, owner.leaf) > nearest  # `unit0.adn.N` is of `unit0.conv`
    others = [one for one in others if one.leaf.place[:-1] == owner.leaf.place[:-1]]
    return not others or _is_numbered(links, main, norm, owners) or _shares_word(norm, owner, others)


def _is_right_before(owner: Element, norm: Element) -> bool:
    """Whether a layer stands in the element of a list right before a norm: `mconv.1.conv`, then `mconv.2`."""
    folder, number = norm.leaf.place[:-1], norm.leaf.place[-1]
    part = owner.leaf.place[len(folder) : len(folder) + 1]
    is_within = owner.leaf.place[: len(folder)] == folder and isinstance(number, tuple)
    return is_within and part == ((int(number[0]) - 1,),)


def _is_numbered(links: Sequence[Link], main: int, norm: Element, owners: Mapping[int, int]) -> bool:
    """Whether both have the same number: of a convolution of each channel by itself only if it does not share the norm with the next."""
    link = links[main]
    number = number_of(norm.name)
    if not number or number != number_of(link.element.name):
        return False
    following = next((at for at in range(main + 1, len(links)) if links[at].element.is_main), None)
    is_pair = link.groups > 1 and following is not None and _is_point(links[following].element)
    return not is_pair or following in owners.values()


def _is_point(element: Element) -> bool:
    return element.group == CONVOLUTION and set(element.kernel) == {1}


def _shares_word(norm: Element, owner: Element, others: Sequence[Element]) -> bool:
    """Whether a word of the norm's own name is in that of its layer, and of no other."""
    words = _words(norm) & _words(owner)
    return any(all(word not in _words(other) for other in others) for word in words)


def _words(element: Element) -> set[str]:
    last = element.leaf.place[-1]
    return set(parts(last)) if isinstance(last, str) else set()
