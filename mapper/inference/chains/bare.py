"""Tensors of no layer: numbers that what a layer reads is put together with, as `inputs @ B` says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from mapper.architecture import BARE, Leaf
from mapper.inference.chains.answers import Answers
from mapper.inference.chains.elements import element_of
from mapper.inference.chains.links import ROWS, Data
from mapper.inference.chains.nodes import Node
from mapper.inference.chains.residuals import is_of
from mapper.inference.chains.texts import names_in
from mapper.inference.chains.value import Value

_MATRIX = 2  # axes
_GIVES, _NOTHING = "chain.gives", "none"
_UNREAD = "nobody reads the numbers at '{0}': say who does, as in --set 'LAYER:chain.reads=LAYER * {0}', or --set '{0}:chain.gives=none' for what is of no use"


def is_bare(leaf: Leaf) -> bool:
    """Whether it is a tensor that no layer has."""
    return leaf.kind in BARE and element_of(leaf) is None


def is_vector(leaf: Leaf) -> bool:
    """Whether it is a row of numbers that no layer has: a factor of what is given, say, or the mean of what is read."""
    return is_bare(leaf) and len(_extents(leaf)) == 1 and not str(leaf.place[-1]).startswith("_")


def as_wide(vectors: Sequence[Leaf], widths: Sequence[int]) -> bool:
    """Whether each vector is as wide as one of these: others say nothing of what layers read."""
    return all(_extents(leaf)[0] in widths for leaf in vectors)


def _extents(leaf: Leaf) -> list[int]:
    return [extent for info in leaf.tensors.values() for extent in info.shape if extent > 1]


def meant(
    ends: Sequence[Node], bare: Mapping[str, Value], answers: Answers, leaves: Mapping[str, Leaf]
) -> tuple[str, ...]:
    """What the one output may be beside vectors as wide that are called a factor and an offset of it (1802.09477)."""
    end = ends[0].name if len(ends) == 1 else ""
    own = [name for name, value in bare.items() if end and value.data.width == ends[0].gives.width]
    own = [name for name in own if answers.told_at(leaves[name], _GIVES) != _NOTHING]
    words = answers.words
    factors = [name for name in own if is_of(name.rpartition(".")[2], words.factor)]
    offsets = [name for name in own if is_of(name.rpartition(".")[2], words.offset)]
    if len(factors) != 1 or len(offsets) > 1:
        return ()
    behind = f" * {factors[0]}" + "".join(f" + {name}" for name in offsets)
    return f"tanh({end}){behind}", f"{end}{behind}"


def bare_values(leaves: Sequence[Leaf], roles: Iterator[str]) -> dict[str, Value]:
    """What expressions may name, by the names in the file; `roles` are the variables."""
    return {leaf.place.first(): _value(leaf, role) for leaf, role in zip(leaves, roles, strict=False)}


def _value(leaf: Leaf, role: str) -> Value:
    shape = next(iter(leaf.tensors.values())).shape
    rows = shape[-2] if len(shape) > 1 else 0
    found = Value(role, Data(ROWS, shape[-1] if shape else 1), (leaf.place.first(),), rows=rows)
    return replace(found, kernels=shape if len(shape) > _MATRIX else ())


def unread(
    bare: Mapping[str, Value], texts: Iterable[str], answers: Answers, leaves: Mapping[str, Leaf]
) -> list[str]:
    """What is wrong with tensors that no expression names: of what is of no use that was to be said."""
    read = {name for text in texts for name in names_in(text)}
    idle = (name for name in bare if name not in read)
    return [_UNREAD.format(name) for name in idle if answers.told_at(leaves[name], _GIVES) != _NOTHING]
