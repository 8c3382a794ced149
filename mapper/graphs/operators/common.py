"""What several operators need. Printed into generated source beside them."""

from __future__ import annotations

import torch
from torch import Tensor


def ints(value: list[int] | Tensor | int | None) -> list[int]:
    """Whole numbers that a graph has as a tensor, or as Python's own."""
    if value is None:
        return []
    if isinstance(value, Tensor):
        return [int(item) for item in value.reshape(-1).tolist()]
    return [value] if isinstance(value, int) else [int(item) for item in value]


def axis_in(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    return axis + rank if axis < 0 else axis


def wide(x: Tensor) -> Tensor:
    """Unsigned numbers that torch has no arithmetic of, as int64; others as they are. Raises ValueError for what does not fit."""
    if x.dtype not in (torch.uint16, torch.uint32, torch.uint64):
        return x
    found = x.to(torch.int64)
    if x.dtype == torch.uint64 and bool((found < 0).any()):
        raise ValueError("numbers of 2**63 and more are not computed with exactly")
    return found


def beside(a: Tensor, b: Tensor, broadcast: int, axis: int | None) -> Tensor:
    """`b` with axes behind it, so that its first is `axis` of `a`: how operators broadcast before version 7."""
    if not broadcast or axis is None:
        return b
    behind = a.dim() - axis_in(axis, a.dim()) - b.dim()
    return b.reshape(tuple(b.shape) + (1,) * max(behind, 0))
