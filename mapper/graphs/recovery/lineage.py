"""From which layer a value comes, by way of views, norms and rotary embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mapper.graphs.graph import Node
from mapper.graphs.recovery.origins import origin
from mapper.graphs.recovery.wiring import LONGEST, SAME, Wiring

MOST = 200  # nodes between a layer and what is made of its result
WEIGHT = ".weight"
SHAPES = ("Transpose", "Reshape", "Slice", "Split", "Expand", "Unsqueeze", "Squeeze", "Concat", "Flatten")
NUMBERS = (
    "Mul",
    "Div",
    "Add",
    "Sub",
    "Neg",
    "Pow",
    "ReduceMean",
    "Sqrt",
    "Reciprocal",
    "LayerNormalization",
    "RMSNormalization",
)
PASSED = {*SHAPES, *NUMBERS, *SAME}
FIRST = {
    *SHAPES,
    "Pow",
    "ReduceMean",
    "Sqrt",
    "Reciprocal",
    "Neg",
    "LayerNormalization",
    "RMSNormalization",
    *SAME,
}  # what else goes in is shape or weight


@dataclass
class Behind:
    """A layer and what its result went through, nearest to the layer last."""

    leaf: str
    node: Node  # the product
    width: int  # what it gives
    passed: list[Node] = field(default_factory=list)
    is_rotated: bool | None = None  # by halves; None where something else turns it
    is_partial: bool = False  # whether only the first channels of each head are rotated


class Lineage:
    """The layers of a graph by what they give."""

    def __init__(self, wiring: Wiring, names: Mapping[str, str]):
        self.wiring, self.names = wiring, names

    def leaf(self, name: str) -> str:
        """The path of the layer that a weight is of; "" for none."""
        held = origin(self.wiring, name)
        called = self.names.get(held.key, "") if held else ""
        return called.removesuffix(WEIGHT) if called.endswith(WEIGHT) else ""

    def linear(self, node: Node) -> str:
        """The path of the linear layer whose product a node is; "" for any other node."""
        if node.domain or node.operator not in ("MatMul", "Gemm") or len(node.inputs) < 2:
            return ""
        held = origin(self.wiring, node.inputs[1])
        return self.leaf(node.inputs[1]) if held and len(held.shape) == 2 else ""

    def width(self, node: Node) -> int:
        """How many numbers a linear layer gives."""
        held = origin(self.wiring, node.inputs[1])
        assert held is not None
        return held.shape[0 if node.attributes.get("transB", 0) else 1]

    def result(self, node: Node) -> str:
        """What a linear layer gives: its product, with the bias, and in the shape that it came in."""
        name = node.outputs[0]
        for _ in range(LONGEST):
            user = self.wiring.only_user(name)
            if user is None or user.domain:
                return name
            is_bias = user.operator == "Add" and any(
                self.wiring.constant(one) is not None for one in user.inputs
            )
            if not (
                is_bias or user.operator in SAME or (user.operator == "Reshape" and node.operator == "Gemm")
            ):
                break
            name = user.outputs[0]
        return name

    def behind(self, name: str) -> Behind | None:
        """The one linear layer that a value is made of, beside constants and positions; None where there are several."""
        found: dict[str, Node] = {}
        passed: list[Node] = []
        seen, waiting = {name}, [name]
        while waiting:
            node = self.wiring.producers.get(waiting.pop(0))
            if node is None:
                continue
            leaf = self.linear(node)
            if leaf:
                found[leaf] = node
                continue
            if node.domain or node.operator not in PASSED:
                continue
            passed.append(node)
            if len(passed) > MOST:
                return None
            inputs = node.inputs[:1] if node.operator in FIRST and node.operator != "Concat" else node.inputs
            waiting += [one for one in inputs if one and one not in seen]
            seen.update(inputs)
        if len(found) != 1:
            return None
        leaf, node = next(iter(found.items()))
        joins = [node for node in passed if node.operator == "Concat"]
        outer = [node for node in joins if self._joins_rest(node)]
        inner = [node for node in joins if node not in outer]
        is_partial = (len(outer), len(inner)) == (1, 1)
        is_rotated = self._is_rotated(passed, inner if is_partial else joins)
        return Behind(leaf, node, self.width(node), passed, is_rotated, is_partial and bool(is_rotated))

    def _joins_rest(self, join: Node) -> bool:
        """Whether a node joins a sum for the first channels of something and its other channels as they are."""
        if len(join.inputs) != 2 or join.attributes.get("axis") not in (-1, 3):
            return False
        made, rest = (self.wiring.producer(name) for name in join.inputs)
        first = self._rotated_part(made)
        if (
            first is None
            or rest is None
            or first.operator != rest.operator
            or first.inputs[0] != rest.inputs[0]
        ):
            return False
        if rest.operator == "Split":
            return first is rest and rest.outputs[1:] == [join.inputs[1]]
        return rest.operator == "Slice" and self._begins(first) and not self._begins(rest)

    def _rotated_part(self, made: Node | None) -> Node | None:
        """The Slice or Split whose result x a sum of x * cos and something else is of."""
        terms = (
            [self.wiring.producer(name) for name in made.inputs]
            if made is not None and made.operator == "Add"
            else []
        )
        parts = [
            part
            for term in terms
            if term is not None and term.operator == "Mul"
            for name in term.inputs
            if (part := self.wiring.producer(name)) is not None and part.operator in ("Slice", "Split")
        ]
        return parts[0] if len(parts) == 1 else None

    def _is_rotated(self, passed: list[Node], joins: list[Node]) -> bool | None:
        """Whether a value is x * cos + rotate(x) * sin, with its halves rotated; None where parts are joined otherwise."""
        if not joins:
            return None if any(node.operator == "Neg" for node in passed) else False
        return True if len(joins) == 1 and self._rotates_halves(joins[0]) else None

    def _rotates_halves(self, join: Node) -> bool:
        """Whether a node joins the negated second half of something to its first half."""
        if len(join.inputs) != 2 or join.attributes.get("axis") not in (-1, 3):
            return False
        first, second = (self.wiring.producer(name) for name in join.inputs)
        if first is None or first.operator != "Neg" or second is None:
            return False
        negated = self.wiring.producer(first.inputs[0])
        if negated is None or negated.operator != second.operator or negated.inputs[:1] != second.inputs[:1]:
            return False
        if second.operator == "Split":
            halves = [join.inputs[1], first.inputs[0]]
            return negated is second and second.outputs == halves
        return second.operator == "Slice" and self._begins(second) and not self._begins(negated)

    def _begins(self, cut: Node) -> bool:
        """Whether a Slice takes what stands first, and leaves none out in between."""
        starts = self.wiring.number(cut.inputs[1]) if len(cut.inputs) > 2 else None
        return starts == 0 and (len(cut.inputs) < 5 or self.wiring.number(cut.inputs[4]) == 1)
