"""The type and the shape of what a node gives, as far as they follow from what goes into it: what the file says is not needed.

A size is None where it is not known, and an expression where something in the source gives it; a shape is None where not even
the number of axes is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from mapper.graphs.graph import Graph, Node, TensorRef
from mapper.graphs.reading import type_name
from mapper.graphs.straight.values import Held

Size: TypeAlias = "int | str | None"
Shape: TypeAlias = "tuple[Size, ...] | None"
Known: TypeAlias = "tuple[str | None, Shape]"
Rule: TypeAlias = "Callable[[Node, list[Held | None]], list[Known]]"
_RULES: dict[str, Rule] = {}
SAME = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor",
    "Gelu", "HardSigmoid", "HardSwish", "Hardmax", "Identity", "LeakyRelu", "Log", "LogSoftmax", "Mish", "Neg", "Not", "PRelu",
    "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt", "Swish",
    "Tan", "Tanh", "ThresholdedRelu", "CumSum", "Trilu", "Dropout", "BatchNormalization", "InstanceNormalization",
    "LayerNormalization", "GroupNormalization", "RMSNormalization", "ScatterND", "ScatterElements", "RmsNorm", "LayerNorm", "Silu", "LRN",
)  # fmt: skip
LIKE_BOTH = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Pow",
    "Mod",
    "Max",
    "Min",
    "Sum",
    "Mean",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
)
TESTS = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Xor")
REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum",
    "ReduceLogSumExp",
)  # fmt: skip


def types_of(node: Node, inputs: list[Held | None]) -> list[Known]:
    """Type and shape of each output; an empty list where nothing is known."""
    rule = _RULES.get(node.operator) if node.domain in ("", "mapper") else None
    try:
        return rule(node, inputs) if rule is not None else []
    except (
        IndexError,
        ZeroDivisionError,
    ):  # axes that are not there: the file is wrong, and running it says so
        return []


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def mark(function: Rule) -> Rule:
        for name in names:
            _RULES[name] = function
        return function

    return mark


def axes_of(node: Node, given: Held | None, word: str = "axes") -> list[int] | None:
    """The axes that an attribute or an input names; None where they are not known, or not there."""
    said = node.attributes.get(word)
    if isinstance(said, list):
        return [item for item in said if isinstance(item, int)]
    return given.constants if given is not None else None


def integer(node: Node, word: str, usual: int) -> int:
    """A whole number of a node."""
    found = node.attributes.get(word, usual)
    return found if isinstance(found, int) else usual


def _first(inputs: list[Held | None]) -> tuple[str | None, Shape]:
    held = inputs[0] if inputs else None
    return (held.dtype, held.known_shape) if held is not None else (None, None)


def broadcast(shapes: list[Shape]) -> Shape:
    """The shape of what is computed number by number."""
    if any(shape is None for shape in shapes):
        return None
    full = [shape for shape in shapes if shape is not None]
    rank = max(map(len, full), default=0)
    found: list[Size] = []
    for axis in range(-rank, 0):
        sizes = [shape[axis] for shape in full if -axis <= len(shape)]
        large = [size for size in sizes if size != 1]
        known = [size for size in large if isinstance(size, int)]
        found.append(known[0] if known else 1 if not large else large[0] if len(set(large)) == 1 else None)
    return tuple(found)


@_rule(*SAME)
def _same(node: Node, inputs: list[Held | None]) -> list[Known]:
    return [_first(inputs)]


@_rule(*LIKE_BOTH)
def _both(node: Node, inputs: list[Held | None]) -> list[Known]:
    if node.attributes.get("broadcast"):
        return [_first(inputs)]
    return [
        (_first(inputs)[0], broadcast([held.known_shape if held is not None else None for held in inputs]))
    ]


@_rule(*TESTS)
def _test(node: Node, inputs: list[Held | None]) -> list[Known]:
    return [("BOOL", _both(node, inputs)[0][1])]


@_rule("IsNaN", "IsInf")
def _is(node: Node, inputs: list[Held | None]) -> list[Known]:
    return [("BOOL", _first(inputs)[1])]


@_rule("Where")
def _where(node: Node, inputs: list[Held | None]) -> list[Known]:
    shapes = [held.known_shape if held is not None else None for held in inputs]
    return [(_first(inputs[1:])[0], broadcast(shapes))]


@_rule("Cast")
def _cast(node: Node, inputs: list[Held | None]) -> list[Known]:
    return [(type_name(integer(node, "to", 0)), _first(inputs)[1])]


@_rule("MatMul")
def _product(node: Node, inputs: list[Held | None]) -> list[Known]:
    (dtype, a), (_, b) = _first(inputs), _first(inputs[1:])
    if a is None or b is None or len(a) < 2 or len(b) < 2:
        return [(dtype, None)]
    front = broadcast([a[:-2], b[:-2]])
    return [(dtype, None if front is None else (*front, a[-2], b[-1]))]


@_rule("Linear")
def _linear(node: Node, inputs: list[Held | None]) -> list[Known]:
    (dtype, x), (_, weight) = _first(inputs), _first(inputs[1:])
    return [(dtype, (*x[:-1], weight[0]) if x and weight else None)]


@_rule("Gemm")
def _gemm(node: Node, inputs: list[Held | None]) -> list[Known]:
    (dtype, a), (_, b) = _first(inputs), _first(inputs[1:])
    if a is None or b is None:
        return [(dtype, (None, None))]
    return [
        (dtype, (a[1 if node.attributes.get("transA") else 0], b[0 if node.attributes.get("transB") else 1]))
    ]


@_rule("Conv", "ConvTranspose")
def _conv(node: Node, inputs: list[Held | None]) -> list[Known]:
    (dtype, x), (_, weight) = _first(inputs), _first(inputs[1:])
    if x is None and weight is not None:
        x = (None,) * len(weight)
    if x is None:
        return [(dtype, None)]
    groups = integer(node, "group", 1)
    wide = None if weight is None else weight[0] if node.operator == "Conv" else weight[1]
    channels = wide * groups if isinstance(wide, int) and node.operator != "Conv" else wide
    return [(dtype, (x[0], channels, *[None] * (len(x) - 2)))]


@_rule("MaxPool", "AveragePool", "LpPool")
def _pool(node: Node, inputs: list[Held | None]) -> list[Known]:
    dtype, x = _first(inputs)
    return [(dtype, None if x is None else (*x[:2], *[None] * (len(x) - 2)))]


@_rule("GlobalAveragePool", "GlobalMaxPool")
def _whole_pool(node: Node, inputs: list[Held | None]) -> list[Known]:
    dtype, x = _first(inputs)
    return [(dtype, None if x is None else (*x[:2], *[1] * (len(x) - 2)))]


@_rule("Pad", "Resize", "Upsample", "Tile")
def _resized(node: Node, inputs: list[Held | None]) -> list[Known]:
    dtype, x = _first(inputs)
    return [(dtype, None if x is None else (None,) * len(x))]


@_rule(*REDUCTIONS)
def _reduced(node: Node, inputs: list[Held | None]) -> list[Known]:
    dtype, x = _first(inputs)
    given = inputs[1] if len(inputs) > 1 else None
    axes = axes_of(node, given)
    if x is None or (axes is None and given is not None):
        return [(dtype, None)]
    if not axes:
        if node.attributes.get("noop_with_empty_axes"):
            return [(dtype, x)]
        axes = list(range(len(x)))
    over = {axis % len(x) for axis in axes} if x else set()
    if integer(node, "keepdims", 1):
        return [(dtype, tuple(1 if axis in over else size for axis, size in enumerate(x)))]
    return [(dtype, tuple(size for axis, size in enumerate(x) if axis not in over))]


@_rule("ArgMax", "ArgMin")
def _place(node: Node, inputs: list[Held | None]) -> list[Known]:
    _, x = _first(inputs)
    if not x:
        return [("I64", None)]
    axis = integer(node, "axis", 0) % len(x)
    kept = (1,) if integer(node, "keepdims", 1) else ()
    return [("I64", (*x[:axis], *kept, *x[axis + 1 :]))]


@_rule("Transpose")
def _transpose(node: Node, inputs: list[Held | None]) -> list[Known]:
    dtype, x = _first(inputs)
    order = axes_of(node, None, "perm")
    if x is None:
        return [(dtype, (None,) * len(order) if order is not None else None)]
    return [(dtype, tuple(x[axis] for axis in (order if order is not None else range(len(x))[::-1])))]


@_rule("Reshape")
def _reshape(node: Node, inputs: list[Held | None]) -> list[Known]:
    dtype, x = _first(inputs)
    shape = inputs[1] if len(inputs) > 1 else None
    said = axes_of(node, None, "shape")
    items = [str(item) for item in said] if said is not None else list((shape.items if shape else None) or ())
    if (not items and (shape is None or not shape.is_sizes)) or any(item.startswith("*") for item in items):
        return [(dtype, None)]
    found: list[Size] = []
    for axis, item in enumerate(items):
        kept = x[axis] if item == "0" and x is not None and axis < len(x) else None
        found.append(kept if item == "0" else size_of(item))
    return [(dtype, _completed(found, items, x))]


def size_of(item: str) -> Size:
    """A size as the source says it."""
    return None if item == "-1" else int(item) if item.isdigit() else item


def _completed(found: list[Size], items: list[str], x: Shape) -> Shape:
    """The one size that is left over, where all others are known."""
    places = [place for place, item in enumerate(items) if item == "-1"]
    known = [size for size in found if isinstance(size, int)]
    total = [size for size in x or (None,) if isinstance(size, int)]
    if x is not None and places and min(len(x), places[0]) > 0 and x[0] is not None and x[0] == found[0]:
        return (x[0], *(_completed(found[1:], items[1:], x[1:]) or ()))  # what stays takes no part
    if len(places) == 1 and len(known) == len(found) - 1 and x is not None and len(total) == len(x):
        rest = math.prod(known)
        found[places[0]] = math.prod(total) // rest if rest else None
    return tuple(found)


@_rule("Flatten")
def _flatten(node: Node, inputs: list[Held | None]) -> list[Known]:
    return [(_first(inputs)[0], (None, None))]


@_rule("Unsqueeze")
def _unsqueeze(node: Node, inputs: list[Held | None]) -> list[Known]:
    dtype, x = _first(inputs)
    axes = axes_of(node, inputs[1] if len(inputs) > 1 else None)
    if x is None or axes is None:
        return [(dtype, None)]
    rank, left = len(x) + len(axes), list(x)
    new = {axis % rank for axis in axes}
    return (
        [(dtype, tuple(1 if axis in new else left.pop(0) for axis in range(rank)))]
        if len(new) == len(axes)
        else [(dtype, None)]
    )


@_rule("Squeeze")
def _squeeze(node: Node, inputs: list[Held | None]) -> list[Known]:
    dtype, x = _first(inputs)
    axes = axes_of(node, inputs[1] if len(inputs) > 1 else None)
    if not x or axes is None:
        return [(dtype, None)]
    gone = {axis % len(x) for axis in axes}
    return [(dtype, tuple(size for axis, size in enumerate(x) if axis not in gone))]


@_rule("Concat")
def _concat(node: Node, inputs: list[Held | None]) -> list[Known]:
    dtype, _ = _first(inputs)
    shapes = [held.known_shape if held is not None else None for held in inputs]
    full = [shape for shape in shapes if shape]
    if len(full) != len(shapes):
        return [(dtype, None)]
    axis = integer(node, "axis", 1) % len(full[0])
    sizes = [shape[axis] for shape in full]
    total = [size for size in sizes if isinstance(size, int)]
    joined = sum(total) if len(total) == len(sizes) else None
    return [(dtype, (*full[0][:axis], joined, *full[0][axis + 1 :]))]


@_rule("Split")
def _split(node: Node, inputs: list[Held | None]) -> list[Known]:
    dtype, x = _first(inputs)
    sizes = axes_of(node, inputs[1] if len(inputs) > 1 else None, "split")
    count = len(node.outputs)
    if not x:
        return [(dtype, None)] * count
    axis = integer(node, "axis", 0) % len(x)
    whole = x[axis]
    if sizes is None and len(inputs) < 2 and isinstance(whole, int) and whole % count == 0:
        sizes = [whole // count] * count
    parts: list[Size] = list(sizes) if sizes is not None and len(sizes) == count else [None] * count
    return [(dtype, (*x[:axis], part, *x[axis + 1 :])) for part in parts]


@_rule("Slice")
def _slice(node: Node, inputs: list[Held | None]) -> list[Known]:
    dtype, x = _first(inputs)
    bounds = slice_bounds(node, inputs)
    if x is None:
        return [(dtype, None)]
    if bounds is None:
        return [(dtype, (None,) * len(x))]
    found = list(x)
    for axis, start, end, step in bounds:
        size = found[axis]
        found[axis] = (
            None if not isinstance(size, int) else len(range(*slice(start, end, step).indices(size)))
        )
    return [(dtype, tuple(found))]


def slice_bounds(node: Node, inputs: list[Held | None]) -> list[tuple[int, int, int, int]] | None:
    """Axis, start, end and step of each cut, all of them constants; None where one is not."""
    parts = [
        axes_of(node, inputs[place] if len(inputs) > place else None, word)
        for place, word in enumerate(("starts", "ends", "axes", "steps"), 1)
    ]
    starts, ends, axes, steps = parts
    if (
        starts is None
        or ends is None
        or any(
            part is None and len(inputs) > place and inputs[place] is not None
            for place, part in enumerate(parts, 1)
        )
    ):
        return None
    count = len(starts)
    axes, steps = axes if axes is not None else list(range(count)), steps or [1] * count
    if not len(ends) == len(axes) == len(steps) == count:
        return None
    return list(zip(axes, starts, ends, steps, strict=True))


@_rule("Gather")
def _gather(node: Node, inputs: list[Held | None]) -> list[Known]:
    (dtype, x), (_, at) = _first(inputs), _first(inputs[1:])
    if not x or at is None:
        return [(dtype, None)]
    axis = integer(node, "axis", 0) % len(x)
    return [(dtype, (*x[:axis], *at, *x[axis + 1 :]))]


@_rule("Expand")
def _expand(node: Node, inputs: list[Held | None]) -> list[Known]:
    dtype, x = _first(inputs)
    shape = inputs[1]
    if shape is None or not shape.is_sizes or any(item.startswith("*") for item in shape.items or ()):
        return [(dtype, None)]
    wanted = tuple(map(size_of, shape.items or ()))
    return [(dtype, broadcast([x, wanted]))]


@_rule("ConstantOfShape")
def _filled(node: Node, inputs: list[Held | None]) -> list[Known]:
    value = node.attributes.get("value")
    shape = inputs[0]
    items = shape.items if shape is not None else None
    known = None if items is None or any(item.startswith("*") for item in items) else items
    return [
        (
            value.dtype if isinstance(value, TensorRef) else "F32",
            None if known is None else tuple(map(size_of, known)),
        )
    ]


@_rule("Range")
def _range(node: Node, inputs: list[Held | None]) -> list[Known]:
    """Counted from nought by ones there are as many as the limit says."""
    start, limit, step = (held.items if held is not None else None for held in inputs)
    count = limit[0] if (start, step) == (("0",), ("1",)) and limit is not None and len(limit) == 1 else ""
    return [(_first(inputs)[0], (size_of(count) if count.isidentifier() or count.isdigit() else None,))]


@_rule("GatherND")
def _gather_nd(node: Node, inputs: list[Held | None]) -> list[Known]:
    """x (..., *rest) by places (*front, axes of x) -> (*front, *rest)"""
    (dtype, x), (_, at) = _first(inputs), _first(inputs[1:])
    if x is None or not at or not isinstance(at[-1], int) or integer(node, "batch_dims", 0):
        return [(dtype, None)]
    return [(dtype, (*at[:-1], *x[at[-1] :]))]


@_rule("Size")
def _size(node: Node, inputs: list[Held | None]) -> list[Known]:
    return [("I64", ())]


@_rule("Shape", "NonZero")
def _whole(node: Node, inputs: list[Held | None]) -> list[Known]:
    return [("I64", (None,) if node.operator == "Shape" else (None, None))]


@_rule("LSTM", "GRU", "RNN")
def _recurrent(node: Node, inputs: list[Held | None]) -> list[Known]:
    (dtype, x), (_, r) = _first(inputs), _first(inputs[2:])
    if not x or not r or node.attributes.get("layout"):
        return []
    state = (r[0], x[1], r[2])
    return [(dtype, (x[0], r[0], x[1], r[2])), (dtype, state), (dtype, state)]


@_rule("Attention")
def _attention(node: Node, inputs: list[Held | None]) -> list[Known]:
    if node.domain != "mapper":
        return []
    (dtype, q), (_, v) = _first(inputs), _first(inputs[2:])
    return [(dtype, (*q[:-1], v[-1]) if q and v else None)]


@_rule("If")
def _branches(node: Node, inputs: list[Held | None]) -> list[Known]:
    """What both branches say, where they say it."""
    graphs = [value for value in node.attributes.values() if isinstance(value, Graph)]
    return [
        (
            types[0]
            if len(types := list(dict.fromkeys(graph.outputs[place].dtype for graph in graphs))) == 1
            else None,
            None,
        )
        for place in range(len(node.outputs))
        if all(place < len(graph.outputs) for graph in graphs)
    ]
