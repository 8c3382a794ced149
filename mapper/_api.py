"""The public functions that need no torch, or only once nothing is left that headers could refuse."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper import limits
from mapper.errors import ArchitectureError, FormatError, HintError, SourceError, in_python

if TYPE_CHECKING:
    import torch
    from torch import nn

    from mapper.architecture import Architecture
    from mapper.checkpoint import Checkpoint
    from mapper.comparing.verification import Verification
    from mapper.graphs.export.exporting import Exported
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

    `purpose` is "headers", "values" or "weights"; only for headers the bundled catalogue may answer for the hub, and only
    for "weights" they are asked what nothing else shows. A source of
    several models is refused unless `several`: then the architecture has its `parts`, and no blocks of its own.
    `adapter` is a LoRA of the source, whose updates stand beside the weights, or are in them with `merge`.
    """
    from mapper.rulebook.rulebook import rulebook_of
    from mapper.sources import open_source
    from mapper.sources.directory import ONNX
    from mapper.sources.parts import parts_of, refuse_whole

    rules = [rules] if isinstance(rules, (str, Path)) else rules
    checkpoint = _opened(source, purpose, revision, follow_links, rules)
    rulebook = rulebook_of(rules)
    parts = parts_of(checkpoint, rulebook)
    if not parts:
        read = partial(_read, hints=hints, rulebook=rulebook, families=families)
        read = partial(read, by_weights=purpose == "weights")
        architecture = _with_graph(checkpoint, read) if checkpoint.container == ONNX else read(checkpoint)
        if adapter is not None:
            beside = open_source(adapter, purpose=purpose, follow_links=follow_links)
            return _with_adapter(architecture, beside, merge)
        if merge:
            raise HintError("merge is for an adapter: name one, or leave merge out")
        return architecture
    if not several or hints:
        refuse_whole(checkpoint, parts, rulebook)
    return read_parts(checkpoint, parts, rulebook, families)


def _with_graph(checkpoint: Checkpoint, read: Callable[[Checkpoint], Architecture]) -> Architecture:
    """The architecture of an ONNX file: by its graph also where a family that is named refuses its weights."""
    from dataclasses import replace

    from mapper.graphs.straight.hook import READING, with_graph

    try:
        return with_graph(read(checkpoint), read)
    except ArchitectureError as error:
        refused = replace(checkpoint, lacking=error.in_command())
        found = with_graph(read(refused), read)
        if found.reading != READING:
            raise
        return found


def _opened(
    source: Source, purpose: str, revision: str | None, follow_links: bool, rules: Sequence[str | Path]
) -> Checkpoint:
    """The checkpoint of a source; of an ONNX file without initialisers, what its graph holds."""
    from mapper.sources import open_source

    try:
        return open_source(
            source,
            purpose="headers" if purpose == "headers" else "weights",
            revision=revision,
            catalogue=purpose == "headers",
            follow_links=follow_links,
            rules=rules,
        )
    except FormatError as error:
        from mapper.sources.onnx import SUFFIX

        if not isinstance(source, (str, Path)) or not str(source).lower().endswith(SUFFIX):
            raise
        from mapper.graphs.straight.hook import opened_by_graph

        return opened_by_graph(source, error)


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
    from mapper.architecture import Architecture, Block, Origin, Place
    from mapper.sources.parts import count, outside

    root = Block("other", "root", Place(()))
    whole = Architecture(checkpoint, [], root, reading="", rules=rulebook.digest, rulebook=rulebook)
    whole.what = count(parts)
    whole.parts = {name: _part(part, rulebook, families) for name, part in parts.items()}
    configs = {name: part.origin.config for name, part in whole.parts.items()}
    whole.origin = Origin({name: config for name, config in configs.items() if config is not None} or None)
    whole.notes = [note] if (note := outside(checkpoint, parts)) else []
    return whole


def _part(checkpoint: Checkpoint, rulebook: Rulebook, families: bool) -> Architecture:
    """The reading of one of several models: a skeleton that says so where it contradicts itself."""
    try:
        return _read(checkpoint, None, rulebook, families)
    except ArchitectureError as error:
        from dataclasses import replace

        refused = replace(checkpoint, lacking=error.in_command())
        return _read(refused, None, rulebook, families)


def _read(
    checkpoint: Checkpoint,
    hints: Mapping[str, Any] | None,
    rulebook: Rulebook,
    families: bool,
    by_weights: bool = False,
) -> Architecture:
    """The architecture of one model; `by_weights`: they are asked what nothing else shows."""
    from mapper.inference import infer
    from mapper.sources.ggml import lacking
    from mapper.sources.quantised.plain import plain

    checkpoint = plain(checkpoint, rulebook.config_vocabulary.quantised_fields)
    if checkpoint.document is not None:
        from mapper.weights.built.as_read import as_read

        checkpoint, origin = as_read(checkpoint)
        hints, families = {**origin.hints, **(hints or {})}, families and origin.families
    architecture = infer(checkpoint, rulebook, hints=hints, use_families=families)
    if architecture.questions:
        architecture = _answered(architecture, by_weights)
    architecture.notes += (
        [note] if (note := lacking(dtype for dtype, _ in checkpoint.packed.values())) else []
    )
    return architecture


