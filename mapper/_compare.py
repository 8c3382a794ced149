"""Two models on the same inputs: the largest difference of every output, and of every block that both have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class Difference:
    """The largest difference of one tensor, as a share of max(1, the reference's largest value)."""

    name: str
    value: float  # inf where shapes differ or a value is not finite on one side alone
    note: str = ""


@dataclass
class Trace:
    """What one forward returned, and what each module in it gave back, in order of completion."""

    outputs: dict[str, Tensor]
    blocks: dict[str, Tensor] = field(default_factory=dict)


def trace(model: nn.Module, inputs: Mapping[str, Any]) -> Trace:
    """One forward without gradients; the first tensor that each module returned, the last time it ran."""
    blocks: dict[str, Tensor] = {}
    handles = [
        module.register_forward_hook(_keeper(blocks, name)) for name, module in model.named_modules() if name
    ]
    try:
        with torch.no_grad():
            out = model(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    return Trace(dict(tensors(out)), blocks)


def _keeper(blocks: dict[str, Tensor], name: str) -> Any:
    def keep(module: nn.Module, arguments: Any, result: Any) -> None:
        for _, tensor in tensors(result):
            blocks.pop(name, None)
            blocks[name] = tensor.detach().clone()
            return

    return keep


def tensors(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every floating-point tensor in an output, by its name; caches and nested objects of other kinds are passed over."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield name or "output", value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors(item, f"{name}.{key}" if name else str(key))
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            yield from tensors(getattr(value, item.name), f"{name}.{item.name}" if name else item.name)
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from tensors(item, f"{name}.{index}" if name else str(index))


def difference(name: str, mine: Tensor, other: Tensor, mask: Tensor | None = None) -> Difference:
    """The largest difference where `mask` (B, T) is 1, if the tensors have its batch and length."""
    if mine.shape != other.shape:
        return Difference(
            name, float("inf"), f"shape {tuple(mine.shape)}, the reference has {tuple(other.shape)}"
        )
    mine, other = mine.float().cpu(), other.float().cpu()
    if mask is not None and mine.shape[:2] == mask.shape:
        keep = mask.bool().cpu()
        mine, other = mine[keep], other[keep]
    if mine.numel() == 0:
        return Difference(name, 0.0)
    if not torch.equal(torch.isfinite(mine), torch.isfinite(other)):
        return Difference(name, float("inf"), "not finite on one side")
    finite = torch.isfinite(other)
    mine, other = mine[finite], other[finite]
    scale = max(1.0, float(other.abs().max())) if other.numel() else 1.0
    return Difference(name, float((mine - other).abs().max()) / scale if other.numel() else 0.0)


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
        difference(name, value, other.blocks[name], mask)
        for name, value in mine.blocks.items()
        if name in other.blocks and value.shape == other.blocks[name].shape
    ]
    return outputs, blocks
