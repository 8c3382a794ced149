"""What stands beside a chain: layers that read what others read too, each end an output of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations

from mapper.inference.chains.elements import CONVOLUTION, LINEAR, Element, Fork
from mapper.inference.chains.forks import is_forked, with_forks
from mapper.inference.chains.links import Data, Link, follow
from mapper.inference.chains.naming import natural
from mapper.inference.chains.order import INPUT, TRIED, Budget, Head, Order, in_line
from mapper.inference.chains.residuals import is_of
from mapper.inference.chains.skips import joins_earlier, may_enlarge_joined, may_interpolate
from mapper.rulebook.chain import ChainWords

_HEADS, _ALIKE = 4, 6  # heads of one chain, and layers of which any may be heads
_FOLDERS = 8  # of which any may be heads
_EACH = 20_000  # layers that are tried at some place for one choice of heads
_LAST = re.compile(r"(\d+|(?<=[A-Z0-9])[a-z])$")  # what tells layers of one head apart: `fc_value2`, `convPb`

Heads = tuple[tuple[Element, ...], ...]


def in_order(elements: Sequence[Element], words: ChainWords, keeps_order: bool = False) -> Order | None:
    """The order of layers, which stand as the file has them; None where their sizes make no chain.

    That convolutions have groups is believed where nothing else fits. `keeps_order` is said of a container that sorts no names.
    """
    is_joining, forked = joins_earlier(elements), with_forks(elements)
    for is_grouped in (False, True):
        budget = Budget(TRIED, keeps_order)
        if called := _with_spread(elements, words, budget, is_grouped, is_called=True):
            return called
        if is_joining or not is_forked(elements):
            found = in_line(elements, words.order, budget, is_grouped, is_joining)
            if found or is_joining:
                return found
        found = None
        if len(forked) < len(elements):
            found = in_line(forked, words.order, budget, is_grouped)
            found = None if found and _ends_in_heads(found) else found
        found = found or _with_spread(elements, words, budget, is_grouped)
        found = found or _with_heads(elements, words.order, budget, is_grouped)
        found = found or _side_by_side(elements, words, budget, is_grouped)
        if not found and may_enlarge_joined(elements):
            found = in_line(elements, words.order, Budget(TRIED, keeps_order), is_grouped, is_joining=True)
        if not found and may_interpolate(elements):
            wider = Budget(TRIED, keeps_order, is_interpolated=True)
            found = in_line(elements, words.order, wider, is_grouped, is_joining=True)
        if found:
            return found
    return None


def _ends_in_heads(order: Order) -> bool:
    """Whether parts of the whole that stand side by side are the last that there is: their outputs nobody reads together."""
    last = next((link.element for link in reversed(order.links) if link.element.is_main), None)
    return isinstance(last, Fork) and last.is_of_whole


def _with_spread(
    elements: Sequence[Element],
    words: ChainWords,
    budget: Budget,
    is_grouped: bool,
    is_called: bool = False,
) -> Order | None:
    """A mean that the next layer reads, and beside it a layer of the same sizes (a variational autoencoder, 1312.6114).

    With `is_called` only where names say which is the spread: then sizes that fit a chain of all layers say nothing.
    """
    for mean, spread in _twins(elements, words):
        if is_called and not any(is_of(part, words.spread) for part in spread.leaf.place):
            continue
        trunk = [element for element in elements if element is not spread]
        found = in_line(trunk, words.order, budget, is_grouped)
        at = next((at for at, link in enumerate(found.links) if link.element is mean), 0) if found else 0
        if found and 0 < at < len(found.links) - 1:
            beside = _behind(found.links[at - 1].after, [spread])
            if beside:
                return replace(found, heads=(Head(beside, at - 1),))
    return None


def _twins(elements: Sequence[Element], words: ChainWords) -> Iterator[tuple[Element, Element]]:
    """A mean and its spread: layers of the same sizes side by side, one called so, or told apart by their numbers alone."""
    for pair in combinations(elements, 2):
        one, other = pair
        same = [(each.group, each.inputs, each.outputs, each.kernel, each.leaf.place[:-1]) for each in pair]
        if one.group not in (LINEAR, CONVOLUTION) or same[0] != same[1] or one.inputs == one.outputs:
            continue
        called = [any(is_of(part, words.spread) for part in each.leaf.place) for each in pair]
        numbered = {re.sub(r"\d", "#", each.name) for each in pair}
        if called[0] != called[1]:
            yield (other, one) if called[0] else (one, other)
        elif len(numbered) == 1 and one.group == LINEAR:  # of convolutions one may as well be a gate
            yield one, other


def _with_heads(
    elements: Sequence[Element], ranks: Mapping[str, int], budget: Budget, is_grouped: bool
) -> Order | None:
    """Heads behind layers in an order: first where the file has these in it, which costs no search."""
    for each in (0, _EACH):
        for heads in (*_single(elements), *_several(elements)):
            if budget.left < 0:
                return None
            share = min(budget.left, each)
            own = replace(budget, left=share)
            found = _behind_trunk(elements, heads, ranks, own, is_grouped)
            if each:
                budget.left -= share - own.left
            if found and (each or found.is_filed):
                return found
    return None


def _behind_trunk(
    elements: Sequence[Element], heads: Heads, ranks: Mapping[str, int], budget: Budget, is_grouped: bool
) -> Order | None:
    """The other layers in an order, and these heads behind the last of them."""
    apart = {id(element) for head in heads for element in head}
    trunk = [element for element in elements if id(element) not in apart]
    found = in_line(trunk, ranks, budget, is_grouped) if trunk else None
    firsts = [head[0] for head in heads if len(head) == 1]
    if not found or any(_is_numbered_before(one, found.links[-1].element) for one in firsts):
        return None
    if any(
        _is_numbered_before(one, other) and one.outputs == other.inputs
        for one, other in permutations(firsts, 2)
    ):
        return None  # the later one may read what the earlier one gives
    ends = [_behind(found.links[-1].after, head) for head in heads]
    last = len(found.links) - 1
    return replace(found, heads=tuple(Head(end, last) for end in ends if end)) if all(ends) else None


def _is_numbered_before(one: Element, other: Element) -> bool:
    """Whether numbers say that a layer stands before another: `lin1`, of `lin2`."""
    stems = {re.sub(r"\d+$", "#", element.name) for element in (one, other)}
    return len(stems) == 1 and natural(one.name) < natural(other.name)


def _side_by_side(
    elements: Sequence[Element], words: ChainWords, budget: Budget, is_grouped: bool
) -> Order | None:
    """Several chains that read the same input, as their names say (an actor and a critic, 1602.01783)."""
    groups = _networks(elements, words)
    found = [in_line(group, words.order, budget, is_grouped) for group in groups]
    orders = [order for order in found if order is not None]
    if len(orders) != len(groups) or not 1 < len(groups) <= _HEADS:
        return None
    inputs = {(order.links[0].element.group, order.links[0].element.inputs) for order in orders}
    main, *others = orders
    heads = tuple(Head(order.links, INPUT) for order in others)
    return replace(main, heads=heads) if len(inputs) == 1 else None


def _networks(elements: Sequence[Element], words: ChainWords) -> list[list[Element]]:
    """The layers of each folder that is called so, with those at the top that share its word, or that nothing else is left for."""
    groups: dict[object, list[Element]] = {}
    for element in elements:
        groups.setdefault(element.leaf.place[:-1], []).append(element)
    alone = groups.pop((), [])
    if not all(any(is_of(part, words.beside) for part in folder) for folder in groups):  # type: ignore[attr-defined]
        return []
    free = dict(groups)
    for element in sorted(alone, key=lambda one: not _shared(one, free)):
        same = _shared(element, free) or (list(free) if len(free) == 1 else [])
        if len(same) != 1:
            return []
        groups[same[0]] = [*free.pop(same[0]), element]
    return list(groups.values())


def _shared(element: Element, folders: Mapping[object, object]) -> list[object]:
    """The folders whose last word is a layer's."""
    word = element.leaf.place[-1]
    return [folder for folder in folders if folder[-1] == word]  # type: ignore[index]


