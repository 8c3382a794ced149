"""GGUF, versions 2 and 3: metadata by key, a table of tensors, then their aligned bytes.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from mapper import limits
from mapper.checkpoint import UNDONE, TensorInfo
from mapper.errors import FormatError, MapperError, SourceError, shorten
from mapper.sources.composed import compositions
from mapper.sources.files import base_name, open_regular
from mapper.sources.ggml import Stored, Type, is_float, numbers, type_of
from mapper.sources.renaming import Contents, Named, config_of, named, naming_of
from mapper.sources.shards import Shard, check_name, check_shape

if TYPE_CHECKING:
    import torch

    from mapper.checkpoint import Checkpoint
    from mapper.rulebook.namings import Naming

CONTAINER = "gguf"
PARTS = "split.count"
ARCHITECTURE = "general.architecture"
MAGIC = b"GGUF"
TOKENIZER = "tokenizer."  # what keys of it begin with
VERSIONS = (2, 3)
ALIGNMENT = 32
SMALL_BYTES = 1_024
TEXT, LIST, TRUTH, FLOAT = 8, 9, 7, 6
SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    FLOAT: "<f",
    TRUTH: "<B",
    10: "<Q",
    11: "<q",
    12: "<d",
}


def read_header(file: BinaryIO, size: int, name: str) -> Shard:
    """The table of the GGUF `file`; `complete` gives the tensors the names of the model."""
    contents = _Reader(file, size, name).contents()
    return Shard(name, CONTAINER, {}, size=size, contents=contents)


def read_words(file: BinaryIO, size: int, name: str) -> dict[str, Any]:
    """The metadata of the GGUF `file` with the words, their types and the merges of its tokenizer, which a header is read without."""
    file.seek(0)
    return _Reader(file, size, name, longest=limits.GGUF_ITEMS).contents().metadata


def tokenizer_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """The metadata of a GGUF source that is its tokenizer's, by key; {} where the source is another or cannot be read again."""
    path = checkpoint.weights[0] if checkpoint.weights else None
    if path is None or checkpoint.container != CONTAINER:
        return {}
    try:
        file, size = open_regular(path)
        with file:
            said = read_words(file, size, base_name(path)) if file.read(len(MAGIC)) == MAGIC else {}
    except MapperError:
        return {}
    return {key: value for key, value in said.items() if key.startswith(TOKENIZER) and value != []}


def is_part(shard: Shard) -> bool:
    """Whether the file is one of several that are a model together."""
    count = shard.contents.metadata.get(PARTS, 1) if shard.contents is not None else 1
    return type(count) is int and count > 1


def complete(shards: list[Shard]) -> dict[str, Any] | None:
    """Enter the tensors of all files under the model's names and in its arrangement; returns the config."""
    contents = [cast("Contents[Stored]", shard.contents) for shard in shards if shard.contents is not None]
    if len(contents) < len(shards):
        raise FormatError(f"{shards[0].name}: stands beside shards of another container")
    metadata = {key: value for part in reversed(contents) for key, value in part.metadata.items()}
    whole = Contents(
        metadata,
        [stored for part in contents for stored in part.tensors],
        {key: value for part in contents for key, value in part.small.items()},
    )
    architecture = metadata.get(ARCHITECTURE)
    _refuse_part(metadata, shards[0].name)
    naming = naming_of(CONTAINER, architecture, whole.names) if isinstance(architecture, str) else None
    kinds = {stored.kind for stored in whole.tensors if is_float(stored.kind)}
    dtype = "F32" if len({kind.dtype for kind in kinds}) > 1 else ""
    homes = {stored.name: shard for shard in shards for stored in _stored_in(shard)}
    for shard, tensors in zip(shards, _together(naming, contents), strict=True):
        if naming is None:
            found = [Named(stored.name, stored, stored.shape) for stored in tensors]
        else:
            found, notes = named(naming, Contents(metadata, tensors), f"{architecture}.", shard.name)
            shard.notes += notes
        for one in found:
            _enter(shard, one, dtype, homes)
    shards[0].notes += _notes(naming, architecture, kinds, dtype)
    return config_of(naming, whole, f"{architecture}.", shards[0].name) if naming else None


def _stored_in(shard: Shard) -> list[Stored]:
    return cast("Contents[Stored]", shard.contents).tensors


def _together(naming: Naming | None, contents: list[Contents[Stored]]) -> list[list[Stored]]:
    """The tensors of each file, the parts of one tensor of the model with the first of them: a file may be cut between."""
    places = {stored.name: at for at, part in enumerate(contents) for stored in part.tensors}
    for one in compositions(naming.composed, set(places)) if naming is not None and len(contents) > 1 else ():
        places |= dict.fromkeys(one.parts, places[one.parts[0]])
    found: list[list[Stored]] = [[] for _ in contents]
    for part in contents:
        for stored in part.tensors:
            found[places[stored.name]].append(stored)
    return found


