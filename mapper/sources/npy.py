"""NumPy's own format for one array: magic, version, a header in the form of a Python dict, then the numbers.

https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from mapper import limits
from mapper.checkpoint import DTYPE_BYTES, TensorInfo
from mapper.errors import FormatError, shorten
from mapper.sources.shards import Shard, check_name, check_shape

if TYPE_CHECKING:
    import torch

MAGIC = b"\x93NUMPY"
SUFFIX = ".npy"
START_BYTES = 256  # nearly every header fits
LENGTH_BYTES = {1: 2, 2: 4, 3: 4}  # of the header's length, by version
DTYPES = {
    "f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "i2": "I16", "i1": "I8", "u8": "U64", "u4": "U32",
    "u2": "U16", "u1": "U8", "b1": "BOOL", "c8": "C64", "c16": "C128",
    # What NumPy 2.4 writes for types of ml_dtypes 0.6: it knows no name for them.
    "V2": "BF16", "f1": "F8_E5M2", "W4": "C32",
}  # fmt: skip
BITS = {"V2": "u2", "f1": "u1", "W4": "u4"}  # as what those are read
NO_NUMBERS = {"U": "texts", "S": "texts", "M": "dates", "m": "spans of time"}
_ENTRY = re.compile(r"\s*'(\w+)'\s*:\s*('[^']*'|True|False|\([\d\s,L]*\)|\[[^\]]*\])\s*(?:,|$)")


class Header(NamedTuple):
    """What the header of one array says. `info` is None for what is no number: `kind` names it."""

    info: TensorInfo | None
    kind: str  # as NumPy writes the type, byte order apart
    swapped: bool  # big-endian
    fortran: bool  # columns first
    start: int  # bytes before the first number

    @property
    def size(self) -> int:
        """Bytes of the array, header included."""
        return self.start + (int(self.info.size * DTYPE_BYTES[self.info.dtype]) if self.info else 0)

    @property
    def is_plain(self) -> bool:
        """Whether the bytes are the tensor's as they stand."""
        return not (self.swapped or self.fortran)


def read_header(read: Callable[[int], bytes], key: str, name: str) -> Header:
    """The header of the array `key`; `read(n)` gives its next n bytes, or as many as there are."""
    start = read(START_BYTES)
    version = start[len(MAGIC)] if start.startswith(MAGIC) and len(start) > len(MAGIC) + 2 else 0
    if version not in LENGTH_BYTES:
        raise FormatError(f"{name}: {shorten(key)} is no array of NumPy: it starts with {_shown(start)}")
    before = len(MAGIC) + 2 + LENGTH_BYTES[version]
    length = int.from_bytes(start[len(MAGIC) + 2 : before], "little")
    if length > limits.NPY_HEADER_BYTES:
        limit = f"at most {limits.NPY_HEADER_BYTES:,} are read"
        raise FormatError(
            f"{name}: the array {shorten(key)} has a header of {length:,} bytes, {limit}", tensors=[key]
        )
    if before + length > len(start):
        start += read(before + length - len(start))
    if before + length > len(start):
        raise FormatError(
            f"{name}: the array {shorten(key)} ends within its header; download it again", tensors=[key]
        )
    return _parsed(start[before : before + length].decode("latin-1"), before + length, key, name)


def _shown(start: bytes) -> str:
    return shorten(start[:8].decode("latin-1"))


def _parsed(text: str, start: int, key: str, name: str) -> Header:
    fields = _fields(text.strip())
    shape, fortran, descr = (fields.get(word, "") for word in ("shape", "fortran_order", "descr"))
    if (
        len(fields) != 3
        or shape[:1] != "("
        or fortran not in ("True", "False")
        or descr[:1] not in ("'", "[")
    ):
        raise FormatError(
            f"{name}: the array {shorten(key)} has the header {shorten(text.strip(), 120)}", tensors=[key]
        )
    order, kind = descr[1:2], descr[2:-1]
    if descr[0] == "[":
        raise FormatError(
            f"{name}: the array {shorten(key)} is of records, {shorten(descr)}; save each field alone",
            tensors=[key],
        )
    if order not in "<>|=":
        order, kind = "|", descr[1:-1]
    extents = [int(word) for word in re.findall(r"\d{1,30}", shape)]
    dtype = _dtype(f">{kind}" if order == ">" and kind in BITS else kind, key, name)
    info = TensorInfo(check_shape(extents, key, name), dtype) if dtype else None
    return Header(info, kind, order == ">" and kind[1:] != "1", fortran == "True", start)


