"""What counts as an array, and any array as a torch tensor with the same bits."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

# Types that NumPy has from ml_dtypes alone; torch has the same bits under the same names.
EXTENDED = (
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
)
# Types that NumPy and torch both have.
NUMERIC = {np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)}
NUMERIC |= {np.dtype(word) for word in ("?", "f2", "f4", "f8", "c8", "c16")}


def is_array(value: Any) -> bool:
    """Whether `value` is a tensor, or a NumPy or jax array or scalar of numbers that torch has too."""
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, (np.ndarray, np.generic)):
        return _torch_has(value.dtype)
    return is_jax(value) and _torch_has(np.dtype(value.dtype))


def is_jax(value: Any) -> bool:
    """Whether `value` is a jax array; jax is never imported for that."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, getattr(jax, "Array", ()))


def _torch_has(dtype: np.dtype[Any]) -> bool:
    # By name first: some of ml_dtypes say that they are of NumPy's own kind "f".
    return dtype.name in EXTENDED or (dtype.kind in "?biufc" and dtype.newbyteorder("=") in NUMERIC)


def as_tensor(value: Any) -> torch.Tensor:
    """An array as a detached tensor: itself, the same memory where torch can share it, or a copy of the same bits."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    return from_numpy(np.asarray(value))


def from_numpy(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A NumPy array of any byte order, memory order and of the types of ml_dtypes as a tensor."""
    if array.dtype.name in EXTENDED:
        bits = _shareable(array.view(f"u{array.dtype.itemsize}"))
        return torch.from_numpy(bits).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(_shareable(array))


def one_named(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Under the one of two types of a size that torch knows: long, and not long long."""
    return array.view(array.dtype.str)


def _shareable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """In the machine's byte order, without steps backwards, writable: what torch can share; else a copy of it."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    array = one_named(array)
    backwards = any(step < 0 or step % array.itemsize for step in array.strides)
    return array.copy() if backwards or not array.flags.writeable or not array.flags.aligned else array


def why_no_bytes(tensor: torch.Tensor) -> str:
    """Why the bytes of a tensor cannot be stored, and what to store instead; "" where they can."""
    if is_lazy(tensor):
        return "a lazy tensor has no shape yet; run the model once"
    if tensor.is_quantized or str(tensor.dtype).startswith("torch.q"):
        return f"a quantised tensor ({tensor.dtype}) cannot be stored; dequantize it, or give its int_repr()"
    if tensor.is_nested:
        return "a nested tensor cannot be stored; give its parts, which unbind() has"
    if tensor.layout != torch.strided:
        return f"a sparse tensor ({tensor.layout}) cannot be stored; give its to_dense() or its parts"
    if hasattr(type(tensor), "__tensor_flatten__"):
        return f"a tensor made of others ({type(tensor).__name__}) cannot be stored; give a plain tensor"
    if tensor.is_meta:
        return "a tensor on the meta device has no data to store"
    if any(getattr(tensor, "names", ())):  # torch has given them up in 2.13
        return "a tensor with named dimensions cannot be stored; give its rename(None)"
    return ""


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor of any dense type, in row order, as a flat uint8 tensor on the CPU."""
    bare = tensor.detach().resolve_conj().resolve_neg()
    if bare.element_size() == 1:
        bare = bare.view(torch.uint8)  # the types of fewer than 8 bits cannot be copied as what they are
    whole = bare.cpu().contiguous()
    if not whole.numel():
        return torch.empty(0, dtype=torch.uint8)
    # view(-1) keeps the stride of a single element, and then other sizes cannot be viewed
    return whole.as_strided((whole.numel(),), (1,)).view(torch.uint8)


def from_raw(raw: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...] | list[int]) -> torch.Tensor:
    """The tensor whose `raw_bytes` are `raw`. They are copied: a view in place need not be aligned."""
    return (
        raw.clone().view(dtype).view(tuple(shape)) if raw.numel() else torch.empty(tuple(shape), dtype=dtype)
    )
