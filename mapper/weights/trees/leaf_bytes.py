"""One leaf of a tree as bytes and back: the defaults of `save_tree` and `load_tree`, and the streams they are given."""

from __future__ import annotations

import io
import json
import math
import sys
from typing import Any

import numpy as np
import torch
from torch import nn

from mapper import limits
from mapper.errors import FormatError, StructureError, UnsupportedLeaf
from mapper.weights.arrays import is_jax, raw_bytes
from mapper.weights.modules import is_unshaped
from mapper.weights.saving.container import pieces
from mapper.weights.values.described import (
    array_node,
    check_bytes,
    dense_order,
    inverse,
    raw_array,
    scalar_node,
    scalar_value,
    why_not,
)
from mapper.weights.values.numpy_types import numpy_dtype
from mapper.weights.values.plain import dtype_value, extents, plain_node, plain_value, shorten_json

_ALIGNED = 64  # the data of a leaf begin at a multiple of it, so that they can be used where they lie
_NUMBERS = (bool, int, float, complex)


class NothingStored(StructureError):
    """A leaf is wanted of a stream that has no bytes."""


class LeafWriter(io.RawIOBase):
    """Takes the bytes of one leaf. Tensors of the defaults are only noted, and read when the leaf is written out."""

    def __init__(self) -> None:
        self.parts: list[bytes | torch.Tensor] = []
        self.size = 0
        self.was_used = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        data = bytes(memoryview(data))  # a copy: the caller may use its buffer again
        self.was_used = True
        self.parts.append(data)
        self.size += len(data)
        return len(data)

    def write_tensor(self, tensor: torch.Tensor) -> None:
        self.parts.append(tensor)
        self.size += tensor.numel() * tensor.element_size()


class LeafReader(io.RawIOBase):
    """Gives the bytes of one leaf, and no others."""

    def __init__(self, data: bytearray) -> None:
        self.data, self.position, self.was_asked = memoryview(data), 0, False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.position = max(0, offset + (0, self.position, len(self.data))[whence])
        return self.position

    def take(self, size: int | None = -1) -> memoryview:
        """The next bytes where they lie; at most as many as there are."""
        self.was_asked = True
        start = min(self.position, len(self.data))
        end = len(self.data) if size is None or size < 0 else min(start + size, len(self.data))
        self.position = max(self.position, end)
        return self.data[start:end]

    def read(self, size: int | None = -1) -> bytes:
        return bytes(self.take(size))

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        target = memoryview(buffer).cast("B")
        found = self.take(len(target))
        target[: len(found)] = found
        return len(found)


def kind_of(leaf: Any) -> str:
    """What the defaults store a leaf as; empty for what they leave out."""
    if isinstance(leaf, torch.Tensor):
        return "torch.Tensor"
    if isinstance(leaf, (np.ndarray, np.generic)):
        return "numpy.ndarray" if isinstance(leaf, np.ndarray) else "numpy.generic"
    if is_jax(leaf):
        return "jax.Array"
    return "number" if type(leaf) in _NUMBERS else ""


def is_shape_only(leaf: Any) -> bool:
    """Whether a leaf of `like` has a shape and a type and no data: on meta, or a ShapeDtypeStruct of jax."""
    if isinstance(leaf, torch.Tensor):
        return leaf.is_meta
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(leaf, getattr(jax, "ShapeDtypeStruct", ()))


def is_expected(leaf: Any) -> bool:
    """Whether the defaults look for a leaf of `like` in the file."""
    return bool(kind_of(leaf)) or is_shape_only(leaf)


def describe(leaf: Any) -> str:
    """The Python type of a leaf with its dtype and shape."""
    shape, dtype = shape_of(leaf), getattr(leaf, "dtype", None)
    word = {"jax.Array": "jax.Array", "numpy.generic": "numpy scalar"}.get(
        kind_of(leaf), type(leaf).__qualname__
    )
    return word if shape is None or dtype is None else f"{word} {dtype_name(dtype)} {list(shape)}"


def shape_of(leaf: Any) -> Any:
    """The shape of a leaf that has one; a parameter of a lazy module has none yet."""
    return None if isinstance(leaf, torch.Tensor) and is_unshaped(leaf) else getattr(leaf, "shape", None)


def dtype_name(dtype: Any) -> str:
    """The name that torch, NumPy and jax have in common; with the byte order where it is not the machine's."""
    if isinstance(dtype, torch.dtype):
        return str(dtype).removeprefix("torch.")
    try:
        plain = np.dtype(dtype)
    except TypeError:  # jax has types of its own
        return str(dtype)
    return plain.name if plain.isnative and plain.names is None else str(plain)


