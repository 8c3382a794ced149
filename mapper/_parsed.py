"""What parsing rule files and operations gave, kept for the next process: an index, and a record a file, read when asked for.

A file counts as unchanged while its size and its time of writing are the same, as for Python's own bytecode. Nothing in
here is believed unless its checksum holds, and nothing is more than JSON: what is damaged is parsed anew.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

_MAGIC = b"mapper kept 9\n"  # raised when the layout changes
_SIZES = struct.Struct("<QQQI")  # lengths of the stamps, the spans and the head, checksum of the three
_SPAN = struct.Struct("<QQI")  # of a record: where it begins, its length, its checksum
_KEPT = 8  # files of a kind side by side: those of a checkout, of a wheel, of a user's folders
_SHIPPED = Path(__file__).resolve().parent / "_compiled"  # what a wheel brings along
SUFFIX = ".kept"
_ANY = "surrogatepass"  # names of files may be any bytes


class SourceFile(NamedTuple):
    """One file, as messages name it, and what changes when it is written anew."""

    path: str
    label: str  # the relative path for shipped files, the path as it was given for others
    size: int
    time: int  # of writing


def digest(parts: Iterable[str]) -> str:
    import hashlib  # here, because what is kept is read without it

    found = hashlib.sha256()
    for part in parts:
        found.update(f"{len(part)}\0{part}".encode("utf-8", _ANY))
    return found.hexdigest()


def cache_folder() -> Path:
    """The user's cache folder for this tool."""
    base = (
        os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/.cache")
    )
    return Path(base) / "mapper"


class Kept:
    """One such file, in memory. Its records are decoded one by one."""

    def __init__(self, head: bytes | memoryview, spans: bytes | memoryview, body: bytes | memoryview):
        """Raises ValueError, LookupError or TypeError for a head that `keep` has not written."""
        self.head, self.spans, self.body = head, spans, body
        said = _decoded(head)
        self.text: str = said["text"]  # the digest of the files' labels and texts
        self.readers: str = said["readers"]  # the digest of the code that read them
        self.index: Any = said["index"]
        self._count = len(spans) // _SPAN.size  # of records, of which there is one at least
        if not self._count:
            raise ValueError("no records")

    def record(self, at: int) -> Any:
        """What file number `at` gave; LookupError where that is damaged."""
        part, checksum = self._part(at)
        if zlib.crc32(part) != checksum:  # of a file that was cut short, too
            raise LookupError(at)
        return _decoded(part)

    def _part(self, at: int) -> tuple[bytes | memoryview, int]:
        """The bytes of a record, and the checksum that they should have."""
        start, length, checksum = _SPAN.unpack_from(self.spans, at % self._count * _SPAN.size)
        return self.body[start : start + length], checksum

    def made(self, at: int) -> Any:
        """What was made of file number `at`, where that was kept too; LookupError where it is damaged."""
        return self.record(at + self._files)

    def marks(self, at: int) -> Any:
        """The lines of what stands in file number `at`, which few ask for; LookupError where that is damaged."""
        return self.record(at + 2 * self._files)

    @property
    def _files(self) -> int:
        return self._count // 3

    def content(self, at: int) -> str:
        """The digest of all that is kept of file number `at`."""
        parts = (self._part(at + number * self._files)[0] for number in range(3))
        return digest(bytes(part).hex() for part in parts)

    def numbers(self) -> dict[str, int]:
        """The digest of each file's text -> its number; empty where that is damaged."""
        try:
            return {source: at for at, source in enumerate(self.record(-1))}
        except LookupError:
            return {}

    def packed(self, stamps: bytes = b"") -> bytes:
        """The file's content."""
        before = b"".join((stamps, self.spans, self.head))
        sizes = _SIZES.pack(len(stamps), len(self.spans), len(self.head), zlib.crc32(before))
        return b"".join((_MAGIC, sizes, before, self.body))


