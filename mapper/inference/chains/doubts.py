"""What speaks against an order that sizes allow: words and numbers, or that they allow several beginnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from mapper.inference.chains.elements import CONVOLUTION, LINEAR, Element
from mapper.inference.chains.naming import (
    DECODER,
    ENCODER,
    KIND,
    UNRANKED,
    listed_before,
    numbered_before,
    ranked,
)
from mapper.words import parts

if TYPE_CHECKING:
    from mapper.inference.chains.links import Link

_TWO = 2  # folders that hold all layers


def is_round(links: Sequence[Link], elements: Sequence[Element], ranks: Mapping[str, int]) -> bool:
    """Whether linear layers could begin elsewhere as well: the first reads what a later one gives, and no word or number tells."""
    mains = [link.element for link in links if link.element.is_main]
    if not mains or any(element.group != LINEAR for element in mains):
        return False
    first, given = mains[0], {element.outputs for element in mains[1:]}
    if first.inputs not in given:
        return False
    before, listed = numbered_before(elements), listed_before(elements)
    free = [
        one for one in mains[1:] if id(one) not in before and id(one) not in listed and one.inputs in given
    ]
    rank = _rank(first, ranks)
    return any(_rank(one, ranks) == rank and one.inputs != first.inputs for one in free)


def begins_later(links: Sequence[Link], elements: Sequence[Element], ranks: Mapping[str, int]) -> bool:
    """Whether linear layers, or convolutions, begin with another than the first of the file, which no word tells to."""
    mains = (link.element for link in links if link.element.is_main)
    first, filed = next(mains, links[0].element), next((one for one in elements if one.is_main), elements[0])
    is_linear = all(element.group == LINEAR for element in elements)
    is_convolved = first.group == filed.group == CONVOLUTION and not (
        first.is_transposed or filed.is_transposed
    )
    if first is filed or not (is_linear or is_convolved):
        return False
    return _rank(first, ranks) >= _rank(filed, ranks)


def goes_on_behind_ends(links: Sequence[Link], words: set[str]) -> bool:
    """Whether layers called what gives outputs are read by others that are not: detectors have heads of several sizes (1512.02325)."""
    mains = [link.element for link in links if link.element.is_main]
    tops = [parts(str(part)) for element in mains for part in element.leaf.place[:1]]
    ends = [not words.isdisjoint(top) for top in tops]
    return any(one and not other for one, other in pairwise(ends))


def enters_halved(links: Sequence[Link]) -> bool:
    """Whether a linear layer that begins a folder would read one half of what there is, but as much as the first layer: the input, maybe."""
    mains = [link for link in links if link.element.is_main]
    return any(
        link.groups > 1
        and link.element.group == LINEAR
        and link.element.inputs == mains[0].element.inputs
        and link.element.leaf.place[:1] != before.element.leaf.place[:1]
        for before, link in pairwise(mains)
    )


def _rank(element: Element, ranks: Mapping[str, int]) -> int:
    """Where the words of a linear layer stand; one that says no more than that it is linear says nothing."""
    rank = ranked(element.leaf.place, ranks)
    return UNRANKED if rank == KIND else rank


def is_inverted(links: Sequence[Link], ranks: Mapping[str, int]) -> bool:
    """Whether folders called decoder and encoder stand in this order, as attributes may that are defined so."""
    found = [ranked(link.element.leaf.place[:-1], ranks) for link in links]
    folders = [rank for rank in found if rank in (ENCODER, DECODER)]
    return folders != sorted(folders)


def is_parallel(links: Sequence[Link]) -> bool:
    """Whether a convolution would read half of what one of its own sizes gives: both may read the same, one as a gate (1612.08083)."""
    mains = [link for link in links if link.element.is_main]
    return any(
        other.groups > 1 and other.element.inputs > 1 and sizes_of(one.element) == sizes_of(other.element)
        for one, other in pairwise(mains)
    )


def in_lists_alike(elements: Sequence[Element]) -> set[int]:
    """Square linear layers of lists of the same length side by side: one layer of each may read the same (1505.00387).

    So may convolutions of a bank: what others read together.
    """
    lists = _lists(elements, LINEAR)
    lists = {home: found for home, found in lists.items() if all(one.inputs == one.outputs for one in found)}
    alike: dict[tuple[object, ...], list[list[Element]]] = {}
    for home, found in lists.items():
        alike.setdefault((home[:-1], len(found), *map(sizes_of, found)), []).append(found)
    several = [one for group in alike.values() if len(group) > 1 for one in group]
    return {id(element) for each in (*several, *_banks(elements)) for element in each}


def _lists(elements: Sequence[Element], group: str) -> dict[tuple[object, ...], list[Element]]:
    """The layers of one kind that stand in lists, by the folders of these."""
    lists: dict[tuple[object, ...], list[Element]] = {}
    for element in elements:
        if element.group == group and element.leaf.place.is_element:
            lists.setdefault(tuple(element.leaf.place[:-1]), []).append(element)
    return lists


def _banks(elements: Sequence[Element]) -> Iterator[list[Element]]:
    """Lists of convolutions of other kernels each, as wide as they are long: another layer reads all of them together (1703.10135)."""
    square = [element for element in elements if element.inputs == element.outputs]
    read = {element.inputs for element in elements} - {element.outputs for element in elements}
    for found in _lists(square, CONVOLUTION).values():
        is_read = sum(element.outputs for element in found) in read
        if is_read and len({element.kernel for element in found}) == len(found) > 1:
            yield found


def sizes_of(element: Element) -> tuple[object, ...]:
    """What layers of the same sizes have in common."""
    return element.group, element.inputs, element.outputs, element.kernel


def begins_anew(links: Sequence[Link], ranks: Mapping[str, int]) -> bool:
    """Whether a second network may begin with a folder: as wide as the first one, and no word or number puts it behind that."""
    mains = [link.element for link in links if link.element.is_main and len(link.element.leaf.place) > 1]
    folders: dict[object, list[Element]] = {}
    for element in mains:
        folders.setdefault(element.leaf.place[0], []).append(element)
    if len(folders) != _TWO or len(mains) != sum(link.element.is_main for link in links):
        return False
    one, other = folders.values()
    words = {str(folder).rstrip("0123456789") for folder in folders}
    is_ranked = any(ranked(each[0].leaf.place[:1], ranks) != UNRANKED for each in (one, other))
    are_several = min(len(one), len(other)) > 1 and len(words) > 1
    return are_several and not is_ranked and one[0].inputs == other[0].inputs
