"""Where no flow fits an ONNX file, its graph is what runs it: the reading, and the checkpoint under the names of its modules."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mapper.architecture import Architecture
from mapper.checkpoint import TORCH_NAMES, Checkpoint
from mapper.errors import FormatError, MapperError, listed
from mapper.graphs.graph import Model, Value
from mapper.graphs.reading import read_model
from mapper.graphs.straight.planning import plan_of
from mapper.sources.onnx import CONTAINER, SUFFIX

if TYPE_CHECKING:
    import torch

READING = "graph"


def path_of(checkpoint: Checkpoint) -> str:
    """The local ONNX file that a checkpoint is read from; "" where it is another, or several."""
    models = [path for path in checkpoint.weights if path.lower().endswith(SUFFIX)]
    return models[0] if checkpoint.container == CONTAINER and len(models) == 1 else ""


def graph_checkpoint(model: Model, told: Checkpoint | None = None) -> Checkpoint:
    """The tensors of a graph under the names of the modules that it is written with; `told` is what the file said so far.

    Raises ArchitectureError for an operator that is not supported, by name and version.
    """
    refs = plan_of(model).weights.refs
    tensors = {name: ref.info for name, ref in refs.items()}

    def read(names: Iterable[str]) -> dict[str, torch.Tensor]:
        return {name: refs[name].read() for name in names}

    files = list(dict.fromkeys(ref.path for ref in refs.values()))
    base = told or Checkpoint(model.source, CONTAINER, {}, weights=files)
    return replace(
        base, tensors=tensors, read=read, nameless="", where=lambda name: None, rows=lambda name: [], notes=[]
    )


def opened_by_graph(path: str | os.PathLike[str], error: FormatError) -> Checkpoint:
    """The checkpoint of a model without initialisers of its own: its graph's constants.

    Raises `error` where it has no operations either, and what speaks against its graph.
    """
    model = read_model(os.fspath(path))
    if not model.graph.nodes:
        raise error from None
    return replace(graph_checkpoint(model), weights=[os.fspath(path)])


def with_graph(architecture: Architecture, read_anew: Any) -> Architecture:
    """The reading of an ONNX file that no flow fits, or none without answers: by its graph, which leaves nothing open.

    A graph that cannot be written leaves what was read; a skeleton says why. `read_anew` gives the architecture of a checkpoint.
    """
    path = path_of(architecture.checkpoint)
    is_open = architecture.reading == "skeleton" or architecture.questions
    if not is_open or architecture.parts or not path:
        return architecture
    asked = list(dict.fromkeys(question.fact for question in architecture.questions))
    try:
        model = read_model(path)
        if not model.graph.outputs:  # what computes nothing is a container of tensors
            return architecture
        checkpoint = graph_checkpoint(model, architecture.checkpoint)
    except MapperError as error:
        if architecture.reading == "skeleton":
            architecture.missing.insert(0, error.in_command())  # it is why nothing runs
        return architecture
    found: Architecture = read_anew(checkpoint)
    if asked:
        found.notes.append(
            f"its graph is taken as it is, for its names leave open {listed(asked, 4)}; layers of a flow need --set for these"
        )
    if architecture.checkpoint.lacking:
        found.notes.append(f"its graph is taken as it is: {architecture.checkpoint.lacking}")
    return replace(
        found,
        reading=READING,
        graph=model,
        missing=[],
        questions=[],
        unfit=[],
        refusal="",
        findings=[],
        unmapped=[],
        inputs={value.name: _input(value) for value in model.graph.given()},
    )


def _input(value: Value) -> dict[str, Any]:
    """An input as the other readings describe theirs."""
    names = [f"axis {place}" if place else "batch" for place in range(len(value.shape or ()))]
    shape = [
        name if extent is None else extent for name, extent in zip(names, value.shape or (), strict=True)
    ]
    return {"shape": shape, "dtype": TORCH_NAMES.get(value.dtype or "", "float32"), "optional": False}


def source_of(architecture: Architecture, options: dict[str, bool]) -> str:
    """The source of a graph. Raises ArchitectureError for options that only flows have."""
    from mapper.errors import ArchitectureError
    from mapper.graphs.straight.source import write_model

    asked = [name for name, chosen in options.items() if chosen]
    if asked:
        raise ArchitectureError(
            f"{architecture.checkpoint.source}: {', '.join(asked)} needs a flow, and none fits: its graph runs it as it is"
        )
    return write_model(architecture.graph).text
