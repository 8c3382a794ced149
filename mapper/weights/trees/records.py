"""One record: the leaves of one tree in a stream, each under its path, with its own checksum.

    36 bytes   magic, version, size and CRC-32 of the header, size of what follows it, CRC-32 of these fields
    header     JSON: {"leaves": [{"path": [...], "also": [...], "size": n}, ...]}
    leaves     for each: n bytes, and their CRC-32

All numbers are little-endian. The sizes say where the record ends, so records may follow one another. A reader of
the same major version ignores fields it does not know.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from mapper import limits
from mapper.errors import FormatError, MapperError
from mapper.weights.arrays import raw_bytes
from mapper.weights.saving.container import pieces
from mapper.weights.saving.headers import PIECE, write_all
from mapper.weights.trees.containers import Step, step_of
from mapper.weights.trees.leaf_bytes import LeafWriter
from mapper.weights.values.plain import shorten_json

MAGIC = b"\x93MAPTREE"  # no text begins so
VERSION = (1, 0)
_FIELDS = struct.Struct("<8sHHQIQ")
_CHECK = struct.Struct("<I")
_FIRST = _FIELDS.size + _CHECK.size
_BEGINNING = "the beginning of a record"

Path = tuple[Step, ...]


@dataclass
class Entry:
    """One leaf of a record; a tensor that is tied has several paths. Raises UnsupportedLeaf for keys of other types."""

    paths: list[Path]
    size: int
    names: list[str] = field(init=False)  # what tells the paths from all others

    def __post_init__(self) -> None:
        self.names = [identity(path) for path in self.paths]

    @property
    def path(self) -> Path:
        return self.paths[0]


def identity(path: Path) -> str:
    """Equal for equal paths alone: `1`, `1.0`, `True` and `"1"` are four keys. UnsupportedLeaf for other keys."""
    return json.dumps([step.node() for step in path], separators=(",", ":"))


def path_text(path: Path) -> str:
    """The path as errors name it; "the root" where the tree is one leaf."""
    return "".join(step.text() for step in path) or "the root"


def write_record(write: Callable[[Any], Any], leaves: list[tuple[Entry, LeafWriter]]) -> None:
    """Write one record. Tensors are read piece by piece as they are written."""
    header = _header([entry for entry, _ in leaves])
    body = sum(entry.size + _CHECK.size for entry, _ in leaves)
    fields = _FIELDS.pack(MAGIC, *VERSION, len(header), zlib.crc32(header), body)
    write_all(write, fields + _CHECK.pack(zlib.crc32(fields)) + header)
    for _, leaf in leaves:
        check = 0
        for data in _data(leaf):
            check = zlib.crc32(data, check)
            write_all(write, data)
        write_all(write, _CHECK.pack(check))


def _header(entries: list[Entry]) -> bytes:
    rows = []
    for entry in entries:  # the names are the paths as JSON
        also = f',"also":[{",".join(entry.names[1:])}]' if len(entry.names) > 1 else ""
        rows.append(f'{{"path":{entry.names[0]}{also},"size":{entry.size}}}')
    header = ('{"leaves":[' + ",".join(rows) + "]}").encode("ascii")
    if len(header) > limits.HEADER_BYTES:
        raise MapperError(
            f"the paths of {len(rows):,} leaves take {len(header):,} bytes; {limits.HEADER_BYTES:,} may stand in one record"
        )
    return header


def _data(leaf: LeafWriter) -> Iterator[memoryview]:
    for part in leaf.parts:
        if isinstance(part, bytes):
            yield memoryview(part)
            continue
        for piece in pieces(part):
            raw: Any = raw_bytes(piece).numpy()
            whole = memoryview(raw)
            for start in range(0, len(whole), PIECE):
                yield whole[start : start + PIECE]


class RecordReader:
    """Reads one record and nothing behind it. Raises FormatError, which begins with `name`, for damaged data."""

    def __init__(self, read: Callable[[int], Any], name: str, file: BinaryIO | None = None) -> None:
        self.source, self.name, self.file = read, name, file
        self.available = os.fstat(file.fileno()).st_size if file is not None else 0
        fields = self.take(_FIRST, _BEGINNING)
        self.body = self._check_fields(bytes(fields))
        self.entries = self._entries()

    def error(self, reason: str) -> FormatError:
        return FormatError(f"{self.name}: {reason}")

    def pieces(self, size: int, what: str | Path) -> Iterator[bytes]:
        """`size` bytes as they come; `what` is the path of a leaf or another word for them."""
        left = size
        while left:
            piece = self.source(min(left, limits.READ_BYTES))
            if not piece:
                raise self.cut_short(what, size, size - left)
            if len(piece) > left:
                raise self.error("the stream gives more bytes than it is asked for")
            left -= len(piece)
            yield piece

    def cut_short(self, what: str | Path, size: int, found: int) -> FormatError:
        if what == _BEGINNING:
            return self.error(
                f"{found} bytes are there, and a record of mapper.save_tree has {size} at least; is it one, and whole?"
            )
        word = what if isinstance(what, str) else path_text(what)
        return self.error(f"{word} is cut short: {size:,} bytes are announced, {found:,} are there")

    def take(self, size: int, what: str | Path) -> bytearray:
        if self.file is not None and size <= self.available:
            return self._straight(self.file, size, what)
        data = bytearray()
        for piece in self.pieces(size, what):
            data += piece
        return data

    def _straight(self, file: BinaryIO, size: int, what: str | Path) -> bytearray:
        """Read into the memory that is kept: no more is announced than the file has."""
        data = bytearray(size)
        left = memoryview(data)
        while len(left):
            count = file.readinto(left)  # type: ignore[attr-defined]
            if not count:
                raise self.cut_short(what, size, size - len(left))
            left = left[count:]
        return data

    def _check_fields(self, data: bytes) -> int:
        magic, major, minor, self.header_size, self.header_check, body = _FIELDS.unpack_from(data)
        if magic != MAGIC:
            raise self.error(f"not a record of mapper.save_tree (it begins with {magic!r})")
        if major > VERSION[0]:
            raise self.error(
                f"version {major}.{minor} is newer than {VERSION[0]}.{VERSION[1]}, which this mapper reads"
            )
        if zlib.crc32(data[: _FIELDS.size]) != _CHECK.unpack_from(data, _FIELDS.size)[0] or major < 1:
            raise self.error("the beginning of the record is damaged (checksum)")
        if self.header_size > limits.HEADER_BYTES:
            raise self.error(f"a header of {self.header_size:,} bytes; {limits.HEADER_BYTES:,} are allowed")
        return int(body)

    def _entries(self) -> list[Entry]:
        header = self.take(self.header_size, "the header")
        if zlib.crc32(header) != self.header_check:
            raise self.error("the header is damaged (checksum)")
        try:
            document = json.loads(header.decode("ascii"))
            rows = document.get("leaves") if isinstance(document, dict) else None
            if not isinstance(rows, list) or len(rows) > limits.TENSORS:
                raise FormatError(f"a header lists up to {limits.TENSORS:,} leaves, not {shorten_json(rows)}")
            entries = [_entry(row) for row in rows]
            self._check_entries(entries)
        except FormatError as error:
            raise self.error(str(error)) from error
        except (ValueError, RecursionError) as error:
            raise self.error("the header is not JSON") from error
        return entries

    def _check_entries(self, entries: list[Entry]) -> None:
        if sum(entry.size + _CHECK.size for entry in entries) != self.body:
            raise FormatError("the sizes of the leaves are not that of the record")
        names = [name for entry in entries for name in entry.names]
        if len(set(names)) != len(names):
            raise FormatError("two leaves have one path")

    def leaf(self, entry: Entry) -> bytearray:
        """The bytes of the next leaf, checked."""
        data = self.take(entry.size, entry.path)
        self._check(entry, zlib.crc32(data))
        return data

    def skip(self, entry: Entry) -> bytearray:
        """Only the first piece of the next leaf; all of it is read and checked."""
        check, first = 0, bytearray()
        for piece in self.pieces(entry.size, entry.path):
            check = zlib.crc32(piece, check)
            first = first or bytearray(piece)
        self._check(entry, check)
        return first

    def _check(self, entry: Entry, check: int) -> None:
        stored = self.take(_CHECK.size, "a checksum")
        if _CHECK.unpack(stored)[0] != check:
            raise self.error(f"{path_text(entry.path)} is damaged (checksum)")


def _entry(row: Any) -> Entry:
    size = row.get("size") if isinstance(row, dict) else None
    if type(size) is not int or not 0 <= size < 1 << 62:
        raise FormatError(f"a leaf has a path and a size, not {shorten_json(row)}")
    also = row.get("also", [])
    if not isinstance(also, list):
        raise FormatError(f"other paths are a list, not {shorten_json(also)}")
    return Entry([_path(row.get("path")), *map(_path, also)], size)


def _path(nodes: Any) -> Path:
    if not isinstance(nodes, list):
        raise FormatError(f"a path is a list of steps, not {shorten_json(nodes)}")
    return tuple(step_of(node) for node in nodes)
