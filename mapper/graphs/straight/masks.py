"""Masks of attention as exports of transformers have them: what is looked up for each row of a batch and each key, and what is compared."""

from __future__ import annotations

from collections.abc import Sequence

from mapper.graphs.graph import Node
from mapper.graphs.straight.types import axes_of, integer
from mapper.graphs.straight.values import Held, Made

ROWS, QUERIES, KEYS = 0, 2, 3  # axes of (B, H, T, S)


def looked_up(node: Node, inputs: list[Held | None]) -> str | None:
    """mask (B, S) at each row and key as (B, 1, 1, S), which exporters write as a gather; None for any other node."""
    if node.operator == "GatherND" and not integer(node, "batch_dims", 0):
        return _of_pairs(inputs)
    return _of_places(inputs) if node.operator == "Reshape" else None


def meaning(node: Node, inputs: Sequence[Held | None]) -> str:
    """What a value is called for what it is, whatever makes it; "" for most."""
    if node.operator == "Attention":
        return "attention"
    if not node.domain and compares_positions(node, inputs):
        return "causal"
    return "padding" if not node.domain and looked_up(node, list(inputs)) is not None else ""


def compares_positions(node: Node, inputs: Sequence[Held | None]) -> bool:
    """Whether a node says for each query which keys stand no later: a causal mask."""
    if node.operator not in ("LessOrEqual", "GreaterOrEqual") or len(inputs) != 2:
        return False
    keys, queries = inputs if node.operator == "LessOrEqual" else inputs[::-1]
    return _counted(keys, KEYS) is not None and _counted(queries, QUERIES) is not None


def chosen(mask: Held) -> Held | None:
    """The truth values of which a mask is 0 where they are true, and minus infinity elsewhere."""
    made = mask.made
    if made is None or not made.of("Where") or made.inputs[0] is None or made.inputs[0].dtype != "BOOL":
        return None
    seen, hidden = made.inputs[1:3]
    is_usual = (
        seen is not None and hidden is not None and seen.number == "0.0" and hidden.number == "-math.inf"
    )
    return made.inputs[0] if is_usual else None


def _of_pairs(inputs: list[Held | None]) -> str | None:
    """`mask[rows, keys]` by pairs of places."""
    x, at = inputs[:2]
    pairs = at.made if at is not None else None
    if x is None or x.rank != 2 or pairs is None or not pairs.of("Concat") or len(pairs.inputs) != 2:
        return None
    if integer(pairs.node, "axis", 0) not in (-1, 4):
        return None
    rows, keys = (_spread(held) for held in pairs.inputs)
    return _written(x, _counted(rows, ROWS), _counted(keys, KEYS)) if rows and keys else None


def _spread(held: Held | None) -> Held | None:
    """x (B, 1, 1, 1) or (1, 1, 1, S), where a value is it for each row and each key, with an axis behind."""
    made = held.made if held is not None else None
    if (
        made is None
        or not made.of("Unsqueeze")
        or axes_of(made.node, made.inputs[1], "axes") not in ([-1], [4])
    ):
        return None
    wide = made.inputs[0]
    if wide is None or wide.rank != 4 or (wide.known_shape or ())[1:3] != (1, 1):
        return None
    return wide.made.inputs[0] if wide.made is not None and wide.made.of("Expand") else wide


def _of_places(inputs: list[Held | None]) -> str | None:
    """`mask.flatten()[rows * S + keys]`."""
    made = _before_view(inputs[0].made if inputs and inputs[0] is not None else None)
    if made is None or not made.of("Gather") or integer(made.node, "axis", 0) != 0 or made.inputs[0] is None:
        return None
    flat, at = made.inputs[0].made, made.inputs[1]
    x = (
        flat.inputs[0]
        if flat is not None and flat.of("Flatten") and integer(flat.node, "axis", 1) == 2
        else None
    )
    places = at.made if at is not None else None
    if x is None or x.rank != 2 or at is None or places is None or not places.of("Add"):
        return None
    items = inputs[1].items if len(inputs) > 1 and inputs[1] is not None else None
    own = [(str(size), f"{at.text}.shape[{axis}]") for axis, size in enumerate(at.known_shape or ())]
    if items is None or len(items) != len(own) or not all(map(tuple.__contains__, own, items)):
        return None
    for keys, rows in (places.inputs, places.inputs[::-1]):
        count, limit = _counted(_stepped(rows, _extent(x, 1)), ROWS), _counted(keys, KEYS)
        if count is not None and limit == _extent(x, 1):
            return _written(x, count, limit)
    return None


def _before_view(made: Made | None) -> Made | None:
    """What gave a value before it was viewed along one axis."""
    x = made.inputs[0] if made is not None and made.of("Reshape") else None
    return x.made if x is not None else made


def _stepped(held: Held | None, step: str) -> Held | None:
    """x, where a value is it times a step."""
    made = held.made if held is not None else None
    for x, by in (made.inputs, made.inputs[::-1]) if made is not None and made.of("Mul") else ():
        if by is not None and by.items == (step,):
            return x
    return None


def _counted(held: Held | None, axis: int) -> str | None:
    """The limit up to which a value counts from nought along one of four axes; None for any other value."""
    shape = held.known_shape if held is not None else None
    if shape is None or len(shape) != 4 or any(size != 1 for at, size in enumerate(shape) if at != axis):
        return None
    while held is not None and held.made is not None and held.made.of("Unsqueeze"):
        held = held.made.inputs[0]
    made = held.made if held is not None else None
    if made is None or not made.of("Range"):
        return None
    start, limit, step = (one.items if one is not None else None for one in made.inputs)
    return limit[0] if (start, step) == (("0",), ("1",)) and limit is not None and len(limit) == 1 else None


def _extent(x: Held, axis: int) -> str:
    size = x.shape[axis] if x.shape is not None else None
    return f"{x.text}.shape[{axis}]" if size is None else str(size)


def _written(x: Held, rows: str | None, keys: str | None) -> str | None:
    """`x[:, None, None, :]`, of all rows and keys or of the first."""
    if rows is None or keys is None:
        return None
    cuts = [":" if count == _extent(x, axis) else f":{count}" for axis, count in enumerate((rows, keys))]
    return f"{x.text}[{cuts[0]}, None, None{'' if cuts[1] == ':' else f', {cuts[1]}'}]"
