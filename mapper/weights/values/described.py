"""Tensors and NumPy arrays as a tensor that any container holds and a few words of JSON, and back bit for bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from mapper import limits
from mapper.errors import FormatError, UnsupportedLeaf
from mapper.weights.arrays import NUMERIC, from_raw, one_named, raw_bytes, why_no_bytes
from mapper.weights.saving.container import NAMES
from mapper.weights.values.numpy_types import numpy_dtype, numpy_type_node
from mapper.weights.values.plain import Read, dtype_value, extents, payload, payload_bytes, shorten_json

_NUMPY_NATIVE = NUMERIC - {np.dtype("c16")}  # which a safetensors file has no name for
_NUMPY_TYPES = {torch.from_numpy(np.empty(0, dtype)).dtype for dtype in _NUMPY_NATIVE}


def tensor_node(tensor: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
    """What is stored of a tensor, without a copy where it is dense, and what says how it is made of that again."""
    reason = why_not(tensor)
    if reason:
        raise UnsupportedLeaf(reason)
    node: dict[str, Any] = {}
    if type(tensor) is nn.Parameter:
        node["parameter"] = True
    if tensor.requires_grad:
        node["requires_grad"] = True
    stored = tensor.detach()
    order = dense_order(stored)
    if order is not None:
        stored, node["order"] = stored.permute(order), order
    if stored.dtype not in NAMES or stored.dim() > limits.DIMENSIONS:
        node |= {"dtype": str(stored.dtype).removeprefix("torch."), "shape": list(stored.shape)}
        stored = raw_bytes(stored)
    return stored, node


def why_not(tensor: torch.Tensor) -> str:
    """Why the bits of a tensor cannot be stored: empty where they can."""
    reason = why_no_bytes(tensor)
    if not reason and type(tensor) not in (torch.Tensor, nn.Parameter):
        return f"a tensor of the subclass {type(tensor).__qualname__} cannot be stored; give a plain tensor"
    return reason


def dense_order(tensor: torch.Tensor) -> list[int] | None:
    """The order of dimensions in which a permuted dense tensor is contiguous; None for any other."""
    if tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        return None
    order = sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride()[dim], dim))
    return order if tensor.permute(order).is_contiguous() else None


def tensor_value(stored: torch.Tensor, node: dict[str, Any]) -> torch.Tensor:
    """The tensor of which `tensor_node` made these."""
    if "dtype" in node:
        stored = of_bytes(stored, dtype_value(node["dtype"]), extents(node.get("shape")))
    if "order" in node:
        stored = stored.permute(inverse(node["order"], stored.dim()))
    grad = node.get("requires_grad", False) is True
    if grad and not (stored.is_floating_point() or stored.is_complex()):
        raise FormatError(f"a tensor of {stored.dtype} has no gradient")
    if node.get("parameter", False) is True:
        return nn.Parameter(stored, requires_grad=grad)
    return stored.requires_grad_() if grad else stored


def of_bytes(stored: torch.Tensor, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    if len(shape) > limits.RAW_DIMENSIONS or str(dtype).startswith("torch.q"):
        raise FormatError(f"a tensor of {dtype} with {len(shape)} dimensions is never stored")
    check_bytes(stored, shape, dtype.itemsize)
    return from_raw(stored, dtype, shape)


def check_bytes(stored: torch.Tensor, shape: list[int], itemsize: int) -> None:
    expected = math.prod(shape) * itemsize
    if stored.dtype != torch.uint8 or stored.dim() != 1 or stored.numel() != expected:
        found = f"{stored.dtype} {list(stored.shape)}".removeprefix("torch.")
        raise FormatError(f"{shape} of {itemsize} bytes each is {expected} bytes, but {found} is stored")
    if math.prod(extent for extent in shape if extent) * max(itemsize, 1) >= 1 << 62:
        raise FormatError(f"the shape {shape} is beyond what can be addressed")


def inverse(order: Any, dimensions: int) -> list[int]:
    if not isinstance(order, list) or not all(type(dim) is int for dim in order):
        raise FormatError(f"an order of dimensions is a list of integers, not {shorten_json(order)}")
    if sorted(order) != list(range(dimensions)):
        raise FormatError(f"{order[:8]} is not an order of {dimensions} dimensions")
    return sorted(range(dimensions), key=order.__getitem__)


def array_node(array: np.ndarray[Any, Any]) -> tuple[torch.Tensor, dict[str, Any]]:
    """What is stored of a NumPy array, and what says how it is made of that again."""
    if type(array) is not np.ndarray:
        raise UnsupportedLeaf(f"an array of the subclass {type(array).__qualname__} cannot be stored")
    node: dict[str, Any] = {"dtype": numpy_type_node(array.dtype)}
    if not array.flags.c_contiguous:
        order = sorted(range(array.ndim), key=lambda dim: (-array.strides[dim], dim))
        if array.transpose(order).flags.c_contiguous:
            array, node["order"] = array.transpose(order), order
    flat = np.asarray(array, order="C").reshape(-1)
    if array.dtype in _NUMPY_NATIVE and array.dtype.isnative and array.ndim <= limits.DIMENSIONS:
        return _shared(flat).view(array.shape), node
    node["shape"] = list(array.shape)
    if not array.size or not array.dtype.itemsize:
        return torch.empty(0, dtype=torch.uint8), node
    return _shared(flat.view(np.uint8)), node


def _shared(flat: np.ndarray[Any, Any]) -> torch.Tensor:
    """The same memory as a tensor, where torch may have it."""
    flat = one_named(flat)
    free = flat.flags.writeable and flat.flags.aligned and flat.strides == (flat.itemsize,)
    return torch.from_numpy(flat if free else flat.copy())


def array_value(stored: torch.Tensor, node: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The array of which `array_node` made these."""
    dtype = numpy_dtype(node.get("dtype"))
    array = _plain_array(stored, dtype) if "shape" not in node else raw_array(stored, dtype, node["shape"])
    return array.transpose(inverse(node["order"], array.ndim)) if "order" in node else array


