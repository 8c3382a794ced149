"""Where layers stand by the words and numbers of their names: `conv1` before `conv2`, an encoder before a decoder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from mapper.inference.chains.elements import Element
from mapper.words import parts

ENCODER = 2  # the last of the words for what comes before the middle
UNRANKED = 5  # of a word that says nothing about where it stands: in the middle
_UP = 6  # of the words for the way up
DECODER = 7  # of the words for what comes after the middle
KIND = 8  # of words for linear layers
_CONVOLUTION, _LAST = 4, 9  # of words for convolutions, and of those for what comes last
UP = (_UP, DECODER)
_NUMBERS = re.compile(r"\d+|(?<=[a-z])[A-Z]$")


def ranked(place: Sequence[str | tuple[int, ...]], ranks: Mapping[str, int]) -> int:
    """Where the words of a path stand in a network."""
    words = (word for part in place if isinstance(part, str) for word in parts(part))
    found = {ranks[word] for word in words if word in ranks}
    if _LAST in found <= {_CONVOLUTION, KIND, _LAST}:  # `conv_last`
        return _LAST
    return DECODER if DECODER in found else min(found, default=UNRANKED)  # `up1.conv` is of the decoder


def numbered_before(elements: Sequence[Element]) -> dict[int, int]:
    """For each layer the one before it of those whose names differ in numbers alone: `conv1` stands before `conv2`."""
    last: dict[str, Element] = {}
    found = {}
    for element in elements:
        stem = re.sub(r"\d+", "#", element.name)
        if stem in last:
            found[id(element)] = id(last[stem])
        last[stem] = element
    return found


def listed_before(elements: Sequence[Element]) -> dict[int, set[int]]:
    """For each layer that has a place of its own in a list those before it there: `fc.0` stands before `fc.2.1`.

    One that is wrapped in an element of its own has it, too: `blocks.2.norm` before `blocks.3.conv`.
    """
    found: dict[int, set[int]] = {}
    for members in _members(elements).values():
        alone = [(number, element) for number, element, is_alone in members if is_alone]
        for number, element, _ in members if alone else ():
            for other_number, other in alone:
                if number != other_number:
                    first, last = (element, other) if number < other_number else (other, element)
                    found.setdefault(id(last), set()).add(id(first))
    return found


def _members(
    elements: Sequence[Element],
) -> dict[Sequence[object], list[tuple[tuple[int, ...], Element, bool]]]:
    """The layers below each list: at which number, and whether they are its very elements, or alone in them."""
    found: dict[Sequence[object], list[tuple[tuple[int, ...], Element, bool]]] = {}
    folders = [
        tuple(element.leaf.place[: at + 1]) for element in elements for at in range(len(element.leaf.place))
    ]
    held = Counter(folders)
    for element in elements:
        place = element.leaf.place
        for at, part in enumerate(place):
            if at and isinstance(part, tuple):
                is_alone = held[tuple(place[: at + 1])] == 1
                found.setdefault(tuple(place[:at]), []).append((part, element, is_alone))
    return found


def natural(name: str) -> list[tuple[int, str]]:
    """Names with their numbers by value."""
    pieces = re.split(r"(\d+)", name)
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in pieces]


def is_on_the_way_up(element: Element, ranks: Mapping[str, int]) -> bool:
    """Whether a layer makes maps larger, or a word of its path says that it belongs to one that does."""
    named = (word for part in element.leaf.place if isinstance(part, str) for word in parts(part))
    return element.is_transposed or any(ranks.get(word) in (_UP, DECODER) for word in named)


def counts_down(elements: Sequence[Element]) -> bool:
    """Whether of layers that make maps larger those with higher numbers give more channels: a way up has fewer at its end."""
    larger = [element for element in elements if element.is_transposed]
    numbered = sorted(larger, key=first_number)
    widths = [element.outputs for element in numbered]
    return len(set(map(first_number, larger))) > 1 and widths == sorted(set(widths))


def first_number(element: Element) -> int:
    return int(next((number for number in number_of(element.name) if number.isdecimal()), 0))


def number_of(name: str) -> tuple[str, ...]:
    """The numbers in a name, and a capital at its end: `conv2` and `bn2` have the same, as `convA` and `bnA` have."""
    return tuple(_NUMBERS.findall(name))
