"""Lists of tensors, and values that may be absent: lists and None. https://onnx.ai/onnx/operators/"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mapper.graphs.operators import operator
from mapper.graphs.operators.common import ints


@operator("SequenceEmpty", since=11)
def sequence_empty(*, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return []


@operator("SequenceConstruct", since=11)
def sequence_construct(*xs: Tensor) -> list[Tensor]:
    return list(xs)


@operator("SequenceInsert", since=11)
def sequence_insert(items: list[Tensor], x: Tensor, position: int | Tensor | None = None) -> list[Tensor]:
    at = len(items) if position is None else ints(position)[0]
    return [*items[:at], x, *items[at:]]


@operator("SequenceErase", since=11)
def sequence_erase(items: list[Tensor], position: int | Tensor | None = None) -> list[Tensor]:
    at = -1 if position is None else ints(position)[0]
    at = at + len(items) if at < 0 else at
    return [*items[:at], *items[at + 1 :]]


@operator("SequenceAt", since=11)
def sequence_at(items: list[Tensor], position: int | Tensor) -> Tensor:
    return items[ints(position)[0]]


@operator("SequenceLength", since=11)
def sequence_length(items: list[Tensor]) -> Tensor:
    return torch.tensor(len(items))


@operator("ConcatFromSequence", since=11)
def concat_from_sequence(items: list[Tensor], *, axis: int, new_axis: int = 0) -> Tensor:
    return torch.stack(items, axis) if new_axis else torch.cat(items, axis)


@operator("SplitToSequence", since=11)
def split_to_sequence(
    x: Tensor, split: int | Tensor | None = None, *, axis: int = 0, keepdims: int = 1
) -> list[Tensor]:
    if split is None:
        return list(x.split(1, axis)) if keepdims else list(x.unbind(axis))
    is_one = not isinstance(split, Tensor) or split.dim() == 0
    return list(x.split(ints(split)[0] if is_one else ints(split), axis))


@operator("Optional", since=15)
def optional(x: Any = None, *, type: Any = None) -> Any:
    return x


@operator("OptionalHasElement", since=15)
def optional_has_element(x: Any = None) -> Tensor:
    return torch.tensor(x is not None)


@operator("OptionalGetElement", since=15)
def optional_get_element(x: Any) -> Any:
    return x
