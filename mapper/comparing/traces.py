"""Two models on the same inputs: the largest difference of every output, and of every block that both have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class Difference:
    """The largest difference of one tensor, as a share of max(1, the reference's largest value)."""

    name: str
    value: float  # inf where shapes differ or a value is not finite, on whichever side
    note: str = ""
    rows: tuple[float, ...] = ()  # the same for each row: each index of the first dimension
    fed: float | None = (
        None  # of a block: the difference of what went in; None where that is no numbers or not known
    )


@dataclass
class Trace:
    """What one forward returned, and what each module in it took and gave back, in order of completion."""

    outputs: dict[str, Tensor]
    blocks: dict[str, Tensor] = field(default_factory=dict)
    given: dict[str, Tensor] = field(
        default_factory=dict
    )  # the first tensor of numbers that a module was called with


def trace(model: nn.Module, inputs: Mapping[str, Any], *, with_codes: bool = False) -> Trace:
    """One forward without gradients; the first tensor that each module returned, the last time it ran.

    `with_codes` keeps outputs of whole numbers and truth values, too.
    """
    found = Trace({})
    handles = [
        handle
        for name, module in model.named_modules()
        if name
        for handle in (
            module.register_forward_pre_hook(_taker(found.given, name), with_kwargs=True),
            module.register_forward_hook(_keeper(found.blocks, name)),
        )
    ]
    try:
        with torch.no_grad():
            out = model(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    found.outputs = dict(tensors(out, with_codes=with_codes))
    return found


def _taker(given: dict[str, Tensor], name: str) -> Any:
    def keep(module: nn.Module, arguments: Any, named: Any) -> None:
        given.pop(name, None)
        for value in (*arguments, *named.values()):
            if isinstance(value, Tensor) and value.is_floating_point():
                given[name] = value.detach().clone()  # the module may write into it
                return

    return keep


def _keeper(blocks: dict[str, Tensor], name: str) -> Any:
    def keep(module: nn.Module, arguments: Any, result: Any) -> None:
        for _, tensor in tensors(result):
            blocks.pop(name, None)
            blocks[name] = tensor.detach().clone()
            return

    return keep


def tensors(value: Any, name: str = "", *, with_codes: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Every floating-point tensor in an output, by its name; caches and nested objects of other kinds are passed over.

    `with_codes` gives tensors of whole numbers and truth values, too.
    """
    if isinstance(value, Tensor):
        if with_codes or value.is_floating_point():
            yield name or "output", value
        return
    for key, item in _members(value):
        yield from tensors(item, f"{name}.{key}" if name else key, with_codes=with_codes)


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    """What a table, a dataclass or a list holds, by name or number."""
    if isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items())
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((item.name, getattr(value, item.name)) for item in fields(value))
    elif isinstance(value, (tuple, list)):
        yield from ((str(index), item) for index, item in enumerate(value))


def difference(name: str, mine: Tensor, other: Tensor, mask: Tensor | None = None) -> Difference:
    """The largest difference where `mask` (B, T) is 1, if the tensors have its length, and its batch or several rows each."""
    if mine.shape != other.shape:
        return Difference(
            name, math.inf, f"shape {tuple(mine.shape)}, the reference has {tuple(other.shape)}"
        )
    if mine.numel() == 0:
        return Difference(name, 0.0)
    mine, other = (tensor.detach().float().cpu() for tensor in (mine, other))
    if mask is not None and is_masked(mine, mask):
        hidden = ~mask.bool().cpu().repeat_interleave(len(mine) // len(mask), dim=0)
        mine, other = (tensor.masked_fill(_widened(hidden, tensor), 0) for tensor in (mine, other))
    bad = [side for side, tensor in (("model", mine), ("reference", other)) if not tensor.isfinite().all()]
    both = mine.isfinite() & other.isfinite()
    scale = max(1.0, float(other[both].abs().max())) if both.any() else 1.0
    rows = _rows((mine - other).abs().masked_fill(~both, math.inf)) / scale
    note = f"not finite in the {' and in the '.join(bad)}" if bad else ""
    return Difference(name, float(rows.max()), note, tuple(rows.tolist()))


def is_masked(tensor: Tensor, mask: Tensor) -> bool:
    """Whether a tensor has the places of `mask` (B, T): its length, and its batch or several rows for each of it."""
    return tensor.dim() > 1 and tensor.shape[1] == mask.shape[1] and len(tensor) % len(mask) == 0


def _rows(apart: Tensor) -> Tensor:
    """The largest value at each index of the first dimension."""
    return apart.flatten(1).amax(1) if apart.dim() > 1 else apart.reshape(-1)


def _widened(hidden: Tensor, tensor: Tensor) -> Tensor:
    return hidden.reshape(*hidden.shape, *(1,) * (tensor.dim() - 2))


def compare(
    mine: Trace, other: Trace, mask: Tensor | None = None
) -> tuple[list[Difference], list[Difference]]:
    """Differences of the outputs that the reference returned, and of the blocks that both have, in order."""
    outputs = [
        difference(name, mine.outputs[name], other.outputs[name], mask)
        for name in other.outputs
        if name in mine.outputs
    ]
    blocks = [
        replace(difference(name, value, other.blocks[name], mask), fed=_fed(name, mine, other, mask))
        for name, value in mine.blocks.items()
        if name in other.blocks and value.shape == other.blocks[name].shape
    ]
    return outputs, blocks


def _fed(name: str, mine: Trace, other: Trace, mask: Tensor | None) -> float | None:
    if name not in mine.given or name not in other.given:
        return None
    return difference(name, mine.given[name], other.given[name], mask).value


def other_steps(blocks: Sequence[Difference], tolerance: float) -> set[str]:
    """Names under which the two models do different steps: no sign of an error.

    A reference's `attention` may hold the norm after it, or its embedding a factor, that here stand one level up. Such
    a block departs, and yet a later one of the same part takes the same numbers and gives the same.
    """
    agreed: set[str] = set()  # parts, and those around them, that hold a later block which agrees
    found = set()
    for block in reversed(blocks):
        if block.value > tolerance:
            if _part(block.name) in agreed:
                found.add(block.name)
        elif block.fed is not None and block.fed <= tolerance:
            words = block.name.split(".")
            agreed.update(".".join(words[:depth]) for depth in range(len(words)))
    return found


def _part(name: str) -> str:
    """The stack of layers that a block stands in; outside of one, what is two levels up."""
    words = name.split(".")
    number = next((at for at, word in enumerate(words) if word.isdigit()), max(0, len(words) - 2))
    return ".".join(words[:number])