def _refuse_part(metadata: dict[str, Any], name: str) -> None:
    """Raise SourceError for a file that changes a model, or sees for it."""
    kind = metadata.get("general.type", "model")
    if kind != "model":
        raise SourceError(
            f"{name}: a GGUF file of the type {shorten(str(kind))}, not of a whole model; give the model's"
        )


def _enter(shard: Shard, one: Named[Stored], dtype: str, homes: dict[str, Shard]) -> None:
    kind = one.stored.kind
    moved = bool(one.arrange or one.composed)
    given = (dtype or kind.dtype or "F32") if is_float(kind) else kind.dtype
    check_name(one.name, shard.name)
    shard.tensors[one.name] = TensorInfo(one.shape, given)
    if given != kind.dtype:
        shard.packed[one.name] = kind.name, sum(part.stored.size for part in one.beside or [one])
    if given == kind.dtype and not moved:
        shard.offsets[one.name] = one.stored.start
    else:

        def read(data: memoryview) -> torch.Tensor:
            return one.read(
                lambda stored: (
                    numbers(stored, data, shard.name, given)
                    if homes[stored.name] is shard
                    else _read_beside(homes[stored.name], stored, given)
                )
            )

        shard.decoded[one.name] = read


def _read_beside(home: Shard, stored: Stored, given: str) -> torch.Tensor:
    """A part that another file has."""
    from mapper.sources.storage import map_tensors

    alone = Shard(home.name, CONTAINER, {stored.name: TensorInfo(stored.shape, given)}, size=home.size)
    alone.decoded[stored.name] = lambda data: numbers(stored, data, home.name, given)
    assert home.path is not None
    return map_tensors(alone.opened(home.path, home.stamp), [stored.name])[stored.name]


def _notes(naming: Naming | None, architecture: Any, kinds: set[Type], dtype: str) -> list[str]:
    packed = sorted(kind.name for kind in kinds if not kind.dtype)
    notes = [f"dequantised from {', '.join(packed)}"] if packed else []
    plain = sorted(kind.name for kind in kinds if kind.dtype and kind.dtype != dtype)
    if dtype and plain:
        notes.append(
            f"{', '.join(plain)} is given as {dtype}, which holds all of it: a model computes in one type"
        )
    if naming is None:
        notes.append(
            f"no naming knows the architecture {shorten(str(architecture))}: names are those in the file"
        )
    elif naming.others:
        notes.append(
            f"no naming knows the architecture {shorten(str(architecture))}: names and settings are read as most have "
            "them, and what its code alone says is asked"
        )
    else:
        notes.append(f"{UNDONE.format(naming.container)} ({naming.name})")
    return notes


