"""What mapper saved as the checkpoint that its model was read from: every name, also of tied tensors, and the config."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mapper.architecture import Architecture, Origin
from mapper.checkpoint import Checkpoint
from mapper.emission.identifiers import rename_table
from mapper.errors import FormatError
from mapper.weights.built.reader import read_data

if TYPE_CHECKING:
    import torch


def as_read(checkpoint: Checkpoint) -> tuple[Checkpoint, Origin]:
    """The checkpoint with the names of the one before, and what else the reading was made from. Raises FormatError."""
    document = checkpoint.document or {}
    architecture = _architecture(document, checkpoint.source)
    origin = architecture.origin if architecture else Origin()
    config = origin.config if checkpoint.config is None else checkpoint.config
    table = {name: name for name in checkpoint.tensors} | _aliases(document, checkpoint)
    words = {new: old for old, new in rename_table(architecture).items()} if architecture else {}
    keys = {_renamed(name, words): owner for name, owner in table.items()}
    tensors = {key: checkpoint.tensors[owner] for key, owner in keys.items()}
    read, where = _reader(checkpoint, keys), checkpoint.where
    adapted = architecture.checkpoint.adapted if architecture else ()
    notes = [*checkpoint.notes, *map(str, adapted)]
    named = replace(checkpoint, config=config, tensors=tensors, read=read, adapted=adapted, notes=notes)
    named.where = lambda name: where(keys.get(name, name))
    return named, origin


def _architecture(document: Mapping[str, Any], source: str) -> Architecture | None:
    """The architecture of a model of mapper's own; None for others."""
    stored = document.get("architecture")
    if not isinstance(stored, dict) or stored.get("kind") != "generated":
        return None
    try:
        return read_data(stored.get("model"))[0]
    except FormatError as error:
        raise FormatError(f"{source}: {error}") from error


def _aliases(document: Mapping[str, Any], checkpoint: Checkpoint) -> dict[str, str]:
    """The other names of tied tensors, each with the one that its tensor is stored under."""
    tied: dict[str, str] = document.get("tied", {})
    return {alias: owner for alias, owner in tied.items() if owner in checkpoint.tensors}


def _renamed(name: str, words: Mapping[str, str]) -> str:
    return ".".join(words.get(word, word) for word in name.split(".")) if words else name


def _reader(checkpoint: Checkpoint, keys: Mapping[str, str]) -> Any:
    """`read` by the new names."""
    read = checkpoint.read
    if read is None:
        return None

    def by_key(names: Iterable[str]) -> dict[str, torch.Tensor]:
        wanted = {name: keys.get(name, name) for name in names}
        found = read(dict.fromkeys(wanted.values()))
        return {name: found[owner] for name, owner in wanted.items()}

    return by_key
