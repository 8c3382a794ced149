"""The tensor of a leaf whose shape the rules speak of."""

from __future__ import annotations

from mapper.architecture import Leaf
from mapper.checkpoint import TensorInfo

_WEIGHTS = ("weight", "gamma", "g", "kernel", "scale", "")  # "" is a bare Parameter


def main_tensor(leaf: Leaf) -> tuple[str, TensorInfo]:
    """Its weight, by whatever name; else the largest of its tensors."""
    for name in _WEIGHTS:
        if name in leaf.tensors:
            return name, leaf.tensors[name]
    return max(leaf.tensors.items(), key=lambda item: (len(item[1].shape), item[1].size))


def weight_shape(leaf: Leaf) -> tuple[int, ...]:
    """The shape of a leaf's main tensor, as torch has it."""
    shape = main_tensor(leaf)[1].shape
    return shape[::-1] if leaf.form == "transposed" else shape
