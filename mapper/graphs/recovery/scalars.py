"""The few numbers of small constants, such as an epsilon or the sizes of a view, without torch."""

from __future__ import annotations

import struct

from mapper.errors import MapperError
from mapper.graphs.graph import TensorRef
from mapper.sources.files import open_regular, stamp

MOST = 64  # numbers
CHUNK = 1 << 20  # bytes that are compared at once
LETTERS = {
    "F64": "d",
    "F32": "f",
    "F16": "e",
    "I64": "q",
    "I32": "i",
    "I16": "h",
    "I8": "b",
    "U8": "B",
    "BOOL": "?",
}
VARINT_BYTES = 10


def numbers(ref: TensorRef, most: int = MOST) -> list[float] | None:
    """The numbers of a small tensor in row order; None for a large one, or of another type, or where they are gone."""
    if ref.size > most or ref.dtype not in LETTERS or ref.packing not in ("plain", "varints"):
        return None
    limit = ref.size * VARINT_BYTES
    if ref.end - ref.start > limit:
        return None
    try:
        file, _ = open_regular(ref.path)
        with file:
            if ref.stamp and stamp(file) != ref.stamp:
                return None
            file.seek(ref.start)
            data = file.read(ref.end - ref.start)
    except (MapperError, OSError):
        return None
    if len(data) != ref.end - ref.start:
        return None
    if ref.packing == "varints":
        return _unpacked(data, ref)
    letters = f"<{ref.size}{LETTERS[ref.dtype]}"
    return list(struct.unpack(letters, data)) if struct.calcsize(letters) == len(data) else None


def whole_numbers(ref: TensorRef, most: int = MOST) -> list[int] | None:
    """`numbers` of a tensor of whole numbers; None for any other, which no shape is."""
    found = numbers(ref, most) if not ref.dtype.startswith("F") else None
    return None if found is None else [int(number) for number in found]


def same_bytes(one: TensorRef, other: TensorRef) -> bool:
    """Whether two tensors are stored alike, byte by byte."""
    if one.packing != other.packing or one.end - one.start != other.end - other.start:
        return False
    try:
        first, second = open_regular(one.path)[0], open_regular(other.path)[0]
        with first, second:
            first.seek(one.start)
            second.seek(other.start)
            left = one.end - one.start
            while left > 0:
                read = min(left, CHUNK)
                if first.read(read) != second.read(read):
                    return False
                left -= read
    except (MapperError, OSError):
        return False
    return True


def _unpacked(data: bytes, ref: TensorRef) -> list[float] | None:
    """Whole numbers that each take as many bytes as they need."""
    if ref.dtype.startswith("F"):
        return None
    found: list[float] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(value - 2**64 if value >= 2**63 else value)
            value = shift = 0
    return found if len(found) == ref.size and not shift else None