def _answered(architecture: Architecture, by_weights: bool) -> Architecture:
    """With what was remembered of its questions, and what the weights answer of the others."""
    from mapper.evidence.remembered import with_remembered

    architecture = with_remembered(architecture)
    if by_weights and architecture.questions:
        from mapper.evidence.weights import with_weights  # numpy: only now

        architecture = with_weights(architecture)
    return architecture


def refuse_what_cannot_run(architecture: Architecture, is_built: bool, purpose: str = "compare") -> None:
    """Raises SourceError for what has no weights or, where the model is built from it, no forward."""
    name = architecture.checkpoint.source
    if architecture.checkpoint.read is None:
        raise SourceError(f"{name}: a manifest has no weights, so there is nothing to {purpose}")
    if architecture.reading == "skeleton" and is_built:
        why = architecture.missing[0] if architecture.missing else "no flow fits its names"
        raise SourceError(f"{name}: a skeleton does not run: {why}")


def inspect(
    source: Source,
    hints: Mapping[str, Any] | None = None,
    *,
    revision: str | None = None,
    rules: Sequence[str | Path] = (),
    families: bool = True,
    follow_links: bool = False,
    values: bool = False,
) -> Report:
    """What a checkpoint is and how that is known, from its headers alone.

    `hints` gives facts by name, `{"attention.heads": 12}`; `rules` names folders with rule files of your own. A source
    of several models has a reading of each, in `parts`. `follow_links` allows links that lead out of a folder. With
    `values` the weights of a model of the hub are fetched too, and `report.values()` says what their numbers are.

        print(mapper.inspect("distilbert-base-uncased"))
    """
    from mapper.report import Report

    return Report(
        describe(
            source,
            hints,
            purpose="values" if values else "headers",
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
    train: bool = False,
    revision: str | None = None,
    rules: Sequence[str | Path] = (),
    families: bool = True,
    follow_links: bool = False,
    adapter: Source | None = None,
    merge: bool = False,
) -> str:
    """The source of a checkpoint's model: one file of plain torch with a `load(path)` at its end.

    `cache` adds a key/value cache to decoders: the forward takes `past`, which `new_cache` of the model makes, and
    `start`, how many positions are in it. `train` writes dropout where the config has it, which training mode alone
    turns on. Without `families` the vocabulary and the flows alone are read. `adapter` is
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
        train=train,
    )


def build(
    source: Source,
    dtype: torch.dtype | str | None = None,
    device: str | torch.device = "cpu",
    hints: Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    cache: bool = False,
    hidden_states: bool = False,
    train: bool = False,
    revision: str | None = None,
    rules: Sequence[str | Path] = (),
    families: bool = True,
    follow_links: bool = False,
    adapter: Source | None = None,
    merge: bool = False,
) -> nn.Module:
    """The model of a checkpoint with its weights, in eval mode.

    Parameters keep the checkpoint's dtype unless `dtype`, torch's or its name, is given, and its memory-mapped bytes
    unless `dtype` or `device` asks for others. A manifest has no weights: its module is on the meta device, ready for
    `load_state_dict(..., assign=True)`. `out` is where to save the model as `mapper.save` does, with the whole config
    and the files of the tokenizer and the like; a folder that is there is replaced with `overwrite` alone, and only
    where mapper wrote all of it that would change. `cache`, `hidden_states`, `train`, `families` and `adapter` are options
    of `generate`; with `merge` an adapter's updates are added to the weights, and the model is one without. `follow_links`
    is one of `inspect`. Raises MapperError for what the source causes.

        model = mapper.build("distilbert-base-uncased")
        out = model(input_ids=torch.tensor([[101, 7592, 102]]))
    """
    from mapper._dtype import dtype_word
    from mapper.outputs.written import check_out

    if isinstance(dtype, str):
        dtype_word(dtype)
    if out is not None:
        check_out(out, overwrite)
    architecture = describe(
        source,
        hints,
        purpose="weights",
        revision=revision,
        rules=rules,
        families=families,
        follow_links=follow_links,
        adapter=adapter,
        merge=merge,
    )
    if out is not None:
        from mapper._kept import check_kept

        check_kept(architecture, out, overwrite, dtype)
    options = {"cache": cache, "hidden_states": hidden_states, "train": train}
    model = _built(architecture, dtype, device, options)
    if out is not None:
        _keep(model, architecture, out, overwrite, dtype)
    return model


def _built(
    architecture: Architecture, dtype: Any, device: str | torch.device, options: dict[str, bool]
) -> nn.Module:
    """The model, once nothing is left that headers could refuse."""
    from mapper._dtype import as_torch
    from mapper.emission import emit
    from mapper.emission.train import with_dropout

    if options["train"]:
        architecture = with_dropout(architecture)
    text = emit(architecture, **options)
    from mapper._build import build_architecture  # torch: only now

    return build_architecture(architecture, as_torch(dtype), device, **options, text=text)


def _keep(model: nn.Module, architecture: Architecture, out: str | Path, overwrite: bool, dtype: Any) -> None:
    """Save a model that was built; notes are warnings to the caller of `build`."""
    from mapper._dtype import as_torch
    from mapper._kept import keep

    for note in keep(out, model, architecture, as_torch(dtype), overwrite).notes:
        warnings.warn(in_python(note), UserWarning, stacklevel=3)


def verify(
    source: Source,
    against: str | None = None,
    hints: Mapping[str, Any] | None = None,
    *,
    weights: Source | None = None,
    revision: str | None = None,
    rules: Sequence[str | Path] = (),
    tolerance: float = limits.TOLERANCE,
    follow_links: bool = False,
) -> Verification:
    """Compares a model with a reference on made-up inputs: plain, padded on either side, one row.

    `source` is a checkpoint, or a generated file (then `weights` says where its tensors are; the folder of the file
    unless given). `against` is "transformers", another generated file, an ONNX file, or "onnxruntime" where the source is one;
    without it transformers is used where it is installed and knows the class. A generated file is Python and is run.

        print(mapper.verify("distilbert-base-uncased"))
    """
    from mapper.emission import emit

    file = Path(source) if isinstance(source, (str, Path)) and str(source).endswith(".py") else None
    place = source if file is None else weights if weights is not None else file.parent
    architecture = describe(
        place, hints, purpose="weights", revision=revision, rules=rules, follow_links=follow_links
    )
    refuse_what_cannot_run(architecture, file is None)
    text = emit(architecture) if file is None else None
    from mapper.comparing.verify import verified  # torch

    return verified(architecture, file, text, against, tolerance)


def export(
    source: Source,
    path: str | Path,
    *,
    opset: int = 20,
    dtype: torch.dtype | str | None = "float32",
    inputs: Sequence[str] = (),
    sizes: Mapping[str, int | str] | None = None,
    external: bool | None = None,
    check: bool = True,
    overwrite: bool = False,
    hints: Mapping[str, Any] | None = None,
    revision: str | None = None,
    rules: Sequence[str | Path] = (),
    families: bool = True,
    follow_links: bool = False,
    adapter: Source | None = None,
    merge: bool = False,
) -> Exported:
    """Writes the model of a checkpoint as an ONNX file, which onnxruntime has run before it is there.

    `opset` is the version of ONNX's operators, 18 to 24; `dtype` that of the weights, None for as stored. The file
    takes the inputs that the model needs, `attention_mask` where it has one, and those named in `inputs`; batch and lengths are
    free, and the size of an image where the model takes any; `sizes` gives extents that are to be a number, as in
    {"batch": 1, "height": 384}, or must be "free", so that nothing is written where they cannot be. Weights stand under the checkpoint's names, in FILE.data beside
    the file with `external`, and where they have more than 2 GB. The config and the reading are kept in the file, so that
    it is read as the checkpoint is. `check` compares outputs with the model's on inputs of several sizes and
    raises DifferenceError, with nothing written, where they differ.

        mapper.export("distilbert-base-uncased", "distilbert.onnx")
    """
    from mapper.graphs.export.asked import check_asked

    check_asked(path, opset, overwrite)
    architecture = describe(
        source,
        hints,
        purpose="weights",
        revision=revision,
        rules=rules,
        families=families,
        follow_links=follow_links,
        adapter=adapter,
        merge=merge,
    )
    return export_described(
        architecture,
        path,
        opset=opset,
        dtype=dtype,
        inputs=inputs,
        sizes=sizes or {},
        external=external,
        check=check,
        overwrite=overwrite,
    )


def export_described(
    architecture: Architecture, path: str | Path, *, dtype: torch.dtype | str | None, **options: Any
) -> Exported:
    """`export` of what was read already; torch is imported once nothing is left that headers could refuse."""
    from mapper.emission import emit

    refuse_what_cannot_run(architecture, is_built=True, purpose="export")
    text = emit(architecture)
    from mapper._dtype import as_torch
    from mapper.graphs.export.exporting import export_architecture

    return export_architecture(architecture, path, text, dtype=as_torch(dtype), **options)
