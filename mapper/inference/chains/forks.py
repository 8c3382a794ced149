"""Layers side by side that read the same and whose outputs are concatenated (papers 1409.4842, 1602.07360, 1408.5882)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import islice, permutations
from keyword import iskeyword
from typing import TYPE_CHECKING

from mapper.inference.chains.convolutions import BESIDE
from mapper.inference.chains.elements import CONVOLUTION, EMBEDDING, FORK, LINEAR, Element, Fork
from mapper.inference.chains.links import ROWS, Link, shuffle_of
from mapper.inference.chains.naming import natural
from mapper.inference.chains.pooling import GLOBAL, pooled
from mapper.inference.chains.split import take
from mapper.words import parts

if TYPE_CHECKING:
    from mapper.inference.chains.between import Between

_STEP = re.compile(r"_\d+[a-z]?$")  # what tells the layers of one arm apart: `branch5x5_2`
_TAKEN = (
    "self",
    "torch",
    "nn",
    "F",
    "x",
    "inputs",
    "input_ids",
    "residual",
    "long_skip",
    "output",
    "Output",
)  # of a forward
_ORDERS = 6  # of arms that a question lists
Home = tuple[str | tuple[int, ...], ...]


def is_forked(elements: Sequence[Element]) -> bool:
    """Whether more convolutions read a width than layers give it, or several the features of an embedding: they read the same."""
    plain = [element for element in elements if element.group == CONVOLUTION and not element.is_transposed]
    read = Counter(element.inputs for element in plain if element.inputs > 1)
    given = Counter(element.outputs for element in elements if element.is_main)
    given.update(element.inputs for element in elements if shuffle_of(element))
    words = {element.outputs for element in elements if element.group == EMBEDDING}
    of_words = [
        element
        for element in plain
        if element.inputs == 1 and element.kernel[1:] in {(each,) for each in words}
    ]
    return (read - given).total() > 1 or len(of_words) > 1


def with_forks(elements: Sequence[Element]) -> list[Element]:
    """The layers, those that stand side by side in one folder as one: the innermost folders first."""
    found, names = list(elements), [element.name for element in elements]
    in_file = {id(element): at for at, element in enumerate(elements)} if names != sorted(names) else {}
    homes = {
        tuple(element.leaf.place[:depth]) for element in elements for depth in range(len(element.leaf.place))
    }
    for home in sorted(homes, key=len, reverse=True):
        arms = _arms(home, found)
        if arms:
            within = {id(element) for arm in arms for element in arm}
            at = next(at for at, element in enumerate(found) if id(element) in within)
            left = [element for element in found if id(element) not in within]
            fork = _fork_of(home, arms, in_file)
            in_file |= {id(fork): in_file[id(fork.arms[0][0])]} if in_file else {}
            found = [*left[:at], fork, *left[at:]]
    return found


def _arms(home: Home, elements: Sequence[Element]) -> list[tuple[Element, ...]]:
    """What reads the same in a folder, where another layer reads all that it gives and none of it reads another; else nothing."""
    by_word: dict[object, list[Element]] = defaultdict(list)
    for element in sorted(elements, key=_called):
        place = element.leaf.place
        if place[: len(home)] == home and len(place) > len(home):
            part = place[len(home)]
            by_word[_STEP.sub("", part) if isinstance(part, str) else part].append(element)
    by_width: dict[int, list[tuple[Element, ...]]] = defaultdict(list)
    for arm in by_word.values():
        mains = [element for element in arm if element.is_main]
        if mains and all(element.group in (CONVOLUTION, FORK) for element in mains) and mains[0] is arm[0]:
            by_width[mains[0].inputs].append(tuple(arm))
    for width, arms in by_width.items():
        ends = [_last(arm) for arm in arms]
        axes = {len(end.kernel) for end in ends}
        given = [end.outputs for end in ends]
        within = {id(element) for arm in arms for element in arm}
        read = {element.inputs for element in elements if id(element) not in within}
        if len(arms) > 1 and len(axes) == 1 and width not in given and sum(given) in read:
            return arms
    return []


def _called(element: Element) -> tuple[object, ...]:
    """Where its name puts a layer in its arm: the folder, the number, a norm behind what it is of."""
    folder, _, word = element.name.rpartition(".")
    return (natural(folder), re.findall(r"\d+", word), not element.is_main, natural(word))


def _last(arm: Sequence[Element]) -> Element:
    return next(element for element in reversed(arm) if element.is_main)


def _fork_of(home: Home, arms: list[tuple[Element, ...]], in_file: Mapping[int, int]) -> Fork:
    """The arms in the order of the file, where that is not that of the names, which some containers sort by; else in that of the names."""
    words = {re.sub(r"\d+", "", str(arm[0].leaf.place[len(home)])) for arm in arms}
    is_told = any(id(element) in in_file for arm in arms for element in arm)
    if is_told:
        arms = sorted(arms, key=lambda arm: min(in_file[id(element)] for element in arm))
    end = _last(arms[0])
    width = sum(_last(arm).outputs for arm in arms)
    return Fork(end.leaf, FORK, arms[0][0].inputs, width, end.kernel, tuple(arms), is_told or len(words) == 1)


# ------------------------------------------------------------------------------------------------- its statements
def fork(between: Between, at: int, link: Link) -> bool:
    """Goes through each arm from what the layer before gives, and puts what they give side by side; whether these are vectors.

    Convolutions over words are read by a linear layer: each arm is as long as its kernel leaves it, and becomes a vector by itself.
    """
    between.open(of_layer=True)
    between.answers.trail.clear()
    depth = _depth(link)
    names, after = _names(link, depth), []
    sizes = [_sizes(arm) for arm in link.arms]
    is_even, ends = any(map(_is_even, link.arms)), _ends(between, at, link)
    for name, arm, size in zip(names, link.arms, sizes, strict=True):
        inner = type(between)(arm, [each.role for each in arm], between.answers, between.activations)
        inner.windows, inner.name = deepcopy(between.windows), between.name
        inner.is_sequence, inner.is_even = between.is_sequence, is_even
        inner.is_alike = sizes.count(size) > 1
        _enter(inner, arm[0], depth)
        inner.through()
        for end in ends or ():
            inner.say(end)
        take(between, inner, name)
        after.append(inner.windows)
    between.windows = after[0]
    between.name = "x"
    between.add(f"x = torch.cat(({', '.join(_in_order(between, link, names))}), dim=1)")
    return ends is not None


def _in_order(between: Between, link: Link, names: Sequence[str]) -> Sequence[str]:
    """The arms in the order in which their outputs stand: asked for where neither the file nor numbers show it."""
    if not isinstance(link.element, Fork) or link.element.is_ordered:
        return names
    several = ("+".join(order) for order in permutations(names))
    leaf, among = link.element.leaf, tuple(islice(several, _ORDERS))
    value = between.answers.find(leaf, "chain.branches", among=among)
    found = names if value is None else value.split("+")
    if sorted(found) != sorted(names):
        raise between.answers.refuse(
            leaf, "chain.branches", str(value), f"not {'+'.join(names)}, in any order"
        )
    return found


def _ends(between: Between, at: int, link: Link) -> list[str] | None:
    """What makes a vector of each arm over words; None where maps are put side by side."""
    if link.before.form != ROWS or between.following(at).group != LINEAR:
        return None
    leaf = between.following(at).leaf
    activation = between.activation(at)
    value = between.answers.find(leaf, "chain.reduction", among=("max", "mean"))
    found = [between.activated(activation)] if activation not in (None, "none") else []
    if value is not None:
        if value not in ("max", "mean"):
            raise between.answers.refuse(leaf, "chain.reduction", value, "possible here: max, mean")
        found.append(between.tables["reduction"][value])
    return found


def unpooled(between: Between, at: int) -> tuple[str, str] | None:
    """That nothing is pooled in an arm beside one that leaves maps as large as they are, nor before arms of the same folder."""
    if between.is_even:
        return "none", BESIDE
    own, following = between.links[at].element, between.following(at)
    is_before = isinstance(following, Fork) and own.leaf.place[:-1] == following.leaf.place[:-1] != ()
    return ("none", "branches of the same folder come next") if is_before else None


def _sizes(arm: Sequence[Link]) -> tuple[object, ...]:
    first = arm[0].element
    return len(arm), first.outputs, first.kernel


def _is_even(arm: Sequence[Link]) -> bool:
    """Whether an arm leaves maps as large as they are: kernels of one place alone."""
    return all(set(link.element.kernel) <= {1} for link in arm)


def _enter(inner: Between, link: Link, depth: int) -> None:
    """What is pooled before the first layer of an arm: where its number or a word say that something stands there."""
    leaf = link.element.leaf
    part = next(iter(leaf.place[depth + 1 : depth + 2]), "")
    is_behind = isinstance(part, tuple) and part != (0,)
    is_called = any(
        isinstance(part, str) and not inner.answers.words.pooled.isdisjoint(parts(part))
        for part in leaf.place
    )
    if is_behind or is_called:
        fact, among = "chain.pooling_before", ("max_3_1_1", "mean_3_1_1", GLOBAL[1], "none")
        value = inner.answers.find(leaf, fact, among=among)
        if value not in (None, "none"):
            pooled(inner, link, str(value), fact)


def _depth(link: Link) -> int:
    """At which part of their paths the arms differ."""
    places = [arm[0].element.leaf.place for arm in link.arms]
    return next(
        at for at in range(max(map(len, places))) if len({place[at : at + 1] for place in places}) > 1
    )


def _names(link: Link, depth: int) -> list[str]:
    """What the arms are called: the word or number that is each one's own."""
    places = [arm[0].element.leaf.place for arm in link.arms]
    words = [place[depth] if depth < len(place) else "" for place in places]
    found = [_STEP.sub("", word) if isinstance(word, str) else f"arm_{word[0] + 1}" for word in words]
    is_plain = len(set(found)) == len(found) and all(map(is_free, found))
    return found if is_plain else [f"arm_{number}" for number in range(1, len(places) + 1)]


def is_free(word: str) -> bool:
    """Whether a variable of a forward may be called so."""
    is_taken = word in _TAKEN or re.fullmatch(r"kept_\d+", word)
    return word.isidentifier() and not iskeyword(word) and not is_taken


def with_roles(link: Link, links: Iterator[Link]) -> Link:
    """A fork with these links, one after the other, for those of its arms."""
    arms = tuple(
        tuple(with_roles(each, links) if each.arms else next(links) for each in arm) for arm in link.arms
    )
    leaf = next(each.element.leaf for each in reversed(arms[0]) if each.element.is_main)
    return replace(link, element=replace(link.element, leaf=leaf), arms=arms)


def in_arms(links: Sequence[Link]) -> Iterator[Link]:
    """Every layer that stands in an arm."""
    for link in links:
        for arm in link.arms:
            for each in arm:
                if each.arms:
                    yield from in_arms([each])
                else:
                    yield each
