"""`rename`: any recognised checkpoint under the names of another library, a tensor at a time, all of it or nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper._api import describe
from mapper._files import write_text
from mapper._written import check_place
from mapper.checkpoint import Checkpoint, Span
from mapper.errors import MapperError, SourceError, joined, shorten
from mapper.rulebook.libraries import LibraryNaming, library_namings
from mapper.weights.converting.streaming import TORCH, Conversion, shard_bytes, suffix_of, write_all_of
from mapper.weights.converting.torch_files import TorchTable
from mapper.weights.renaming.parts import Part, Where, parts_of
from mapper.weights.renaming.reading_back import read_back
from mapper.weights.renaming.settings import OtherModel, Settings, as_config, settings_of
from mapper.weights.renaming.table import Made, NoPlace, Table, table_of

if TYPE_CHECKING:
    import torch
    from torch import nn

    from mapper.architecture import Architecture


@dataclass
class Renamed:
    """A checkpoint as a library has it: its tensors, and its settings."""

    naming: LibraryNaming
    table: Table
    settings: Settings
    hints: dict[str, Any]  # facts that its files do not say


def rename(
    source: str | Path | Mapping[str, Any] | nn.Module,
    to: str,
    out: str | os.PathLike[str],
    *,
    hints: Mapping[str, Any] | None = None,
    shard_size: int | str | None = None,
    overwrite: bool = False,
    revision: str | None = None,
    rules: Sequence[str | Path] = (),
    follow_links: bool = False,
) -> Conversion:
    """Write the tensors of any recognised source under the names of the library `to`, with its settings beside them.

    `to` is a library ("hf", "meta") or one of its architectures ("hf/llama"). What is written is read again, by names,
    shapes and settings, and must be the same model: what the library cannot say is an error that names it. `out` is a
    folder, or a file of tensors. Raises SourceError for a source without weights or that is not understood,
    MapperError for what the library has no place for, FileExistsError as `convert` does.

        mapper.rename("./Llama-3.2-1B", to="litgpt", out="./litgpt")
    """
    place = os.fspath(out)
    suffix = suffix_of(place, TORCH)
    largest = shard_bytes(shard_size, place, suffix)
    check_place(place, None if suffix else (), overwrite=overwrite)
    candidates = candidates_of(to)
    architecture = describe(
        source, hints, purpose="weights", revision=revision, rules=rules, follow_links=follow_links
    )
    renamed = first_that_fits(candidates, architecture)
    checkpoint = as_checkpoint(renamed, architecture.checkpoint)
    texts = _texts(renamed)
    if suffix:
        for name in texts:
            check_place(os.path.join(os.path.dirname(place), name), None, overwrite=overwrite)
    done = Conversion(place, [], 0, 0, _notes(renamed, architecture, suffix))
    write_all_of(
        done,
        replace(checkpoint, config=None),
        checkpoint.tensors,
        texts,
        largest,
        overwrite,
        _torch_table(renamed),
    )
    for name, text in texts.items() if suffix else ():
        write_text(os.path.join(os.path.dirname(place), name), text, overwrite=overwrite)
        done.files.append(name)
    return done


def candidates_of(to: str) -> list[LibraryNaming]:
    """The namings of a library, or the one that is named. Raises MapperError where there is none."""
    known = library_namings()
    found = [naming for naming in known if to in (naming.library, naming.label)]
    if not found:
        raise MapperError(
            f"no naming is called {shorten(to)}; there are {joined([naming.label for naming in known])}"
        )
    return found


def _refuse_what_is_not_known(architecture: Architecture) -> None:
    """Raise SourceError for what has no weights, and for what is not understood: it has no roles to be named by."""
    checkpoint = architecture.checkpoint
    if checkpoint.read is None:
        raise SourceError(
            f"{checkpoint.source} is a manifest without weights; name a checkpoint that has them"
        )
    if architecture.reading == "skeleton" or architecture.missing or architecture.refusal:
        why = [architecture.refusal, *architecture.missing, "no flow fits its names"]
        raise SourceError(f"{checkpoint.source} cannot be renamed: {next(filter(None, why))}")


def first_that_fits(candidates: Iterable[LibraryNaming], architecture: Architecture) -> Renamed:
    """The model by the first naming that can say it; of the errors of all that of the one that got furthest."""
    _refuse_what_is_not_known(architecture)
    parts = parts_of(architecture)
    said = (architecture.checkpoint.config or {}).get("model_type")
    ordered = sorted(
        candidates, key=lambda naming: naming.fields.get("model_type", {}).get("value", "") != said
    )
    failed: list[MapperError] = []
    for naming in ordered:
        try:
            return _renamed(naming, parts, architecture)
        except (OtherModel, NoPlace) as error:
            failed.append(error)
    nearest = min(failed, key=lambda error: len(error.tensors))  # of an OtherModel all have their places
    raise MapperError(f"{architecture.checkpoint.source}: {nearest.in_command()}")


def _renamed(naming: LibraryNaming, parts: Mapping[Where, Part], architecture: Architecture) -> Renamed:
    read = architecture.checkpoint.read
    assert read is not None
    table = table_of(naming, parts, architecture, read)
    settings = settings_of(naming, architecture, parts, table.stored)
    hints = read_back(naming, table, as_config(naming, settings.fields), architecture)
    return Renamed(naming, table, settings, hints)


def as_checkpoint(renamed: Renamed, source: Checkpoint) -> Checkpoint:
    """The renamed checkpoint, as a source of tensors under their new names."""
    made = renamed.table.made
    read = source.read
    assert read is not None

    def read_made(names: Iterable[str]) -> dict[str, torch.Tensor]:
        return {name: made[name].of(read) for name in names}

    def where(name: str) -> Span | None:
        span = source.where(made[name].copied) if made[name].copied else None
        return _as(span, made[name]) if span else None

    return replace(
        source,
        tensors={name: one.info for name, one in made.items()},
        config=as_config(renamed.naming, renamed.settings.fields),
        read=read_made,
        where=where,
        adapter=None,
        document=None,
    )


def _as(span: Span, made: Made) -> Span | None:
    """The same bytes as the tensor that they are now; None where they are of another type."""
    return span._replace(info=made.info) if span.info.dtype == made.info.dtype else None


def _texts(renamed: Renamed) -> dict[str, str]:
    """The file of the settings, by its name."""
    naming, fields = renamed.naming, renamed.settings.fields
    if not naming.settings or naming.is_table or not fields:
        return {}
    whole = {naming.inside: fields} if naming.inside else fields
    if naming.settings.endswith(".json"):
        return {naming.settings: json.dumps(whole, indent=2) + "\n"}
    import yaml

    return {naming.settings: yaml.safe_dump(whole, sort_keys=False)}


def _torch_table(renamed: Renamed) -> TorchTable:
    """What a torch file has around the tensors."""
    naming = renamed.naming
    settings = {naming.settings: renamed.settings.fields} if naming.is_table else {}
    return TorchTable(naming.tensors_in, settings)


def _notes(renamed: Renamed, architecture: Architecture, suffix: str) -> list[str]:
    naming = renamed.naming
    notes = [f"{shorten(name)} was left out: {why}" for name, why in architecture.unused]
    notes += renamed.table.notes + renamed.settings.notes
    if naming.weights and not suffix:
        notes.append(f"{naming.library} looks for {naming.weights}: -o FOLDER/{naming.weights} writes it")
    if naming.is_table and suffix not in TORCH:
        notes.append(
            f"{naming.settings}, its settings, stand in a torch file alone: {json.dumps(renamed.settings.fields)}"
        )
    if renamed.hints:
        said = " ".join(
            f"--set {name}={json.dumps(value).strip(chr(34))}" for name, value in renamed.hints.items()
        )
        notes.append(f"{naming.label} has no settings for all of it; to read it, say {said}")
    return notes
