"""Numbers that are missing between two layers of one list: something without tensors stands there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mapper.architecture import Place
from mapper.inference.chains.elements import SLOPES, Element
from mapper.inference.chains.links import Link
from mapper.inference.chains.naming import DECODER, ENCODER, ranked


@dataclass(frozen=True)
class Gaps:
    """How many modules without tensors stand after each layer, where the numbers show it."""

    after: tuple[int | None, ...]  # None: nothing shows it
    outside: tuple[int | None, ...]  # the same of folders: `features.4.expand` is the last of features.4

    def why(self, at: int, links: Sequence[Link]) -> str:
        """`features.3 comes right after features.0` as evidence."""
        return f"numbers: {links[at].element.name}, then {links[at + 1].element.name}"


def gaps_of(links: Sequence[Link]) -> Gaps:
    """The gaps of a chain.

    A list in which no number is missing says nothing, as its forward may call functions, unless it holds its activations.
    """
    places = [link.element.leaf.place for link in links]
    lists = {place[:-1] for place in places if place.is_element}
    active = {link.element.leaf.place[:-1] for link in links if link.element.group == SLOPES}
    telling = {folder for folder in lists if folder in active or _has_gaps(folder, places)}
    after = [_between(one, other, telling) for one, other in pairwise(places)]
    outside = [_outside(one, other, places) for one, other in pairwise(places)]
    return Gaps((*after, None), (*outside, None))


def is_code(links: Sequence[Link], at: int, ranks: Mapping[str, int]) -> bool:
    """Whether a layer is the last of an encoder's list and a decoder's begins behind it: what it gives is often a code without an activation.

    Not where each is a single layer, between which the one activation stands that there is.
    """
    if at + 1 >= len(links):
        return False
    one, other = (link.element.leaf.place for link in links[at : at + 2])
    lists = [[link for link in links if link.element.leaf.place[:-1] == place[:-1]] for place in (one, other)]
    is_listed = one.is_element and other.is_element and one[:-1] != other[:-1]
    is_behind = is_turn(links[at].element, links[at + 1].element, ranks)
    return is_listed and is_behind and max(map(len, lists)) > 1


def is_turn(one: Element, other: Element, ranks: Mapping[str, int]) -> bool:
    """Whether one layer is called an encoder's and the next a decoder's."""
    return (ranked(one.leaf.place, ranks), ranked(other.leaf.place, ranks)) == (ENCODER, DECODER)


def _outside(one: Place, other: Place, places: Sequence[Place]) -> int | None:
    """How many numbers are missing between the folders of two layers, where some are in that list.

    Behind the last layer of a folder that is a list itself, more may stand in that folder: nothing shows it.
    """
    depth = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    if depth is None or not (Place(one[: depth + 1]).is_element and Place(other[: depth + 1]).is_element):
        return None
    if len(one) > depth + 1 and one.is_element:
        return None
    folder, ends = one[:depth], [Place(each[: depth + 1]) for each in (one, other)]
    numbered = [Place(place[: depth + 1]) for place in places if place[:depth] == folder]
    elements = [place for place in numbered if place.is_element]
    return _between(ends[0], ends[1], {folder}) if _has_gaps(folder, elements) else None


def _has_gaps(folder: tuple[object, ...], places: Sequence[Place]) -> bool:
    numbers = sorted({_number(place) for place in places if place[:-1] == folder})
    return numbers != list(range(numbers[0], numbers[-1] + 1))


def _between(one: Place, other: Place, telling: set[tuple[str | tuple[int, ...], ...]]) -> int | None:
    if one[:-1] != other[:-1] or one[:-1] not in telling or _number(other) <= _number(one):
        return None
    return _number(other) - _number(one) - 1


def _number(place: Place) -> int:
    last = place[-1]
    return last[0] if isinstance(last, tuple) else -1