def _fields(text: str) -> dict[str, str]:
    """The entries of the dict, as they are written; empty where it is none."""
    if not (text.startswith("{") and text.endswith("}")):
        return {}
    body, fields, position = text[1:-1].strip().replace('"', "'"), {}, 0
    while position < len(body):
        match = _ENTRY.match(body, position)
        if match is None:
            return {}
        fields[match[1]] = match[2]
        position = match.end()
    return fields


def _dtype(kind: str, key: str, name: str) -> str | None:
    """The safetensors name of NumPy's type `kind`; None for what holds no numbers."""
    dtype = DTYPES.get(kind)
    if dtype in DTYPE_BYTES:
        return dtype
    if kind[:1] == "O":
        raise FormatError(
            f"{name}: the array {shorten(key)} is of Python objects, a pickle, which is never unpickled; "
            "save an array of numbers",
            tensors=[key],
        )
    if kind[:1] in NO_NUMBERS:
        return None
    why = "which may be one of several 8-bit types" if kind == "V1" else "which no tensor has"
    raise FormatError(
        f"{name}: the array {shorten(key)} is of NumPy's type {shorten(kind)}, {why}; save it as another",
        tensors=[key],
    )


def enter(shard: Shard, key: str, header: Header, available: int) -> bool:
    """Enter the array's shape and dtype if it is of numbers; `available` bytes stand where it is, header included."""
    check_name(key, shard.name)
    if header.info is None:
        what = next(word for letter, word in NO_NUMBERS.items() if header.kind.startswith(letter))
        shard.notes.append(f"{shard.name}: {shorten(key)} holds {what} and was not read")
        return False
    if header.size != available:
        seen = f"has {available:,} bytes where {header.info.dtype} {list(header.info.shape)} needs {header.size:,}"
        raise FormatError(f"{shard.name}: the array {shorten(key)} {seen}; download it again", tensors=[key])
    if header.kind == "V2":
        shard.notes.append(f"{shard.name}: arrays of two bytes without a type (V2) are taken for bfloat16")
    shard.tensors[key] = header.info
    return True


def read_file(file: BinaryIO, size: int, name: str) -> Shard:
    """The table of one .npy file: its array is called as the file."""
    key = name.removesuffix(SUFFIX)
    shard = Shard(name, "npy", {}, size=size)
    header = read_header(file.read, key, name)
    if enter(shard, key, header, size):
        place(shard, key, header, 0)
    return shard


def place(shard: Shard, key: str, header: Header, at: int) -> None:
    """Enter where the bytes of an array lie which stands in the file as it is, header included, from byte `at`."""
    shard.offsets[key] = at + header.start
    if not header.is_plain:
        span = slice(at + header.start, at + header.size)
        shard.decoded[key] = lambda data: arranged(data[span], header)


def arranged(data: Any, header: Header) -> torch.Tensor:
    """The tensor whose bytes, as NumPy wrote them, are `data`; a copy where they are not its own."""
    import numpy as np
    import torch

    from mapper.sources.storage import torch_dtype

    assert header.info is not None
    shape, dtype = header.info
    letters = BITS.get(header.kind, header.kind)
    array = np.frombuffer(data, dtype=np.dtype(letters).newbyteorder(">" if header.swapped else "<"))
    array = array.reshape(shape, order="F" if header.fortran else "C")
    whole = np.require(array, np.dtype(letters), ["C", "W"])
    return torch.from_numpy(whole).view(torch_dtype(dtype, "")).view(shape)