def _plain_array(stored: torch.Tensor, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    array = stored.numpy() if stored.dtype in _NUMPY_TYPES else np.empty(0, "V1")
    if array.dtype != dtype:
        raise FormatError(f"an array of {dtype} is stored as {stored.dtype}")
    return array.view(dtype)  # of the types with two names (long, long long) the one that was saved


def raw_array(stored: torch.Tensor, dtype: np.dtype[Any], shape: Any) -> np.ndarray[Any, Any]:
    shape = extents(shape)
    if len(shape) > limits.RAW_DIMENSIONS:
        raise FormatError(f"an array has {limits.RAW_DIMENSIONS} dimensions at most, not {len(shape)}")
    check_bytes(stored, shape, dtype.itemsize)
    try:
        array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, buffer=stored.contiguous().numpy())
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        raise FormatError(f"no array of {dtype} has the shape {shape}: {error}") from error
    return array if array.flags.aligned else array.copy(order="C")


def scalar_node(scalar: np.generic) -> dict[str, Any]:
    """A NumPy scalar as JSON: its bytes and its type."""
    if type(scalar) is np.bytes_ or type(scalar) is np.str_:  # an item of such a type loses zeros at its end
        data = scalar.encode("utf-8", "surrogatepass") if isinstance(scalar, str) else b"".join([scalar])
        return {"numpy.scalar": payload(data, None), "dtype": type(scalar).__name__}
    dtype = getattr(scalar, "dtype", np.dtype(object))
    if type(scalar) is not dtype.type:
        raise UnsupportedLeaf(f"a scalar of the subclass {type(scalar).__qualname__} cannot be stored")
    data = np.asarray(scalar).tobytes()
    return {"numpy.scalar": payload(data, None), "dtype": numpy_type_node(dtype)}


def scalar_value(node: dict[str, Any], read: Read | None = None) -> np.generic:
    """The scalar of which `scalar_node` made `node`."""
    data = payload_bytes(node.get("numpy.scalar"), read)
    if node.get("dtype") == "bytes_":
        return np.bytes_(data)
    if node.get("dtype") == "str_":
        try:
            return np.str_(data.decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError as error:
            raise FormatError(f"a string is not UTF-8: {error}") from error
    raw = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    scalar: Any = raw_array(raw, numpy_dtype(node.get("dtype")), [])[()]
    if not isinstance(scalar, np.generic):
        raise FormatError(f"{shorten_json(node['dtype'])} is the type of an array, not of a scalar")
    return scalar
