"""Shape arithmetic as Python's own: what a graph does with sizes, folded where they are known. Nothing here is longer than a cap."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from mapper.graphs.graph import Node, TensorRef
from mapper.graphs.recovery.scalars import whole_numbers
from mapper.graphs.straight.types import integer
from mapper.graphs.straight.values import Held, in_brackets, sizes

WHOLE = {7: "I64", 6: "I32"}  # types that sizes have in a graph; Python's own numbers stand for both
ITEMS = 64  # sizes that are folded as a list; longer constants stay tensors
_EXTENT = re.compile(r"[A-Za-z_]\w*(\.shape\[\d+\])?")
LONGEST = 200  # characters of a size: a sum with itself is twice as long each time
BITS = 2**31  # a product of constants stays below
Fold = Callable[[Node, list[Held | None]], Held | None]
_FOLDS: dict[str, Fold] = {}


def folded(node: Node, inputs: list[Held | None]) -> Held | None:
    """What a node gives, in Python's numbers; None where it must be computed with tensors."""
    fold = _FOLDS.get(node.operator) if node.domain == "" else None
    return fold(node, inputs) if fold is not None else None


def fold(*names: str) -> Callable[[Fold], Fold]:
    def mark(function: Fold) -> Fold:
        for name in names:
            _FOLDS[name] = function
        return function

    return mark


def _axes(node: Node, given: Held | None) -> list[int] | None:
    said = node.attributes.get("axes")
    if isinstance(said, list):
        return [item for item in said if isinstance(item, int)]
    return given.constants if given is not None else None


def _is_list(held: Held | None) -> bool:
    return held is not None and held.is_sizes and not any(item.startswith("*") for item in held.items or ())


@fold("Shape")
def _shape(node: Node, inputs: list[Held | None]) -> Held | None:
    x = inputs[0]
    if x is not None and x.is_sizes and not node.attributes:
        return sizes([] if x.is_scalar else [str(len(x.items or ()))]) if x.is_scalar or _is_list(x) else None
    if x is None or x.is_sizes or not x.is_plain:
        return None
    said = [node.attributes.get(name) for name in ("start", "end")]
    start, end = (value if isinstance(value, int) else None for value in said)
    if x.rank is not None:
        axes = range(x.rank)[slice(start, end)]
        return sizes([extent_of(x, axis) for axis in axes])
    part = "" if not start and end is None else f"[{start or ''}:{'' if end is None else end}]"
    return sizes([f"*{x.text}.shape{part}"])


@fold("Size")
def _count(node: Node, inputs: list[Held | None]) -> Held | None:
    """Of the sizes of a tensor: how many axes it has."""
    x = inputs[0]
    if x is None or x.items is None:
        return None
    if _is_list(x):
        return sizes(["1" if x.is_scalar else str(len(x.items))], True)
    of = x.items[0].removeprefix("*").removesuffix(".shape")
    return sizes([f"{of}.dim()"], True) if x.items == (f"*{of}.shape",) else None


def extent_of(x: Held, axis: int) -> str:
    """The size of a tensor along an axis: the variable that holds it, where there is one."""
    said = x.shape[axis] if x.shape is not None else None
    if isinstance(said, int) and x.sure:
        return str(said)
    return said if isinstance(said, str) and said.isidentifier() else f"{x.text}.shape[{axis}]"


@fold("Identity", "Squeeze", "Unsqueeze", "Reshape", "Cast")
def _same(node: Node, inputs: list[Held | None]) -> Held | None:
    x = inputs[0]
    if node.operator == "Reshape" and x is not None and not x.is_sizes:
        return _pads(x, inputs[1] if len(inputs) > 1 else None)
    if x is None or not x.is_sizes:
        return None
    if node.operator == "Cast":
        wanted = WHOLE.get(integer(node, "to", 0))
        return replace(x, dtype=wanted) if wanted is not None else None
    if node.operator == "Identity":
        return x
    given = inputs[1] if len(inputs) > 1 else None
    if node.operator == "Unsqueeze":
        return (
            sizes(list(x.items or ()), False, x.whole)
            if x.is_scalar and _axes(node, given) in ([0], [-1])
            else None
        )
    if not _is_list(x):
        return None
    items = list(x.items or ())
    if node.operator == "Squeeze":
        return (
            sizes(items, True, x.whole)
            if len(items) == 1 and _axes(node, given) in ([0], [-1], None)
            else None
        )
    shape = given.constants if given is not None else None
    if shape == [] and len(items) == 1:
        return sizes(items, True, x.whole)
    return sizes(items, False, x.whole) if shape in ([-1], [len(items)]) else None


