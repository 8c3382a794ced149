"""What is kept of a model that was built: its weights, the config they belong to, and where they may go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.architecture import Architecture
from mapper.errors import SourceError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from mapper.weights.saving.save_load import Written


def check_weights(architecture: Architecture) -> None:
    """Raises SourceError where there is nothing to save."""
    if architecture.checkpoint.read is None:
        raise SourceError(
            f"{architecture.checkpoint.source} is a manifest without weights; name a checkpoint that has them, or see "
            "its source with mapper generate"
        )


def check_kept(architecture: Architecture, out: str | Path, overwrite: bool, dtype: Any = None) -> None:
    """Raises MapperError where a model cannot be saved, or not there."""
    from mapper.outputs.written import check_out

    check_weights(architecture)
    check_out(out, overwrite, kept_config(architecture, dtype))


def kept_config(architecture: Architecture, dtype: Any = None) -> dict[str, Any] | None:
    """The config that is kept with the weights of a checkpoint, which `dtype` may have been cast to."""
    from mapper._dtype import CASTABLE, with_dtype

    config = architecture.checkpoint.config
    is_cast = str(dtype).removeprefix("torch.") in CASTABLE.values()
    return with_dtype(config, dtype) if config is not None and is_cast else config


def keep(
    out: str | Path,
    model: nn.Module,
    architecture: Architecture,
    dtype: torch.dtype | None = None,
    overwrite: bool = False,
) -> Written:
    """Save a model that was built, with the config of its checkpoint and what else belongs to that."""
    from mapper.weights.saving.save_load import write_model

    checkpoint = replace(architecture.checkpoint, config=kept_config(architecture, dtype))
    written = write_model(out, model, checkpoint=checkpoint, overwrite=overwrite)
    if architecture.graph is not None and Path(out).is_dir():
        _keep_source(architecture, Path(out))
    return written


def _keep_source(architecture: Architecture, folder: Path) -> None:
    """The source of a graph beside its weights: what is stored of a model is read again by rules, and no rule reads a graph."""
    from mapper.emission import emit
    from mapper.outputs.written import write_source
    from mapper.sources.saved import SOURCE

    write_source(folder / SOURCE, emit(architecture), overwrite=True)
