"""A plain weight that a file has not, and the tensors that it is computed from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

    from mapper.checkpoint import Checkpoint

CONFIG = "quantization_config"  # the field of a config that says how weights are stored
FLOATS = ("F16", "BF16", "F32")  # of scales


class Part(NamedTuple):
    """What stands for one plain weight."""

    name: str  # of the plain weight
    shape: tuple[int, ...]
    stored: tuple[str, ...]  # the tensors that it is computed from, the largest first
    compute: Callable[..., torch.Tensor]  # it in 32 bits, of these in their order
    how: str  # "weights of F8_E4M3 are multiplied by their scales"
    beside: tuple[str, ...] = ()  # tensors that only say how it is stored


def of_same(checkpoint: Checkpoint, stem: str, words: tuple[str, ...]) -> tuple[str, ...] | None:
    """The tensors of a module by their last words, or None where one of them is not there."""
    names = tuple(stem + word for word in words)
    return names if all(name in checkpoint.tensors for name in names) else None


def fit(checkpoint: Checkpoint, *expected: tuple[str, tuple[str, ...], tuple[int, ...]]) -> bool:
    """Whether tensors have one of the types and the shape that are expected of each: nothing else is computed with."""
    return all(
        checkpoint.tensors[name].dtype in dtypes and checkpoint.tensors[name].shape == shape
        for name, dtypes, shape in expected
    )
