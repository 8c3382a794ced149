"""What may stand in aux, how it goes through JSON, and what `exactly` means."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import torch

from mapper.weights.arrays import raw_bytes
from mapper.weights.values.aux_values import decode, encode


def through(aux: dict[Any, Any]) -> dict[Any, Any]:
    """`aux` after strict JSON text and stored copies of its tensors."""
    structure, tensors = encode(aux)
    text = json.dumps(structure, allow_nan=False)
    text.encode("ascii")
    stored = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    return decode(json.loads(text), stored.__getitem__)


def same(a: Any, b: Any) -> bool:
    """Whether what came back and what was saved have the same types all the way down, the same order and the same bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        equal = a.dtype == b.dtype and a.shape == b.shape and a.requires_grad == b.requires_grad
        return equal and torch.equal(raw_bytes(a), raw_bytes(b))
    if isinstance(a, (np.ndarray, np.generic)):
        return (
            a.dtype == b.dtype and a.dtype.char == b.dtype.char and same_array(np.asarray(a), np.asarray(b))
        )
    if isinstance(a, dict):
        return len(a) == len(b) and all(map(same, a, b)) and all(map(same, a.values(), b.values()))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    return struct.pack("d", a) == struct.pack("d", b) if isinstance(a, float) else bool(a == b)


def same_array(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    ordered = a.ndim < 2 or a.flags.f_contiguous == b.flags.f_contiguous or not a.flags.forc
    padded = a.dtype.char in "gG"  # ten bytes of sixteen say something
    equal = np.array_equal(a, b) if padded else a.tobytes() == b.tobytes()
    return a.shape == b.shape and equal and ordered and a.flags.aligned


def nan(bits: int) -> float:
    """The float with these bits."""
    value = struct.unpack("<d", struct.pack("<Q", bits))[0]
    assert math.isnan(value)
    return value
