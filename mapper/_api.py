"""The public functions that need no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.errors import SourceError

if TYPE_CHECKING:
    from torch import nn

    from mapper.architecture import Architecture
    from mapper.report import Report

    Source = str | Path | Mapping[str, Any] | nn.Module


def describe(
    source: Source,
    hints: Mapping[str, Any] | None = None,
    *,
    purpose: str = "headers",
    revision: str | None = None,
    rules: Sequence[str | Path] = (),
    families: bool = True,
) -> Architecture:
    """The architecture of a source: the one way to it for every command.

    `purpose` is "headers" or "weights"; without weights the bundled catalogue may answer for the hub.
    """
    from mapper.inference import infer
    from mapper.rulebook.rulebook import rulebook_of
    from mapper.sources import open_source
    from mapper.sources.scaled import unscaled

    rules = [rules] if isinstance(rules, (str, Path)) else rules
    checkpoint = open_source(source, purpose=purpose, revision=revision, catalogue=purpose == "headers")
    checkpoint = unscaled(checkpoint)
    if checkpoint.document is not None:
        from mapper.weights.built.as_read import as_read

        checkpoint, origin = as_read(checkpoint)
        hints, families = {**origin.hints, **(hints or {})}, families and origin.families
    return infer(checkpoint, rulebook_of(rules), hints=hints, use_families=families)


def check_weights(architecture: Architecture) -> None:
    """Raises SourceError where there is nothing to save."""
    if architecture.checkpoint.read is None:
        raise SourceError(
            f"{architecture.checkpoint.source} is a manifest without weights; name a checkpoint that has them, or see "
            "its source with mapper generate"
        )


def kept_config(architecture: Architecture, dtype: Any = None) -> dict[str, Any] | None:
    """The config that is kept with the weights of a checkpoint, which `dtype` may have been cast to."""
    from mapper._dtype import CASTABLE, with_dtype

    config = architecture.checkpoint.config
    is_cast = str(dtype).removeprefix("torch.") in CASTABLE.values()
    return with_dtype(config, dtype) if config is not None and is_cast else config


def inspect(
    source: Source,
    hints: Mapping[str, Any] | None = None,
    *,
    revision: str | None = None,
    rules: Sequence[str | Path] = (),
    families: bool = True,
) -> Report:
    """What a checkpoint is and how that is known, from its headers alone.

    `hints` gives facts by name, `{"attention.heads": 12}`; `rules` names folders with rule files of your own.

        print(mapper.inspect("distilbert-base-uncased"))
    """
    from mapper.report import Report

    return Report(describe(source, hints, revision=revision, rules=rules, families=families))


def generate(
    source: Source,
    hints: Mapping[str, Any] | None = None,
    *,
    cache: bool = False,
    hidden_states: bool = False,
    revision: str | None = None,
    rules: Sequence[str | Path] = (),
    families: bool = True,
) -> str:
    """The source of a checkpoint's model: one file of plain torch with a `load(path)` at its end.

    `cache` adds a key/value cache to decoders: the forward takes `past`, which `new_cache` of the model makes, and
    `start`, how many positions are in it. Without `families` the vocabulary and the flows alone are read.

        Path("model.py").write_text(mapper.generate("distilbert-base-uncased"))
    """
    from mapper.emission import emit

    return emit(
        describe(source, hints, revision=revision, rules=rules, families=families),
        cache=cache,
        hidden_states=hidden_states,
    )