def _pads(x: Held, shape: Held | None) -> Held | None:
    """Pads from the last axis to the first, as torch has them, in ONNX's order: an exporter turns a table of pairs for it."""
    turned, reversed_ = x.made, None
    if turned is not None and turned.of("Transpose") and turned.node.attributes.get("perm", [1, 0]) == [1, 0]:
        reversed_ = turned.inputs[0].made if turned.inputs[0] is not None else None
    if reversed_ is None or not reversed_.of("Slice") or shape is None or shape.constants != [-1]:
        return None
    bounds = [one.constants if one is not None else None for one in reversed_.inputs[1:]]
    pairs = reversed_.inputs[0].made if reversed_.inputs[0] is not None else None
    is_whole = (
        len(bounds) == 4
        and bounds[0] == [-1]
        and bounds[2:] == [[0], [-1]]
        and (bounds[1] or [0])[0] <= -(2**31)
    )
    if not is_whole or pairs is None or not pairs.of("Reshape") or pairs.inputs[1] is None:
        return None
    held = pairs.inputs[0]
    if held is None or not _is_list(held) or held.is_scalar or pairs.inputs[1].constants != [-1, 2]:
        return None
    items = list(held.items or ())
    return (
        sizes([*items[-2::-2], *items[::-2][: len(items) // 2]], False, held.whole)
        if len(items) % 2 == 0
        else None
    )


@fold("Gather")
def _gather(node: Node, inputs: list[Held | None]) -> Held | None:
    x, at = inputs
    if (
        x is None
        or at is None
        or not x.is_sizes
        or x.is_scalar
        or node.attributes.get("axis", 0) not in (0, -1)
    ):
        return None
    places, items = at.constants, list(x.items or ())
    if places is None:
        return None
    if len(items) == 1 and items[0].startswith("*") and items[0].endswith(".shape"):
        return sizes([f"{items[0][1:]}[{place}]" for place in places], at.is_scalar, x.whole)
    if not _is_list(x) or any(not -len(items) <= place < len(items) for place in places):
        return None
    return sizes([items[place] for place in places], at.is_scalar, x.whole)


@fold("Slice")
def _slice(node: Node, inputs: list[Held | None]) -> Held | None:
    x = inputs[0]
    if x is None or not x.is_sizes or x.is_scalar:
        return None
    parts: list[list[int] | None] = []
    for place, name in enumerate(("starts", "ends", "axes", "steps"), 1):
        said = node.attributes.get(name)
        given = inputs[place] if len(inputs) > place else None
        usual = [1] if name == "steps" else [0]
        parts.append(
            [item for item in said if isinstance(item, int)]
            if isinstance(said, list)
            else given.constants
            if given is not None
            else usual
            if place > 2
            else None
        )
    start, end, axes, step = parts
    if start is None or end is None or axes not in ([0], [-1]) or step is None or len(start) != 1:
        return None
    if _is_list(x):
        return sizes(list(x.items or ())[slice(start[0], end[0], step[0])], False, x.whole)
    items = list(x.items or ())
    if len(items) == 1 and items[0].endswith(".shape") and step == [1]:
        stop = "" if end[0] >= 2**31 - 1 else str(end[0])
        return sizes([f"{items[0]}[{start[0] or ''}:{stop}]"], False, x.whole)
    return None


@fold("Concat")
def _concat(node: Node, inputs: list[Held | None]) -> Held | None:
    if any(x is None or not x.is_sizes or x.is_scalar for x in inputs):
        return None
    items = [item for x in inputs if x is not None for item in x.items or ()]
    return sizes(items, False, inputs[0].whole) if len(items) <= ITEMS and inputs[0] is not None else None


@fold("ConstantOfShape")
def _filled(node: Node, inputs: list[Held | None]) -> Held | None:
    """A few whole numbers, all the same."""
    shape, value = inputs[0].constants if inputs[0] is not None else None, node.attributes.get("value")
    if shape is None or len(shape) != 1 or not 0 <= shape[0] <= ITEMS:
        return None
    if not isinstance(value, TensorRef) or value.dtype != "I64":
        return None
    found = whole_numbers(value)
    return sizes([str(found[0])] * shape[0]) if found else None


@fold("Where")
def _chosen(node: Node, inputs: list[Held | None]) -> Held | None:
    """Sizes where they are equal to others, else a third: `Where(Equal(shape, -1), ones, shape)`."""
    condition, a, b = inputs
    made = condition.made if condition is not None else None
    if made is None or not made.of("Equal") or not (_is_list(a) and _is_list(b)) or a is None or b is None:
        return None
    if any(not _is_list(one) or one.is_scalar for one in (*made.inputs, a, b) if one is not None):
        return None
    rows = [list(one.items or ()) for one in (*made.inputs, a, b) if one is not None]
    if len(rows) != 4 or len({len(row) for row in rows}) > 1:
        return None
    found: list[str] = []
    for one, other, yes, no in zip(*rows, strict=True):
        same = _is_same(one, other)
        if same is None and yes != no:
            return None
        found.append(yes if same else no)
    return sizes(found, False, a.whole)


def _is_same(one: str, other: str) -> bool | None:
    """Whether two sizes are equal; None where that is not known. No size of a tensor is below nought."""
    numbers = [_number(item) for item in (one, other)]
    if one == other or None not in numbers:
        return one == other or numbers[0] == numbers[1]
    known = next((number for number in numbers if number is not None), None)
    text = one if numbers[0] is None else other
    return False if known is not None and known < 0 and is_extent(text) else None


def is_extent(item: str) -> bool:
    """Whether an expression is the size of a tensor as it is, which is not below nought."""
    return item.isdigit() or bool(_EXTENT.fullmatch(item))


@fold("Add", "Sub", "Mul", "Div")
def _arithmetic(node: Node, inputs: list[Held | None]) -> Held | None:
    a, b = inputs
    if not (_is_list(a) and _is_list(b)) or a is None or b is None:
        return None
    left, right = list(a.items or ()), list(b.items or ())
    if len(left) != len(right) and 1 not in (len(left), len(right)):
        return None
    count = max(len(left), len(right)) if left and right else 0
    left, right = left * (count if len(left) == 1 else 1), right * (count if len(right) == 1 else 1)
    found = [_computed(node.operator, one, other) for one, other in zip(left, right, strict=True)]
    if any(item is None or len(item) > LONGEST for item in found):
        return None
    return sizes([item for item in found if item is not None], a.is_scalar and b.is_scalar, a.whole)


def _computed(operator: str, left: str, right: str) -> str | None:
    one, other = _number(left), _number(right)
    if one is not None and other is not None:
        if operator == "Div":
            quotient = abs(one) // abs(other) if other else None
            return None if quotient is None else str(quotient if (one < 0) == (other < 0) else -quotient)
        value = {"Add": one + other, "Sub": one - other, "Mul": one * other}[operator]
        return str(value) if abs(value) < BITS else None
    if (operator in ("Mul", "Div") and right == "1") or (operator in ("Add", "Sub") and right == "0"):
        return left
    if (operator == "Mul" and left == "1") or (operator == "Add" and left == "0"):
        return right
    if operator == "Div" and ("-" in left or right == "0" or not is_extent(right)):
        return None  # Python's quotient is another where signs differ
    sign = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "//"}[operator]
    return f"{in_brackets(left)} {sign} {in_brackets(right)}"


def _number(item: str) -> int | None:
    try:
        return int(item)
    except ValueError:
        return None
