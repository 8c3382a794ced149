"""Single numbers that a graph calculates from constants alone, as exporters leave them that fold nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from mapper.graphs.graph import Node

DEEPEST = 12  # nodes one after the other
WRITTEN = ("value_int", "value_float", "value_ints", "value_floats")  # of a Constant, beside tensors
FLOAT_TYPES = (1, 10, 11, 16)  # of a Cast, https://onnx.ai/onnx/api/classes.html#tensorproto
SHAPES = ("Unsqueeze", "Squeeze", "Reshape", "Identity")  # of one number, it stays
FORMULAS: Mapping[str, Callable[..., float]] = {
    "Sqrt": math.sqrt,
    "Reciprocal": lambda x: 1 / x,
    "Neg": lambda x: -x,
    "Add": lambda x, y: x + y,
    "Sub": lambda x, y: x - y,
    "Mul": lambda x, y: x * y,
    "Pow": lambda x, y: x**y,
}


def written(node: Node) -> list[float] | None:
    """The numbers that a Constant has as an attribute of their own; None for any other node."""
    if node.operator != "Constant" or node.domain:
        return None
    value = next((node.attributes[word] for word in WRITTEN if word in node.attributes), None)
    found = value if isinstance(value, list) else [value]
    numbers = [one for one in found if isinstance(one, (int, float))]
    return [float(one) for one in numbers] if numbers and len(numbers) == len(found) else None


def figure(node: Node, number: Callable[[str], float | None]) -> float | None:
    """The number that a node makes of numbers; None where it is none for sure. `number` says those of its inputs."""
    if node.domain or not node.outputs:
        return None
    said = written(node)
    if said is not None:
        return said[0] if len(said) == 1 else None
    inputs = node.inputs[:1] if node.operator in SHAPES else node.inputs
    found = [number(name) if name else None for name in inputs]
    given = [one for one in found if one is not None]
    return _of(node, given) if given and len(given) == len(found) else None


def _of(node: Node, given: list[float]) -> float | None:
    if node.operator in SHAPES:
        return given[0]
    if node.operator == "Cast":
        return given[0] if node.attributes.get("to") in FLOAT_TYPES or given[0].is_integer() else None
    if node.operator == "Div":  # of whole numbers it is another operation
        return given[0] / given[1] if given[1] and not all(one.is_integer() for one in given) else None
    formula = FORMULAS.get(node.operator)
    try:
        found = formula(*given) if formula is not None else None
    except (ValueError, ZeroDivisionError, OverflowError, TypeError):
        return None
    return found if isinstance(found, float) and math.isfinite(found) else None
