"""`mapper.compare`: two implementations, whatever they are, on the same inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mapper import limits
from mapper._build import made_of
from mapper._trial import LENGTH, input_cases, made_up_of
from mapper.comparing.calls import Side, as_tensors, by_parameters, given_cases, parameters_of
from mapper.comparing.traces import Trace, tensors
from mapper.comparing.verification import Inputs, Verification, compare_over, run_module
from mapper.errors import MapperError, listed, shorten

if TYPE_CHECKING:
    from mapper.architecture import Architecture
    from mapper.graphs.runtime import Declared


def compare(
    a: Any,
    b: Any,
    inputs: Any = None,
    *,
    tolerance: float = limits.TOLERANCE,
) -> Verification:
    """Compares two implementations on the same inputs: the largest difference of each output that both have.

    `a` and `b`, the reference, are each a module, a function, the path of an ONNX file or a session of onnxruntime. Modules and
    functions are called with tensors by name, or in order where they know none of the names; functions may give NumPy's arrays and numbers.
    `inputs` are one of
    - the tensors or arrays of one call, by name or in order: {"x": x}, [x, y], x;
    - several such, by names of yours: {"short": {"x": x}, "long": {"x": y}};
    - shapes whose words are free, for which tensors of several batches and lengths are made up: {"x": ["batch", 4]}, of floats but for
      names that the rules know (`input_ids`, `attention_mask`), or of the type in {"ids": (["batch", "length"], torch.int64)}.
    Left out, shapes are those that an ONNX file or a model that mapper built declares.
    Values are compared as a share of max(1, the reference's largest); where `attention_mask` (B, T) is 0 they are not.
    Outputs are each other's by name, by shape and nearness where no name is in both. The result says of each output how far it is
    apart, and which output, inputs and row are the first to differ. Raises MapperError where a
    side cannot be run, TypeError for what is none of these.

        found = mapper.compare(model, "model.onnx")
        assert found.equal, found
    """
    sides = side_of(a, "a"), side_of(b, "b")
    found = Verification(sides[0].name, sides[1].name, tolerance=tolerance)
    compare_sides(found, *sides, given_cases(inputs, sides) if inputs is not None else None)
    return found


def compare_sides(
    found: Verification, mine: Side, other: Side, cases: Iterable[tuple[str, Inputs]] | None = None
) -> None:
    """Enter into `found` how two sides differ; inputs are made up unless given."""
    told: set[str] = set()
    theirs: dict[str, Trace] = {}  # of each case

    def run_other(case: str, inputs: Inputs) -> Trace:
        theirs[case] = other.run(inputs)
        return theirs[case]

    def run_mine(case: str, inputs: Inputs) -> Trace:
        return paired(mine.run(inputs), theirs.pop(case), found, told)

    compare_over(found, made_up_cases(mine, other) if cases is None else cases, run_mine, run_other)


def paired(ours: Trace, theirs: Trace, found: Verification, told: set[str]) -> Trace:
    """Our outputs under the other's names: as they are where both have one; else each the nearest of its shape."""

    def note(text: str) -> None:
        if text not in told:
            told.add(text)
            found.notes.append(text)

    outputs = dict(ours.outputs)
    if not ours.outputs.keys() & theirs.outputs.keys():
        for name, key in _nearest(ours.outputs, theirs.outputs):
            outputs = {name: outputs.pop(key), **outputs}
            note(f"{key} is compared with {name}: the names are not the same")
    lacking = [name for name in theirs.outputs if name not in outputs]
    if outputs and len(lacking) == len(theirs.outputs):
        note(f"the outputs have other names and shapes: {_told(ours)}; the reference's: {_told(theirs)}")
    elif lacking:
        note(f"not compared, for {found.source} does not return it: {', '.join(lacking)}")
    return Trace(outputs, ours.blocks, ours.given)


def _nearest(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    """Each name of theirs with the name of ours whose values, of the same shape, are nearest; none is taken twice."""
    free = dict(ours)
    for name, value in theirs.items():
        near = [key for key, one in free.items() if one.shape == value.shape]
        if near:
            key = min(near, key=lambda each: _apart(free[each], value))
            del free[key]
            yield name, key


def _told(trace: Trace) -> str:
    return ", ".join(f"{shorten(name)[1:-1]} {tuple(value.shape)}" for name, value in trace.outputs.items())


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one.float() - other.float()).abs().nan_to_num(torch.inf).amax()) if one.numel() else 0.0


