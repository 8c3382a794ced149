"""What a save holds beside its tensors: the caller's `aux`, and what modules keep by themselves."""

from __future__ import annotations

from typing import Any

from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError
from mapper.sources.saved import AUX_PREFIX
from mapper.weights.values.aux_values import decode


def aux_of(checkpoint: Checkpoint) -> dict[Any, Any]:
    """The `aux` of a save, {} where there is none. Raises FormatError."""
    document = checkpoint.document or {}
    return _decoded(checkpoint, document["aux"], AUX_PREFIX) if "aux" in document else {}


def extra_state_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the modules of a save keep beside their tensors, by path."""
    document = checkpoint.document or {}
    if "extra_state" not in document:
        return {}
    return _decoded(checkpoint, document["extra_state"], f"{AUX_PREFIX}extra.")


def _decoded(checkpoint: Checkpoint, structure: Any, prefix: str) -> dict[Any, Any]:
    if checkpoint.read is None:
        raise FormatError(
            f"{checkpoint.source}: its tensors are not here; give the file or the folder itself"
        )
    names = [name for name in checkpoint.hidden if name.startswith(prefix)]
    found = checkpoint.read(names)
    try:
        return decode(structure, lambda name: found[prefix + name])
    except FormatError as error:
        raise FormatError(f"{checkpoint.source}: {error}") from error
    except RecursionError as error:
        raise FormatError(f"{checkpoint.source}: its aux is nested too deeply") from error
