"""`mapper.export`: a checkpoint's model as an ONNX file that onnxruntime was seen to run as torch does."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from mapper._build import build_architecture, keys_of
from mapper.architecture import Architecture
from mapper.comparing.traces import tensors as named_tensors
from mapper.comparing.verification import Verification
from mapper.errors import DifferenceError, HintError, MapperError, listed, shorten
from mapper.graphs.export.asked import DATA
from mapper.graphs.export.chance import settled, ties
from mapper.graphs.export.checking import check_checkable, example_of, verified
from mapper.graphs.export.kept import metadata_of
from mapper.graphs.export.naming import name_interface, name_weights, strip_notes
from mapper.graphs.export.sizes import (
    COLOURS,
    FREE,
    NOTHING,
    OWN,
    Asked,
    Subject,
    apart_of,
    check_sizes,
    extents_of,
    other_sizes,
    refuse_bound,
)
from mapper.graphs.export.tracing import Extents, UntracedError, graph_of, traced
from mapper.graphs.runtime import RunError
from mapper.outputs.files import place_of, whole_file
from mapper.outputs.temporary import PARTIAL, held, remove, temporary
from mapper.weights.modules import states_of
from mapper.weights.saving.document import tensors_of

if TYPE_CHECKING:
    import onnx_ir as ir

INLINE_BYTES = 1_900_000_000  # a protocol buffer ends at 2 GiB, and the graph takes some of it
USUAL = (
    "attention_mask",
)  # of the inputs that a caller may leave out, those that a file takes unless told otherwise


@dataclass
class Exported:
    """What an export wrote, and how it was checked."""

    path: str
    files: list[str]
    size: int  # bytes of all files
    opset: int
    inputs: dict[str, list[str | int]]  # a word is an extent that callers choose
    outputs: list[str]
    verification: Verification | None  # None where no check was wanted
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Job:
    """What is exported, and how."""

    subject: Subject
    example: Mapping[str, torch.Tensor]
    sizes: Mapping[str, int]  # others that the model takes, by extent
    apart: Collection[str]  # inputs that need not have as many rows as the others
    path: str | os.PathLike[str]
    opset: int
    dtype: torch.dtype | None
    external: bool | None
    check: bool
    overwrite: bool


def export_architecture(
    architecture: Architecture,
    path: str | os.PathLike[str],
    text: str | None = None,
    *,
    opset: int = 20,
    dtype: torch.dtype | None = torch.float32,
    inputs: Sequence[str] = (),
    sizes: Asked = NOTHING,
    external: bool | None = None,
    check: bool = True,
    overwrite: bool = False,
) -> Exported:
    """Write the model of an architecture, whose source is `text`. `mapper.export` says what each argument is."""
    wanted = wanted_inputs(architecture, inputs)
    check_sizes(architecture, wanted, sizes)
    model = build_architecture(architecture, dtype, text=text)
    if check:
        check_checkable(model, architecture.checkpoint.source)
    wanted, note = settled(Subject(architecture, model, wanted, sizes), check)
    subject = Subject(architecture, model, wanted, sizes)
    example = example_of(subject)
    others, fixed = other_sizes(subject, extents_of(subject.shapes, example))
    refuse_bound(sizes, fixed, subject.name)
    job = _Job(
        subject, example, others, apart_of(subject, example), path, opset, dtype, external, check, overwrite
    )
    done = _with_fewer_free(job, [*subject.fixed, *fixed])
    done.notes += [note] if note else []
    return done


def _with_fewer_free(job: _Job, fixed: Sequence[str]) -> Exported:
    """Written with all extents free but `fixed`; where that is not traced or not computed right, for images and sounds of one size."""
    own = [word for group in OWN for word in group if word in job.sizes]
    try:
        return _exported(job, fixed)
    except (UntracedError, DifferenceError, RunError) as error:
        if not own or any(job.subject.asked.get(word) == FREE for word in own):
            raise
        done = _exported(job, [*fixed, *own])
        done.notes.append(f"a file for other sizes, too, was tried: {shorten(str(error), 160)[1:-1]}")
        return done


def _exported(job: _Job, fixed: Sequence[str]) -> Exported:
    """Written for one size of the extents in `fixed`, and for all of the others."""
    subject = job.subject
    shapes = subject.shapes
    extents = {
        key: [-1 if extent in (*fixed, COLOURS) else extent for extent in shape]
        for key, shape in shapes.items()
    }
    graph, named = _graph(job, extents)
    outputs = [str(value.name) for value in graph.graph.outputs]
    found = Exported(os.fspath(job.path), [], 0, job.opset, _sizes(graph), outputs, None)
    free = _free_words(extents, named)
    bound = [word for word in dict.fromkeys((*job.sizes, *fixed, *subject.asked)) if word not in free]
    refuse_bound(subject.asked, bound, subject.name)
    usual = extents_of(shapes, job.example)
    if alone := [f"{word} {usual[word]}" for word in bound if word not in subject.asked]:
        found.notes.append(f"for one size alone: {', '.join(alone)}")
    beside = _is_beside(graph, job.external)
    with _placed(job.path, beside, job.overwrite) as draft:
        _save(graph, draft, beside)
        if job.check:
            apart = [key for key in job.apart if named.get(f"{key}.0", "batch") != "batch"]
            found.verification = verified(subject, draft, free, job.sizes, apart)
            _refuse_different(found.verification, job)
        found.files = sorted(file.name for file in draft.parent.iterdir())
        found.size = sum(file.stat().st_size for file in draft.parent.iterdir())
    return found


def wanted_inputs(architecture: Architecture, asked: Collection[str]) -> tuple[str, ...]:
    """The inputs of the file, in the order of the forward: those that must be given, the usual ones, and those asked for."""
    declared = {key: spec for key, spec in architecture.inputs.items() if "kind" not in spec}
    unknown = [key for key in asked if key not in declared]
    if unknown:
        raise HintError(
            f"{architecture.checkpoint.source}: no input is called {listed(unknown)}; it takes {', '.join(declared)}"
        )
    return tuple(
        key for key, spec in declared.items() if not spec.get("optional") or key in USUAL or key in asked
    )


def _graph(job: _Job, extents: Extents) -> tuple[ir.Model, dict[str, str]]:
    """The named ONNX model, and the words of those extents that it leaves free, by input and axis."""
    architecture, model, name = job.subject.architecture, job.subject.model, job.subject.name
    states = states_of(model)
    tensors = tensors_of(states)
    keys = keys_of(model, architecture.checkpoint)
    program = traced(model, job.example, extents, name)
    graph = graph_of(program, job.opset, states.by_path, name)
    owners = {path: keys[state.path] for path, state in states.by_path.items() if state.tensor is not None}
    name_weights(graph, {keys[path]: tensor for path, tensor in tensors.items()}, owners)
    with torch.no_grad():
        outputs = [key for key, _ in named_tensors(model(**job.example), with_codes=True)]
    if len(outputs) != len(graph.graph.outputs):
        raise MapperError(
            f"{name}: the graph has {len(graph.graph.outputs)} outputs and the model {len(outputs)}: {', '.join(outputs)}"
        )
    free = name_interface(graph, extents, outputs, job.apart)
    strip_notes(graph)
    graph.metadata_props.update(metadata_of(architecture, model, states, tensors, keys, job.dtype))
    graph.graph.name = "model"
    return graph, free


def _free_words(extents: Extents, named: Mapping[str, str]) -> set[str]:
    """The extents that the graph leaves free wherever they stand; `named` are those that it does, by input and axis."""
    places = [
        (f"{key}.{axis}", word)
        for key, shape in extents.items()
        for axis, word in enumerate(shape)
        if isinstance(word, str)
    ]
    return {word for _, word in places} - {word for place, word in places if place not in named}


def _sizes(graph: ir.Model) -> dict[str, list[str | int]]:
    """The extents of each input; a word is one that callers choose."""
    return {
        str(value.name): [
            extent if isinstance(extent, int) else str(extent.value) for extent in value.shape or ()
        ]
        for value in graph.graph.inputs
    }


def _is_beside(graph: ir.Model, external: bool | None) -> bool:
    """Whether weights stand in a second file: on request, and where one file cannot hold them."""
    size = sum(value.const_value.nbytes for value in graph.graph.initializers.values() if value.const_value)
    if external is False and size > INLINE_BYTES:
        raise HintError(f"{size:,} bytes of weights do not fit into one ONNX file, which ends at 2 GiB")
    return size > INLINE_BYTES if external is None else external


def _save(graph: ir.Model, draft: Path, beside: bool) -> None:
    import onnx_ir as ir

    ir.save(graph, draft, external_data=draft.name + DATA if beside else None)


@contextmanager
def _placed(path: str | os.PathLike[str], beside: bool, overwrite: bool) -> Iterator[Path]:
    """Where to write and to check the file, under its own name; at `path` is nothing before the block has ended well.

    The file of weights, which the other names, comes first: what is at `path` is whole at every moment.
    """
    target = place_of(path)
    with whole_file(path, overwrite=overwrite) as partial:
        folder = temporary(target, PARTIAL)
        folder.mkdir()
        try:
            with held(folder):
                draft = folder / target.name
                yield draft
                if beside:
                    data = target.name + DATA
                    with whole_file(target.with_name(data), overwrite=overwrite) as weights:
                        os.replace(folder / data, weights)
                os.replace(draft, partial)
        finally:
            remove(folder)


def _refuse_different(found: Verification, job: _Job) -> None:
    if found.passed:
        return
    is_even = ties(job.subject.model, job.example)
    why = (
        "it takes the highest of scores some of which are equal, and nothing says which of these"
        if is_even
        else "another --opset may be computed right"
    )
    raise DifferenceError(
        f"{job.subject.name}: nothing was written, for onnxruntime computes something else than torch: "
        f"{shorten(str(found.first_failure), 200)[1:-1]}; {why}"
    )