def side_of(item: Any, called: str = "it") -> Side:
    """One implementation as a side of a comparison. Raises TypeError for what is none."""
    from mapper.graphs.runtime import Runtime

    if isinstance(item, (str, os.PathLike)) or _is_session(item):
        item = Runtime(item)
    if isinstance(item, Runtime):
        runtime = item
        return Side(runtime.name, lambda inputs: Trace(runtime(**inputs)), declared=runtime.inputs)
    if isinstance(item, nn.Module):
        return side_of_module(item, type(item).__name__, _architecture_of(item))
    if not callable(item):
        raise TypeError(
            f"{called} is a {type(item).__name__}; compare takes modules, functions, paths of ONNX files and sessions"
        )
    name = getattr(item, "__name__", type(item).__name__)
    parameters = parameters_of(item)

    def run(inputs: Inputs) -> Trace:
        return Trace(dict(tensors(as_tensors(_called(item, inputs, parameters, name)), with_codes=True)))

    return Side(name, run, parameters=parameters)


def side_of_module(model: nn.Module, name: str, architecture: Architecture | None) -> Side:
    """A module whose inputs an architecture declares, if there is one."""
    parameters = parameters_of(model.forward)

    def run(inputs: Inputs) -> Trace:
        return run_module(model, by_parameters(inputs, parameters), name, with_codes=True)

    return Side(name, run, model, architecture, parameters=parameters)


def _architecture_of(model: nn.Module) -> Architecture | None:
    """What a model of mapper's own was read as, with the config; None for any other."""
    made = made_of(model)
    if made is None:
        return None
    checkpoint = replace(made.architecture.checkpoint, config=made.architecture.origin.config)
    return replace(made.architecture, checkpoint=checkpoint)


def _called(function: Callable[..., Any], inputs: Inputs, parameters: Sequence[str], name: str) -> Any:
    try:
        with torch.no_grad():
            return function(**by_parameters(inputs, parameters))
    except Exception as error:  # the function is the user's: say what failed
        what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise MapperError(f"{name} fails: {what}") from error


def _is_session(item: Any) -> bool:
    return hasattr(item, "get_inputs") and hasattr(item, "run")


def made_up_cases(mine: Side, other: Side) -> Iterator[tuple[str, Inputs]]:
    """Inputs that both sides take, by name of the case. Raises MapperError where nothing says what they are."""
    architecture = mine.architecture or other.architecture
    declared = mine.declared or other.declared
    model = mine.model if mine.architecture is not None else other.model
    if architecture is not None and model is not None and architecture.graph is None:
        if declared is None:
            yield from input_cases(architecture, model)
            return
        if declared.keys() <= architecture.inputs.keys():
            yield from _cases_for(architecture, model, declared)
            return
    if declared is None:
        raise MapperError(
            "nothing says what the inputs are: give them, or their shapes, inputs={'input_ids': ['batch', 'length']}"
        )
    yield from _declared_for(mine, other, declared)


def _declared_for(mine: Side, other: Side, declared: Mapping[str, Declared]) -> Iterator[tuple[str, Inputs]]:
    """Inputs of an ONNX file as long as both sides take them, and of other sizes as far as the reference does.

    Where none is taken, the shortest: what fails says why.
    """
    from mapper.graphs.made_up import LENGTHS, declared_cases

    is_image = any(len(one.shape) > 3 for one in declared.values())  # of 512 by 512 it takes gigabytes
    for length in LENGTHS[:2] if is_image else LENGTHS:
        first, *others = declared_cases(declared, length)
        if _runs(other, first[1]) and _runs(mine, first[1]):
            yield from (first, *(case for case in others if _runs(other, case[1])))
            return
    yield from declared_cases(declared, LENGTHS[0])


def _runs(side: Side, inputs: Inputs) -> bool:
    try:
        side.run(inputs)
    except MapperError:
        return False
    return True


def _cases_for(
    architecture: Architecture, model: nn.Module, declared: Mapping[str, Declared]
) -> Iterator[tuple[str, Inputs]]:
    """The inputs of a model that a graph takes, in the sizes that it takes."""
    lacking = [
        name
        for name, spec in architecture.inputs.items()
        if not spec.get("optional") and name not in declared
    ]
    if lacking:
        raise MapperError(
            f"{architecture.checkpoint.source}: needs {listed(lacking)}, which the graph does not take"
        )
    fixed = {
        word: extent
        for name, one in declared.items()
        for word, extent in zip(architecture.inputs[name]["shape"], one.shape, strict=False)
        if isinstance(word, str) and isinstance(extent, int)
    }
    if "batch" not in fixed and "length" not in fixed:
        for case, inputs in input_cases(architecture, model, declared, fixed):
            yield case, {name: inputs[name] for name in declared}
    sizes = {"batch": 3, "length": LENGTH - 4, "decoder_length": LENGTH - 6, **fixed}
    yield "other sizes", made_up_of(architecture, model, list(declared), sizes)
