"""Archives of NumPy arrays, as `numpy.savez` and `savez_compressed` write them: a zip with one .npy for each."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO

from mapper import limits
from mapper.errors import FormatError, shorten
from mapper.sources import npy
from mapper.sources.shards import Shard
from mapper.sources.trees import name_as_torch
from mapper.sources.zips import DEFLATED, ENCRYPTED, is_plain, start_of

if TYPE_CHECKING:
    import torch

PIECE = 2**20  # bytes inflated at a time


def is_npz(records: dict[str, zipfile.ZipInfo], name: str) -> bool:
    """Whether a zip archive of these records holds NumPy arrays."""
    return any(record.endswith(npy.SUFFIX) for record in records) or (
        name.endswith(".npz") and not any(record.rpartition("/")[2] == "data.pkl" for record in records)
    )


def read_header(file: BinaryIO, records: dict[str, zipfile.ZipInfo], size: int, name: str) -> Shard:
    """The table of the archive `file`: of each array its header is read, or inflated."""
    shard = Shard(name, "npz", {}, size=size)
    others, seen = [], set()
    for record in records.values():
        if record.filename.endswith("/"):  # `is_dir` fails on an empty name
            continue
        key = record.filename.removesuffix(npy.SUFFIX)
        if key in seen:
            raise FormatError(f"{name}: two arrays have the name {shorten(key)}")
        seen.add(key)
        if not _enter(shard, file, record, key):
            others.append(record.filename)
    if others:
        shard.notes.append(f"{name}: {len(others)} records are no arrays and were not read")
    name_as_torch(shard)
    return shard


def _enter(shard: Shard, file: BinaryIO, record: zipfile.ZipInfo, key: str) -> bool:
    """Enter one array; False if the record is none, and is not called as if it were."""
    _check(record, shard.name)
    at = start_of(file, record, shard.size, shard.name)
    read = _reader(file, record, at, shard.name)
    start = read(len(npy.MAGIC))
    if start != npy.MAGIC and not record.filename.endswith(npy.SUFFIX):
        return False
    header = npy.read_header(_with(start, read), key, shard.name)
    if not npy.enter(shard, key, header, record.file_size):
        return True
    if is_plain(record):
        npy.place(shard, key, header, at)
    else:
        shard.decoded[key] = _inflated(record, at, header, key, shard.name)
        shard.packed[key] = shard.tensors[key].dtype, record.compress_size
    return True


def _check(record: zipfile.ZipInfo, name: str) -> None:
    """Raise FormatError for a record that is packed otherwise than NumPy does, or says more than it can hold."""
    shown = shorten(record.filename)
    if record.flag_bits & ENCRYPTED or not (is_plain(record) or record.compress_type == DEFLATED):
        raise FormatError(
            f"{name}: {shown} is encrypted, or compressed otherwise than NumPy does; save it again"
        )
    most = min(limits.INFLATED_BYTES, record.compress_size * limits.DEFLATE_RATIO)
    if not is_plain(record) and record.file_size > most:
        raise FormatError(
            f"{name}: {shown} is said to become {record.file_size:,} bytes; of {record.compress_size:,} compressed "
            f"bytes at most {most:,} are read"
        )


def _with(start: bytes, read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """`read` before whose first bytes stands `start`."""
    waiting = [start]

    def both(count: int) -> bytes:
        first = waiting.pop() if waiting else b""
        return first + read(count - len(first))

    return both


def _reader(file: BinaryIO, record: zipfile.ZipInfo, at: int, name: str) -> Callable[[int], bytes]:
    """A function that gives the next n bytes of the record: as they stand, or inflated, no more than are needed."""
    left, position, unpacked = record.compress_size, at, zlib.decompressobj(-zlib.MAX_WBITS)

    def take(count: int) -> bytes:
        nonlocal left, position
        file.seek(position)
        data = file.read(min(count, left))
        left, position = left - len(data), position + len(data)
        return data

    def inflate(count: int) -> bytes:
        data = b""
        try:
            while len(data) < count and not unpacked.eof:
                waiting = unpacked.unconsumed_tail or take(npy.START_BYTES)
                piece = unpacked.decompress(waiting, count - len(data))
                if not waiting and not piece:
                    break
                data += piece
        except zlib.error as error:
            raise _damaged(record, name, str(error)) from error
        return data

    return take if is_plain(record) else inflate


def _damaged(record: zipfile.ZipInfo, name: str, why: str) -> FormatError:
    return FormatError(f"{name}: {shorten(record.filename)} is damaged ({why.lower()}); download it again")


def _inflated(
    record: zipfile.ZipInfo, at: int, header: npy.Header, key: str, name: str
) -> Callable[[memoryview], torch.Tensor]:
    """What makes the tensor of a compressed record. Its checksum must be right: unlike others it is computed on the way."""

    def decode(data: memoryview) -> torch.Tensor:
        whole = bytearray(record.file_size)  # pages that nothing is written to cost nothing
        try:
            _inflate(data[at : at + record.compress_size], whole, record, name)
        except zlib.error as error:
            raise _damaged(record, name, str(error)) from error
        return npy.arranged(memoryview(whole)[header.start : header.size], header)

    return decode


def _inflate(packed: memoryview, whole: bytearray, record: zipfile.ZipInfo, name: str) -> None:
    """Fill `whole` with what `packed` becomes."""
    unpacked, end, checksum = zlib.decompressobj(-zlib.MAX_WBITS), 0, 0
    for piece in _pieces(unpacked, packed):
        if end + len(piece) > len(whole):
            break
        whole[end : end + len(piece)] = piece
        checksum = zlib.crc32(piece, checksum)
        end += len(piece)
    if end != len(whole) or not unpacked.eof:
        raise _damaged(record, name, f"it does not become the {len(whole):,} bytes that it should")
    if checksum != record.CRC:
        raise _damaged(record, name, "its checksum differs")


def _pieces(unpacked: zlib._Decompress, packed: memoryview) -> Iterator[bytes]:
    """What `packed` becomes, about a piece at a time: what waits is copied at each call, so little may wait."""
    for start in range(0, len(packed), PIECE):
        waiting: memoryview | bytes = packed[start : start + PIECE]
        while len(waiting) and not unpacked.eof:
            yield unpacked.decompress(waiting, PIECE)
            waiting = unpacked.unconsumed_tail
    yield unpacked.flush()
