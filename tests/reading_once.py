"""For tests that give one checkpoint to several functions or commands: what its headers say is inferred once in each test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint
from mapper.errors import MapperError
from mapper.inference.infer import infer


class Once:
    """Stands in for `infer`: an equal checkpoint asked with equal hints has the reading, or the error, of the first one."""

    def __init__(self) -> None:
        self._known: list[tuple[Any, Architecture | MapperError]] = []

    def __call__(self, checkpoint: Checkpoint, rulebook: Any, **options: Any) -> Architecture:
        asked = (_said(checkpoint), id(rulebook), repr(sorted(options.items())))
        found = next((found for known, found in self._known if known == asked), None)
        if found is None:
            found = _found(lambda: infer(checkpoint, rulebook, **options))
            self._known.append((asked, found))
        if isinstance(found, MapperError):
            raise found
        return replace(found, checkpoint=checkpoint, notes=[*found.notes])  # to which callers add their own


def _found(read: Callable[[], Architecture]) -> Architecture | MapperError:
    try:
        return read()
    except MapperError as error:
        return error


def _said(checkpoint: Checkpoint) -> list[Any]:
    """All that a checkpoint says but for the ways to its bytes; `repr` tells 1 from True."""
    values = (getattr(checkpoint, field.name) for field in fields(checkpoint))
    return [repr(value) for value in values if not callable(value)]
