"""The order of a chain: what one layer gives is what the next one reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

from mapper.architecture import Place
from mapper.inference.chains.doubts import begins_later, is_inverted, is_round
from mapper.inference.chains.elements import (
    LINEAR,
    Element,
)
from mapper.inference.chains.links import MAPS, START, Data, Link, follow, joining
from mapper.inference.chains.naming import (
    DECODER,
    ENCODER,
    counts_down,
    first_number,
    is_on_the_way_up,
    listed_before,
    natural,
    number_of,
    numbered_before,
    ranked,
)
from mapper.inference.chains.reach import may_be_chain
from mapper.inference.chains.skips import must_join
from mapper.inference.leaf_shapes import weight_shape

INPUT = -1  # in place of the number of a layer: what the network reads
LAYERS = 400  # of a chain
TRIED = 100_000  # layers that are tried at some place, in all, before there is no order
_TRIED_AGAIN = 5_000  # the same for a second order, which is only told of
_DOUBTED = 200  # the same before it is asked whether there can be one
_FIRST = 0  # of the words for what reads the input itself


@dataclass(frozen=True)
class Head:
    """Layers one after the other whose last gives an output of its own."""

    links: tuple[Link, ...]
    at: int  # the number of the layer of the chain whose output they read, or INPUT


@dataclass(frozen=True)
class Order:
    """The layers of a chain one after the other, and those that stand beside it."""

    links: tuple[Link, ...]
    heads: tuple[Head, ...] = ()
    is_by_names: bool = False  # whether the sizes alone would allow another one
    is_filed: bool = False  # whether the file has them so


@dataclass
class Budget:
    """How much is still tried, and what speaks for an order."""

    left: int
    keeps_order: bool = False  # whether the container has layers as they were defined, not by their names
    is_interpolated: bool = False  # whether maps are made larger by what has no tensors


def in_line(
    elements: Sequence[Element],
    ranks: Mapping[str, int],
    budget: Budget,
    is_grouped: bool = False,
    is_joining: bool = False,
) -> Order | None:
    """An order without heads. The order of the file counts where it is not that of the names, which some containers sort by."""
    names = [element.name for element in elements]
    by_names = sorted(elements, key=lambda element: natural(element.name))
    is_told = names != sorted(names) and names != [element.name for element in by_names]
    if is_told or budget.keeps_order:
        links = (
            _linked(elements, is_grouped, is_joining, budget.is_interpolated)
            if _stand_apart(elements)
            else None
        )
        if links and not is_inverted(links, ranks):
            return Order(tuple(links), is_filed=True)
    if is_told:
        # norms may be defined after all that they stand between
        found = _searched(_Search(elements, {}, budget, is_grouped, is_joining), ranks)
        if found:
            return None if begins_later(found.links, elements, ranks) else found
    found = _searched(_Search(by_names, ranks, budget, is_grouped, is_joining), ranks)
    if found and is_round(found.links, by_names, ranks):
        return None
    by_letters = sorted(elements, key=lambda element: element.name)  # `fc21` may be the first of `fc2`
    if found or by_letters == by_names:
        return found
    return _searched(_Search(by_letters, ranks, budget, is_grouped, is_joining), ranks)


def _stand_apart(elements: Sequence[Element]) -> bool:
    """Whether each norm stands after a layer that it may be of: two in a row are no order of calls."""
    return not any(_is_second_norm(one, other) for one, other in pairwise(elements))


def _searched(search: _Search, ranks: Mapping[str, int]) -> Order | None:
    """An order found by sizes, but for one against the ranks of words."""
    found = (links for links in search.run() if not _is_backwards(links, ranks))
    first = next(found, None)
    if first is None and search.is_apart and search.budget.left > 0:
        search.is_apart = False
        return _searched(search, ranks)
    if first is None:
        return None
    search.budget.left = min(search.budget.left, _TRIED_AGAIN)
    return Order(first, is_by_names=next(found, None) is not None)


def _is_backwards(links: Sequence[Link], ranks: Mapping[str, int]) -> bool:
    """Whether what is called a decoder stands before what is called an encoder, or anything before what reads the input.

    The sizes of a U-Net allow that alone. Maps that were made larger from the first layer on go into no row.
    """
    if links[0].element.is_transposed and any(_reads_maps(link) for link in links):
        return True
    late = False
    for link in links:
        folders = (
            link.element.leaf.place[:-1] or link.element.leaf.place
        )  # `conv` at the end of a path is its kind
        rank = ranked(folders, ranks)
        if (late and rank <= ENCODER) or (rank == _FIRST and link is not links[0]):
            return True
        late = late or rank == DECODER
    return False


def _reads_maps(link: Link) -> bool:
    """Whether it makes a row of maps."""
    return link.before.form == MAPS and link.element.group == LINEAR


def _linked(
    elements: Sequence[Element], is_grouped: bool, is_joining: bool, is_interpolated: bool
) -> list[Link] | None:
    """The chain of layers that stand in order."""
    links: list[Link] = []
    for element in elements:
        is_read_twice = is_joining and id(element) in must_join(elements)
        before = links[-1].after if links else Data(START)
        link = None if is_read_twice else follow(before, element, is_grouped)
        link = joining(links, element, is_interpolated) if link is None and is_joining else link
        if link is None:
            return None
        links.append(link)
    return links


class _Search:
    """Looks for an order, what the names speak for first."""

    def __init__(
        self,
        elements: Sequence[Element],
        ranks: Mapping[str, int],
        budget: Budget,
        is_grouped: bool,
        is_joining: bool,
        is_apart: bool = True,
    ):
        self.elements, self.ranks, self.budget = elements, ranks, budget
        self.is_grouped, self.is_joining, self.is_apart = is_grouped, is_joining, is_apart
        self.must_join = must_join(elements) if is_joining else set()
        self.given = {element.outputs for element in elements}
        self.before = numbered_before(elements)
        self.listed = listed_before(elements)
        self.natural = {id(element): at for at, element in enumerate(elements)}
        self.rank = {id(element): ranked(element.leaf.place, ranks) for element in elements}
        self.number = {id(element): number_of(element.name) for element in elements}
        self.numbers = {number_of(element.name) for element in elements if element.is_main}
        self.mixed = {
            element.leaf.place[:-1] for element in elements if element.is_main
        }  # folders with layers
        if is_joining and counts_down(elements):
            self.falling()
        nothing: set[int] = set()
        self.rows = [
            (id(one), one, self.before.get(id(one)), self.listed.get(id(one), nothing)) for one in elements
        ]
        self.every = {key for key, *_ in self.rows}
        # of each layer, and of the start, what was found of those that may come next: it is asked on every way there
        self.preferred: dict[int, dict[int, tuple[object, ...]]] = {}

    def falling(self) -> None:
        """Lets numbers fall on the way up: `upconv2` stands before `upconv1`."""
        up = [one for one in self.elements if is_on_the_way_up(one, self.ranks)]
        fallen = sorted(up, key=lambda one: (-first_number(one), natural(one.name)))
        others = {key: before for key, before in self.before.items() if key not in set(map(id, up))}
        self.before = others | numbered_before(fallen)
        self.listed = {}

    def run(self) -> Iterator[tuple[Link, ...]]:
        """Every order, the likeliest first."""
        links: list[Link] = []
        waiting = [self.next(links, set())]
        doubted = self.budget.left - _DOUBTED
        while waiting:
            if self.budget.left < 0 or (self.budget.left < doubted and not self.may_end):
                return
            link = next(waiting[-1], None)
            if link is None:
                waiting.pop()
                del links[-1:]
                continue
            links.append(link)
            if len(links) == len(self.elements):
                yield tuple(links)
            waiting.append(self.next(links, {id(link.element) for link in links}))

    @cached_property
    def may_end(self) -> bool:
        """Whether there can be an order; layers that read earlier ones too may stand anywhere."""
        follows = partial(follow, is_grouped=self.is_grouped)
        return self.is_joining or may_be_chain(self.elements, Data(START), follows)

    def next(self, links: list[Link], taken: set[int]) -> Iterator[Link]:
        last = links[-1].element if links else None
        before = links[-1].after if links else Data(START)
        waiting = self.every - taken
        free = [
            element
            for key, element, first, listed in self.rows
            if key in waiting and first not in waiting and listed.isdisjoint(waiting)
        ]
        self.budget.left -= len(free)
        known = self.preferred.setdefault(id(last), {})
        for element in free:
            if id(element) not in known:
                known[id(element)] = self.preference(last, element)
        for element in sorted(free, key=lambda one: known[id(one)]):
            must_join = id(element) in self.must_join
            link = None if must_join else follow(before, element, self.is_grouped)
            link = self.joined(links, element) if link is None and self.is_joining else link
            if link is not None and not (self.is_apart and _is_second_norm(last, element)):
                yield link

    def joined(self, links: Sequence[Link], element: Element) -> Link | None:
        """The layer as one that reads earlier maps too."""
        return joining(links, element, self.budget.is_interpolated)

    def preference(self, last: Element | None, element: Element) -> tuple[object, ...]:
        """What comes first: a norm or slopes of the layer before, the same folder, the rank of its words, its number.

        At the start, what reads what no other layer gives.
        """
        number = self.number[id(element)]
        is_attached = last is not None and not element.is_main and self.number[id(last)] == number
        same = last is not None and last.leaf.place[:-1] == element.leaf.place[:-1] != ()
        is_listed = element.leaf.place.is_element and element.leaf.place[:-1] in self.mixed
        is_of_other = not (is_attached or element.is_main or is_listed)  # `bn2`, of `conv2`
        return (
            not is_attached,
            is_of_other and number != () and number in self.numbers,
            not same,
            last is None and not element.is_main and len(weight_shape(element.leaf)) == 1,
            last is None and element.is_main and element.inputs in self.given,
            self.rank[id(element)],
            self.natural[id(element)],
        )


def _is_second_norm(last: Element | None, element: Element) -> bool:
    """Whether it is a norm right behind a norm, or slopes behind slopes, which few networks have.

    Where a block of a list ends, a sum may stand between them: the next one may begin with a norm.
    """
    if last is None or last.group != element.group or element.is_main:
        return False
    folders = {Place(one.leaf.place[:-1]) for one in (last, element)}
    return len(folders) == 1 or not any(folder.is_element for folder in folders)
