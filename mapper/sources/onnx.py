"""The initialisers of ONNX models, inside the file or in files beside it. The graph is looked at for what it holds, and not read.

https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from mapper import limits
from mapper.checkpoint import DTYPE_BYTES, TensorInfo
from mapper.errors import FormatError, shorten
from mapper.sources import onnx_graph
from mapper.sources.shards import Shard, check_name, check_shape
from mapper.sources.wire import BYTES, Field, Message

if TYPE_CHECKING:
    import torch

CONTAINER = "onnx"
SUFFIX = ".onnx"
GRAPH, INITIALIZER, SPARSE = 7, 5, 15  # fields of the model, and of its graph
DIMS, TYPE, SEGMENT, NAME, EXTERNAL, LOCATION = 1, 2, 3, 8, 13, 14  # of a tensor
RAW, FLOATS, INTS, LONGS, DOUBLES, UNSIGNED = 9, 4, 5, 7, 10, 11
DTYPES = {
    1: "F32", 2: "U8", 3: "I8", 4: "U16", 5: "I16", 6: "I32", 7: "I64", 9: "BOOL", 10: "F16", 11: "F64", 12: "U32",
    13: "U64", 14: "C64", 15: "C128", 16: "BF16", 17: "F8_E4M3", 18: "F8_E4M3FNUZ", 19: "F8_E5M2", 20: "F8_E5M2FNUZ",
    23: "F4", 24: "F8_E8M0",
}  # fmt: skip
UNREAD = {21: "UINT4", 22: "INT4", 25: "UINT2", 26: "INT2"}
TEXTS = 8
# Which field holds plain little-endian numbers of these types, and which a variable length of bytes for each.
FIXED = {FLOATS: ("F32", "C64"), DOUBLES: ("F64", "C128")}
VARIABLE = {
    INTS: ("I32", "I16", "I8", "U16", "U8", "BOOL", "F16", "BF16", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ",
           "F8_E8M0"),
    LONGS: ("I64",), UNSIGNED: ("U64", "U32"),
}  # fmt: skip


class Place(NamedTuple):
    """Where a tensor lies in a file beside the model."""

    key: str
    info: TensorInfo
    offset: int
    length: int | None  # None: up to the end of what it needs


@dataclass
class Entry:
    """The fields of one initialiser."""

    key: str = ""
    dims: list[int] = field(default_factory=list)
    kind: int = 0
    data: dict[int, Field] = field(default_factory=dict)
    external: dict[str, str] = field(default_factory=dict)
    is_external: bool = False


def read_header(file: BinaryIO, size: int, name: str) -> Shard:
    """The table of the ONNX model `file`; what lies beside it is entered into `beside`, by file."""
    shard = Shard(name, CONTAINER, {}, size=size)
    message = Message(file, size, name)
    graphs = [part for part in message.fields() if part.number == GRAPH]
    if len(graphs) != 1 or graphs[0].wire != BYTES:
        raise FormatError(f"{name}: {len(graphs)} graphs where an ONNX model has one")
    sparse = texts = 0
    for part in message.fields(graphs[0].start, graphs[0].end):
        sparse += part.number == SPARSE
        if part.number == INITIALIZER:
            texts += not _enter(shard, message, _entry(message, part))
            if len(shard.tensors) > limits.TENSORS:
                raise FormatError(
                    f"{name}: more than {limits.TENSORS:,} tensors, which is the most that is read"
                )
    for count, what in ((sparse, "are sparse"), (texts, "hold texts")):
        if count:
            shard.notes.append(f"{name}: {count} initialisers {what} and were not read")
    _tell(shard, message, graphs[0])
    return shard


def _tell(shard: Shard, message: Message, graph: Field) -> None:
    """Note what the names are worth and what else holds weights. Raises FormatError where all of them lie elsewhere."""
    found = onnx_graph.survey(message, graph)
    placed = {place.key: place.info for places in shard.beside.values() for place in places}
    shapes = {key: info.shape for key, info in {**shard.tensors, **placed}.items()}
    if not shapes and (told := onnx_graph.nothing_read(shard.name, found)):
        raise FormatError(told)
    shard.notes += onnx_graph.notes(shard.name, shapes, found)
    shard.nameless = onnx_graph.nameless(shapes)


def _entry(message: Message, tensor: Field) -> Entry:
    if tensor.wire != BYTES:
        raise message.damaged(tensor.start, "an initialiser that is a number")
    entry = Entry()
    for part in message.fields(tensor.start, tensor.end):
        if part.number == NAME:
            entry.key = message.text(part)
        elif part.number == DIMS:
            entry.dims += message.numbers(part, limits.DIMENSIONS + 1)
        elif part.number == TYPE:
            entry.kind = part.value
        elif part.number == LOCATION:
            entry.is_external = part.value == 1
        elif part.number == EXTERNAL:
            pair = {inner.number: message.text(inner) for inner in message.fields(part.start, part.end)}
            entry.external[pair.get(1, "")] = pair.get(2, "")
        elif part.number in (RAW, FLOATS, INTS, LONGS, DOUBLES, UNSIGNED, SEGMENT):
            if part.number in entry.data or part.wire != BYTES:
                raise message.damaged(part.start, "numbers of an initialiser in pieces")
            entry.data[part.number] = part
    return entry


def _enter(shard: Shard, message: Message, entry: Entry) -> bool:
    """Enter one initialiser; False for one of texts."""
    if entry.kind == TEXTS:
        return False
    key, name = entry.key, shard.name
    check_name(key, name)
    if key in shard.tensors:  # of those in other files, `beside` and `joined` look
        raise FormatError(f"{name}: two initialisers have the name {shorten(key)}")
    dtype = DTYPES.get(entry.kind)
    if dtype is None:
        known = UNREAD.get(entry.kind, str(entry.kind))
        raise FormatError(
            f"{name}: initialiser {shorten(key)} is of ONNX's type {known}, which no tensor has",
            tensors=[key],
        )
    info = TensorInfo(check_shape(entry.dims, key, name), dtype)
    if dtype == "F4" and (not info.shape or info.shape[-1] % 2):
        raise FormatError(
            f"{name}: initialiser {shorten(key)} of F4 has the odd shape {list(info.shape)}", tensors=[key]
        )
    if entry.is_external:
        _place(shard, key, info, entry.external)
    else:
        _numbers(shard, message, key, info, entry.data)
    return True


def _place(shard: Shard, key: str, info: TensorInfo, external: dict[str, str]) -> None:
    """Enter that the tensor lies in a file beside the model."""
    words = [external.get(word, default) for word, default in (("offset", "0"), ("length", ""))]
    if any(word and not (word.isascii() and word.isdigit() and len(word) < 20) for word in words):
        raise FormatError(
            f"{shard.name}: initialiser {shorten(key)} lies at {shorten(str(words))} of a file beside it",
            tensors=[key],
        )
    length = int(words[1]) if words[1] else None
    needed = int(info.size * DTYPE_BYTES[info.dtype])
    if length is not None and length != needed:
        seen = f"has {length:,} bytes beside the model where {info.dtype} {list(info.shape)} needs {needed:,}"
        raise FormatError(f"{shard.name}: initialiser {shorten(key)} {seen}", tensors=[key])
    place = Place(key, info, int(words[0] or 0), length)
    shard.beside.setdefault(external.get("location", ""), []).append(place)


def _numbers(shard: Shard, message: Message, key: str, info: TensorInfo, data: dict[int, Field]) -> None:
    """Enter where the tensor's numbers are in the model's own file."""
    needed = int(info.size * DTYPE_BYTES[info.dtype])
    if SEGMENT in data or len(data) > 1:
        raise FormatError(
            f"{shard.name}: initialiser {shorten(key)} is in pieces, which no exporter writes", tensors=[key]
        )
    number, part = next(iter(data.items()), (RAW, Field(RAW, BYTES, 0, 0)))
    fixed = number == RAW or info.dtype in FIXED.get(number, ())
    if not fixed and info.dtype not in VARIABLE.get(number, ()):
        raise FormatError(
            f"{shard.name}: initialiser {shorten(key)} of {info.dtype} has its numbers in field {number}",
            tensors=[key],
        )
    if (fixed and part.size != needed) or (not fixed and part.size < info.size):
        seen = f"has {part.size:,} bytes where {info.dtype} {list(info.shape)} needs {needed:,}"
        raise FormatError(f"{shard.name}: initialiser {shorten(key)} {seen}", tensors=[key])
    shard.tensors[key] = info
    shard.offsets[key] = part.start
    if not fixed:
        shard.decoded[key] = lambda whole: _unpacked(whole[part.start : part.end], info, message, key)


def _unpacked(data: memoryview, info: TensorInfo, message: Message, key: str) -> torch.Tensor:
    """The tensor of numbers that each take as many bytes as they need."""
    import numpy as np
    import torch

    from mapper.sources.storage import torch_dtype

    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    lengths = np.diff(ends, prepend=-1)
    if len(ends) != info.size or lengths.max(initial=1) > 10 or (len(raw) and raw[-1] >= 0x80):
        raise FormatError(
            f"{message.name}: initialiser {shorten(key)} has {len(ends):,} numbers, not {info.size:,}",
            tensors=[key],
        )
    starts = ends - lengths + 1
    values = np.zeros(info.size, np.uint64)
    for shift in range(int(lengths.max(initial=0))):
        has = lengths > shift
        values[has] |= (raw[starts[has] + shift] & 0x7F).astype(np.uint64) << np.uint64(7 * shift)
    width = int(DTYPE_BYTES[info.dtype])
    bits = values.astype(f"<u{width}")  # of a number, or of a float whose bits the number has
    return torch.from_numpy(bits).view(torch_dtype(info.dtype, key)).view(info.shape)


def beside(shard: Shard, location: str, size: int) -> Shard:
    """The table of the file beside the model of `size` bytes: what the model says lies in it."""
    other = Shard(location, CONTAINER, {}, size=size)
    for place in shard.beside[location]:
        end = place.offset + int(place.info.size * DTYPE_BYTES[place.info.dtype])
        if end > size:
            seen = f"ends at byte {end:,} of {shorten(location)}, which has {size:,}; download it again"
            raise FormatError(f"{shard.name}: initialiser {shorten(place.key)} {seen}")
        if place.key in other.tensors:
            raise FormatError(f"{shard.name}: two initialisers have the name {shorten(place.key)}")
        other.tensors[place.key] = place.info
        other.offsets[place.key] = place.offset
    return other
