"""Whether names speak for something else than the chain that sizes allow."""

from __future__ import annotations

from itertools import pairwise

from mapper.inference.chains.doubts import begins_anew, enters_halved, goes_on_behind_ends, is_parallel
from mapper.inference.chains.elements import EMBEDDING, LINEAR
from mapper.inference.chains.links import MAPS
from mapper.inference.chains.order import Head, Order
from mapper.inference.chains.residuals import is_called, is_of
from mapper.rulebook.chain import ChainWords


def is_doubtful(order: Order, words: ChainWords) -> bool:
    """Whether names or sizes speak for something else than a chain."""
    links = order.links
    if any(_is_weighing(head, words) for head in order.heads):
        return True
    if is_parallel(links) or enters_halved(links) or goes_on_behind_ends(links, words.ends):
        return True
    return (
        _is_queried(order, words)
        or _is_conditioned(order, words)
        or (not order.heads and begins_anew(links, words.order))
    )


def _is_queried(order: Order, words: ChainWords) -> bool:
    """Whether a layer behind a sequence is called a query: what is compared with it may be read next."""
    linear = (link for link in order.links if link.element.group == LINEAR and link.before.is_sequence)
    return any(is_called(link.element.leaf.place, words.querying) for link in linear)


def _is_conditioned(order: Order, words: ChainWords) -> bool:
    """Whether a table of labels stands before a wider layer: that may read the network's input beside one label (1411.1784)."""
    return any(
        one.element.group == EMBEDDING
        and link.element.group == LINEAR
        and link.element.inputs > one.element.outputs
        and any(is_of(part, words.labels) for part in one.element.leaf.place)
        for one, link in pairwise(order.links)
    )


def _is_weighing(head: Head, words: ChainWords) -> bool:
    """Whether others may read what a head weighs: positions, by its name, or channels, by fewer numbers inside."""
    before, last = head.links[0].before, head.links[-1]
    if before.form == MAPS and last.after.width == before.width > min(
        link.after.width for link in head.links
    ):
        return True
    is_score = last.after.width == 1 and head.links[0].before.is_sequence
    return is_score and any(is_of(part, words.weighing) for part in last.element.leaf.place)
