"""Nodes as Python and torch write them, where that computes the same for every input: `a + b`, `x.mean(1)`, `x[:, :4]`.

What is known of types and shapes decides; where too little is, the operator's own function is called.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from mapper.checkpoint import FLOATS, TORCH_NAMES
from mapper.graphs.graph import Node, TensorRef
from mapper.graphs.reading import type_name
from mapper.graphs.recovery.scalars import numbers
from mapper.graphs.straight import image_notation
from mapper.graphs.straight.arithmetic import is_extent
from mapper.graphs.straight.types import axes_of, integer, slice_bounds
from mapper.graphs.straight.values import Held, in_brackets, text_of

COUNTED = (*FLOATS, "I64", "I32", "I16", "I8", "U8")  # torch has arithmetic of them
LARGE = 2**31 - 1  # elements: a slice up to here is up to the end
Spelled: TypeAlias = "Callable[[Node, list[Held | None], int], str | None]"
_SPELLED: dict[str, Spelled] = dict(image_notation.SPELLED)
_SIGNS = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/"}
_TESTS = {"Equal": "==", "Less": "<", "Greater": ">", "LessOrEqual": "<=", "GreaterOrEqual": ">="}
_MODERN = 7  # the version from which on both sides broadcast as numpy's do


def spelled(node: Node, inputs: list[Held | None], version: int) -> str | None:
    """The expression of a node; None where its operator's function is to be called."""
    found = _SPELLED.get(node.operator) if node.domain == "" else None
    if found is None or not inputs or inputs[0] is None:
        return None
    return found(node, inputs, version)


def _spelling(*names: str) -> Callable[[Spelled], Spelled]:
    def mark(function: Spelled) -> Spelled:
        for name in names:
            _SPELLED[name] = function
        return function

    return mark


def _number(held: Held, other: Held) -> str:
    """A constant of one number as Python's own beside a tensor: its type and shape are then the other's."""
    if other.number or other.is_sizes or other.dtype != held.dtype:
        return ""
    if (other.rank if other.rank is not None else -1) < (held.rank or 0):
        return ""
    if held.is_sizes:
        return (
            in_brackets(held.items[0])
            if held.items is not None and len(held.items) == 1 and not held.items[0].startswith("*")
            else ""
        )
    return held.number if "math" not in held.number else ""


def _sides(a: Held, b: Held) -> tuple[str, str]:
    """Both sides of a sign; one may be a number."""
    right = _number(b, a)
    left = "" if right else _number(a, b)
    return left or text_of(a), right or text_of(b)


def _pair(inputs: list[Held | None], types: tuple[str, ...]) -> tuple[Held, Held] | None:
    if len(inputs) != 2 or inputs[0] is None or inputs[1] is None:
        return None
    a, b = inputs[0], inputs[1]
    return (a, b) if a.dtype == b.dtype and a.dtype in types else None


@_spelling("Add", "Sub", "Mul", "Div")
def _arithmetic(node: Node, inputs: list[Held | None], version: int) -> str | None:
    pair = _pair(inputs, COUNTED)
    if pair is None or (version < _MODERN and node.attributes.get("broadcast")):
        return None
    left, right = _sides(*pair)
    if node.operator in ("Mul", "Div") and right == "1.0":  # of the other's type, and of no more axes
        return left
    if node.operator == "Div" and pair[0].dtype not in FLOATS:
        return f'torch.div({text_of(pair[0])}, {right}, rounding_mode="trunc")'
    if node.operator == "Add" and right.startswith("-") and right != text_of(pair[1]):
        return f"{left} - {right[1:]}"
    return f"{left} {_SIGNS[node.operator]} {right}"


