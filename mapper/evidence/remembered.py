"""Answers that were kept beside the weights: `model.safetensors.facts.json`, read again with their evidence.

The file names the tensors that it is of by a digest of their names and shapes: of other weights it says nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint
from mapper.errors import MapperError, SourceError
from mapper.evidence.answering import with_found
from mapper.evidence.found import Found
from mapper.inference.hints import FOUND, TELLING
from mapper.outputs.files import write_text
from mapper.sources.documents import read_config

SUFFIX = ".facts.json"
_FACTS, _OF = "facts", "tensors"  # fields of the file


def with_remembered(architecture: Architecture) -> Architecture:
    """The reading with the answers that are kept beside its weights, as far as they are asked for."""
    found, note = recalled(architecture.checkpoint)
    asked = {question.name for question in architecture.questions}
    while answers := {name: item for name, item in found.items() if name in asked}:
        again = with_found(architecture, answers)
        if again is architecture:
            break
        architecture, asked = again, {question.name for question in again.questions}
    if note:
        architecture.notes.append(note)
    return architecture


def place_of(checkpoint: Checkpoint) -> Path | None:
    """Where answers about a checkpoint are kept; None where its weights are no local file."""
    return Path(f"{checkpoint.weights[0]}{SUFFIX}") if checkpoint.weights else None


def recalled(checkpoint: Checkpoint) -> tuple[dict[str, Found], str]:
    """The answers kept for a checkpoint by their names, and a note where there is a file that says nothing of it."""
    place = place_of(checkpoint)
    if place is None or not os.path.lexists(place):
        return {}, ""
    if place.is_symlink():
        return {}, f"{place.name} is a link and was not read"
    try:
        said = read_config(place)
    except MapperError as error:
        return {}, f"{place.name} was not read: {error.in_command()}"
    facts = said.get(_FACTS)
    if said.get(_OF) != digest(checkpoint) or not isinstance(facts, dict):
        return {}, f"{place.name} is about other tensors and was not read"
    return {name: Found(**item) for name, item in facts.items() if _is_answer(item)}, ""


def remember(architecture: Architecture) -> Path:
    """Keep the answers that a reading rests on beside its weights. Raises SourceError where these are no local file."""
    place = place_of(architecture.checkpoint)
    if place is None:
        raise SourceError(
            f"{architecture.checkpoint.source}: no local file, so nothing can be kept beside it"
        )
    facts = {name: hint for name, hint in architecture.origin.hints.items() if _is_answer(hint)}
    document = {_OF: digest(architecture.checkpoint), _FACTS: facts}
    write_text(place, f"{json.dumps(document, indent=1)}\n")
    return place


def digest(checkpoint: Checkpoint) -> str:
    """What tells tensors from others by their names and shapes."""
    table = sorted((name, list(info.shape)) for name, info in checkpoint.tensors.items())
    return hashlib.sha256(json.dumps(table).encode()).hexdigest()[:16]


def _is_answer(item: Any) -> bool:
    """Whether an entry is an answer with its evidence, as `Found.as_hint` gives it."""
    is_table = isinstance(item, Mapping) and {*item} == {*FOUND}
    return is_table and item["evidence"] in TELLING and isinstance(item["source"], str)
