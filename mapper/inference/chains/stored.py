"""Square matrices of linear layers, of which no shape shows whether they are stored [in, out]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mapper.architecture import Leaf
from mapper.inference.leaf_shapes import weight_shape

_FORM = "transposed"


def as_the_others(leaves: Sequence[Leaf]) -> list[Leaf]:
    """The leaves, square linear layers stored as all others of the file whose biases show it."""
    linear = [leaf for leaf in leaves if leaf.kind == "Linear" and len(weight_shape(leaf)) == 2]
    told = [leaf for leaf in linear if "bias" in leaf.tensors and not _is_square(leaf)]
    is_turned = bool(told) and all(leaf.is_transposed for leaf in told)
    square = {id(leaf) for leaf in linear if is_turned and _is_square(leaf)}
    return [replace(leaf, form=_FORM) if id(leaf) in square else leaf for leaf in leaves]


def _is_square(leaf: Leaf) -> bool:
    return len(set(weight_shape(leaf))) == 1
