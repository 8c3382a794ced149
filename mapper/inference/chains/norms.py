"""A norm in a chain: over how many channels it runs, and the axes that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mapper.architecture import Fact
from mapper.inference.chains.links import MAPS, START, Link
from mapper.inference.chains.residuals import is_of
from mapper.inference.leaf_shapes import weight_shape

if TYPE_CHECKING:
    from mapper.inference.chains.between import Between

LAYER = "layer"  # over channels alone, at each place
_GROUPS = (1, 8, 16, 32)  # that a question lists


def norm(between: Between, at: int, link: Link) -> None:
    """The statement of a norm."""
    role, before = between.roles[at], link.before
    axes = link.after.axes if link.after.form == MAPS else 0
    if before.form == START and at + 1 < len(between.links):
        axes = len(between.links[at + 1].element.kernel)
    between.say(normed(between, link, role, axes))


def normed(between: Between, link: Link, role: str, axes: int) -> str:
    """What a norm makes of `x`, maps of so many axes or rows; x itself where that is asked for."""
    leaf = link.element.leaf
    between.answers.epsilon(leaf)
    if leaf.kind == "BatchNorm":
        between.written.arguments[role] = {"dimensions": axes or 1}
        is_sequence = between.is_sequence or (link.before.form == START and between.reads_sequence)
        is_turned = is_sequence and not axes
        between.written.has_single_rows |= not is_sequence and not axes
        return f"{role}(x.movedim(-1, 1)).movedim(1, -1)" if is_turned else f"{role}(x)"
    is_told = between.is_sequence and bool(between.answers.told_at(leaf, "chain.groups"))
    count = _groups(between, link) if (axes or is_told) and len(weight_shape(leaf)) == 1 else ""
    if count is None:
        return "x"
    if count == LAYER:
        return f"{role}(x.movedim(1, -1)).movedim(-1, 1)"
    if count:
        leaf.kind = "GroupNorm"
        leaf.facts["groups"] = Fact("groups", int(count), leaf.place.first(), "given", "chain.groups")
    return f"{role}(x.transpose(1, 2)).transpose(1, 2)" if is_told else f"{role}(x)"


def _groups(between: Between, link: Link) -> str | None:
    """Over how many groups a norm of maps without statistics runs, or LAYER; None where that is asked for."""
    leaf, width, answers = link.element.leaf, link.element.outputs, between.answers
    if leaf.kind == "RMSNorm":
        return LAYER
    divisors = [str(count) for count in _GROUPS if width % count == 0 and count < width]
    value = answers.find(leaf, "chain.groups", among=("channels", LAYER, *divisors))
    if value is None or value == LAYER:
        is_named = any(is_of(part, answers.words.over_channels) for part in leaf.place[-1:])
        leaf.kind = (
            "LayerNorm" if value or is_named else "GroupNorm"
        )  # as most norms of maps without statistics
        return value
    count = width if value == "channels" else int(value) if value.isdecimal() else 0
    if not count or width % count:
        raise answers.refuse(leaf, "chain.groups", value, f"no divisor of {width}, channels or layer")
    return str(count)
