"""Zip archives as containers of weights: the directory, and where each record's bytes lie."""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from mapper import limits
from mapper.errors import FormatError, shorten

MAGIC = b"PK\x03\x04"
EMPTY = b"PK\x05\x06"  # how an archive without records starts
LOCAL_HEADER_BYTES = 30
ENCRYPTED = 1
PLAIN, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


def is_zip(start: bytes) -> bool:
    """Whether a file that starts so is a zip archive."""
    return start.startswith((MAGIC, EMPTY))


_RAISED = (
    zipfile.BadZipFile, NotImplementedError, OSError, EOFError, ValueError, RuntimeError, OverflowError, struct.error,
)  # fmt: skip


@contextmanager
def archive_errors(name: str) -> Iterator[None]:
    """What the standard library says against the archive `name`, as FormatError."""
    try:
        yield
    except FormatError:  # a ValueError too
        raise
    except _RAISED as error:
        why = shorten(str(error).lower(), 200)[1:-1]  # it may quote a name of thousands of bytes
        raise FormatError(f"{name}: a damaged zip file ({why}); download it again") from error


def open_records(file: BinaryIO, name: str) -> tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]:
    """The archive in `file` and its records by name. Only its directory is read."""
    with archive_errors(name):
        archive = zipfile.ZipFile(cast("BinaryIO", _Bounded(file, name)))
    entries = archive.infolist()
    if len(entries) > limits.TENSORS:
        raise FormatError(f"{name}: {len(entries):,} records, at most {limits.TENSORS:,} are read")
    records = {entry.filename: entry for entry in entries}
    if len(records) != len(entries):
        raise FormatError(f"{name}: {len(entries) - len(records)} records of the zip file stand there twice")
    size = file.seek(0, os.SEEK_END)
    packed = sum(entry.compress_size for entry in entries)
    if packed > size:  # one piece that many records unpack
        raise FormatError(f"{name}: its records take {packed:,} bytes of a file of {size:,}: they overlap")
    return archive, records


class _Bounded:
    """A file of which nobody reads more than a header at once: the directory is read whole, however long it claims to be."""

    def __init__(self, file: BinaryIO, name: str):
        self.file, self.name = file, name
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, count: int = -1) -> bytes:
        if count > limits.HEADER_BYTES:
            limit = f"at most {limits.HEADER_BYTES:,} are read"
            raise FormatError(f"{self.name}: a zip file with a directory of {count:,} bytes, {limit}")
        return self.file.read(count)


def is_plain(record: zipfile.ZipInfo) -> bool:
    """Whether the record's bytes stand in the archive as they are."""
    return (
        record.compress_type == PLAIN
        and record.compress_size == record.file_size
        and not record.flag_bits & ENCRYPTED
    )


def start_of(file: BinaryIO, record: zipfile.ZipInfo, size: int, name: str) -> int:
    """Where the record's bytes start in the file of `size` bytes: its local header may be padded."""
    header = b""
    if 0 <= record.header_offset < size:
        file.seek(record.header_offset)
        header = file.read(LOCAL_HEADER_BYTES)
    if len(header) < LOCAL_HEADER_BYTES or not header.startswith(MAGIC):
        raise FormatError(
            f"{name}: no record at byte {record.header_offset:,}, where {shorten(record.filename)} should be"
        )
    lengths = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))  # of its name, of its extras
    start = record.header_offset + LOCAL_HEADER_BYTES + sum(lengths)
    if start + record.compress_size > size:
        raise FormatError(
            f"{name}: {shorten(record.filename)} ends after the file's {size:,} bytes; download it again"
        )
    return start
