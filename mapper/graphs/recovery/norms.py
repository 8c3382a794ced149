"""Norms as exporters write them. An RMS norm is x / sqrt(mean(x^2) + eps) * weight, https://arxiv.org/abs/1910.07467."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mapper.graphs.graph import Node
from mapper.graphs.recovery.wiring import Wiring


@dataclass(frozen=True)
class RmsNorm:
    """One RMS norm."""

    node: Node  # the mean
    of: str  # what it normalises
    weight: str
    epsilon: float
    offset: bool  # whether it scales by 1 + weight
    result: str


def rms_norms(wiring: Wiring) -> Iterator[RmsNorm]:
    """Every RMS norm with a weight."""
    for node in wiring.graph.nodes:
        if node.operator == "ReduceMean" and not node.domain:
            found = _around(wiring, node)
            if found:
                yield found


def _around(wiring: Wiring, mean: Node) -> RmsNorm | None:
    square = wiring.producer(mean.inputs[0])
    if mean.attributes.get("keepdims", 1) != 1 or square is None or not _is_square(wiring, square):
        return None
    root = _root(wiring, mean)
    scaled = _scaled(wiring, root[0], square.inputs[0]) if root is not None else None
    return _weighted(wiring, mean, square.inputs[0], root[1], scaled) if root is not None and scaled else None


@dataclass(frozen=True)
class LayerNorm:
    """One layer norm of several operations."""

    node: Node  # the mean of the squares
    of: str
    weight: str
    bias: str
    epsilon: float
    result: str


def layer_norms(wiring: Wiring) -> Iterator[LayerNorm]:
    """(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias over the last axis, https://arxiv.org/abs/1607.06450."""
    for node in wiring.graph.nodes:
        if node.operator == "ReduceMean" and not node.domain and is_over_last(wiring, node):
            found = _layer_norm(wiring, node)
            if found:
                yield found


def is_over_last(wiring: Wiring, mean: Node) -> bool:
    """Whether a mean is taken over the last axis alone, which stays."""
    axes = mean.attributes.get("axes")
    said = axes[0] if isinstance(axes, list) and len(axes) == 1 else None
    last = wiring.number(mean.inputs[1]) if len(mean.inputs) > 1 else said
    return last == -1 and mean.attributes.get("keepdims", 1) == 1


def _layer_norm(wiring: Wiring, mean: Node) -> LayerNorm | None:
    square = wiring.producer(mean.inputs[0])
    centred = square.inputs[0] if square is not None and _is_square(wiring, square) else ""
    less = wiring.producers.get(centred)
    if less is None or less.operator != "Sub" or less.domain:
        return None
    first = wiring.producers.get(less.inputs[1])
    if first is None or first.operator != "ReduceMean" or first.inputs[0] != less.inputs[0]:
        return None
    root = _root(wiring, mean) if is_over_last(wiring, first) else None
    scaled = _scaled(wiring, root[0], centred) if root is not None else None
    times = wiring.only_user(scaled.outputs[0]) if scaled is not None else None
    plus = wiring.only_user(times.outputs[0]) if times is not None and times.operator == "Mul" else None
    if root is None or scaled is None or times is None or plus is None or plus.operator != "Add":
        return None
    weight, bias = _vector(wiring, times, scaled.outputs[0]), _vector(wiring, plus, times.outputs[0])
    return (
        LayerNorm(mean, less.inputs[0], weight, bias, root[1], plus.outputs[0]) if weight and bias else None
    )


def _vector(wiring: Wiring, node: Node, other: str) -> str:
    """The vector of floats that a node has beside a value; "" for anything else."""
    names = [name for name in node.inputs if name != other]
    ref = wiring.constant(names[0]) if len(names) == 1 else None
    is_vector = ref is not None and len(ref.shape) == 1 and ref.size > 1 and ref.dtype == "F32"
    return names[0] if is_vector else ""


def _root(wiring: Wiring, mean: Node) -> tuple[Node, float] | None:
    """The root of a mean with an epsilon added to it, and that."""
    added = wiring.only_user(mean.outputs[0])
    if added is None or added.operator != "Add":
        return None
    epsilon = next((found for one in added.inputs if (found := wiring.number(one)) is not None), None)
    root = wiring.only_user(added.outputs[0])
    return None if epsilon is None or root is None or root.operator != "Sqrt" else (root, epsilon)


def _is_square(wiring: Wiring, node: Node) -> bool:
    if node.operator == "Mul":
        return node.inputs[0] == node.inputs[1]
    return node.operator == "Pow" and wiring.number(node.inputs[1]) == 2


def _scaled(wiring: Wiring, root: Node, of: str) -> Node | None:
    """The product of x with 1 over the root, or their quotient."""
    node = wiring.only_user(root.outputs[0])
    if node is not None and node.operator == "Div" and node.inputs == [of, root.outputs[0]]:
        return node
    is_inverse = node is not None and (
        node.operator == "Reciprocal"
        or (
            node.operator == "Div"
            and wiring.number(node.inputs[0]) == 1
            and node.inputs[1] == root.outputs[0]
        )
    )
    product = wiring.only_user(node.outputs[0]) if node is not None and is_inverse else None
    is_product = product is not None and product.operator == "Mul" and of in product.inputs
    return product if is_product else None


def _weighted(wiring: Wiring, mean: Node, of: str, epsilon: float, scaled: Node) -> RmsNorm | None:
    """The norm with its weight: a constant vector, or 1 and a constant vector."""
    user = wiring.only_user(scaled.outputs[0])
    while user is not None and user.operator in ("Cast", "Identity"):
        user = wiring.only_user(user.outputs[0])
    if user is None or user.operator != "Mul":
        return None
    for name in user.inputs:
        if (ref := wiring.constant(name)) is not None and len(ref.shape) == 1:
            return RmsNorm(mean, of, name, epsilon, False, user.outputs[0])
        node = wiring.producer(name)
        if node is not None and node.operator == "Add" and node is not scaled:
            one = [other for other in node.inputs if wiring.number(other) == 1]
            held = [other for other in node.inputs if (ref := wiring.constant(other)) and len(ref.shape) == 1]
            if one and held and one[0] != held[0]:
                return RmsNorm(mean, of, held[0], epsilon, True, user.outputs[0])
    return None
