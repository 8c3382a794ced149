"""What the input of a block goes through before it is added to what the block gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mapper.inference.chains.convolutions import along, setting
from mapper.inference.chains.elements import CONVOLUTION

if TYPE_CHECKING:
    from mapper.inference.chains.between import Between
    from mapper.inference.chains.order import Link
    from mapper.inference.chains.residuals import Span


def through_branch(between: Between, span: Span) -> str:
    """The expression of it; that of the block's input itself where there is no such layer."""
    text = between.name
    first = len(between.links) + sum(len(head.links) for head in between.heads)
    for link in span.branch:
        role = between.roles[first + between.beside.index(link)]
        padded = _arguments(between, span, link, role)
        text = f"{role}(F.pad({text}, {padded}))" if padded else f"{role}({text})"
    return text


def _arguments(between: Between, span: Span, link: Link, role: str) -> str:
    """Note the arguments of a layer's constructor; what is padded before it."""
    leaf, axes = link.element.leaf, link.after.axes
    if link.element.group != CONVOLUTION:
        between.answers.epsilon(leaf)
        between.written.arguments[role] = {"dimensions": axes} if leaf.kind == "BatchNorm" else {}
        return ""
    steps = [setting(each, between.answers).steps for each in between.links[span.first : span.last + 1]]
    found = setting(link, between.answers, along(steps, axes))
    between.written.arguments[role] = dict(found.arguments)
    return found.padded
