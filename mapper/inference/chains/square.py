"""Convolutions of which no shape shows whether they are transposed: as many channels are read as given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mapper.architecture import Leaf
from mapper.inference.chains.answers import Answers
from mapper.inference.chains.naming import UP, ranked
from mapper.inference.leaf_shapes import weight_shape

KIND = "chain.kind"
_PLAIN, _TRANSPOSED = "plain", "transposed"
_OTHER = "Transpose"


def with_kinds(
    leaves: Sequence[Leaf], ranks: Mapping[str, int], hints: Mapping[str, Any] | None
) -> list[Leaf]:
    """The leaves, those on the way up transposed where they were said to be, or where all others like them there are."""
    told = {
        key.rpartition(":")[0]: value
        for key, value in (hints or {}).items()
        if key.rpartition(":")[2] == KIND
    }
    return [_as(leaf, str(told.get(leaf.place.first()) or _shown(leaf, leaves, ranks))) for leaf in leaves]


def _as(leaf: Leaf, kind: str) -> Leaf:
    if kind != _TRANSPOSED or not _is_square(leaf) or _OTHER in leaf.kind:
        return leaf
    return replace(leaf, kind=leaf.kind.replace("Conv", "ConvTranspose"))


def _shown(leaf: Leaf, leaves: Sequence[Leaf], ranks: Mapping[str, int]) -> str:
    """What the others on the way up are whose shapes show it: those of the same kernel, or plain if all are; "" where that tells nothing."""
    if not _is_doubtful(leaf, ranks):
        return "" if _is_like_transposed(leaf, leaves) else _PLAIN
    others = [one for one in leaves if _is_up(one, ranks) and not _is_square(one)]
    alike = [one for one in others if weight_shape(one)[2:] == weight_shape(leaf)[2:]]
    kinds = {_TRANSPOSED if _OTHER in one.kind else _PLAIN for one in alike or others}
    is_told = bool(alike) or kinds == {_PLAIN}
    return kinds.pop() if len(kinds) == 1 and is_told else ""


def _is_doubtful(leaf: Leaf, ranks: Mapping[str, int]) -> bool:
    return _is_up(leaf, ranks) and _is_square(leaf) and _OTHER not in leaf.kind


def _is_like_transposed(leaf: Leaf, leaves: Sequence[Leaf]) -> bool:
    """Whether it has a kernel of even extents that transposed convolutions have too, beside another of the same kernel: the innermost pair of a U-Net (1611.07004)."""
    kernel = weight_shape(leaf)[2:] if _is_square(leaf) else ()
    if not kernel or any(extent % 2 for extent in kernel) or _OTHER in leaf.kind:
        return False
    alike = [
        one
        for one in leaves
        if one is not leaf and one.kind.startswith("Conv") and weight_shape(one)[2:] == kernel
    ]
    beside = [one for one in alike if one.place[:-1] == leaf.place[:-1]]
    return bool(beside) and any(_OTHER in one.kind for one in alike)


def _is_up(leaf: Leaf, ranks: Mapping[str, int]) -> bool:
    """Whether it is a convolution over several places, and a word of its path is of the way up."""
    kernel = weight_shape(leaf)[2:] if leaf.kind.startswith("Conv") else ()
    return any(extent > 1 for extent in kernel) and ranked(leaf.place, ranks) in UP


def _is_square(leaf: Leaf) -> bool:
    shape = weight_shape(leaf)
    return leaf.kind.startswith("Conv") and len(shape) > 2 and shape[0] == shape[1]


def ask_kinds(leaves: Sequence[Leaf], answers: Answers) -> None:
    """Asks of each convolution on the way up what it is, where nothing shows it. Raises HintError for another word."""
    ranks = answers.words.order
    for leaf in leaves:
        if not _shown(leaf, leaves, ranks):
            value = answers.find(leaf, KIND, among=(_TRANSPOSED, _PLAIN))
        else:
            value = answers.told_at(leaf, KIND) or None
        is_transposed = _OTHER in leaf.kind
        if value is not None and value != (_TRANSPOSED if is_transposed else _PLAIN):
            raise answers.refuse(
                leaf, KIND, value, "its weight shows what it is, or this is neither transposed nor plain"
            )
