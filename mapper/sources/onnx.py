"""The initialisers of ONNX models, inside the file or in files beside it. Of the graph is seen what it holds.

What a local file's graph says of them is for `mapper.graphs.recovery`; that of a remote file is not read.

https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from mapper import limits
from mapper.checkpoint import DTYPE_BYTES, TensorInfo
from mapper.errors import FormatError, shorten
from mapper.sources import onnx_graph, saved
from mapper.sources.shards import Place, Shard, check_name, check_shape
from mapper.sources.wire import BYTES, Field, Message

if TYPE_CHECKING:
    import torch

CONTAINER = "onnx"
SUFFIX = ".onnx"
GRAPH, METADATA = 7, 14  # fields of the model
INITIALIZER, SPARSE = 5, 15  # of its graph
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
    parts = list(message.fields())
    graph = graph_of(message, parts)
    shard.metadata = metadata_of(message, parts)
    sparse = texts = 0
    for part in message.fields(graph.start, graph.end):
        sparse += part.number == SPARSE
        if part.number == INITIALIZER:
            texts += not _enter(shard, message, read_entry(message, part))
            if len(shard.tensors) > limits.TENSORS:
                raise FormatError(
                    f"{name}: more than {limits.TENSORS:,} tensors, which is the most that is read"
                )
    for count, what in ((sparse, "are sparse"), (texts, "hold texts")):
        if count:
            shard.notes.append(f"{name}: {count} initialisers {what} and were not read")
    if not of_mapper(shard):
        _tell(shard, message, graph)
    return shard


def graph_of(message: Message, parts: list[Field]) -> Field:
    """Where the graph of a model with these fields stands. Raises FormatError unless there is one."""
    graphs = [part for part in parts if part.number == GRAPH]
    if len(graphs) != 1 or graphs[0].wire != BYTES:
        raise FormatError(f"{message.name}: {len(graphs)} graphs where an ONNX model has one")
    return graphs[0]


def metadata_of(message: Message, parts: list[Field]) -> dict[str, str]:
    """The texts that an exporter kept with the model, by name."""
    found: dict[str, str] = {}
    for part in parts:
        if part.number != METADATA:
            continue
        pair = {inner.number: inner for inner in message.fields(part.start, part.end)}
        if 1 in pair and 2 in pair:
            text = message.bytes(pair[2], limits.HEADER_BYTES)
            found[message.text(pair[1])] = text.decode("utf-8", "replace")
    return found


def of_mapper(shard: Shard) -> bool:
    """Whether the file says itself that its initialisers are a checkpoint's tensors, all of them, under their own names.

    Where they were changed since, what mapper wrote of them is left out, and that is noted.
    """
    if saved.METADATA not in shard.metadata:
        return False
    placed = (place.key for places in shard.beside.values() for place in places)
    if shard.metadata.get(saved.NAMES_METADATA) == saved.digest_of_names([*shard.tensors, *placed]):
        return True
    del shard.metadata[saved.METADATA]
    shard.notes.append(f"{shard.name}: other tensors than mapper wrote, so it is read as any other file")
    return False


def _tell(shard: Shard, message: Message, graph: Field) -> None:
    """Note what the names are worth and what else holds weights. Reading the graph says it better."""
    found = onnx_graph.survey(message, graph)
    placed = {place.key: place.info for places in shard.beside.values() for place in places}
    shapes = {key: info.shape for key, info in {**shard.tensors, **placed}.items()}
    shard.branches = found.inner()
    shard.empty = "" if shapes else onnx_graph.nothing_read(shard.name, found)
    shard.told = list(onnx_graph.notes(shard.name, shapes, found))
    shard.nameless = onnx_graph.nameless(shapes)


def read_entry(message: Message, tensor: Field) -> Entry:
    """The fields of one tensor, its numbers unread."""
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
    info = info_of(entry, name)
    if info.dtype == "F4" and (not info.shape or info.shape[-1] % 2):
        raise FormatError(
            f"{name}: initialiser {shorten(key)} of F4 has the odd shape {list(info.shape)}", tensors=[key]
        )
    if entry.is_external:
        location = entry.external.get("location", "")
        shard.beside.setdefault(location, []).append(place_of(entry, info, name))
        return True
    part, is_plain = numbers_of(entry, info, name)
    shard.tensors[key], shard.offsets[key] = info, part.start
    if not is_plain:
        shard.decoded[key] = lambda whole: unpacked(whole[part.start : part.end], info, name, key)
    return True


def info_of(entry: Entry, name: str) -> TensorInfo:
    """Shape and type. Raises FormatError for those that no tensor has."""
    dtype = DTYPES.get(entry.kind)
    if dtype is None:
        known = UNREAD.get(entry.kind, str(entry.kind))
        raise FormatError(
            f"{name}: initialiser {shorten(entry.key)} is of ONNX's type {known}, which no tensor has",
            tensors=[entry.key],
        )
    return TensorInfo(check_shape(entry.dims, entry.key, name), dtype)


def place_of(entry: Entry, info: TensorInfo, name: str) -> Place:
    """Where the tensor lies in a file beside the model `name`."""
    key, external = entry.key, entry.external
    words = [external.get(word, default) for word, default in (("offset", "0"), ("length", ""))]
    if any(word and not (word.isascii() and word.isdigit() and len(word) < 20) for word in words):
        raise FormatError(
            f"{name}: initialiser {shorten(key)} lies at {shorten(str(words))} of a file beside it",
            tensors=[key],
        )
    length = int(words[1]) if words[1] else None
    needed = info.bytes
    if length is not None and length != needed:
        seen = f"has {length:,} bytes beside the model where {info.dtype} {list(info.shape)} needs {needed:,}"
        raise FormatError(f"{name}: initialiser {shorten(key)} {seen}", tensors=[key])
    return Place(key, info, int(words[0] or 0), length)


def numbers_of(entry: Entry, info: TensorInfo, name: str) -> tuple[Field, bool]:
    """Where the tensor's numbers are in the model's own file, and whether they stand there as in memory."""
    key, needed = entry.key, info.bytes
    if SEGMENT in entry.data or len(entry.data) > 1:
        raise FormatError(
            f"{name}: initialiser {shorten(key)} is in pieces, which no exporter writes", tensors=[key]
        )
    number, part = next(iter(entry.data.items()), (RAW, Field(RAW, BYTES, 0, 0)))
    fixed = number == RAW or info.dtype in FIXED.get(number, ())
    if not fixed and info.dtype not in VARIABLE.get(number, ()):
        raise FormatError(
            f"{name}: initialiser {shorten(key)} of {info.dtype} has its numbers in field {number}",
            tensors=[key],
        )
    if (fixed and part.size != needed) or (not fixed and part.size < info.size):
        seen = f"has {part.size:,} bytes where {info.dtype} {list(info.shape)} needs {needed:,}"
        raise FormatError(f"{name}: initialiser {shorten(key)} {seen}", tensors=[key])
    return part, fixed


def unpacked(data: memoryview, info: TensorInfo, name: str, key: str) -> torch.Tensor:
    """The tensor of numbers that each take as many bytes as they need."""
    import numpy as np
    import torch

    from mapper.sources.storage import torch_dtype

    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    lengths = np.diff(ends, prepend=-1)
    if len(ends) != info.size or lengths.max(initial=1) > 10 or (len(raw) and raw[-1] >= 0x80):
        raise FormatError(
            f"{name}: initialiser {shorten(key)} has {len(ends):,} numbers, not {info.size:,}",
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
        end_of(place, location, size, shard.name)
        if place.key in other.tensors:
            raise FormatError(f"{shard.name}: two initialisers have the name {shorten(place.key)}")
        other.tensors[place.key] = place.info
        other.offsets[place.key] = place.offset
    return other


def end_of(place: Place, location: str, size: int, name: str) -> int:
    """Where a tensor ends in the file `location` of `size` bytes. Raises FormatError where that is past its end."""
    end = place.offset + place.info.bytes
    if end > size:
        seen = f"ends at byte {end:,} of {shorten(location)}, which has {size:,}; download it again"
        raise FormatError(f"{name}: initialiser {shorten(place.key)} {seen}")
    return end
