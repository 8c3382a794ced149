"""A model against the reference implementation; where there is none, against what every sound model fulfils."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mapper._adapted import merged_weights, updates_a_tie
from mapper._build import build_architecture, renamed
from mapper._compiling import compile_source
from mapper._progress import without_bars
from mapper._trial import OTHER_EXTENTS, input_cases
from mapper.comparing.implementations import compare_sides, side_of, side_of_module
from mapper.comparing.traces import Difference, Trace, compare, difference, is_masked
from mapper.comparing.verification import (
    Compared,
    Inputs,
    Traces,
    Verification,
    compare_over,
    run_module,
)
from mapper.errors import MapperError, SourceError, listed, shorten
from mapper.naming.members import UPDATED

if TYPE_CHECKING:
    from mapper.architecture import Architecture

RUNTIME, GRAPH = "onnxruntime", ".onnx"
INVARIANT = 1e-5  # one model with itself: the same kernels, where what is hidden has no part in any sum


def verified(
    architecture: Architecture, file: Path | None, text: str | None, against: str | None, tolerance: float
) -> Verification:
    """Compare the model of an architecture, or of a generated file for it, with a reference; `text` is its source."""
    candidate = (
        build_architecture(architecture, dtype=torch.float32, text=text)
        if file is None
        else load_file(file, architecture)
    )
    found = Verification(file.name if file else architecture.checkpoint.source, None, tolerance=tolerance)
    if against is not None and (against == RUNTIME or against.endswith(GRAPH)):
        _compare_with_graph(found, candidate, architecture, against)
        return found
    reference = _reference(against, architecture, found)
    if reference is not None:
        _compare(found, candidate, reference, architecture)
    else:
        _check(found, candidate, architecture)
    return found


def _compare_with_graph(
    found: Verification, candidate: nn.Module, architecture: Architecture, against: str
) -> None:
    """Compare with what onnxruntime computes of an ONNX file: the one named, or the source itself."""
    from mapper.graphs.runtime import version
    from mapper.graphs.straight.support import has_choices

    own = next((path for path in architecture.checkpoint.weights if path.endswith(GRAPH)), None)
    path = own if against == RUNTIME else against
    if path is None:
        raise SourceError(
            f"{architecture.checkpoint.source}: no ONNX file, so {RUNTIME} has nothing to run; name one, "
            "as in --against model.onnx"
        )
    graph = side_of(path)
    found.against = f"{version()} on {graph.name}"
    if architecture.graph is not None and has_choices(architecture.graph):
        found.notes.append(
            "inputs decide what its graph runs: only the branches that these take were compared"
        )
    compare_sides(found, side_of_module(candidate, found.source, architecture), graph)


def load_file(file: Path, architecture: Architecture) -> nn.Module:
    """The model of a generated file, edited or not, with a checkpoint's weights."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{shorten(str(file))}: cannot be read: {error}") from None
    try:
        module = compile_source(text, file.name)
    except Exception as error:  # an edited file may fail in any way; the user needs to know which
        raise SourceError(f"{file.name}: does not run: {type(error).__name__}: {error}") from None
    if not hasattr(module, "Model"):
        raise SourceError(f"{file.name}: defines no class Model")
    checkpoint = architecture.checkpoint
    assert checkpoint.read is not None
    tensors = checkpoint.read(checkpoint.tensors)
    model: nn.Module = module.Model()
    renames = getattr(module, "RENAMED", {})
    try:
        model.load_state_dict({renamed(key, renames): tensor for key, tensor in tensors.items()}, strict=True)
    except RuntimeError as error:
        raise SourceError(
            f"{file.name}: does not take the weights: {' '.join(str(error).split())[:300]}"
        ) from None
    return model.float().eval()


def _reference(against: str | None, architecture: Architecture, found: Verification) -> nn.Module | None:
    if against is not None and against.endswith(".py"):
        found.against = Path(against).name
        return load_file(Path(against), architecture)
    if against not in (None, "transformers"):
        raise SourceError(
            f"{shorten(str(against))} is no reference: it is transformers, onnxruntime, an ONNX file or a generated one"
        )
    loaded = _why_no_transformers(architecture) or _from_transformers(architecture, found)
    if not isinstance(loaded, str):
        return loaded
    if against is not None:
        raise SourceError(f"{architecture.checkpoint.source}: {loaded}")
    found.notes.append(loaded)
    return None


