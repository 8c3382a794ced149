"""Files of `torch.save` since torch 1.6: a zip of one pickle and one uncompressed record for each storage.

TorchScript archives and programs of torch.export are such zips too."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple, cast

from mapper import limits
from mapper.checkpoint import DTYPE_BYTES
from mapper.errors import FormatError, listed, shorten
from mapper.sources import exported, torch_script
from mapper.sources.files import refuse_later
from mapper.sources.pickles import Opaque, StoredTensor, interpret
from mapper.sources.settings import of_archive, weights_in
from mapper.sources.shards import Shard
from mapper.sources.state_dict import take_tensors
from mapper.sources.zips import archive_errors, is_plain, open_records, start_of

SMALL = 64  # bytes of the record that names the byte order


def read_header(
    file: BinaryIO, archive: zipfile.ZipFile, size: int, name: str, *, offsets: bool = True
) -> Shard:
    """The table of the zip `file`: its directory and pickle, with `offsets` the records' headers too."""
    records = {entry.filename: entry for entry in archive.infolist()}
    if exported.is_exported(records):
        return _read_exported(file, exported.Records(archive, records, name), size, offsets)
    if kept := weights_in(records):
        return _read_kept(file, exported.Records(archive, records, name), kept, size, offsets)
    prefix = _prefix(records, name)
    with archive_errors(name):
        _check_byte_order(archive, records.get(prefix + "byteorder"), name)
        pickle = _content(archive, records[prefix + "data.pkl"], name, limits.HEADER_BYTES)
    place = _Places(file, records, size, name, offsets)
    value, _, made, foreign = interpret(pickle, name)
    if prefix + "constants.pkl" in records:
        return _read_script(value, made, foreign, archive, prefix, place)
    shard = Shard(name, "torch", {}, size=size, foreign=foreign)
    for table, found in take_tensors(value, made, shard):
        place.enter(table, found, f"{prefix}data/")
    return shard


class _Places(NamedTuple):
    """Where the records of an archive lie."""

    file: BinaryIO
    records: Mapping[str, zipfile.ZipInfo]
    size: int
    name: str
    offsets: bool  # whether they are looked for

    def enter(self, table: Shard, found: Mapping[str, StoredTensor], folder: str) -> None:
        """Note where each tensor begins; the records of their storages stand in `folder`. Raises FormatError."""
        starts: dict[str, int] = {}
        for key, tensor in found.items():
            stored = tensor.storage.key
            record = self.records.get(f"{folder}{stored}")
            _check_record(record, key, tensor, self.name)
            if self.offsets and record is not None:
                if stored not in starts:
                    starts[stored] = start_of(self.file, record, self.size, self.name)
                table.offsets[key] = starts[stored] + int(tensor.offset * DTYPE_BYTES[tensor.dtype])


def _read_script(
    value: Any,
    made: list[StoredTensor],
    foreign: list[str],
    archive: zipfile.ZipFile,
    prefix: str,
    place: _Places,
) -> Shard:
    """The table of a TorchScript archive; of a frozen one, whose modules hold no tensor, that of its code's constants."""
    shard = Shard(place.name, "torch", {}, size=place.size)
    shard.foreign = [one for one in foreign if not one.startswith(f"{torch_script.ROOT}.")]
    modules, folder = torch_script.modules(value), "data/"
    code = torch_script.Code(archive, place.records, prefix)
    with archive_errors(place.name):
        state, shard.observed = torch_script.state(modules, code), list(torch_script.observed(modules, code))
        if not state:
            pickle = _content(
                archive, place.records[f"{prefix}constants.pkl"], place.name, limits.HEADER_BYTES
            )
            held, _, made, _ = interpret(pickle, place.name)
            texts = [code.of(module.kind) for module in modules.values()]
            frozen = torch_script.Frozen(held if isinstance(held, tuple) else (), texts)
            state, shard.observed, folder = frozen.state, frozen.observed, "constants/"
    _refuse_packed(modules, state, place.name)
    for table, found in take_tensors(state, made, shard):
        place.enter(table, found, f"{prefix}{folder}")
    shard.notes.append(f"{place.name}: a TorchScript archive; its code was not run")
    return shard


def _refuse_packed(modules: Mapping[str, Opaque], state: Mapping[str, Any], name: str) -> None:
    """Raise FormatError where objects that are no modules hold the tensors, as those of quantised layers do."""
    packed = [module.kind for module in modules.values() if module.kind.startswith(torch_script.PACKED)]
    if packed and not state:
        raise FormatError(
            f"{name}: its tensors are packed in {listed(sorted(set(packed)))}, which is not read; save the model that was "
            "not quantised"
        )


def _read_exported(file: BinaryIO, records: exported.Records, size: int, offsets: bool) -> Shard:
    """The table of a program of torch.export."""
    name, shard = records.name, Shard(records.name, "torch", {}, size=size)
    inner = exported.inner_state(records.entries)
    with archive_errors(name):
        if inner is not None:
            return _read_inner(file, inner, size, name, offsets)
        found = exported.weights_of(records)
        shard.observed = list(exported.observed(records))
    for table, held in take_tensors(found, [], shard):
        _Places(file, records.entries, size, name, offsets).enter(table, held, "")
    shard.notes.append(f"{name}: a program of torch.export; it was not run")
    return shard


def _read_inner(file: BinaryIO, record: zipfile.ZipInfo, size: int, name: str, offsets: bool) -> Shard:
    """The table of a file of torch.save that is a record of an archive."""
    _check_stored(record, name)
    start = start_of(file, record, size, name)
    section = cast("BinaryIO", exported.Section(file, start, record.file_size))
    archive, _ = open_records(section, name)
    shard = read_header(section, archive, record.file_size, name, offsets=offsets)
    for table in (shard, *shard.others.values()):
        table.offsets = {key: start + offset for key, offset in table.offsets.items()}
        table.size = size
    return shard


def _read_kept(file: BinaryIO, records: exported.Records, kept: str, size: int, offsets: bool) -> Shard:
    """The table of the weights in an archive of some library, with the settings that it has beside them."""

    def read(beside: str) -> dict[str, Any]:
        return records.json(beside) if beside in records.entries else {}

    with archive_errors(records.name):
        shard = _read_inner(file, records.entries[kept], size, records.name, offsets)
        said = of_archive(kept, read)
    if said is not None:
        shard.settings = said.config
        shard.notes.append(f"{records.name}: the settings are those in its {said.where}")
    return shard


def _prefix(records: dict[str, zipfile.ZipInfo], name: str) -> str:
    """The folder of the archive that holds the pickle."""
    pickles = [
        record for record in records if record.rpartition("/")[2] == "data.pkl" and record.count("/") <= 1
    ]
    if len(pickles) > 1:
        raise FormatError(f"{name}: {len(pickles)} pickles where one is expected: {listed(pickles)}")
    if not pickles:
        refuse_later(b"", name)
        raise FormatError(f"{name}: a zip file without data.pkl, so not written by torch.save")
    return pickles[0].removesuffix("data.pkl")


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
