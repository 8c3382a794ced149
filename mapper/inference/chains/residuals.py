"""Where what a layer or a block reads may be added to what it gives: both are equally wide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from mapper.inference.chains.elements import CONVOLUTION, LINEAR, Element
from mapper.inference.chains.order import START, Link

ADDED = ("before_activation", "after_activation")


@dataclass(frozen=True)
class Span:
    """Layers from one to another, by their numbers in the chain."""

    first: int
    last: int
    is_block: bool  # a numbered folder with several layers; else one layer alone


def spans_of(links: Sequence[Link]) -> list[Span]:
    """The blocks of a chain that could be residual, and the layers that could be by themselves."""
    found: list[Span] = []
    for folder, group in groupby(enumerate(links), key=lambda item: block_of(item[1].element)):
        numbers = [at for at, _ in group]
        mains = [at for at in numbers if links[at].element.is_main]
        if folder and len(mains) > 1:
            found += [Span(numbers[0], numbers[-1], True)] * _is_even(links[numbers[0]], links[numbers[-1]])
        else:
            found += [Span(at, _end(links, at), False) for at in mains if _is_alone(links[at])]
    return found


def block_of(element: Element) -> tuple[str | tuple[int, ...], ...]:
    """The innermost numbered folder that a layer stands in; empty for none."""
    place = element.leaf.place
    ends = [depth for depth in range(1, len(place)) if isinstance(place[depth - 1], tuple)]
    return tuple(place[: ends[-1]]) if ends else ()


def _is_even(first: Link, last: Link) -> bool:
    before, after = first.before, last.after
    return before.form == after.form != START and before.width == after.width


def _is_alone(link: Link) -> bool:
    is_odd = all(extent % 2 for extent in link.element.kernel)
    return link.element.group in (CONVOLUTION, LINEAR) and is_odd and _is_even(link, link)


def _end(links: Sequence[Link], at: int) -> int:
    """The last of a layer's norms and slopes."""
    while at + 1 < len(links) and not links[at + 1].element.is_main:
        at += 1
    return at
