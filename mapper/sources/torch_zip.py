"""Files of `torch.save` since torch 1.6: a zip of one pickle and one uncompressed record for each storage."""

from __future__ import annotations

import zipfile
from typing import BinaryIO

from mapper import limits
from mapper.checkpoint import DTYPE_BYTES
from mapper.errors import FormatError, listed, shorten
from mapper.sources.pickles import StoredTensor, interpret
from mapper.sources.shards import Shard
from mapper.sources.state_dict import take_tensors
from mapper.sources.zips import archive_errors, is_plain, start_of

SMALL = 64  # bytes of the record that names the byte order


def read_header(
    file: BinaryIO, archive: zipfile.ZipFile, size: int, name: str, *, offsets: bool = True
) -> Shard:
    """The table of the zip `file`: its directory and pickle, with `offsets` the records' headers too."""
    records = {entry.filename: entry for entry in archive.infolist()}
    prefix = _prefix(records, name)
    with archive_errors(name):
        _check_byte_order(archive, records.get(prefix + "byteorder"), name)
        pickle = _content(archive, records[prefix + "data.pkl"], name, limits.HEADER_BYTES)
    value, _, made, foreign = interpret(pickle, name)
    shard = Shard(name, "torch", {}, size=size, foreign=foreign)
    starts: dict[str, int] = {}
    places = [(table, *place) for table, found in take_tensors(value, made, shard) for place in found.items()]
    for table, key, tensor in places:
        record = records.get(f"{prefix}data/{tensor.storage.key}")
        _check_record(record, key, tensor, name)
        if offsets and record is not None:
            if tensor.storage.key not in starts:
                starts[tensor.storage.key] = start_of(file, record, size, name)
            table.offsets[key] = starts[tensor.storage.key] + int(tensor.offset * DTYPE_BYTES[tensor.dtype])
    return shard


def _prefix(records: dict[str, zipfile.ZipInfo], name: str) -> str:
    """The folder of the archive that holds the pickle."""
    pickles = [
        record for record in records if record.rpartition("/")[2] == "data.pkl" and record.count("/") <= 1
    ]
    if len(pickles) > 1:
        raise FormatError(f"{name}: {len(pickles)} pickles where one is expected: {listed(pickles)}")
    if not pickles:
        if any(record.rpartition("/")[2] == "archive_format" for record in records):
            raise FormatError(
                f"{name}: a program of torch.export, recognised but not read yet; save its state dict"
            )
        raise FormatError(f"{name}: a zip file without data.pkl, so not written by torch.save")
    prefix = pickles[0].removesuffix("data.pkl")
    if prefix + "constants.pkl" in records:
        raise FormatError(
            f"{name}: a TorchScript archive, recognised but not read yet; save the state dict of "
            "torch.jit.load(...)"
        )
    return prefix


def _content(archive: zipfile.ZipFile, record: zipfile.ZipInfo, name: str, limit: int) -> bytes:
    if record.file_size > limit:
        raise FormatError(
            f"{name}: {shorten(record.filename)} has {record.file_size:,} bytes, at most {limit:,} are read"
        )
    _check_stored(record, name)
    return archive.read(record)


def _check_stored(record: zipfile.ZipInfo, name: str) -> None:
    if not is_plain(record):
        seen = f"{shorten(record.filename)} is compressed or encrypted"
        raise FormatError(
            f"{name}: {seen}, and torch.save writes plain records; load it with torch and save it again"
        )


def _check_byte_order(archive: zipfile.ZipFile, record: zipfile.ZipInfo | None, name: str) -> None:
    if record is not None and _content(archive, record, name, SMALL).strip() != b"little":
        raise FormatError(f"{name}: written by a big-endian machine; save it again with safetensors")


def _check_record(record: zipfile.ZipInfo | None, key: str, tensor: StoredTensor, name: str) -> None:
    needed = int(tensor.storage.elements * DTYPE_BYTES[tensor.storage.dtype or tensor.dtype])
    if record is None:
        if needed == 0:
            return
        raise FormatError(
            f"{name}: the bytes of tensor {shorten(key)}, record {shorten(tensor.storage.key)}, are missing",
            tensors=[key],
        )
    _check_stored(record, name)
    if record.file_size < needed:
        seen = f"{record.file_size:,} bytes where its storage has {needed:,}"
        raise FormatError(
            f"{name}: the record of tensor {shorten(key)} has {seen}; download it again", tensors=[key]
        )
