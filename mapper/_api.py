"""The public functions that need no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.errors import ArchitectureError, HintError, SourceError

if TYPE_CHECKING:
    from torch import nn

    from mapper.architecture import Architecture
    from mapper.checkpoint import Checkpoint
    from mapper.report import Report
    from mapper.rulebook.rulebook import Rulebook

    Source = str | Path | Mapping[str, Any] | nn.Module


def describe(
    source: Source,
    hints: Mapping[str, Any] | None = None,
    *,
    purpose: str = "headers",
    revision: str | None = None,
    rules: Sequence[str | Path] = (),
    families: bool = True,
    follow_links: bool = False,
    several: bool = False,
    adapter: Source | None = None,
    merge: bool = False,
) -> Architecture:
    """The architecture of a source: the one way to it for every command.

    `purpose` is "headers" or "weights"; without weights the bundled catalogue may answer for the hub. A source of
    several models is refused unless `several`: then the architecture has its `parts`, and no blocks of its own.
    `adapter` is a LoRA of the source, whose updates stand beside the weights, or are in them with `merge`.
    """
    from mapper.rulebook.rulebook import rulebook_of
    from mapper.sources import open_source
    from mapper.sources.parts import parts_of, refuse_whole

    rules = [rules] if isinstance(rules, (str, Path)) else rules
    checkpoint = open_source(
        source,
        purpose=purpose,
        revision=revision,
        catalogue=purpose == "headers",
        follow_links=follow_links,
        rules=rules,
    )
    rulebook = rulebook_of(rules)
    parts = parts_of(checkpoint, rulebook)
    if not parts:
        architecture = _read(checkpoint, hints, rulebook, families)
        if adapter is not None:
            beside = open_source(adapter, purpose=purpose, follow_links=follow_links)
            return _with_adapter(architecture, beside, merge)
        if merge:
            raise HintError("merge is for an adapter: name one, or leave merge out")
        return architecture
    if not several or hints:
        refuse_whole(checkpoint, parts, rulebook)
    return read_parts(checkpoint, parts, rulebook, families)


def _with_adapter(base: Architecture, adapter: Checkpoint, merge: bool) -> Architecture:
    """The architecture of a base with a LoRA of it."""
    from mapper._adapted import adapted, check_ties, task_of

    joined = adapted(base, adapter, merge)
    hints = {**task_of(adapter, base.checkpoint, joined), **base.origin.hints}
    architecture = _read(joined, hints, base.rulebook, base.origin.families)
    if merge:
        check_ties(architecture, adapter)
    return architecture


def read_parts(
    checkpoint: Checkpoint, parts: Mapping[str, Checkpoint], rulebook: Rulebook, families: bool = True
) -> Architecture:
    """Several models, each with its own reading; one that contradicts itself is there too, and says how."""
    from mapper.architecture import Architecture, Block, Place
    from mapper.sources.parts import count, outside

    root = Block("other", "root", Place(()))
    whole = Architecture(checkpoint, [], root, reading="", rules=rulebook.digest, rulebook=rulebook)
    whole.what = count(parts)
    whole.parts = {name: _part(part, rulebook, families) for name, part in parts.items()}
    whole.notes = [note] if (note := outside(checkpoint, parts)) else []
    return whole


def _part(checkpoint: Checkpoint, rulebook: Rulebook, families: bool) -> Architecture:
    """The reading of one of several models: a skeleton that says so where it contradicts itself."""
    try:
        return _read(checkpoint, None, rulebook, families)
    except ArchitectureError as error:
        from dataclasses import replace

        refused = replace(checkpoint, lacking=str(error))
        return _read(refused, None, rulebook, families)


def _read(
    checkpoint: Checkpoint, hints: Mapping[str, Any] | None, rulebook: Rulebook, families: bool
) -> Architecture:
    """The architecture of one model."""
    from mapper.inference import infer
    from mapper.sources.ggml import lacking
    from mapper.sources.scaled import unscaled

    checkpoint = unscaled(checkpoint)
    if checkpoint.document is not None:
        from mapper.weights.built.as_read import as_read

        checkpoint, origin = as_read(checkpoint)
        hints, families = {**origin.hints, **(hints or {})}, families and origin.families
    architecture = infer(checkpoint, rulebook, hints=hints, use_families=families)
    architecture.notes += (
        [note] if (note := lacking(dtype for dtype, _ in checkpoint.packed.values())) else []
    )
    return architecture


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
    follow_links: bool = False,
) -> Report:
    """What a checkpoint is and how that is known, from its headers alone.

    `hints` gives facts by name, `{"attention.heads": 12}`; `rules` names folders with rule files of your own. A source
    of several models has a reading of each, in `parts`. `follow_links` allows links that lead out of a folder.

        print(mapper.inspect("distilbert-base-uncased"))
    """
    from mapper.report import Report

    return Report(
        describe(
            source,
            hints,
            revision=revision,
            rules=rules,
            families=families,
            follow_links=follow_links,
            several=True,
        )
    )


def generate(
    source: Source,
    hints: Mapping[str, Any] | None = None,
    *,
    cache: bool = False,
    hidden_states: bool = False,
    revision: str | None = None,
    rules: Sequence[str | Path] = (),
    families: bool = True,
    follow_links: bool = False,
    adapter: Source | None = None,
    merge: bool = False,
) -> str:
    """The source of a checkpoint's model: one file of plain torch with a `load(path)` at its end.

    `cache` adds a key/value cache to decoders: the forward takes `past`, which `new_cache` of the model makes, and
    `start`, how many positions are in it. Without `families` the vocabulary and the flows alone are read. `adapter` is
    a LoRA of the source: its modules are written, or none with `merge`.

        Path("model.py").write_text(mapper.generate("distilbert-base-uncased"))
    """
    from mapper.emission import emit

    return emit(
        describe(
            source,
            hints,
            revision=revision,
            rules=rules,
            families=families,
            follow_links=follow_links,
            adapter=adapter,
            merge=merge,
        ),
        cache=cache,
        hidden_states=hidden_states,
    )
