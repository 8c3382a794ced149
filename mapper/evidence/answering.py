"""A reading again with what was found: answers are taken only where the checkpoint still reads as well with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mapper.architecture import Architecture
from mapper.errors import ArchitectureError, HintError
from mapper.evidence.found import Found
from mapper.inference.infer import infer


def with_found(architecture: Architecture, found: Mapping[str, Found]) -> Architecture:
    """The reading with these answers, or with those of them, one after the other, that go with the checkpoint."""
    hints = {name: item.as_hint() for name, item in found.items()}
    whole = answered(architecture, hints) if hints else None
    if whole is not None:
        return whole
    for name, hint in hints.items() if len(hints) > 1 else ():
        architecture = answered(architecture, {name: hint}) or architecture
    return architecture


def with_all_found(architecture: Architecture, found: Mapping[str, Found]) -> Architecture:
    """The same, where some of what was found answers what is only asked after an answer to something else."""
    left = dict(found)
    while now := {
        question.name: left.pop(question.name) for question in architecture.questions if question.name in left
    }:
        architecture = with_found(architecture, now)
    return architecture


def answered(architecture: Architecture, hints: Mapping[str, Any]) -> Architecture | None:
    """The same checkpoint read with more hints; None where these do not go with it, or nothing rests on one."""
    origin = architecture.origin
    try:
        read = infer(
            architecture.checkpoint,
            architecture.rulebook,
            hints=origin.hints,
            use_families=origin.families,
            found=hints,
        )
    except (ArchitectureError, HintError):
        return None
    is_worse = read.family != architecture.family or len(read.unfit) > len(architecture.unfit)
    return None if is_worse or not {*hints}.isdisjoint(read.unheard.values()) else read
