"""Where a chain adds what it read before: residual blocks (1512.03385), and around several of them a long skip (1707.02921)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from mapper.inference.chains.branch import PADDED, WIDENED, through_branch
from mapper.inference.chains.elements import CONVOLUTION, NORM
from mapper.inference.chains.links import MAPS, Link
from mapper.inference.chains.residuals import ADDED, BETWEEN, FIRST, POOLED, Span, block_of, end_of, is_of

if TYPE_CHECKING:
    from mapper.inference.chains.between import Between

BLOCK, LONG, BRANCH = "chain.residual", "chain.long_skip", "chain.residual_branch"
BRANCHES = ("input", "activated")
_SUMMED = (*ADDED, FIRST, POOLED)
_NONE, _SUM = "none", "added"
# By which the output of a block is multiplied before it is added.
_FACTOR = re.compile(r"\d{1,3}(\.\d{1,6})?")


@dataclass
class Sums:
    """What is kept of a chain to be added later."""

    spans: Sequence[Span]
    joined: dict[int, tuple[str, str]] = field(
        default_factory=dict
    )  # the last layer of a residual block -> one of ADDED, and the factor
    long: set[int] = field(default_factory=set)  # the last layers of long skips
    later: dict[int, Span] = field(
        default_factory=dict
    )  # the layers before which a shortcut reads, not where its block begins

    first: dict[int, int] = field(
        default_factory=dict
    )  # of blocks that begin with an activation: first and last

    def at(self, at: int) -> str:
        """Where the sum stands that a layer ends with; "" for none."""
        return self.joined.get(at, ("", ""))[0]


def keep(between: Between, at: int, link: Link) -> None:
    """Keeps what a residual block reads, to be added where it ends."""
    if at in between.sums.later:
        between.add(f"residual = {through_branch(between, between.sums.later[at])}")
    span = next((span for span in between.sums.spans if span.first == at), None)
    if span is None:
        return
    leaf, answers = link.element.leaf, between.answers
    among: tuple[str, ...] = ADDED if span.branch else (_NONE, *ADDED)
    if span.branch:
        answers.ruled_out.add((BLOCK, _NONE))
    among += (FIRST,) if span.is_block and link.element.is_main else ()
    among += (POOLED,) if span.branch and span.last + 1 < len(between.links) else ()
    is_stated = answers.stated(leaf, "chain.residual_stated") == "true"
    is_called = any(is_of(part, answers.words.residual) for part in leaf.place[:-1])
    is_asked = span.is_block or is_stated or is_called or _is_listed(between.links, at)
    default = None if is_asked else (_NONE, "a layer that stands alone")
    value = answers.find(leaf, BLOCK, usual=default, among=among)
    word, _, factor = (value or "").partition("*")
    if value is not None and (word not in among or not (_FACTOR.fullmatch(factor) or word == value)):
        raise answers.refuse(
            leaf, BLOCK, value, f"allowed: {', '.join(among)}, and {ADDED[0]}*0.1 with a factor"
        )
    if span.widened and word in _SUMMED and not _is_padded(between, span):
        return
    if value != _NONE:
        _keep_long(between, at)
    if word in _SUMMED:
        between.sums.joined[span.last] = (ADDED[0] if word == FIRST else word, factor)
        if word == FIRST:
            between.sums.first[at] = span.last
    if _reads_later(between, at, span):
        return
    kept = through_branch(between, span) if span.branch or word in _SUMMED else ""
    if word in _SUMMED:
        between.add(f"residual = {kept}")
    if word == FIRST and (activation := between.activation(at)) not in (None, _NONE):
        between.say(between.activated(str(activation)))


def before_first(between: Between, at: int) -> tuple[str, str] | None:
    """That no activation stands right before a block that begins with one: behind such a block, or where numbers leave no place."""
    is_first = at + 1 < len(between.links) and _is_told_first(between, at + 1)
    if is_first and (at in between.sums.first.values() or between.gaps.outside[at] == 0):
        return _NONE, f"{between.links[at + 1].element.name} begins with one"
    return None


def _is_told_first(between: Between, at: int) -> bool:
    """Whether a block that a layer begins was said to begin with an activation."""
    span = next((span for span in between.sums.spans if span.first == at and span.is_block), None)
    leaf, answers = between.links[at].element.leaf, between.answers
    return span is not None and (answers.told_at(leaf, BLOCK) or answers.told(BLOCK)) == FIRST


def _is_listed(links: Sequence[Link], at: int) -> bool:
    """Whether a convolution stands in a list of others like it, without activations between them: a ModuleList, of which each may be added."""
    one = links[at].element
    home, shape = one.leaf.place[:-1], (one.inputs, one.outputs, one.kernel)
    listed = [link.element for link in links if link.element.leaf.place[:-1] == home]
    numbers = [element.leaf.place[-1] for element in listed]
    is_list = one.group == CONVOLUTION and one.leaf.place.is_element and len(listed) > 1
    is_alike = all((each.inputs, each.outputs, each.kernel) == shape for each in listed)
    return is_list and is_alike and numbers == [(number,) for number in range(len(numbers))]


def _is_padded(between: Between, span: Span) -> bool:
    """Whether a block that gives more channels than it reads has a sum at its end; noted with how its input becomes as wide."""
    leaf = between.links[span.first].element.leaf
    value = between.answers.find(leaf, WIDENED, among=(_NONE, *PADDED))
    if value not in (None, _NONE, *PADDED):
        raise between.answers.refuse(leaf, WIDENED, str(value), f"allowed: {_NONE}, {', '.join(PADDED)}")
    return value in PADDED


def _reads_later(between: Between, at: int, span: Span) -> bool:
    """Whether the shortcut of a block that begins with a norm reads what that and its activation give (1603.05027)."""
    leaf = between.links[at].element.leaf
    if not span.branch or between.links[at].element.group != NORM:
        return False
    value = between.answers.find(leaf, BRANCH, among=BRANCHES)
    if value not in (None, *BRANCHES):
        raise between.answers.refuse(leaf, BRANCH, str(value), f"allowed: {', '.join(BRANCHES)}")
    first = next((one for one in range(at, span.last + 1) if between.links[one].element.is_main), at)
    if value == BRANCHES[1]:
        between.sums.later[first] = span
    return first in between.sums.later


def _keep_long(between: Between, at: int) -> None:
    """Keeps what the first of several blocks reads, if it is added to what the layer behind them gives."""
    end = _behind_blocks(between.links, between.sums.spans, at)
    if end is None:
        return
    leaf = between.links[end].element.leaf
    value = between.answers.find(leaf, LONG, among=(_NONE, _SUM))
    if value not in (None, _NONE, _SUM):
        raise between.answers.refuse(leaf, LONG, str(value), f"allowed: {_NONE}, {_SUM}")
    if value == _SUM:
        between.add(f"long_skip = {between.name}")
        between.sums.long.add(end_of(between.links, end))


def _behind_blocks(links: Sequence[Link], spans: Sequence[Span], at: int) -> int | None:
    """The convolution right behind the blocks of the list that one begins, where it gives as many channels as they read."""
    blocks = sorted((span for span in spans if span.is_block), key=lambda span: span.first)
    blocks = [span for span in blocks if _list_of(links[span.first]) == _list_of(links[at])]
    is_row = all(one.last + 1 == other.first for one, other in pairwise(blocks))
    if len(blocks) < 2 or blocks[0].first != at or not is_row or not _list_of(links[at]):
        return None
    end = blocks[-1].last + 1
    link = links[end] if end < len(links) else None
    widths = {links[at].before.width, link.before.width, link.after.width} if link else set()
    is_even = link is not None and link.element.group == CONVOLUTION and link.after.form == MAPS
    return end if is_even and len(widths) == 1 else None


def _list_of(link: Link) -> tuple[str | tuple[int, ...], ...]:
    """The list of blocks that a layer stands in, or what folders side by side are called: `block` of `block2`; () for none."""
    folder = block_of(link.element)
    if folder and isinstance(folder[-1], str):
        return (*folder[:-1], folder[-1].rstrip("0123456789"))
    return folder[:-1]


def join(between: Between, at: int, where: str) -> None:
    """Adds what was kept."""
    known, factor = between.sums.joined.get(at, ("", ""))
    if known == where:
        between.say(f"residual + {factor} * x" if factor else "residual + x")
    if at in between.sums.long and where == ADDED[0]:
        between.say("long_skip + x")


def sum_up(between: Between, at: int, activation: str | None) -> None:
    """The activation behind a layer, and the sum behind that, if there is one; another one behind the sum."""
    is_active = activation not in (None, _NONE)
    if is_active:
        between.say(between.activated(str(activation)))
    join(between, at, "after_activation")
    join(between, at, BETWEEN)
    if is_active and between.sums.at(at) == BETWEEN:
        between.say(between.activated(str(activation)))
