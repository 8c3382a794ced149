"""What one weight file holds, and several of them as one checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mapper import limits
from mapper.checkpoint import Checkpoint, Span, TensorInfo
from mapper.errors import FormatError, listed, shorten
from mapper.sources.documents import is_printable_text
from mapper.sources.files import MARK

if TYPE_CHECKING:
    import torch

    from mapper.sources.onnx import Place
    from mapper.sources.renaming import Contents


@dataclass
class Shard:
    """The table of one weight file."""

    name: str  # base name
    container: str
    tensors: dict[str, TensorInfo]
    offsets: dict[str, int] = field(default_factory=dict)  # of the first byte of each tensor, in the file
    strides: dict[str, tuple[int, ...]] = field(
        default_factory=dict
    )  # in elements; only of tensors that are not contiguous
    decoded: dict[str, Callable[[memoryview], torch.Tensor]] = field(
        default_factory=dict
    )  # of tensors whose bytes are written otherwise: what makes them of the whole file
    path: str | None = None  # None: a remote file
    size: int = 0  # bytes of the file
    stamp: tuple[int, ...] = ()  # tells the file from another that takes its place; of local files
    notes: list[str] = field(default_factory=list)
    contents: Contents[Any] | None = None  # under the names of a container that has its own
    beside: dict[str, list[Place]] = field(default_factory=dict)  # tensors in other files, by file; of ONNX
    foreign: list[str] = field(default_factory=list)  # as in a Checkpoint
    metadata: dict[str, Any] = field(default_factory=dict)  # of a safetensors header, unchecked
    tables: tuple[str, ...] = ()  # as in a Checkpoint
    nameless: str = ""  # as in a Checkpoint
    model: str = ""  # what a training file calls the model that is read, where it holds several
    settings: dict[str, Any] | None = (
        None  # a training file's of its model: its config where there is no other
    )
    others: dict[str, Shard] = field(default_factory=dict)  # and the others, by what it calls them
    packed: dict[str, tuple[str, int]] = field(default_factory=dict)  # as in a Checkpoint

    def opened(self, path: str, stamp: tuple[int, ...]) -> Shard:
        """The table of a local file, with where it is."""
        for shard in (self, *self.others.values()):
            shard.path, shard.stamp = path, stamp
        return self


def check_names(keys: Collection[str], file: str) -> None:
    """Raise FormatError if one of the keys of a parsed JSON object could not be printed or addressed."""
    if not keys:
        return
    if (
        all(isinstance(key, str) for key in keys)
        and "" not in keys
        and max(map(len, keys)) <= limits.NAME_DEPTH
        and "".join(keys).isascii()
    ):
        return
    for key in keys:
        check_name(key, file)


def check_name(key: object, file: str) -> None:
    """Raise FormatError for a key that no later stage could print or address."""
    if not isinstance(key, str) or not key:
        raise FormatError(
            f"{file}: a tensor has "
            f"{'an empty name' if key == '' else f'the name {shorten(str(key))}, not a text'}"
        )
    if len(key) > limits.NAME_CHARACTERS:
        limit = f"at most {limits.NAME_CHARACTERS:,} are read"
        raise FormatError(
            f"{file}: tensor {shorten(key)} has a name of {len(key):,} characters, {limit}", tensors=[key]
        )
    if key.count(".") >= limits.NAME_DEPTH:
        limit = f"at most {limits.NAME_DEPTH} are read"
        raise FormatError(
            f"{file}: tensor {shorten(key)} has a name of {key.count('.') + 1:,} parts, {limit}",
            tensors=[key],
        )
    if not is_printable_text(key):
        raise FormatError(
            f"{file}: tensor {shorten(key)} has half of a surrogate pair in its name; the file is damaged",
            tensors=[key],
        )


def check_shape(shape: object, key: str, file: str) -> tuple[int, ...]:
    """`shape` as a tuple; raises FormatError unless it is a short list of sizes."""
    if not isinstance(shape, (list, tuple)) or any(type(extent) is not int or extent < 0 for extent in shape):
        raise FormatError(
            f"{file}: tensor {shorten(key)} has the shape {shorten(str(shape))}, not a list of sizes",
            tensors=[key],
        )
    if len(shape) > limits.DIMENSIONS:
        limit = f"at most {limits.DIMENSIONS} are read"
        raise FormatError(
            f"{file}: tensor {shorten(key)} has {len(shape):,} dimensions, {limit}", tensors=[key]
        )
    if any(extent > limits.EXTENT for extent in shape):
        limit = f"at most {limits.EXTENT:,} is read"
        raise FormatError(
            f"{file}: tensor {shorten(key)} has a dimension of {shorten(str(max(shape)))}, {limit}",
            tensors=[key],
        )
    return tuple(shape)


def joined(
    shards: list[Shard],
    source: str,
    config: dict[str, Any] | None,
    notes: Iterable[str] = (),
    document: dict[str, Any] | None = None,
) -> Checkpoint:
    """The checkpoint that `shards` are together. Its tensors stand in the order of the files.

    `document` is that of a folder which mapper saved; a file has it in its header.
    """
    from mapper.sources import saved  # which reads manifests, and they names of tensors, from here

    document = document or saved.document_of(shards)
    if any(shard.contents is not None for shard in shards):
        from mapper.sources.gguf import complete

        config = complete(shards) or config
    if config is None and len(shards) == 1:
        config = shards[0].settings
    for shard in shards:
        if shard.path is None:  # a remote model's header names what lies beside it
            _enter_beside(shard)
    tensors = dict(shards[0].tensors)
    for shard in shards[1:]:
        twice = tensors.keys() & shard.tensors.keys()
        if twice:
            raise FormatError(
                f"{shard.name}: {listed(sorted(twice))} also in an earlier shard; the shards "
                "contradict each other"
            )
        tensors.update(shard.tensors)
    if not tensors and document is None:
        raise FormatError(f"{source}: no tensors in it")
    if len(tensors) > limits.TENSORS:
        raise FormatError(f"{source}: {len(tensors):,} tensors, at most {limits.TENSORS:,} are read")
    checkpoint = Checkpoint(source, shards[0].container, tensors, config)
    checkpoint.notes = list(dict.fromkeys([*notes, *(note for shard in shards for note in shard.notes)]))
    checkpoint.foreign = list(dict.fromkeys(name for shard in shards for name in shard.foreign))
    checkpoint.metadata = {
        key: text for shard in shards for key, text in shard.metadata.items() if type(text) is str
    }
    checkpoint.nameless = next((shard.nameless for shard in shards if shard.nameless), "")
    if len(shards) == 1:
        checkpoint.tables, checkpoint.others = shards[0].tables, _others(shards[0], source, config)
    checkpoint.packed = {name: packed for shard in shards for name, packed in shard.packed.items()}
    paths = [shard.path for shard in shards if shard.path is not None]
    if len(paths) == len(shards):
        checkpoint.weights = paths
        homes = {name: shard for shard in shards for name in shard.tensors}
        checkpoint.read = lambda names: read(homes, names)
        checkpoint.where = lambda name: where(homes.get(name), name)
    if document is not None:
        saved.apply(checkpoint, document)
    return checkpoint


def _others(shard: Shard, source: str, config: dict[str, Any] | None) -> dict[str, Checkpoint]:
    """Each model of a file that holds several, also the one that is read, by what the file calls it."""
    if not shard.others:
        return {}
    models = {shard.model: replace(shard, others={}, notes=[]), **shard.others}
    return {name: joined([model], f"{source}{MARK}{name}", config) for name, model in models.items()}


def _enter_beside(shard: Shard) -> None:
    for place in (place for part in shard.beside.values() for place in part):
        if place.key in shard.tensors:
            raise FormatError(f"{shard.name}: two initialisers have the name {shorten(place.key)}")
        shard.tensors[place.key] = place.info


def read(homes: Mapping[str, Shard], names: Iterable[str]) -> dict[str, torch.Tensor]:
    """The named tensors, memory-mapped, in the order of `names`; `homes` says in which file each is."""
    from mapper.sources.storage import map_tensors

    wanted = list(names)
    by_shard: dict[int, list[str]] = {}
    for name in wanted:
        by_shard.setdefault(id(homes[name]), []).append(name)
    found: dict[str, torch.Tensor] = {}
    for here in by_shard.values():
        found.update(map_tensors(homes[here[0]], here))
    return {name: found[name] for name in wanted}


def where(shard: Shard | None, name: str) -> Span | None:
    """Where the tensor's bytes stand as they are; None where they must be read to be had."""
    if shard is None or shard.path is None or name in shard.decoded or name in shard.strides:
        return None
    return Span(shard.path, shard.offsets[name], shard.stamp, shard.tensors[name])