def default_save_leaf(writer: Any, leaf: Any) -> None:
    """Write a tensor, an array, a NumPy scalar or a Python number; nothing for a leaf of any other type.

    Raises UnsupportedLeaf for an array whose bits cannot be stored: sparse, quantised, on meta, of objects.
    """
    kind = kind_of(leaf)
    if not kind:
        return
    node, stored = _encoded(kind, leaf)
    head = json.dumps({"type": kind} | node, separators=(",", ":")).encode("ascii")
    head += b" " * (-(len(head) + 4) % _ALIGNED)
    if len(head) > limits.LEAF_HEADER_BYTES:
        raise UnsupportedLeaf(f"a number of {len(head):,} bytes cannot be stored; give an array")
    writer.write(len(head).to_bytes(4, "little") + head)
    if stored is None:
        return
    if isinstance(writer, LeafWriter):
        writer.write_tensor(stored)
        return
    for piece in pieces(stored):
        writer.write(raw_bytes(piece).numpy().tobytes())


def _encoded(kind: str, leaf: Any) -> tuple[dict[str, Any], torch.Tensor | None]:
    if kind == "number":
        return {"value": plain_node(leaf)}, None
    if kind == "numpy.generic":
        return scalar_node(leaf), None
    if kind == "torch.Tensor":
        return _tensor_encoded(leaf)
    stored, node = array_node(_in_memory(kind, leaf))
    node["shape"] = node.get("shape", list(stored.shape))
    return node, stored


def _in_memory(kind: str, leaf: Any) -> Any:
    """A jax array as one of NumPy, and a mapped file as the memory it is."""
    if kind != "jax.Array":
        return leaf.view(np.ndarray) if type(leaf) is np.memmap else leaf
    try:
        return np.asarray(leaf)
    except TypeError as error:  # its keys of random numbers, and arrays that were donated
        raise UnsupportedLeaf(" ".join(str(error).split())) from error


def _tensor_encoded(tensor: torch.Tensor) -> tuple[dict[str, Any], torch.Tensor]:
    reason = why_not(tensor)
    if reason:
        raise UnsupportedLeaf(reason)
    stored, node = tensor.detach(), {}
    order = dense_order(stored)
    if order is not None:
        stored, node["order"] = stored.permute(order), order
    return {"dtype": dtype_name(stored.dtype), "shape": list(stored.shape)} | node, stored


def default_load_leaf(reader: Any, like: Any) -> Any:
    """The leaf that `default_save_leaf` wrote, on the device of `like`; `like` itself where that is never stored.

    Raises StructureError where type, shape or dtype are not those of `like`.
    """
    if not is_expected(like):
        return like
    leaf = stored_leaf(reader)
    problem = disagreement(leaf, like)
    if problem:
        raise StructureError(problem)
    return _placed(leaf, like)


class StoredLeaf:
    """A leaf as it is in a stream: what it is, and its bytes."""

    def __init__(self, node: Any) -> None:
        if not isinstance(node, dict) or node.get("type") not in _DECODED:
            raise FormatError(f"a leaf is described by its type, not by {shorten_json(node)}")
        self.kind, self.node = node["type"], node
        self.shape: list[int] = []
        self.dtype: Any = None
        self.value: Any = None
        self.size, self.raw = 0, memoryview(b"")
        if self.kind == "number":
            self.value = plain_value(node.get("value"))
            if type(self.value) not in _NUMBERS:
                raise FormatError(f"a number is stored as {shorten_json(node.get('value'))}")
        elif self.kind == "numpy.generic":
            self.value = scalar_value(node)
            self.dtype = self.value.dtype
        else:
            is_tensor = self.kind == "torch.Tensor"
            self.dtype = dtype_value(node.get("dtype")) if is_tensor else numpy_dtype(node.get("dtype"))
            stored = extents(node.get("shape"))
            self.order = inverse(node["order"], len(stored)) if "order" in node else list(range(len(stored)))
            self.shape = [stored[at] for at in self.order]
            self.size = math.prod(stored) * self.dtype.itemsize

    def word(self) -> str:
        if self.kind == "number":
            return type(self.value).__name__
        if self.kind == "numpy.generic":
            return describe(self.value)
        short = {"torch.Tensor": "Tensor", "numpy.ndarray": "ndarray"}.get(self.kind, self.kind)
        return f"{short} {dtype_name(self.dtype)} {self.shape}"


