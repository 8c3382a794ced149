"""An exported file in onnxruntime beside the model that it was made from, on inputs of several sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import torch
from torch import nn

from mapper._trial import LENGTH, input_cases
from mapper.comparing.traces import Trace
from mapper.comparing.verification import Inputs, Verification, compare_over, run_module
from mapper.errors import MapperError
from mapper.graphs.export.sizes import ROWS, Subject, extents_of, told_of
from mapper.graphs.runtime import Runtime, version

OF_TEXTS = {"batch", "length", "decoder_length", ROWS}  # extents that the usual inputs have in one size each
TOLERANCES = {torch.float16: 2e-2}  # eleven bits of a number, over layers; float32 has the usual one


def example_of(subject: Subject) -> dict[str, torch.Tensor]:
    """The inputs that a graph is traced with: two rows, every extent larger than one, unless others are asked for.

    Raises MapperError where the model does not take them.
    """
    _, inputs = next(_cases(subject))
    run_module(
        subject.model,
        inputs,
        f"{subject.name} with {told_of(subject.fixed)}" if subject.fixed else subject.name,
    )
    return inputs


def check_checkable(model: nn.Module, name: str) -> None:
    """Raises MapperError for a type that onnxruntime does not run."""
    if _dtype(model) == torch.bfloat16:
        raise MapperError(
            f"{name}: onnxruntime has no kernels for bfloat16 on a processor, so what is written "
            "cannot be checked: leave the check out, or choose --dtype float32"
        )


def _dtype(model: nn.Module) -> torch.dtype:
    return next((one.dtype for one in model.parameters() if one.is_floating_point()), torch.float32)


def verified(
    subject: Subject, path: Path, free: Collection[str], sizes: Mapping[str, int], apart: Collection[str] = ()
) -> Verification:
    """Compare a model with the file at `path` on the usual inputs and on some of other `sizes`.

    `free` are the extents that the file leaves to its callers, `apart` the inputs with a batch of their own.
    """
    runtime = Runtime(path)
    found = Verification(subject.name, version())
    found.tolerance = TOLERANCES.get(_dtype(subject.model), found.tolerance)
    compare_over(
        found,
        _with_others(found, subject, free, sizes, apart),
        lambda case, inputs: run_module(subject.model, inputs, found.source, with_codes=True),
        lambda case, inputs: Trace(runtime(**inputs)),
    )
    return found


def _with_others(
    found: Verification,
    subject: Subject,
    free: Collection[str],
    sizes: Mapping[str, int],
    apart: Collection[str],
) -> Iterator[tuple[str, Inputs]]:
    """The usual inputs, as far as the file takes their sizes, and some of other sizes."""
    usual: dict[str, int] = {}  # those of the first case, with which the graph was traced
    for case, inputs in _cases(subject):
        extents = extents_of(subject.shapes, inputs)
        usual = usual or extents
        bound = {word: size for word, size in usual.items() if word not in free and extents[word] != size}
        if not bound:
            yield case, inputs
        elif bound.keys() != {"batch"}:  # one row of a file of two is no case
            found.notes.append(f"not compared with {case}: the file is for {told_of(bound)} alone")
    others = {word: size for word, size in sizes.items() if word in free}
    if not others:
        return
    inputs = _unequal(subject, subject.inputs(usual | others), apart)  # what is bound stays as it was
    seen = extents_of(subject.shapes, dict(sorted(inputs.items(), key=lambda item: item[0] not in apart)))
    told = told_of({word: seen[word] for word in others if word in seen})
    if subject.takes(inputs):
        yield told, inputs
    else:
        found.notes.append(f"not compared with {told}, which the model itself does not take")
    if untried := {
        word: size for word, size in usual.items() if word in free and seen.get(word, size) == size
    }:
        found.notes.append(f"compared with one size alone: {told_of(untried)}")


def _unequal(
    subject: Subject, inputs: dict[str, torch.Tensor], apart: Collection[str]
) -> dict[str, torch.Tensor]:
    """Inputs of which those with a batch of their own have a row less."""
    fewer = {key: value[:-1] if key in apart else value for key, value in inputs.items()}
    return fewer if subject.takes(fewer) else inputs


def _cases(subject: Subject) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    """The usual inputs with all that a file takes, in the model's type."""
    if not OF_TEXTS.isdisjoint(subject.fixed):
        yield from _of_one_size(subject)
        return
    like = next((one for one in subject.model.parameters() if one.is_floating_point()), None)
    for case, inputs in input_cases(subject.architecture, subject.model, subject.wanted, subject.fixed):
        yield (
            case,
            {
                key: inputs[key].to(like.dtype)
                if like is not None and inputs[key].is_floating_point()
                else inputs[key]
                for key in subject.wanted
            },
        )


def _of_one_size(subject: Subject) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    """Inputs of a batch or a length that was asked for, and the same with its last row padded."""
    inputs = subject.inputs({"batch": 2, "length": LENGTH, "decoder_length": LENGTH - 2})
    yield "plain", inputs
    mask = inputs.get("attention_mask")
    if mask is not None and mask.dim() == 2 and mask.shape[1] > 1:
        mask = mask.clone()
        mask[-1, -(mask.shape[1] // 3 or 1) :] = 0
        yield "right padding", inputs | {"attention_mask": mask}