def _decoded(text: bytes | memoryview) -> Any:
    return json.loads(str(text, "ascii"))  # as `json.dumps` writes it


class Read(NamedTuple):
    """What reading one file gave."""

    record: Any
    made: Any  # of the record
    marks: Any  # the lines of what stands in it
    source: str  # the digest of its text


def keep(files: Sequence[Read], text: str, readers: str, index: Any) -> Kept:
    """What is to be kept: the same for the same files, whenever and wherever it is made. The words are those of `Kept`."""
    records, made, marks, sources = zip(*files, strict=True) if files else ((), (), (), ())
    parts = [json.dumps(part, separators=(",", ":")).encode() for part in (*records, *made, *marks, sources)]
    spans, start = [], 0
    for part in parts:
        spans.append(_SPAN.pack(start, len(part), zlib.crc32(part)))
        start += len(part)
    head = {"text": text, "readers": readers, "index": index}
    return Kept(json.dumps(head, separators=(",", ":")).encode(), b"".join(spans), b"".join(parts))


def unpacked(raw: bytes | mmap.mmap, stamps: bytes | None = None) -> Kept | None:
    """What such a file holds; None where it is damaged, or of other files than those with these stamps."""
    start = len(_MAGIC) + _SIZES.size
    if raw[: len(_MAGIC)] != _MAGIC or len(raw) < start:
        return None
    first, second, third, checksum = _SIZES.unpack_from(raw, len(_MAGIC))
    spans, head, end = start + first, start + first + second, start + first + second + third
    view = memoryview(raw)
    if end > len(raw) or zlib.crc32(view[start:end]) != checksum:
        return None
    if stamps not in (None, raw[start:spans]):
        return None
    try:
        return Kept(view[head:end], view[spans:head], view[end:])
    except (ValueError, LookupError, TypeError):
        return None


class Cache:
    """What was kept of one list of files."""

    def __init__(self, name: str, place: str, files: Sequence[SourceFile], readers: Sequence[SourceFile]):
        """`place` tells lists of one name apart; `readers` are the files of this package that decide what others mean."""
        self.name, self.readers = name, readers
        rows = [f"{path}\0{label}\0{size}\0{time}" for path, label, size, time in (*files, *readers)]
        self.stamps = "\n".join(rows).encode("utf-8", _ANY)
        self.path = cache_folder() / f"{name}-{zlib.crc32(place.encode('utf-8', _ANY)):08x}{SUFFIX}"

    @cached_property
    def readers_digest(self) -> str:
        return digest(Path(file.path).read_text(encoding="utf-8") for file in self.readers)

    def read(self) -> Kept | None:
        """What an earlier process left of just these files, as they are now."""
        return _opened(self.path, self.stamps)

    def write(self, kept: Kept) -> None:
        partial = self.path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(kept.packed(self.stamps))
            partial.replace(self.path)
            for old in _newest_first(self.path.parent, self.name)[_KEPT:]:
                old.unlink()
        except OSError:  # no place to keep it: the files are read each time
            return

    def others(self) -> Iterator[Kept]:
        """What the wheel brings along, and what was kept of other or older files, read by the same code."""
        for path in (_SHIPPED / f"{self.name}{SUFFIX}", *_newest_first(self.path.parent, self.name)):
            found = _opened(path)
            if found is not None and found.readers == self.readers_digest:
                yield found


def _opened(path: Path, stamps: bytes | None = None) -> Kept | None:
    """What a file holds. It is mapped, not read: most of its records are never asked for, and no file is written in place."""
    try:
        with path.open("rb") as file:
            raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):  # not there, or empty
        return None
    return unpacked(raw, stamps)


def _newest_first(folder: Path, name: str) -> list[Path]:
    found = []
    for path in folder.glob(f"{name}-*{SUFFIX}"):
        try:
            found.append((-path.stat().st_mtime, path))
        except OSError:  # another process has dropped it
            continue
    return [path for _, path in sorted(found)]
