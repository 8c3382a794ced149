"""The safetensors container: eight bytes of header length, a JSON header, then the tensors without gaps.

https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, BinaryIO

from mapper import limits
from mapper._collector import collection_paused
from mapper.checkpoint import DTYPE_BYTES, TensorInfo
from mapper.errors import FormatError, listed, shorten
from mapper.sources.documents import parse
from mapper.sources.files import SNIFFED, refuse_impostor, refuse_later
from mapper.sources.shards import Shard, check_names, check_shape

METADATA = "__metadata__"


def has_header(start: bytes) -> bool:
    """Whether a file that starts so is a safetensors file; a JSON text would give an impossible length."""
    return start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= limits.HEADER_BYTES


def read_header(file: BinaryIO, size: int, name: str) -> Shard:
    """The table of the safetensors file `file` of `size` bytes. Only the header is read."""
    start = file.read(min(SNIFFED, size))
    refuse_impostor(start, size, name)
    if start[8:9] != b"{":
        refuse_later(start, name)
    if size < 10:
        raise FormatError(
            f"{name}: {size} bytes, and the smallest safetensors file has 10; download it again"
        )
    length = int.from_bytes(start[:8], "little")
    if length > limits.HEADER_BYTES:
        limit = f"at most {limits.HEADER_BYTES:,} are read"
        raise FormatError(
            f"{name}: its first 8 bytes give a header of {length:,} bytes, {limit}; is it a safetensors file?"
        )
    if length > size - 8:
        raise FormatError(
            f"{name}: its header should have {length:,} bytes but the file ends after "
            f"{size - 8:,}; download it again"
        )
    header = start[8 : 8 + length]
    if len(header) < length:
        header += file.read(length - len(header))
    if len(header) < length:
        raise FormatError(f"{name}: the file ended while its header was read; download it again")
    with collection_paused():
        shard = _table(header, name, size)
    shard.size = size
    return shard


def _table(header: bytes, name: str, size: int) -> Shard:
    if not header.startswith(b"{"):
        seen = shorten(header[:8].decode("latin-1"))
        raise FormatError(f"{name}: its header starts with {seen}, not with '{{'; is it a safetensors file?")
    refuse = _refuse_number(name)
    entries = parse(header, name, object_pairs_hook=None, parse_constant=refuse, parse_float=refuse)
    if header.count(b'"') != _quotes(entries):  # a key stands twice, or a name has a quote in it
        parse(header, name, object_pairs_hook=_unique(name))
    metadata = entries.pop(METADATA, None)
    if metadata is not None and not isinstance(metadata, dict):
        raise FormatError(f"{name}: '__metadata__' in its header is {shorten(str(metadata))}, not an object")
    if len(entries) > limits.TENSORS:
        raise FormatError(f"{name}: {len(entries):,} tensors, at most {limits.TENSORS:,} are read")
    check_names(entries, name)
    exact = str if b"true" in header or b"false" in header else tuple  # as a key, True is equal to 1
    base = 8 + len(header)
    shard, end = _entries(entries, name, base, exact)
    if end != size:
        _check_spans(entries, name, base, size)
    shard.metadata = metadata or {}
    return shard


def _entries(
    entries: dict[str, Any], name: str, base: int, as_key: Callable[[Any], Any]
) -> tuple[Shard, int]:
    """The table, and the byte at which the tensors end if each begins where the one before it ends; else -1.

    Offsets are counted from `base`, the header's end.
    """
    shard = Shard(name, "safetensors", {})
    position, is_in_order = 0, True
    known: dict[Any, tuple[TensorInfo, float]] = {}  # big checkpoints repeat few shapes
    tensors, offsets = shard.tensors, shard.offsets
    for key, entry in entries.items():
        try:
            dtype, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
            described = known.get((dtype, as_key(shape)))
        except (TypeError, KeyError, ValueError):
            raise _malformed(name, key, entry) from None
        if type(start) is not int or type(end) is not int or start < 0 or len(entry) != 3:
            raise _malformed(name, key, entry)
        if described is None:
            described = known[dtype, as_key(shape)] = _describe(dtype, shape, key, name)
        info, needed = described
        if needed != end - start:
            spanned = f"spans {end - start:,} bytes ({start:,} to {end:,})"
            shown = f"{dtype} {list(info.shape)} needs {needed:,.0f}"
            raise FormatError(f"{name}: tensor {shorten(key)} {spanned} but {shown}", tensors=[key])
        tensors[key] = info
        offsets[key] = base + start
        if start != position:
            is_in_order = False
        position = end
    return shard, base + position if is_in_order else -1


def _describe(dtype: Any, shape: Any, key: str, name: str) -> tuple[TensorInfo, float]:
    """The entry's shape and dtype, checked, and how many bytes it needs."""
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        known = ", ".join(DTYPE_BYTES)
        raise FormatError(
            f"{name}: tensor {shorten(key)} has the dtype {shorten(str(dtype))}, known are {known}",
            tensors=[key],
        )
    info = TensorInfo(check_shape(shape, key, name), dtype)
    if dtype == "F4" and (not info.shape or info.shape[-1] % 2):
        raise FormatError(
            f"{name}: tensor {shorten(key)} of F4 has the shape {list(info.shape)}; two of its numbers share a byte, "
            "so the last dimension must be even",
            tensors=[key],
        )
    return info, info.size * DTYPE_BYTES[dtype]


def _malformed(file: str, key: str, entry: Any) -> FormatError:
    wanted = "dtype, shape and two data_offsets"
    return FormatError(
        f"{file}: tensor {shorten(key)} is described by {shorten(str(entry))}, not by {wanted}"
    )


def _check_spans(entries: dict[str, Any], name: str, base: int, size: int) -> None:
    """Raise FormatError unless the spans fill the file from `base` to `size` without gap or overlap."""
    position = 0
    before = ""
    for start, end, key in sorted((*entry["data_offsets"], key) for key, entry in entries.items()):
        if base + end > size:
            seen = f"ends at byte {base + end:,} but the file has {size:,}"
            raise FormatError(f"{name}: tensor {shorten(key)} {seen}; download it again", tensors=[key])
        if start < position:
            where = f"byte {base + start:,} belongs to both"
            raise FormatError(
                f"{name}: tensors {shorten(before)} and {shorten(key)} overlap: {where}",
                tensors=[before, key],
            )
        if start > position:
            gap = f"bytes {base + position:,} to {base + start:,}, before tensor {shorten(key)}"
            raise FormatError(f"{name}: {gap}, belong to no tensor; the header and the data do not fit")
        position, before = end, key
    if base + position != size:
        extra = f"{size - base - position:,} bytes follow the last tensor"
        raise FormatError(f"{name}: {extra}; the header and the data do not fit")


def _quotes(entries: dict[str, Any]) -> int:
    """How many quotes a header with these entries has, if each is as it should be and no key stands twice."""
    metadata = entries.get(METADATA)
    tensors = len(entries) - (METADATA in entries)
    return 10 * tensors + (2 + 4 * len(metadata) if isinstance(metadata, dict) else 0)


def _unique(name: str) -> Any:
    def take(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            counts = Counter(key for key, _ in pairs)
            twice = [key for key, count in counts.items() if count > 1]
            raise FormatError(f"{name}: {listed(twice)} more than once in its header")
        return table

    return take


def _refuse_number(name: str) -> Any:
    def refuse(text: str) -> None:
        raise FormatError(f"{name}: {text} in its header, where only texts and whole numbers may stand")

    return refuse