def _why_no_transformers(architecture: Architecture) -> str | None:
    checkpoint = architecture.checkpoint
    if importlib.util.find_spec("transformers") is None:
        return "transformers is not installed: pip install transformers to compare with it"
    names = (checkpoint.config or {}).get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        return "the config names no class, so transformers cannot load it"
    if not checkpoint.weights:
        return "the weights are in no local file that transformers could read"
    if updates_a_tie(architecture, checkpoint):
        return "transformers has no update of an embedding whose table is the head's too"
    return None


def _has_updates(architecture: Architecture) -> bool:
    return any(name.endswith(UPDATED) for name in architecture.checkpoint.tensors)


def _from_transformers(architecture: Architecture, found: Verification) -> nn.Module | str:
    """The reference model in float32 with the plain attention implementation, or why there is none."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    checkpoint = architecture.checkpoint
    name = (checkpoint.config or {})["architectures"][0]
    kind = getattr(transformers, name, None)
    if not isinstance(kind, type) or not issubclass(kind, transformers.PreTrainedModel):
        return f"transformers {transformers.__version__} has no class {shorten(name)}"
    file = Path(checkpoint.weights[0])
    options: dict[str, Any] = {"gguf_file": file.name} if checkpoint.container == "gguf" else {}
    place: Path | None = file.parent
    config_class: Any = kind.config_class
    try:
        with without_bars():
            if _has_updates(architecture):  # the reference has no place for them
                config = config_class.from_pretrained(place, local_files_only=True)
                place, options = None, {"config": config, "state_dict": merged_weights(architecture)}
                found.notes.append("the reference has the updates of low rank in its weights")
            model = kind.from_pretrained(
                place,
                attn_implementation="eager",
                dtype=torch.float32,
                local_files_only=True,
                **options,
            )
    except Exception as error:  # whatever stops the reference is a note, not our failure
        return f"transformers cannot load it: {' '.join(f'{type(error).__name__}: {error}'.split())[:200]}"
    for config in (model.config, model.config.get_text_config(decoder=True)):
        config.use_cache = False  # nobody goes on from here
    found.against = f"transformers {transformers.__version__} {name}"
    return model.eval()


def _compare(
    found: Verification, candidate: nn.Module, reference: nn.Module, architecture: Architecture
) -> None:
    """Both models on all inputs of the candidate; what the reference need not take it may refuse."""

    def refined(case: str, inputs: Inputs, traces: Traces, compared: Compared) -> Compared:
        if case != "left padding" or not _sees_back(architecture):
            return compared
        left = _defined(found, candidate, reference, inputs, traces)
        return left, compared[1] if len(left) == len(compared[0]) else []

    compare_over(
        found,
        _cases(found, candidate, reference, architecture),
        lambda case, inputs: run_module(candidate, inputs, found.source),
        lambda case, inputs: _of_reference(found, reference, case, inputs),
        refined,
    )


def _cases(
    found: Verification, candidate: nn.Module, reference: nn.Module, architecture: Architecture
) -> list[tuple[str, dict[str, Tensor]]]:
    """Inputs of the usual extents; of others where the reference does not take those."""
    asked = _asked(reference)
    named = {
        extent for spec in architecture.inputs.values() for extent in spec["shape"] if isinstance(extent, str)
    }
    first, *others = (sizes for sizes in OTHER_EXTENTS if sizes.keys() <= named)
    cases = list(input_cases(architecture, candidate, asked, first))
    for sizes in others:
        try:
            run_module(reference, cases[0][1], str(found.against))
            break
        except MapperError:
            cases = list(input_cases(architecture, candidate, asked, sizes))
    return cases


def _asked(reference: nn.Module) -> list[str]:
    """The inputs without which the reference does not run."""
    parameters = inspect.signature(reference.forward).parameters.values()
    return [item.name for item in parameters if item.default is item.empty]


def _of_reference(
    found: Verification, reference: nn.Module, case: str, inputs: Mapping[str, Tensor]
) -> Trace | None:
    """What the reference computes; None and a note where it does not take what it need not take."""
    try:
        return run_module(reference, inputs, str(found.against))
    except MapperError as error:
        if case == "plain":
            raise
        found.notes.append(f"not compared with {case}: {error}")
        return None


def _sees_back(architecture: Architecture) -> bool:
    return any(fact.name == "attention.causal" and fact.value is True for fact in architecture.facts)


def _defined(
    found: Verification,
    candidate: nn.Module,
    reference: nn.Module,
    inputs: Mapping[str, Tensor],
    traces: tuple[Trace, Trace],
) -> list[Difference]:
    """The outputs but those that both models take out of padded places before the first word, which see nothing.

    What an attention over nothing gives is nobody's business: a text is pooled there only if its end is not in it.
    """
    mask = inputs["attention_mask"]
    items = compare(*traces, mask)[0]
    loose = [
        item
        for item in items
        if item.value > found.tolerance and not is_masked(traces[0].outputs[item.name], mask)
    ]
    if not loose:
        return items
    changed = {**inputs, "input_ids": _other_padding(inputs["input_ids"], mask)}
    runs = run_module(candidate, changed, found.source), run_module(reference, changed, str(found.against))
    left = {
        item.name
        for item in loose
        if all(
            difference(item.name, before.outputs[item.name], after.outputs[item.name]).value > INVARIANT
            for before, after in zip(traces, runs, strict=True)
        )
    }
    if left:
        found.notes.append(
            f"not compared with left padding: {listed(sorted(left))}, taken from padded places, which see nothing"
        )
    return [item for item in items if item.name not in left]


def _other_padding(ids: Tensor, mask: Tensor) -> Tensor:
    """The same words with another one's id in padded places."""
    shown = mask.repeat_interleave(len(ids) // len(mask), dim=0).bool()
    return torch.where(shown, ids, ids[:, 5:6])


def _check(found: Verification, candidate: nn.Module, architecture: Architecture) -> None:
    """Loading has succeeded; what else must hold for any model of its kind."""
    found.checks.append(("weights load strictly", True, f"{len(architecture.checkpoint.tensors)} tensors"))
    cases = dict(input_cases(architecture, candidate))
    plain = cases["plain"]
    result = run_module(candidate, plain, found.source)
    wrong = [
        f"{name} (row {int((~value.isfinite()).reshape(len(value), -1).any(1).int().argmax())})"
        if value.dim()
        else name
        for name, value in result.outputs.items()
        if not torch.isfinite(value).all()
    ]
    found.checks.append(("outputs are finite", not wrong, ", ".join(wrong) or ", ".join(result.outputs)))
    if "right padding" in cases:
        _check_padding(found, candidate, cases["right padding"])
    if _is_causal(architecture):
        if "decoder_input_ids" in architecture.inputs and "input_ids" in plain:
            plain = {
                "decoder_input_ids": plain["input_ids"],
                **plain,
            }  # a decoder may be left to shift them itself
        _check_causality(found, candidate, plain)


def _is_causal(architecture: Architecture) -> bool:
    """Whether each position of the ids that the model goes on from sees only those before it."""
    values = [
        fact.value for fact in architecture.facts if fact.name in ("attention.causal", "layer.recurrent")
    ]
    if "decoder_input_ids" in architecture.inputs:
        return True in values
    return "input_ids" in architecture.inputs and bool(values) and all(value is True for value in values)


def _check_padding(found: Verification, candidate: nn.Module, inputs: Mapping[str, Tensor]) -> None:
    """What stands in padded places must not change the others."""
    mask = inputs["attention_mask"]
    changed = {**inputs, "input_ids": torch.where(mask.bool(), inputs["input_ids"], inputs["input_ids"] + 1)}
    worst = _largest(
        run_module(candidate, inputs, found.source), run_module(candidate, changed, found.source), mask
    )
    found.checks.append(("padding changes nothing", worst <= INVARIANT, f"{worst:.1e}"))


def _check_causality(found: Verification, candidate: nn.Module, inputs: Mapping[str, Tensor]) -> None:
    """The last token must not change what stands before it."""
    name = "decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"
    ids = inputs[name].clone()
    ids[:, -1] += 1
    earlier = torch.ones_like(ids)
    earlier[:, -1] = 0
    worst = _largest(
        run_module(candidate, inputs, found.source),
        run_module(candidate, {**inputs, name: ids}, found.source),
        earlier,
    )
    found.checks.append(("later tokens change nothing before them", worst <= INVARIANT, f"{worst:.1e}"))


def _largest(one: Trace, other: Trace, mask: Tensor) -> float:
    values = [
        difference(name, one.outputs[name], value, mask)
        for name, value in other.outputs.items()
        if value.shape[:2] == mask.shape
    ]
    return max((item.value for item in values), default=0.0)
