"""Which naming of a library can say a model, and the model as it has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mapper.checkpoint import Checkpoint, Span
from mapper.errors import MapperError, SourceError, joined, shorten
from mapper.rulebook.libraries import LibraryNaming, library_namings
from mapper.weights.renaming.arranged import parts_of
from mapper.weights.renaming.containers import containers
from mapper.weights.renaming.parts import Part, Where
from mapper.weights.renaming.reading_back import read_back
from mapper.weights.renaming.settings import (
    OtherModel,
    Settings,
    as_config,
    free_facts,
    settings_of,
    type_in,
    type_of,
)
from mapper.weights.renaming.table import Made, NoPlace, Table, table_of

if TYPE_CHECKING:
    import torch

    from mapper.architecture import Architecture


@dataclass
class Renamed:
    """A checkpoint as a library has it: its tensors, and its settings."""

    naming: LibraryNaming
    table: Table
    settings: Settings
    hints: dict[str, Any]  # facts that its files do not say


def candidates_of(to: str) -> list[LibraryNaming]:
    """The namings of a library, or the one that is named. Raises MapperError where there is none."""
    known = library_namings()
    found = [naming for naming in known if to in (naming.library, naming.label)]
    if not found:
        raise MapperError(
            f"no naming is called {shorten(to)}; there are {joined([*(naming.label for naming in known), *containers()])}"
        )
    return found


def refuse_what_is_not_known(architecture: Architecture) -> None:
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
    refuse_what_is_not_known(architecture)
    parts = parts_of(architecture)
    said = type_in(architecture.checkpoint.config or {})
    ordered = sorted(candidates, key=lambda naming: not said or said not in (type_of(naming), naming.of))
    failed: list[MapperError] = []
    for naming in ordered:
        try:
            return _renamed(naming, parts, architecture)
        except (OtherModel, NoPlace) as error:
            failed.append(error)
    nearest = min(failed, key=lambda error: len(error.tensors))  # of an OtherModel all have their places
    text = f"{architecture.checkpoint.source}: {nearest.in_command()}"
    raise MapperError(text, fact=nearest.fact, tensors=nearest.tensors)


def _renamed(naming: LibraryNaming, parts: Mapping[Where, Part], architecture: Architecture) -> Renamed:
    read = architecture.checkpoint.read
    assert read is not None
    table = table_of(naming, parts, architecture, read)
    settings = settings_of(naming, architecture, parts, table.stored)
    hints = read_back(
        naming.label,
        {name: made.info for name, made in table.made.items()},
        as_config(naming, settings.fields),
        architecture,
        free=free_facts(naming, architecture),
        asks=not naming.settings,
        rotary=naming.rotary,
    )
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
        rows=lambda name: made[name].rows(source.where),
        adapter=None,
        document=None,
    )


def _as(span: Span, made: Made) -> Span | None:
    """The same bytes as the tensor that they are now; None where they are of another type."""
    return span._replace(info=made.info) if span.info.dtype == made.info.dtype else None
