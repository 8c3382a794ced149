"""Shards as one checkpoint: its tensors in the order of the files, its config, and where each tensor is read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mapper import limits
from mapper.checkpoint import Checkpoint, Span, TensorInfo
from mapper.errors import FormatError, listed, shorten
from mapper.sources import saved
from mapper.sources.files import MARK
from mapper.sources.settings import of_metadata, told_of
from mapper.sources.shards import Shard

if TYPE_CHECKING:
    import torch


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
    document = document or saved.document_of(shards)
    config, said = _config(shards, config)
    said = [] if document is not None else said  # which has the config of its own
    tensors = _tensors(shards)
    if not tensors and document is None:
        why = next((shard.empty for shard in shards if shard.empty), f"{source}: no tensors in it")
        raise FormatError(why)
    if len(tensors) > limits.TENSORS:
        raise FormatError(f"{source}: {len(tensors):,} tensors, at most {limits.TENSORS:,} are read")
    checkpoint = Checkpoint(source, shards[0].container, tensors, config)
    _describe(checkpoint, shards, (*notes, *said))
    if len(shards) == 1:
        checkpoint.tables, checkpoint.others = shards[0].tables, _others(shards[0], source, config)
    _make_readable(checkpoint, shards)
    if document is not None:
        saved.apply(checkpoint, document)
    return checkpoint


def _describe(checkpoint: Checkpoint, shards: list[Shard], notes: Iterable[str]) -> None:
    """What the files say beside their tensors' names and shapes."""
    told = (note for shard in shards for note in (*shard.notes, *shard.told))
    checkpoint.notes = list(dict.fromkeys([*notes, *told]))
    checkpoint.foreign = list(dict.fromkeys(name for shard in shards for name in shard.foreign))
    checkpoint.metadata = {
        key: text for shard in shards for key, text in shard.metadata.items() if type(text) is str
    }
    for text in told_of(checkpoint.metadata):
        checkpoint.notes.append(f"its metadata says: {text}")
    checkpoint.observed = [one for shard in shards for one in shard.observed]
    checkpoint.tied = {head: table for shard in shards for head, table in shard.tied.items()}
    checkpoint.nameless = next((shard.nameless for shard in shards if shard.nameless), "")
    checkpoint.packed = {name: packed for shard in shards for name, packed in shard.packed.items()}


def _make_readable(checkpoint: Checkpoint, shards: list[Shard]) -> None:
    """Where every file is at hand: how values are read, and where each tensor lies."""
    paths = [shard.path for shard in shards if shard.path is not None]
    if len(paths) < len(shards):
        return
    homes: dict[str, Shard] = {}
    for shard in shards:
        homes.update(dict.fromkeys(shard.tensors, shard))
    checkpoint.weights = paths
    checkpoint.read = lambda names: read(homes, names)
    checkpoint.where = lambda name: where(homes.get(name), name)


def _config(shards: list[Shard], config: dict[str, Any] | None) -> tuple[dict[str, Any] | None, list[str]]:
    """The config beside the files; of GGUF files the one in their metadata, of a training file its settings.

    With it a note on settings that stand in the metadata of safetensors files.
    """
    if any(shard.contents is not None for shard in shards):
        from mapper.sources.gguf import complete

        config = complete(shards) or config
    if config is None and len(shards) == 1:
        config = shards[0].settings
    if config is not None:
        return config, []
    found = ((shard, of_metadata(shard.metadata)) for shard in shards)
    shard, said = next(((shard, said) for shard, said in found if said), (None, None))
    if shard is None or said is None:
        return None, []
    return said.config, [f"{shard.name}: the settings are those under {shorten(said.where)} in its metadata"]


def _tensors(shards: list[Shard]) -> dict[str, TensorInfo]:
    """The tensors of all shards. Raises FormatError for one that is in two."""
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
    return tensors


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
