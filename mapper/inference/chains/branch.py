"""What the input of a block goes through before it is added to what the block gives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mapper.inference.chains.convolutions import along, setting
from mapper.inference.chains.elements import CONVOLUTION, NORM
from mapper.inference.chains.norms import normed

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
        if link.element.group == NORM:
            text = _over(normed(between, link, role, link.after.axes), text)
            continue
        padded = _arguments(between, span, link, role)
        text = f"{role}(F.pad({text}, {padded}))" if padded else f"{role}({text})"
    return text


def _over(expression: str, text: str) -> str:
    """An expression over x of another one."""
    return re.sub(r"\bx\b", lambda _: text, expression)


def _arguments(between: Between, span: Span, link: Link, role: str) -> str:
    """Note the arguments of a layer's constructor; what is padded before it."""
    if link.element.group != CONVOLUTION:
        between.written.arguments[role] = {}
        return ""
    steps = [setting(each, between.answers).steps for each in between.links[span.first : span.last + 1]]
    found = setting(link, between.answers, along(steps, link.after.axes))
    between.written.arguments[role] = dict(found.arguments)
    return found.padded
