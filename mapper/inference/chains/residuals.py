"""Where what a layer or a block reads may be added to what it gives: both are equally wide."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from mapper.architecture import Place
from mapper.inference.chains.elements import CONVOLUTION, LINEAR, Element, Scale
from mapper.inference.chains.links import MAPS, START, Data, Link, follow
from mapper.inference.chains.naming import natural, number_of
from mapper.words import parts

BETWEEN = "between_activations"  # after one, and before another of the same kind
FIRST = "activation_first"  # before the first layer, too, but for what is added (1603.05027, without norms)
POOLED = "after_pooling"  # beside a branch with a stride (1610.02357)
ADDED = ("before_activation", "after_activation", BETWEEN)


_RUN = ""  # before what numbers alone show to be one block
_TWO_NUMBERS = re.compile(r"[A-Za-z]+(\d+)_\d+")


@dataclass(frozen=True)
class Span:
    """Layers from one to another, by their numbers in the chain."""

    first: int
    last: int
    is_block: bool  # a numbered folder with several layers; else one layer alone
    branch: tuple[Link, ...] = ()  # what its input goes through before it is added
    # How many channels it gives more than it reads, which padding alone may add to its input.
    widened: int = 0


Home = tuple[str | tuple[int, ...], ...]  # the folder of a block


def apart(
    elements: Sequence[Element], words: Container[str]
) -> tuple[list[Element], dict[Home, list[Element]]]:
    """The layers of a chain, and those that stand beside it in a block, by its folder."""
    main: list[Element] = []
    beside: dict[Home, list[Element]] = {}
    for element in elements:
        place = element.leaf.place
        at = next((at for at, part in enumerate(place) if is_of(part, words)), 0)
        if at:
            beside.setdefault(tuple(place[:at]), []).append(element)
        else:
            main.append(element)
    return main, beside


def apart_by_sizes(
    elements: Sequence[Element], scaling: Container[str]
) -> tuple[list[Element], dict[Home, list[Element]]]:
    """The same where no word says it: a convolution of one place from what its block reads to what that gives.

    The other convolutions of the folder make that way, too, and none of them reads what it gives. It has a norm of its own, or
    its name is the next of theirs: another may scale what they give, as one with one of the `scaling` words does, or be a head.
    """
    beside: dict[Home, list[Element]] = {}
    for element in elements:
        place = element.leaf.place
        homes = [tuple(place[:at]) for at in (len(place) - 1, len(place) - 2) if at > 0]
        homes = [] if any(is_of(part, scaling) for part in place) else homes
        home = next((home for home in homes if _goes_beside(element, elements, home)), None)
        if home is not None:
            own = [one for one in elements if one is element or _is_of_it(one, element, home, elements)]
            if len(own) > 1 or _is_of_series(element, elements, home):
                beside.setdefault(home, []).extend(own)
    taken = {id(one) for own in beside.values() for one in own}
    return [one for one in elements if id(one) not in taken], beside


def _goes_beside(element: Element, elements: Sequence[Element], home: Home) -> bool:
    """Whether it leads from what all other convolutions of a folder read, one after the other, to what they give."""
    folder = element.leaf.place[: len(home) + 1]
    others = [one for one in elements if tuple(one.leaf.place[: len(home)]) == home and one.is_main]
    others = [one for one in others if one is not element and not isinstance(one, Scale)]
    if not _is_point(element) or element.inputs == element.outputs or len(others) < 2:
        return False
    if not any(one.is_main and one.inputs == element.outputs for one in elements if one not in others):
        return False
    if any(
        one.group != CONVOLUTION or one.is_transposed or one.leaf.place[: len(folder)] == folder
        for one in others
    ):
        return False
    in_names = sorted(others, key=lambda one: natural(one.name))  # else as the file has them
    leads = any(_leads(order, element) for order in (in_names, others))
    return leads and any(set(one.kernel) != {1} for one in others)


def _is_of_series(element: Element, elements: Sequence[Element], home: Home) -> bool:
    """Whether its name is that of the other convolutions of its folder but for the number: `conv3` beside `conv1`, `conv2`."""
    inside = [one for one in elements if tuple(one.leaf.place[: len(home)]) == home and one.is_main]
    names = {str(one.leaf.place[-1]).rstrip("0123456789") for one in inside}
    return names == {str(element.leaf.place[-1]).rstrip("0123456789")}


def _leads(order: Sequence[Element], beside: Element) -> bool:
    """Whether layers one after the other lead from what another one reads to what that gives."""
    ways = [(beside.inputs, order[0].inputs), (order[-1].outputs, beside.outputs)]
    ways += [(one.outputs, other.inputs) for one, other in pairwise(order)]
    return all(one == other for one, other in ways)


def _is_point(element: Element) -> bool:
    return element.group == CONVOLUTION and set(element.kernel) == {1} and not element.is_transposed


def _is_of_it(one: Element, element: Element, home: Home, elements: Sequence[Element]) -> bool:
    """Whether a norm is of it: in a folder of its own, or called so, where each convolution has one."""
    place, own = one.leaf.place, element.leaf.place
    if one.is_main or tuple(place[: len(home)]) != home:
        return False
    if len(own) > len(home) + 1:
        return place[: len(home) + 1] == own[: len(home) + 1]
    inner = [each for each in elements if tuple(each.leaf.place[: len(home)]) == home]
    each_has_one = len(inner) == 2 * sum(each.is_main for each in inner)
    name, word = str(place[-1]), str(own[-1])
    number = number_of(word)
    return each_has_one and (word in name or (bool(number) and number_of(name) == number))


def is_of(part: str | tuple[int, ...], words: Container[str]) -> bool:
    """Whether a part of a path has one of these words in it."""
    return isinstance(part, str) and any(word in words for word in parts(part))


def is_called(place: Sequence[str | tuple[int, ...]], words: Container[str]) -> bool:
    """Whether a folder is one of these words, or the last word of a path has one of them in it."""
    return any(part in words for part in place) or is_of(place[-1], words)


def branches_of(links: Sequence[Link], beside: Mapping[Home, Sequence[Element]]) -> list[Span] | None:
    """The blocks whose input goes through layers of its own; None where some do not fit around the others."""
    found: list[Span] = []
    for home, elements in beside.items():
        numbers = [at for at, link in enumerate(links) if tuple(link.element.leaf.place[: len(home)]) == home]
        if not numbers or numbers != list(range(numbers[0], numbers[-1] + 1)):
            return None
        before, after = links[numbers[0]].before, links[numbers[-1]].after
        in_names = sorted(elements, key=lambda element: natural(element.name))
        mains_first = sorted(in_names, key=lambda element: not element.is_main)
        is_numbered = all(element.leaf.place.is_element for element in elements)
        tried = [in_names, mains_first] if is_numbered else [mains_first, in_names]  # `bn` is of `conv`
        branch = next(filter(None, (_branch(before, after, one) for one in tried)), None)
        if branch is None:
            return None
        found.append(Span(numbers[0], numbers[-1], True, branch))
    return found


def _branch(before: Data, after: Data, elements: Sequence[Element]) -> tuple[Link, ...] | None:
    """Layers one after the other from what a block reads to what it gives, all of them maps."""
    links: list[Link] = []
    for element in elements:
        link = follow(links[-1].after if links else before, element, is_grouped=False)
        if link is None or link.after.form != MAPS:
            return None
        links.append(link)
    fits = links[-1].after.width == after.width and links[-1].after.form == after.form
    return tuple(links) if fits and before.form in (MAPS, START) else None


def with_links(spans: Sequence[Span], links: Sequence[Link]) -> list[Span]:
    """The spans with these links for those of their branches, one after the other."""
    left = iter(links)
    return [replace(span, branch=tuple(next(left) for _ in span.branch)) for span in spans]


def spans_of(links: Sequence[Link], known: Sequence[Span] = (), words: Container[str] = ()) -> list[Span]:
    """The blocks of a chain that could be residual, and the layers that could be by themselves, beside those that are known."""
    found: list[Span] = list(known)
    taken = {at for span in known for at in range(span.first, span.last + 1)}
    for folder, group in groupby(enumerate(links), key=lambda item: _home(item[1].element, words)):
        numbers = [at for at, _ in group]
        mains = [at for at in numbers if links[at].element.is_main]
        if taken.intersection(numbers):
            continue
        if folder[:1] == (_RUN,):
            found += _in_run(links, mains)
        elif folder and len(mains) > 1:
            first, last = links[numbers[0]], links[numbers[-1]]
            if _is_even(first, last):
                found.append(Span(numbers[0], numbers[-1], True))
            elif len(folder) > 1 and (more := _widened(first, last)):
                found.append(Span(numbers[0], numbers[-1], True, widened=more))
        else:
            found += [Span(at, end_of(links, at), False) for at in mains if _is_alone(links[at])]
    even = {_names(links, span) for span in found if span.is_block and not span.widened and not span.branch}
    wider = [span for span in found if span.widened and not _bulges(links, span) and not known]
    return [span for span in found if not span.widened or (span in wider and _names(links, span) in even)]


def _bulges(links: Sequence[Link], span: Span) -> bool:
    """Whether a block is wider within than at its end: such add their input only where it has as many channels (1801.04381)."""
    return max(link.after.width for link in links[span.first : span.last]) > links[span.last].after.width


def _widened(first: Link, last: Link) -> int:
    """How many channels a block gives more than it reads, all of them maps."""
    is_plain = first.before.form == last.after.form == MAPS and not first.joined
    return max(last.after.width - first.before.width, 0) if is_plain else 0


def _names(links: Sequence[Link], span: Span) -> tuple[str, ...]:
    """What the layers of a block are called, but for its own number: those of blocks alike have the same."""
    depth = len(block_of(links[span.first].element))
    places = (links[at].element.leaf.place[depth:] for at in range(span.first, span.last + 1))
    return tuple(str(Place(place)) for place in places)


def _in_run(links: Sequence[Link], mains: list[int]) -> list[Span]:
    """Blocks that numbers alone show (`conv2_1`, `conv2_2`, ...): two layers each behind the first one, or all of these."""
    rest = mains[1:]
    size = 2 if len(rest) % 2 == 0 else len(rest)
    blocks = [rest[at : at + size] for at in range(0, len(rest), size)] if len(rest) > 1 else []
    even = [block for block in blocks if _is_even(links[block[0]], links[block[-1]])]
    inside = {at for block in even for at in block}
    alone = (at for at in mains if at not in inside and _is_alone(links[at]))
    return [
        *(Span(block[0], end_of(links, block[-1]), True) for block in even),
        *(Span(at, end_of(links, at), False) for at in alone),
    ]


def _home(element: Element, words: Container[str]) -> Home:
    """The block that a layer belongs to: the folder; else (RUN, ..., the first number of `conv2_1` and `bn2_1`); empty for none."""
    if folder := block_of(element, words):
        return folder
    last = element.leaf.place[-1:]
    found = _TWO_NUMBERS.fullmatch(str(last[0])) if last else None
    return (_RUN, *element.leaf.place[:-1], found[1]) if found else ()


def block_of(element: Element, words: Container[str] = ()) -> tuple[str | tuple[int, ...], ...]:
    """The folder of a block that a layer stands in: `res1`, the innermost numbered one, or `layer1` of `layer1.conv2`; empty for none.

    `layer1` of `layer1.0` is no block but a list of modules, which adds nothing.
    """
    place = element.leaf.place
    for depth, part in enumerate(place[:-1], 1):
        if isinstance(part, str) and part[-1:].isdigit() and is_of(part, words):
            return tuple(place[:depth])
    ends = [depth for depth in range(1, len(place)) if isinstance(place[depth - 1], tuple)]
    if ends:
        return tuple(place[: ends[-1]])
    called = (depth for depth, part in enumerate(place[:-1], 1) if str(part)[-1:].isdigit())
    depth = next((depth for depth in called if isinstance(place[depth], str)), 0)
    return tuple(place[:depth])


def _is_even(first: Link, last: Link) -> bool:
    before, after = first.before, last.after
    is_even = before.form == after.form != START and before.width == after.width
    return is_even and not first.joined  # it reads another width


def _is_alone(link: Link) -> bool:
    is_odd = all(extent % 2 for extent in link.element.kernel)
    return link.element.group in (CONVOLUTION, LINEAR) and is_odd and _is_even(link, link)


def end_of(links: Sequence[Link], at: int) -> int:
    """The last of a layer's norms and slopes."""
    while at + 1 < len(links) and not links[at + 1].element.is_main:
        at += 1
    return at
