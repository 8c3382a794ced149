"""The largest difference between two tensors of one shape and type, in pieces."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mapper.errors import SourceError

if TYPE_CHECKING:
    from torch import Tensor

_PIECE = 1 << 20  # elements: a few copies of it in float64 are all the memory a comparison takes
_FOUR_BITS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
# Types that torch compares by itself, without a copy in float64: the common case is that all is equal.
_COMPARED = {
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
}


def largest_difference(a: Tensor, b: Tensor) -> int | float | None:
    """The largest |a - b|, or None where all values are equal.

    NaN equals NaN, and 0 equals -0. An integer for integers and bool, exact; NaN where one side alone is NaN. Complex
    numbers are compared as points: an infinite part that both have does not count.
    """
    found: int | float | None = None
    for one, other in _pieces(_dense(a), _dense(b)):
        apart = _difference(one, other)
        if apart is not None and (found is None or not apart <= found):
            found = apart
            if math.isnan(apart):
                return found
    return found


def _dense(tensor: Tensor) -> Tensor:
    if tensor.is_meta:
        raise SourceError("a tensor is on the meta device and has no data; compare headers alone")
    tensor = tensor.detach()
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def _pieces(a: Tensor, b: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Equal parts of both; views, whatever the strides."""
    if a.numel() <= _PIECE:
        yield a, b
    elif len(a) == 1:
        yield from _pieces(a[0], b[0])
    else:
        rows = max(1, _PIECE // (a.numel() // len(a)))
        for at in range(0, len(a), rows):
            yield from _pieces(a[at : at + rows], b[at : at + rows])


def _difference(a: Tensor, b: Tensor) -> int | float | None:
    if not a.numel() or (a.dtype in _COMPARED and a.device == b.device and torch.equal(a, b)):
        return None
    left, right = _numbers(a), _numbers(b)
    if left.dtype.kind in "biu":
        return _whole(left, right)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    if same.all():
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(same, 0.0, np.abs(left - right))
        if a.is_complex():
            apart = np.hypot(apart[..., 0], apart[..., 1])
    return float(apart.max())  # NaN if there is one


def _whole(a: Any, b: Any) -> int | None:
    """The difference of two's complements fits the unsigned type of the same width, though not their own."""
    if a.dtype == bool:
        return 1 if (a != b).any() else None
    apart = (np.maximum(a, b) - np.minimum(a, b)).view(f"u{a.dtype.itemsize}")
    return int(apart.max()) or None


def _numbers(tensor: Tensor) -> Any:
    """A piece as NumPy numbers: integers as they are, everything else in float64, complex as pairs."""
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    if str(tensor.dtype) == "torch.float4_e2m1fn_x2":
        codes = tensor.contiguous().view(torch.uint8).numpy()
        return np.array(_FOUR_BITS)[np.stack((codes & 15, codes >> 4), axis=-1)]
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.is_floating_point():
        tensor = tensor.double()
    return tensor.numpy()