def stored_leaf(reader: Any, header_only: bool = False) -> StoredLeaf:
    """The next leaf that a default wrote. Raises NothingStored at the end of the stream."""
    start = _read(reader, 4)
    if not start:
        raise NothingStored("nothing is stored")
    size = int.from_bytes(start, "little")
    if len(start) < 4 or size > limits.LEAF_HEADER_BYTES:
        raise FormatError("what is stored was not written by default_save_leaf")
    try:
        node = json.loads(bytes(_exactly(reader, size)).decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise FormatError("what is stored was not written by default_save_leaf") from error
    leaf = StoredLeaf(node)
    if not header_only:
        leaf.raw = _exactly(reader, leaf.size)
    return leaf


def _read(reader: Any, size: int) -> Any:
    """At most `size` bytes, fewer only at the end."""
    if isinstance(reader, LeafReader):
        return reader.take(size)
    data = bytearray()
    while len(data) < size:
        piece = reader.read(min(size - len(data), limits.READ_BYTES))
        if not piece:
            break
        data += piece
    return memoryview(data)


def _exactly(reader: Any, size: int) -> Any:
    data = _read(reader, size)
    if len(data) != size:
        raise FormatError(f"a leaf is cut short: {size} bytes are announced, {len(data)} are there")
    return data


def disagreement(stored: StoredLeaf, like: Any) -> str:
    """In what a stored leaf is not like a leaf: empty where it is."""
    kind = kind_of(like)
    if is_shape_only(like):
        same = "type" if stored.dtype is None else ""
    elif kind == "number" or stored.kind == "number":
        same = "" if stored.kind == kind and type(stored.value) is type(like) else "type"
    else:
        same = "" if stored.kind == kind else "type"
    if not same and kind != "number":
        same = _unlike(stored, like)
    return f"{same}: here {describe(like)}, stored {stored.word()}" if same else ""


def _unlike(stored: StoredLeaf, like: Any) -> str:
    exact = isinstance(stored.dtype, np.dtype) and isinstance(like, (np.ndarray, np.generic))
    equal = stored.dtype == like.dtype if exact else dtype_name(stored.dtype) == dtype_name(like.dtype)
    if not equal:
        return "dtype"
    shape = shape_of(like)
    return "" if shape is None or stored.shape == list(shape) else "shape"


def _placed(stored: StoredLeaf, like: Any) -> Any:
    value = _DECODED[stored.kind](stored)
    if isinstance(value, torch.Tensor) and isinstance(like, torch.Tensor) and not is_unshaped(like):
        value = value if like.is_meta else value.to(like.device)
        if isinstance(like, nn.Parameter):
            return nn.Parameter(value, requires_grad=like.requires_grad)
        return value.requires_grad_(like.requires_grad)
    return _jax_placed(value, like) if stored.kind == "jax.Array" else value


def _jax_placed(array: np.ndarray[Any, Any], like: Any) -> Any:
    jax = sys.modules.get("jax")
    if jax is None:  # only for a `like` on meta
        return array
    placed = jax.device_put(array, getattr(like, "sharding", None))
    if np.dtype(placed.dtype) != array.dtype:
        raise StructureError(f"dtype: jax has no {array.dtype} here (jax_enable_x64), which is stored")
    return placed


def _tensor(stored: StoredLeaf) -> torch.Tensor:
    raw = _bytes_tensor(stored)
    shape = [stored.node["shape"][at] for at in range(len(stored.shape))]
    check_bytes(raw, shape, stored.dtype.itemsize)
    if not raw.numel():
        return torch.empty(shape, dtype=stored.dtype).permute(stored.order)
    lies_well = raw.data_ptr() % stored.dtype.itemsize == 0
    return (raw if lies_well else raw.clone()).view(stored.dtype).view(shape).permute(stored.order)


def _bytes_tensor(stored: StoredLeaf) -> torch.Tensor:
    return (
        torch.frombuffer(stored.raw, dtype=torch.uint8)
        if len(stored.raw)
        else torch.empty(0, dtype=torch.uint8)
    )


def _array(stored: StoredLeaf) -> np.ndarray[Any, Any]:
    return raw_array(_bytes_tensor(stored), stored.dtype, stored.node["shape"]).transpose(stored.order)


_DECODED: dict[str, Any] = {
    "torch.Tensor": _tensor,
    "numpy.ndarray": _array,
    "jax.Array": _array,
    "numpy.generic": lambda stored: stored.value,
    "number": lambda stored: stored.value,
}
