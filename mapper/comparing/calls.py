"""What a caller gives to `mapper.compare`, and how modules and functions of any kind are called with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from mapper.comparing.traces import Trace
from mapper.comparing.verification import Inputs
from mapper.errors import MapperError, listed, shorten

if TYPE_CHECKING:
    from mapper.architecture import Architecture
    from mapper.graphs.runtime import Declared

FIRST = "the inputs given"
Shape = Sequence[Any]  # extents, numbers or words; or these and a type of torch


class Side(NamedTuple):
    """One of the two: how it is run, and what is known of its inputs."""

    name: str
    run: Callable[[Inputs], Trace]
    model: nn.Module | None = None
    architecture: Architecture | None = None  # of a model that mapper built: it declares the inputs
    declared: Mapping[str, Declared] | None = None  # of a graph
    parameters: Sequence[str] = ()  # of a module or a function that takes no others


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names that a function may be given its inputs by, in order; none of one that takes any, or does not say."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of what is written in C
        return ()
    if any(item.kind is inspect.Parameter.VAR_KEYWORD for item in found):
        return ()
    return tuple(item.name for item in found if item.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD)


def by_parameters(inputs: Inputs, parameters: Sequence[str]) -> Inputs:
    """Inputs by names that a function has: as they are where it knows one of theirs, else in order."""
    if not parameters or any(name in parameters for name in inputs) or len(inputs) > len(parameters):
        return inputs
    return dict(zip(parameters, inputs.values(), strict=False))


def as_tensors(value: Any) -> Any:
    """A result with tensors in the place of its arrays and numbers."""
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "__array__") or isinstance(value, (bool, int, float)):
        return _as_tensor(value)
    if isinstance(value, Mapping):
        return {key: as_tensors(item) for key, item in value.items()}
    return [as_tensors(item) for item in value] if isinstance(value, (tuple, list)) else value


def _as_tensor(value: Any) -> Any:
    import numpy

    array = numpy.array(value)  # a copy: torch takes no array that is read-only
    return torch.from_numpy(array) if array.dtype.kind in "biuf" else value


def given_cases(inputs: Any, sides: Iterable[Side]) -> Iterable[tuple[str, Inputs]]:
    """One call's tensors, those of several calls by name, or such as are made up for shapes. Raises TypeError for any other."""
    if _is_values(inputs):
        return [(FIRST, _by_order([inputs], sides))]
    if isinstance(inputs, (tuple, list)) and all(_is_values(value) for value in inputs):
        return [(FIRST, _by_order(inputs, sides))]
    values = list(inputs.values()) if isinstance(inputs, Mapping) else [None]
    if all(_is_values(value) for value in values):
        return [(FIRST, as_tensors(inputs))]
    if all(isinstance(value, Mapping) and all(map(_is_values, value.values())) for value in values):
        return [(name, as_tensors(case)) for name, case in inputs.items()]
    if all(isinstance(value, (tuple, list)) for value in values):
        from mapper.graphs.made_up import declared_cases

        return declared_cases({name: _declared(name, shape) for name, shape in inputs.items()})
    raise TypeError(
        "inputs are tensors or arrays, by name or in order, tables of these by name, or shapes by name"
    )


def _is_values(value: Any) -> bool:
    return isinstance(value, Tensor) or (hasattr(value, "__array__") and hasattr(value, "shape"))


def _by_order(values: Sequence[Any], sides: Iterable[Side]) -> Inputs:
    """Values without names, by those of the first side that says which it takes."""
    names = next((known for side in sides if (known := list(side.declared or side.parameters))), [])
    if len(names) < len(values):
        what = f"the inputs are {listed(names)}" if names else "neither side says what they are called"
        raise MapperError(f"{len(values)} inputs are given without names, and {what}")
    return dict(zip(names, map(as_tensors, values), strict=False))


def _declared(name: str, shape: Shape) -> Declared:
    """What a caller says of an input; its type is the one that the rules have for such a name unless it is said."""
    from mapper.graphs.runtime import Declared
    from mapper.rulebook.rulebook import rulebook_of

    if len(shape) == 2 and isinstance(shape[1], torch.dtype):
        extents, dtype = shape
    else:
        known = rulebook_of(()).inputs.get(name)
        extents, dtype = shape, torch.float32 if known is None else getattr(torch, known.dtype)
    if not all(isinstance(extent, (int, str)) for extent in extents):
        raise TypeError(f"the shape of {shorten(name)} is {list(extents)}: extents are numbers or words")
    return Declared(tuple(extents), dtype)
