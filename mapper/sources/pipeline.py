"""Pipelines: folders of several models that a `model_index.json` names, each in a folder of its own.

https://huggingface.co/docs/diffusers/using-diffusers/loading
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mapper import limits
from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError, MapperError, MissingSourceError, SourceError, listed, shorten
from mapper.sources.files import MARK
from mapper.sources.sharded import is_inside

if TYPE_CHECKING:
    import torch

CONTAINER = "pipeline"
Member = Checkpoint | MapperError  # what a folder holds, or why it cannot be read

PIPELINE = "model_index.json"  # names the models of a folder, each in a folder of its own


class NoWeights(MissingSourceError):
    """A folder has no weights: that of a tokenizer, say."""


def members(index: Mapping[str, Any], name: str) -> dict[str, str]:
    """Folder -> class of each member that the parsed index names: of models, tokenizers, schedulers."""
    found = {}
    for key, value in index.items():
        is_member = isinstance(value, list) and len(value) == 2 and isinstance(value[1], str)
        if key.startswith("_") or not is_member:
            continue
        if "/" in key or not is_inside(key):
            raise FormatError(f"{name}: {shorten(key)} is no folder beside it")
        found[key] = value[1]
    if len(found) > limits.MEMBERS:
        raise FormatError(f"{name}: {len(found):,} members, at most {limits.MEMBERS:,} are read")
    return found


def open_members(
    index: dict[str, Any],
    source: str,
    part: str,
    open_member: Callable[[str], Checkpoint],
    each: Callable[[Callable[[str], Member], list[str]], Iterable[Member]] = map,
) -> Checkpoint:
    """The models of a pipeline together, or the one that `part` names; `open_member` opens a folder of it.

    A member without weights is named in a note; so is one that cannot be read, unless it is the one asked for. `each`
    does something for every folder, as `map` does, or for several at a time.
    """
    classes = members(index, f"{source}: {PIPELINE}")
    if part in classes:
        return _named(open_member(part), source, part, classes[part])
    parts: dict[str, Checkpoint] = {}
    without, notes = [], []
    folders = list(classes)
    for folder, found in zip(folders, each(lambda folder: _tried(open_member, folder), folders), strict=True):
        if isinstance(found, Checkpoint):
            parts[folder] = _named(found, source, folder, classes[folder])
        elif isinstance(found, NoWeights):
            without.append(folder)
        else:
            notes.append(f"{folder} cannot be read: {found.in_command()}")
    if not parts:
        problem = notes[0] if notes else f"none of its members has weights: {listed(without)}"
        raise SourceError(f"{source}: a pipeline, and {problem}")
    if without:
        notes.append(f"no weights here: {', '.join(without)}")
    return _together(source, parts, notes)


def _tried(open_member: Callable[[str], Checkpoint], folder: str) -> Member:
    try:
        return open_member(folder)
    except MapperError as error:
        return error


def _named(member: Checkpoint, source: str, part: str, kind: str) -> Checkpoint:
    return replace(member, source=f"{source}{MARK}{part}", part=part, class_name=kind)


def _together(source: str, parts: Mapping[str, Checkpoint], notes: list[str]) -> Checkpoint:
    """All models of a pipeline; each name begins with that of the folder."""
    homes = {f"{part}.{name}": (one, name) for part, one in parts.items() for name in one.tensors}
    whole = Checkpoint(source, CONTAINER, {key: one.tensors[name] for key, (one, name) in homes.items()})
    whole.config = {part: one.config for part, one in parts.items() if one.config is not None}
    whole.parts, whole.notes = dict(parts), notes
    whole.packed = {key: one.packed[name] for key, (one, name) in homes.items() if name in one.packed}
    whole.where = lambda key: homes[key][0].where(homes[key][1]) if key in homes else None
    if all(one.read is not None for one in parts.values()):
        whole.read = lambda keys: _read(parts, homes, keys)
    return whole


def _read(
    parts: Mapping[str, Checkpoint], homes: Mapping[str, tuple[Checkpoint, str]], keys: Iterable[str]
) -> dict[str, torch.Tensor]:
    wanted = list(keys)
    found: dict[str, torch.Tensor] = {}
    for one in parts.values():
        here = {homes[key][1]: key for key in wanted if homes[key][0] is one}
        if here and one.read is not None:
            found |= {here[name]: tensor for name, tensor in one.read(here).items()}
    return {key: found[key] for key in wanted}