def _behind(before: Data, head: Sequence[Element]) -> tuple[Link, ...] | None:
    """Layers one after the other; None where their sizes do not allow it."""
    links: list[Link] = []
    for element in head:
        link = follow(links[-1].after if links else before, element, is_grouped=False)
        if link is None:
            return None
        links.append(link)
    return tuple(links)


def _single(elements: Sequence[Element]) -> Iterator[Heads]:
    """Layers of one kind that could read the same, the fewest first."""
    groups: dict[tuple[object, ...], list[Element]] = {}
    for element in elements:
        if element.group in (LINEAR, CONVOLUTION) and not element.is_transposed:
            groups.setdefault((element.group, element.inputs, len(element.kernel)), []).append(element)
    for count in range(2, _HEADS + 1):
        for group in groups.values():
            chosen = combinations(group, count) if len(group) <= _ALIKE else [tuple(group[-count:])]
            yield from (tuple((element,) for element in heads) for heads in chosen)


def _several(elements: Sequence[Element]) -> Iterator[Heads]:
    """Folders, or layers under one word, whose first layers could read the same."""
    tried: set[tuple[object, ...]] = set()
    for word_of in (_without_number, _first_word, _last_word):
        groups: dict[object, list[Element]] = {}
        for element in elements:
            place = element.leaf.place
            groups.setdefault(place[0] if len(place) > 1 else word_of(element.name), []).append(element)
        if len(groups) <= _FOLDERS and tuple(groups) not in tried:
            tried.add(tuple(groups))
            yield from _among(groups)


def _without_number(name: str) -> str:
    return _LAST.sub("", name)


def _first_word(name: str) -> str:
    """`p` of `p_conv`."""
    return name.partition("_")[0]


def _last_word(name: str) -> str:
    """`policy` of `fc_policy`, `p` of `fc1_p`; a number alone is none."""
    word = name.rpartition("_")[2]
    return name if word.isdecimal() else word


def _among(groups: Mapping[object, Sequence[Element]]) -> Iterator[Heads]:
    """Some of several groups of layers, whose first ones could read the same."""
    for count in range(2, _HEADS + 1):
        for heads in combinations(groups.values(), count):
            firsts = {(head[0].group, head[0].inputs, len(head[0].kernel)) for head in heads}
            if len(firsts) == 1 and any(len(head) > 1 for head in heads):
                yield tuple(map(tuple, heads))
