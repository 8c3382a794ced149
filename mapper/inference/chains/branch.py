"""What the input of a block goes through before it is added to what the block gives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mapper.inference.chains.convolutions import along, setting
from mapper.inference.chains.elements import CONVOLUTION, NORM
from mapper.inference.chains.norms import normed
from mapper.inference.chains.pooling import pooling_of
from mapper.inference.chains.residuals import POOLED

if TYPE_CHECKING:
    from mapper.inference.chains.between import Between
    from mapper.inference.chains.links import Link
    from mapper.inference.chains.residuals import Span

_BEFORE = "chain.pooling_before"
_POOLINGS = ("mean_2", "max_2", "mean_3_2_1")  # of what is added to smaller maps
# Of these every second place alone, as a widened input mostly has it (1512.03385, option A).
_EVERY = "max_1_2"
WIDENED = "chain.residual_padding"
# With zeros for the channels that lack: behind its own, or half of them before.
PADDED = ("padded", "padded_both")


def through_branch(between: Between, span: Span) -> str:
    """The expression of it; that of the block's input itself where there is no such layer."""
    text, is_pooled = _smaller(between, span)
    if span.widened:
        text = _wider(between, span, text)
    first = len(between.links) + sum(len(head.links) for head in between.heads)
    for link in span.branch:
        role = between.roles[first + between.beside.index(link)]
        if link.element.group == NORM:
            text = _over(normed(between, link, role, link.after.axes), text)
            continue
        padded = _arguments(between, span, link, role, is_pooled)
        text = f"{role}(F.pad({text}, {padded}))" if padded else f"{role}({text})"
    return text


def _smaller(between: Between, span: Span) -> tuple[str, bool]:
    """What the block reads, pooled where that is told, or no convolution beside is there to make it as small as what it is added to."""
    first = span.branch[0].element if span.branch else between.links[span.first].element
    axes = between.links[span.last].after.axes
    if span.branch:
        place = first.leaf.place
        is_behind = place.is_element and place[-1] != (0,)  # something without tensors stands before it
        value = (
            between.answers.find(first.leaf, _BEFORE, among=(*_POOLINGS, "none"))
            if is_behind
            else between.answers.told_at(first.leaf, _BEFORE)
        ) or ""
    elif set(_steps(between, span, axes)) <= {"1", "x"}:
        return between.name, False
    else:
        among = (_EVERY, *_POOLINGS) if span.widened else _POOLINGS
        value = between.answers.find(first.leaf, _BEFORE, among=among) or ""
    if value in ("", "none"):
        return between.name, False
    kernels = [link.element.kernel for link in between.links if link.element.group == CONVOLUTION]
    found = pooling_of(value, kernels, axes, between.tables["pooling"])
    if found is None:
        raise between.answers.refuse(
            first.leaf, _BEFORE, value, f"allowed: {', '.join(_POOLINGS)} and the like"
        )
    return _over(found.expression, between.name), True


def _wider(between: Between, span: Span, text: str) -> str:
    """What a block reads, with channels of zeros for those that it gives more."""
    is_both = between.answers.find(between.links[span.first].element.leaf, WIDENED) == PADDED[1]
    before = span.widened // 2 if is_both else 0
    sides = ["0"] * 2 * between.links[span.last].after.axes
    return f"F.pad({text}, ({', '.join([*sides, str(before), str(span.widened - before)])}))"


def _steps(between: Between, span: Span, axes: int) -> str:
    """By how much the layers of a block make maps smaller along each axis."""
    settings = [setting(each, between.answers) for each in between.links[span.first : span.last + 1]]
    return along([each.steps for each in settings], axes)


def _over(expression: str, text: str) -> str:
    """An expression over x of another one."""
    return re.sub(r"\bx\b", lambda _: text, expression)


def _arguments(between: Between, span: Span, link: Link, role: str, is_pooled: bool) -> str:
    """Note the arguments of a layer's constructor; what is padded before it."""
    if link.element.group != CONVOLUTION:
        between.written.arguments[role] = {}
        return ""
    axes = link.after.axes
    steps = "x".join(["1"] * axes) if is_pooled else _steps(between, span, axes)
    if between.sums.at(span.last) == POOLED:  # nothing of the block says by how much it is pooled
        steps = between.answers.find(link.element.leaf, "chain.stride", among=("2", "1")) or steps
    found = setting(link, between.answers, steps)
    between.written.arguments[role] = dict(found.arguments)
    return found.padded