@_spelling("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
def _test(node: Node, inputs: list[Held | None], version: int) -> str | None:
    pair = _pair(inputs, (*COUNTED, "BOOL"))
    if pair is None or (version < _MODERN and node.attributes.get("broadcast")):
        return None
    left, right = _sides(*pair)
    return f"{left} {_TESTS[node.operator]} {right}"


@_spelling("Pow")
def _power(node: Node, inputs: list[Held | None], version: int) -> str | None:
    x, by = inputs[0], inputs[1]
    if (
        x is None
        or by is None
        or x.dtype not in FLOATS
        or x.rank is None
        or by.rank is None
        or x.rank < by.rank
    ):
        return None
    return f"{x.text} ** {by.number.removesuffix('.0')}" if by.number in ("2.0", "3.0") else None


@_spelling("Max", "Min")
def _extreme(node: Node, inputs: list[Held | None], version: int) -> str | None:
    if len(inputs) == 1 and inputs[0] is not None and not inputs[0].is_sizes:
        return inputs[0].text
    pair = _pair(inputs, COUNTED)
    if pair is None:
        return None
    left, right = _sides(*pair)
    word = node.operator.lower()
    bound = "min" if word == "max" else "max"
    if right != text_of(pair[1]):
        return f"{left}.clamp({bound}={right})"
    if left != text_of(pair[0]):
        return f"{right}.clamp({bound}={left})"
    return f"torch.{word}imum({left}, {right})"


@_spelling("Clip")
def _clip(node: Node, inputs: list[Held | None], version: int) -> str | None:
    x = inputs[0]
    if x is None or x.dtype not in FLOATS or version < 11:
        return None
    bounds = []
    for word, held in zip(("min", "max"), [*inputs[1:], None, None], strict=False):
        if held is not None:
            if not held.number or "math" in held.number:
                return None
            bounds.append(f"{word}={held.number}")
    return f"{x.text}.clamp({', '.join(bounds)})" if bounds else x.text


@_spelling("And", "Or")
def _both(node: Node, inputs: list[Held | None], version: int) -> str | None:
    pair = _pair(inputs, ("BOOL",))
    if pair is None or (version < _MODERN and node.attributes.get("broadcast")):
        return None
    sign = "&" if node.operator == "And" else "|"
    yes = next((one for one in pair if _is_true(one)), None)
    if yes is not None and node.operator == "And":
        return (pair[1] if yes is pair[0] else pair[0]).text
    return f"{text_of(pair[0])} {sign} {text_of(pair[1])}"


def _is_true(held: Held) -> bool:
    """Whether a value is one truth value without an axis, and true."""
    value = held.made.node.attributes.get("value") if held.made and held.made.of("ConstantOfShape") else None
    is_filled = held.known_shape == () and isinstance(value, TensorRef) and numbers(value) == [True]
    return held.text == "torch.tensor(True)" or is_filled


@_spelling("Abs")
def _magnitude(node: Node, inputs: list[Held | None], version: int) -> str | None:
    x = inputs[0]
    return f"{x.text}.abs()" if x is not None and not x.is_sizes and x.dtype in COUNTED else None


@_spelling("Range")
def _counted(node: Node, inputs: list[Held | None], version: int) -> str | None:
    """Whole numbers, where Python has the bounds: ONNX counts up to a limit, and gives none where it is passed."""
    if any(held is None or not held.is_sizes or held.dtype != "I64" for held in inputs) or len(inputs) != 3:
        return None
    start, limit, step = (held.items[0] if held is not None and held.items else "" for held in inputs)
    is_up = (
        start.isdigit() and step == "1" and (limit.isidentifier() or limit.isdigit() or ".shape[" in limit)
    )
    if not is_up or (start != "0" and not (limit.isdigit() and int(limit) >= int(start))):
        return None
    return f"torch.arange({limit})" if start == "0" else f"torch.arange({start}, {limit})"


@_spelling("ConstantOfShape")
def _one_number(node: Node, inputs: list[Held | None], version: int) -> str | None:
    """One number without an axis."""
    shape, value = inputs[0], node.attributes.get("value")
    if shape is None or shape.constants != [] or not isinstance(value, TensorRef):
        return None
    found = numbers(value) if value.dtype in ("BOOL", "I64") else None
    return f"torch.tensor({bool(found[0]) if value.dtype == 'BOOL' else int(found[0])})" if found else None


@_spelling("Where")
def _where(node: Node, inputs: list[Held | None], version: int) -> str | None:
    condition, a, b = inputs
    if condition is None or a is None or b is None or a.dtype not in COUNTED or a.dtype != b.dtype:
        return None
    left, right = _sides(a, b)
    return f"torch.where({text_of(condition)}, {left}, {right})"


@_spelling("Transpose")
def _transpose(node: Node, inputs: list[Held | None], version: int) -> str | None:
    x, order = inputs[0], axes_of(node, None, "perm")
    if x is None or x.is_sizes:
        return None
    if order is None:
        return f"{x.text}.T" if x.rank == 2 else None
    moved = [axis for axis, other in enumerate(order) if axis != other]
    if not moved:
        return x.text
    if len(moved) == 2:
        pair = [axis - len(order) for axis in moved] if moved[1] == len(order) - 1 else moved
        return f"{x.text}.transpose({pair[0]}, {pair[1]})"
    return f"{x.text}.permute({', '.join(map(str, order))})"


@_spelling("Reshape")
def _reshape(node: Node, inputs: list[Held | None], version: int) -> str | None:
    """A size of 0 keeps what stands at its place; a size that is computed is taken not to be 0, which only empty tensors have."""
    x = inputs[0]
    shape = inputs[1] if len(inputs) > 1 else None
    if x is None or x.is_sizes or shape is None or not shape.is_sizes:
        return None
    is_kept = not node.attributes.get("allowzero")
    items = [
        f"{x.text}.shape[{place}]" if item == "0" and is_kept else item
        for place, item in enumerate(shape.items or ())
    ]
    return _in_parts(x, items) or f"{x.text}.reshape({', '.join(items) or '()'})"


def _in_parts(x: Held, items: list[str]) -> str | None:
    """A view that cuts the last axis in parts, or joins the last axes; None for any other."""
    have = [None if size is None else str(size) for size in x.known_shape or ()]
    same = 0
    while same < min(len(have), len(items)) and have[same] == items[same]:
        same += 1
    if same == 0 or any(item.startswith("*") for item in items):
        return None
    if same == len(have) - 1 and len(items) > len(have) and items.count("-1") < 2:
        return f"{x.text}.unflatten(-1, ({', '.join(items[same:])}))"
    rest = x.known_shape[same:] if x.known_shape is not None else ()
    whole = math.prod(rest) if all(isinstance(size, int) for size in rest) else None  # type: ignore[arg-type]
    is_joined = same == len(items) - 1 and len(have) > len(items) and items[-1] in ("-1", str(whole))
    return f"{x.text}.flatten({same})" if is_joined else None


@_spelling("Flatten")
def _flatten(node: Node, inputs: list[Held | None], version: int) -> str | None:
    x = inputs[0]
    is_usual = x is not None and x.rank is not None and x.rank > 1 and integer(node, "axis", 1) == 1
    return f"{x.text}.flatten(1)" if x is not None and is_usual else None


@_spelling("Unsqueeze")
def _unsqueeze(node: Node, inputs: list[Held | None], version: int) -> str | None:
    x = inputs[0]
    axes = axes_of(node, inputs[1] if len(inputs) > 1 else None)
    if x is None or x.is_sizes or not axes or (len(axes) > 1 and min(axes) < 0):
        return None
    places = _new_axes(x, axes)
    if places is not None:
        base, kept = places
        return f"{base.text}[{', '.join(kept)}]"
    return x.text + "".join(f".unsqueeze({axis})" for axis in sorted(axes))


def _new_axes(x: Held, axes: list[int]) -> tuple[Held, list[str]] | None:
    """What several steps give new axes, and how it is indexed for all of them: `x[None, :, None]`. None for a single axis."""
    steps = [axes]
    while x.made is not None and x.made.of("Unsqueeze") and x.made.inputs[0] is not None:
        before = axes_of(x.made.node, x.made.inputs[1] if len(x.made.inputs) > 1 else None)
        if before is None or x.made.inputs[0].is_sizes:
            return None
        steps.append(before)
        x = x.made.inputs[0]
    if x.rank is None or sum(map(len, steps)) < 2:
        return None
    kept = [":"] * x.rank
    for step in reversed(steps):
        rank = len(kept) + len(step)
        for axis in sorted(one % rank for one in step):
            kept.insert(axis, "None")
    while kept[-1:] == [":"]:
        kept.pop()
    return x, kept


@_spelling("Squeeze")
def _squeeze(node: Node, inputs: list[Held | None], version: int) -> str | None:
    x = inputs[0]
    axes = axes_of(node, inputs[1] if len(inputs) > 1 else None)
    if x is None or x.is_sizes or not axes:
        return None
    if len(axes) == 1 and x.text.endswith(f".unsqueeze({axes[0]})"):
        return x.text.removesuffix(f".unsqueeze({axes[0]})")
    return f"{x.text}.squeeze({axes[0] if len(axes) == 1 else tuple(axes)})"


@_spelling("Concat")
def _concat(node: Node, inputs: list[Held | None], version: int) -> str | None:
    parts = [text_of(held) for held in inputs if held is not None]
    return parts[0] if len(parts) == 1 else f"torch.cat([{', '.join(parts)}], {integer(node, 'axis', 1)})"


@_spelling("Split")
def _split(node: Node, inputs: list[Held | None], version: int) -> str | None:
    """In parts as the node says; in equal parts where the size is known."""
    x, count = inputs[0], len(node.outputs)
    sizes = axes_of(node, inputs[1] if len(inputs) > 1 else None, "split")
    if x is None or x.is_sizes or not all(node.outputs):
        return None
    axis = integer(node, "axis", 0)
    if sizes is not None:
        equal = len(set(sizes)) == 1 and count > 1
        return f"{x.text}.split({sizes[0] if equal else sizes}, {axis})" if len(sizes) == count else None
    whole = x.known_shape[axis] if x.known_shape else None
    is_even = len(inputs) < 2 and isinstance(whole, int) and whole > 0 and whole % count == 0
    return f"{x.text}.chunk({count}, {axis})" if is_even else None


@_spelling("Slice")
def _slice(node: Node, inputs: list[Held | None], version: int) -> str | None:
    x, bounds = inputs[0], slice_bounds(node, inputs)
    if bounds is None:
        return _begun(node, inputs)
    if x is None or x.is_sizes or not bounds or any(step < 1 for *_, step in bounds):
        return None
    cuts = {axis: _cut(start, end, step, x, axis) for axis, start, end, step in bounds}
    axes = [axis for axis, cut in cuts.items() if cut != ":"]
    if len(cuts) < len(bounds) or (min(cuts) < 0 <= max(cuts)):
        return None
    return f"{x.text}[{at_axes(cuts, axes)}]" if axes else x.text


def _begun(node: Node, inputs: list[Held | None]) -> str | None:
    """The first so many of an axis, as many as a size says."""
    x, start, end, axes, steps = [*inputs, None, None][:5]
    if x is None or x.is_sizes or start is None or end is None or axes is None or axes.constants is None:
        return None
    is_first = start.constants == [0] and (steps is None or steps.constants == [1])
    ends = end.items or ()
    if not is_first or len(axes.constants) != 1 or len(ends) != 1 or not is_extent(ends[0]):
        return None
    cuts = {axes.constants[0]: f":{ends[0]}"}
    return f"{x.text}[{at_axes(cuts, list(cuts))}]"


def _cut(start: int, end: int, step: int, x: Held, axis: int) -> str:
    """One axis of a slice."""
    shape = x.known_shape or ()
    size = shape[axis] if -len(shape) <= axis < len(shape) else None
    others = math.prod(one for one in shape if isinstance(one, int) and one)
    is_whole = end * others >= LARGE if not isinstance(size, int) else end >= size
    return f"{start or ''}:{'' if is_whole else end}{f':{step}' if step > 1 else ''}"


def at_axes(cuts: dict[int, str], axes: list[int]) -> str:
    """What stands in the brackets: an index or a slice for some axes, all counted from the front or all from behind."""
    if min(axes) < 0:
        return ", ".join(["...", *(cuts.get(axis, ":") for axis in range(min(axes), 0))])
    return ", ".join(cuts.get(axis, ":") for axis in range(max(axes) + 1))


@_spelling("Gather")
def _gather(node: Node, inputs: list[Held | None], version: int) -> str | None:
    """By constant numbers, or by those of a tensor."""
    x, at = inputs[0], inputs[1]
    if x is None or at is None or x.is_sizes:
        return None
    axis = integer(node, "axis", 0)
    if at.is_sizes and at.items and not at.items[0].startswith("*"):
        return f"{x.text}[{at_axes({axis: at.as_python()}, [axis])}]"
    if at.dtype == "I64" and axis >= 0 and not at.is_sizes:
        return f"{x.text}[{at_axes({axis: at.text}, [axis])}]"
    return None


@_spelling("Expand")
def _expand(node: Node, inputs: list[Held | None], version: int) -> str | None:
    """To the sizes that are said, where each is what comes out: it is not 1 where the tensor has more."""
    x, shape = inputs[0], inputs[1]
    if x is None or shape is None or not shape.is_sizes or x.known_shape is None:
        return None
    if x.is_sizes:
        return f"{x.as_tensor()}.expand({', '.join(shape.items or ()) or '()'})" if x.is_scalar else None
    items, have = list(shape.items or ()), x.known_shape
    if len(items) < len(have) or any(item.startswith("*") for item in items):
        return None
    for place, size in enumerate(have, len(items) - len(have)):
        item = items[place]
        own = f"{x.text}.shape[{place - len(items) + len(have)}]"
        is_same = item in (own, str(size))
        if size != 1 and not is_same and (not item.isdigit() or item == "1"):
            return None
        if is_same and (item == own or item == "1"):
            items[place] = "-1"
    if len(items) == len(have) and all(
        item in ("-1", str(size)) for item, size in zip(items, have, strict=True)
    ):
        return x.text
    return f"{x.text}.expand({', '.join(items) or '()'})"


@_spelling("Cast")
def _cast(node: Node, inputs: list[Held | None], version: int) -> str | None:
    """A type that the value has already is no cast."""
    x = inputs[0]
    return (
        x.text
        if x is not None
        and not x.is_sizes
        and x.dtype == type_name(integer(node, "to", 0))
        and x.dtype in TORCH_NAMES
        else None
    )


@_spelling("Identity")
def _identity(node: Node, inputs: list[Held | None], version: int) -> str | None:
    return text_of(inputs[0]) if inputs[0] is not None else None


_REDUCED = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "amax", "ReduceMin": "amin"}


@_spelling(*_REDUCED)
def _reduced(node: Node, inputs: list[Held | None], version: int) -> str | None:
    """Over axes that are known; of no numbers torch has no extreme, so that no size may be 0."""
    x = inputs[0]
    axes = axes_of(node, inputs[1] if len(inputs) > 1 else None)
    if x is None or x.is_sizes or x.dtype not in FLOATS or not axes:
        return None
    if x.known_shape is not None and 0 in x.known_shape:
        return None
    over = str(axes[0]) if len(axes) == 1 else str(tuple(axes))
    return f"{x.text}.{_REDUCED[node.operator]}({over}{', keepdim=True' if integer(node, 'keepdims', 1) else ''})"


@_spelling("Softmax", "LogSoftmax")
def _softmax(node: Node, inputs: list[Held | None], version: int) -> str | None:
    x = inputs[0]
    word = "softmax" if node.operator == "Softmax" else "log_softmax"
    axis = integer(node, "axis", -1 if version >= 13 else 1)
    is_last = x is not None and x.rank is not None and axis in (-1, x.rank - 1)
    if x is None or (version < 13 and not is_last):
        return None
    return f"F.{word}({x.text}, dim={-1 if is_last else axis})"
