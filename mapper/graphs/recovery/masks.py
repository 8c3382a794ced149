"""What the arithmetic of an attention mask compares."""

from __future__ import annotations

from collections.abc import Iterator

from mapper.graphs.graph import Node
from mapper.graphs.recovery.wiring import Wiring

MOST = 400  # nodes that make a mask
COMPARED = {
    "LessOrEqual": True,
    "GreaterOrEqual": False,
}  # whether the keys stand first where each sees those before it
OTHERS = ("Less", "Greater", "Trilu", "Loop", "Scan", "If", "TopK", "Mod", "Div", "CumSum", "Abs", "Max")
AXES = ("Unsqueeze", "Cast", "Identity", "Reshape", "Squeeze", "Expand")
LARGE = 64  # numbers of a constant that may be a mask itself


def is_causal(wiring: Wiring, mask: str) -> bool | None:
    """Whether a mask lets each position see itself and those before it; False for one that only has padding; None where not sure."""
    if not mask:
        return False
    compared: list[Node] = []
    for node in _ancestors(wiring, mask):
        if node is None:
            return None
        if node.operator in COMPARED and all(wiring.constant(name) is None for name in node.inputs):
            compared.append(node)
    if len({tuple(node.inputs) for node in compared}) > 1:
        return None
    return _is_lower(wiring, compared[0]) if compared else False


def _ancestors(wiring: Wiring, name: str) -> Iterator[Node | None]:
    """The nodes that make a value; None for what may be any mask."""
    seen, waiting = {name}, [name]
    while waiting:
        name = waiting.pop()
        ref = wiring.constant(name)
        if ref is not None:
            if ref.size > LARGE and ref.dtype in ("BOOL", "F32", "F16", "BF16"):
                yield None
            if len(ref.shape) > 1 and min(ref.shape[-2:]) > 1:  # of queries and keys, however few
                yield None
            continue
        node = wiring.producers.get(name)
        if node is None:
            continue
        is_broadcast = node.operator == "Max" and all(_range_of(wiring, one) for one in node.inputs)
        if node.domain or (node.operator in OTHERS and not is_broadcast) or len(seen) > MOST:
            yield None
            return
        yield node
        if node.operator == "Shape":
            continue
        waiting += [one for one in node.inputs if one and one not in seen]
        seen.update(node.inputs)


def _is_lower(wiring: Wiring, node: Node) -> bool | None:
    """Whether keys are compared with queries: the positions along the last axis, and those along the one before it."""
    ranges = [_range_of(wiring, name) for name in node.inputs]
    keys, queries = ranges if COMPARED[node.operator] else ranges[::-1]
    return True if keys == "keys" and queries == "queries" else None


def _range_of(wiring: Wiring, name: str) -> str:
    """Along which axis positions stand that are counted from nought: "keys" for the last, "queries" for the one before."""
    from mapper.graphs.recovery.scalars import numbers

    last = ""
    node = wiring.producer(name)
    while node is not None and node.operator in AXES and not node.domain:
        if node.operator == "Unsqueeze" and not last:
            ref = wiring.constant(node.inputs[1]) if len(node.inputs) > 1 else None
            axes = numbers(ref) if ref else None
            last = "queries" if axes and max(axes) in (3, -1) else "keys" if axes else ""
        node = wiring.producer(node.inputs[0])
    node = _past_nought(wiring, node)
    is_range = node is not None and node.operator == "Range" and wiring.number(node.inputs[0]) == 0
    return last if is_range and node is not None and wiring.number(node.inputs[2]) == 1 else ""


def _past_nought(wiring: Wiring, node: Node | None) -> Node | None:
    """The node behind sums with nought: an offset where there is no cache."""
    while node is not None and node.operator == "Add" and not node.domain:
        others = [one for one in node.inputs if wiring.number(one) != 0]
        if len(others) != 1:
            return None
        node = wiring.producer(others[0])
    return node