class _Reader:
    def __init__(self, file: BinaryIO, size: int, name: str, longest: int = limits.GGUF_LIST):
        self.file, self.size, self.name = file, size, name
        self.longest = longest  # list of texts that is kept
        self.position = 0
        self.kept = 0  # entries of lists so far

    def contents(self) -> Contents[Stored]:
        self.take(len(MAGIC))
        version = self.number("<I")
        if version not in VERSIONS:
            if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
                raise FormatError(f"{self.name}: a GGUF file of a big-endian machine; convert it on one")
            raise FormatError(
                f"{self.name}: version {version} of GGUF, read are {' and '.join(map(str, VERSIONS))}"
            )
        tensors, entries = self.number("<Q"), self.number("<Q")
        for count, most, what in (
            (tensors, limits.TENSORS, "tensors"),
            (entries, limits.GGUF_ENTRIES, "entries of metadata"),
        ):
            if count > most:
                raise FormatError(f"{self.name}: {count:,} {what}, at most {most:,} are read")
        found: Contents[Stored] = Contents()
        for _ in range(entries):
            key = self.text()
            if key in found.metadata:
                raise FormatError(f"{self.name}: {shorten(key)} stands twice in its metadata")
            found.metadata[key] = self.value(self.number("<I"), key)
        found.tensors = self.table(tensors, self.alignment(found.metadata))
        found.small = {stored.name: self.floats(stored) for stored in found.tensors if _is_small(stored)}
        return found

    def floats(self, stored: Stored) -> list[float]:
        self.file.seek(stored.start)
        data = self.file.read(stored.size)
        if len(data) < stored.size:
            raise self.cut()
        return list(struct.unpack(f"<{len(data) // 4}f", data))

    def alignment(self, metadata: dict[str, Any]) -> int:
        value = metadata.get("general.alignment", ALIGNMENT)
        if type(value) is not int or not 0 < value <= limits.GGUF_ALIGNMENT or value % 8:
            limit = f"read are multiples of 8 up to {limits.GGUF_ALIGNMENT:,}"
            raise FormatError(f"{self.name}: 'general.alignment' is {shorten(str(value))}, {limit}")
        return value

    def table(self, count: int, alignment: int) -> list[Stored]:
        described = [self.tensor() for _ in range(count)]
        base = -(-self.position // alignment) * alignment
        found: dict[str, Stored] = {}
        for stored in described:
            if stored.name in found:
                raise FormatError(f"{self.name}: two tensors have the name {shorten(stored.name)}")
            end = base + stored.start + stored.size
            if stored.start % alignment or end > self.size:
                seen = f"ends at byte {end:,} but the file has {self.size:,}; download it again"
                if stored.start % alignment:
                    seen = f"starts at byte {stored.start:,} of the data, which is no multiple of {alignment}"
                raise FormatError(f"{self.name}: tensor {shorten(stored.name)} {seen}")
            found[stored.name] = stored._replace(start=base + stored.start)
        return list(found.values())

    def tensor(self) -> Stored:
        """One entry of the table; its start is still counted from the data's."""
        key = self.text()
        check_name(key, self.name)
        dimensions = self.number("<I")
        if dimensions > limits.DIMENSIONS:
            limit = f"at most {limits.DIMENSIONS} are read"
            raise FormatError(
                f"{self.name}: tensor {shorten(key)} has {dimensions:,} dimensions, {limit}", tensors=[key]
            )
        extents = [self.number("<Q") for _ in range(dimensions)]
        shape = check_shape(extents[::-1], key, self.name)
        kind = type_of(self.number("<I"), key, self.name)
        if kind.block > 1 and (not shape or shape[-1] % kind.block):
            seen = f"{list(shape)}, whose rows are no multiple of the {kind.block} numbers of a block of {kind.name}"
            raise FormatError(f"{self.name}: tensor {shorten(key)} has the shape {seen}", tensors=[key])
        return Stored(key, shape, kind, self.number("<Q"))

    def value(self, kind: int, key: str, depth: int = 0) -> Any:
        if kind == TEXT:
            return self.text()
        if kind in SCALARS:
            value = self.number(SCALARS[kind])
            return bool(value) if kind == TRUTH else shortest(value) if kind == FLOAT else value
        if kind != LIST or depth == limits.GGUF_DEPTH:
            raise FormatError(
                f"{self.name}: {shorten(key)} in its metadata is of type {kind} at depth {depth}"
            )
        return self.sequence(key, depth)

    def sequence(self, key: str, depth: int) -> Any:
        """The items of a list, or their number where they are more than any setting has: a tokenizer's words."""
        kind, count = self.number("<I"), self.number("<Q")
        if kind in SCALARS and count > self.longest:
            self.skip(count * struct.calcsize(SCALARS[kind]))
            return count
        self.kept += count
        if self.kept > limits.GGUF_ITEMS:
            limit = f"at most {limits.GGUF_ITEMS:,} are read"
            raise FormatError(f"{self.name}: {self.kept:,} items of lists in its metadata, {limit}")
        if kind == TEXT and count > self.longest:
            for _ in range(count):
                self.skip(self.number("<Q"))
            return count
        return [self.value(kind, key, depth + 1) for _ in range(count)]

    def take(self, count: int) -> bytes:
        """The next bytes."""
        self.reach(count)
        data = self.file.read(count)
        if len(data) < count:
            raise self.cut()
        return data

    def skip(self, count: int) -> None:
        self.reach(count)
        self.file.seek(self.position)

    def reach(self, count: int) -> None:
        if count > self.size - self.position:
            raise self.cut()
        self.position += count
        if self.position > limits.HEADER_BYTES:
            raise FormatError(
                f"{self.name}: a header of more than {limits.HEADER_BYTES:,} bytes, which is the most that is read"
            )

    def cut(self) -> FormatError:
        return FormatError(
            f"{self.name}: the file ends within its header, at byte {self.size:,}; download it again"
        )

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        length = self.number("<Q")
        if length > limits.GGUF_TEXT_BYTES:
            limit = f"at most {limits.GGUF_TEXT_BYTES:,} are read"
            raise FormatError(f"{self.name}: a text of {length:,} bytes in its header, {limit}")
        return self.take(length).decode("utf-8", "replace")


def _is_small(stored: Stored) -> bool:
    """Whether a tensor is a setting rather than weights: a short vector outside all layers."""
    layer = any(word.isdigit() for word in stored.name.split("."))
    return stored.kind.dtype == "F32" and len(stored.shape) == 1 and stored.size <= SMALL_BYTES and not layer


def shortest(value: float) -> float:
    """The number of the fewest digits that is stored as this 32-bit float: 1e-05, not 9.999999747378752e-06."""
    if value - value != 0 or abs(value) > 1e38:  # infinite, no number, or too close to the largest
        return value
    packed = struct.pack("<f", value)
    tried = (float(f"{value:.{digits}g}") for digits in range(1, 9))
    return next((short for short in tried if struct.pack("<f", short) == packed), value)
