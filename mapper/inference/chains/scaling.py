"""Squeeze-and-excitation in a block (paper 1709.01507): two layers whose output scales each channel of what they read."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import permutations
from typing import TYPE_CHECKING

from mapper.inference.chains.elements import CONVOLUTION, FORK, LINEAR, NORM, Element, Scale
from mapper.inference.chains.residuals import is_of
from mapper.inference.chains.split import take

if TYPE_CHECKING:
    from mapper.inference.chains.between import Between
    from mapper.inference.chains.links import Link

GATE, PLACE = "chain.scaling", "chain.scaled"
_GATES = ("sigmoid", "hard_sigmoid")
_BEFORE, _AFTER = "before_activation", "after_activation"
_NAME = "scale"
Home = tuple[str | tuple[int, ...], ...]


def with_scales(elements: Sequence[Element], words: Container[str], others: Container[str]) -> list[Element]:
    """The layers, two that scale what their block makes as one: linear ones among convolutions, or convolutions called so by `words`.

    `others` are words of parts that weigh channels or places by more than their means.
    """
    found = list(elements)
    for home in dict.fromkeys(Home(element.leaf.place[:-1]) for element in elements):
        pairs = list(_pairs(home, elements, words))
        if len(pairs) == 1 and not any(is_of(part, others) for part in home):
            first, last = pairs[0]
            at = found.index(first)
            found[at] = Scale(last.leaf, FORK, first.inputs, last.outputs, arms=((first, last),))
            found.remove(last)
    return found


def _pairs(
    home: Home, elements: Sequence[Element], words: Container[str]
) -> Iterator[tuple[Element, Element]]:
    """Two layers of a folder to fewer features and back to as many as a convolution of their block gives."""
    inside = [one for one in elements if Home(one.leaf.place[:-1]) == home]
    block = home
    while block and len(around := _below(block, elements)) == len(inside) == 2:
        block = block[:-1]
    around = around if block else []
    for first, last in permutations((one for one in inside if _is_map(one)), 2):
        others = [one for one in around if one not in (first, last)]
        mains = [one for one in others if one.group == CONVOLUTION]
        is_called = all(any(is_of(part, words) for part in one.leaf.place) for one in (first, last))
        if (
            first.group == last.group
            and (first.inputs, first.outputs) == (last.outputs, last.inputs)
            and first.outputs < first.inputs
            and any(one.outputs == first.inputs for one in mains)
            and any(set(one.kernel) != {1} for one in mains)
            and not any(one.outputs == first.outputs for one in others if one.group == NORM)
            and (first.group == LINEAR or is_called)
        ):
            yield first, last


def _below(home: Home, elements: Sequence[Element]) -> list[Element]:
    return [one for one in elements if Home(one.leaf.place[: len(home)]) == home]


def _is_map(element: Element) -> bool:
    is_point = element.group == CONVOLUTION and set(element.kernel) == {1} and not element.is_transposed
    return element.group == LINEAR or is_point


# ------------------------------------------------------------------------------------------------- its statements
def scale(between: Between, link: Link) -> None:
    """Scales what the layer before gives by what two layers make of the mean of each channel."""
    between.open(of_layer=True)
    between.answers.trail.clear()
    first, last = link.arms[0]
    inner = type(between)((first, last), (first.role, last.role), between.answers, between.activations)
    inner.name, axes = between.name, link.before.axes
    is_linear = first.element.group == LINEAR
    inner.say("x.flatten(2).mean(dim=-1)" if is_linear else f"F.adaptive_avg_pool{axes}d(x, 1)")
    inner.say(f"{first.role}(x)")
    inner.say(inner.activated(inner.activation(0) or "none") or "x")
    inner.say(f"{last.role}(x)")
    inner.say(_gate(inner, last))
    if is_linear:
        inner.say(f"x.unflatten(-1, (-1, {', '.join('1' * axes)}))")
    take(between, inner, _NAME)
    between.say(f"x * {_NAME}")


def _gate(inner: Between, last: Link) -> str:
    leaf = last.element.leaf
    value = inner.answers.find(leaf, GATE, among=_GATES)
    text = inner.activated(value) if value else "x"
    if not text or value == "none":
        raise inner.answers.refuse(leaf, GATE, str(value), f"allowed: {', '.join(_GATES)} and the like")
    return text


def unscaled(between: Between, at: int) -> tuple[str, str] | None:
    """That no activation stands before layers that scale, or behind them: it has one place beside them."""
    links = between.links
    if isinstance(links[at].element, Scale):
        return ("none", "before it is scaled") if _place(between, at) == _AFTER else None
    if at + 1 < len(links) and isinstance(links[at + 1].element, Scale):
        return ("none", "behind what scales it") if _place(between, at + 1) == _BEFORE else None
    return None


def _place(between: Between, at: int) -> str | None:
    """Where layers that scale stand: within a block behind its activation, at the end of a residual one before it."""
    leaf, usual = between.links[at].element.leaf, None
    span = next((span for span in between.spans if span.first <= at <= span.last), None)
    if span is not None and at < span.last:
        usual = (_AFTER, "within its block")
    elif span is not None and (span.branch or between.sums.at(at)):
        usual = (_BEFORE, "the paper: before the sum")
    value = between.answers.find(leaf, PLACE, usual=usual, among=(_BEFORE, _AFTER))
    if value not in (None, _BEFORE, _AFTER):
        raise between.answers.refuse(leaf, PLACE, str(value), f"allowed: {_BEFORE}, {_AFTER}")
    return value


def unpooled(between: Between, at: int) -> tuple[str, str] | None:
    """That nothing is pooled before layers that scale."""
    following = between.links[at + 1 : at + 2]
    return ("none", "it is scaled next") if following and isinstance(following[0].element, Scale) else None


def asked_at(between: Between, at: int) -> int:
    """The layer of which an activation or pooling is asked: before those that scale, whose own names say nothing of it."""
    return at - 1 if at and isinstance(between.links[at].element, Scale) else at
