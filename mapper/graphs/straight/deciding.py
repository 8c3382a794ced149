"""Branches whose condition the file itself decides, taken without a question: what the other one holds is no part of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from mapper.graphs.graph import Graph, Node, TensorRef
from mapper.graphs.recovery.scalars import whole_numbers

Numbers = list["int | None"]  # None: a size that callers choose
SAME = ("Cast", "Identity", "Squeeze", "Unsqueeze")  # the numbers stay
MOST = 64  # numbers of one value


def decided(graph: Graph) -> Graph:
    """The graph with the nodes of a branch in the place of an If whose condition follows from constants and declared sizes."""
    shapes: dict[str, Numbers] = {
        value.name: [size if isinstance(size, int) and size > 0 else None for size in value.shape or ()]
        for value in graph.given()
        if value.kind == "tensor" and value.shape is not None
    }
    return _Deciding(Counter(_made(graph)), shapes).graph(graph, {})


class _Deciding:
    """One pass over a graph and those inside; `made` counts what their values are called, `shapes` are those of the inputs."""

    def __init__(self, made: Counter[str], shapes: dict[str, Numbers]):
        self.made, self.shapes = made, shapes

    def graph(self, graph: Graph, around: dict[str, Numbers]) -> Graph:
        known = {name: numbers for name, numbers in around.items() if name not in graph.values}
        for name, ref in graph.initialisers.items():
            _enter(known, name, ref)
        found, held = list[Node](), dict(graph.initialisers)
        for node in graph.nodes:
            branch = self._branch(node, known)
            if branch is None:
                numbers = self._numbers(node, known) if node.outputs and not node.domain else None
                known |= {node.outputs[0]: numbers} if numbers is not None else {}
                found.append(self._within(node, known))
                continue
            inner = self.graph(branch, known)
            held |= inner.initialisers
            pairs = zip(inner.outputs, node.outputs, strict=True)
            ends = [Node("Identity", "", "", [one.name], [name]) for one, name in pairs if name]
            found += [*inner.nodes, *ends]
        return replace(graph, nodes=found, initialisers=held)

    def _within(self, node: Node, known: dict[str, Numbers]) -> Node:
        if not any(True for _ in node.graphs()):
            return node
        attributes = {
            name: self.graph(value, known) if isinstance(value, Graph) else value
            for name, value in node.attributes.items()
        }
        return replace(node, attributes=attributes)

    def _numbers(self, node: Node, known: dict[str, Numbers]) -> Numbers | None:
        """What a node gives, where that is few whole numbers or truth values; None for any other node."""
        value, given = node.attributes.get("value"), [known.get(name) for name in node.inputs]
        if node.operator == "Constant" and isinstance(value, TensorRef):
            return _few(value)
        if node.operator == "Shape" and not node.attributes:
            return self.shapes.get(node.inputs[0])
        first = given[0] if given else None
        if first is None:
            return None
        if node.operator in SAME:
            return first
        single = [one[0] for one in given if one is not None and len(one) == 1]
        if node.operator == "Not" and single and single[0] is not None:
            return [int(not single[0])]
        if node.operator == "Equal" and len(single) == 2 and None not in single:
            return [int(single[0] == single[1])]
        if node.operator == "Gather" and given[1] is not None and not node.attributes.get("axis"):
            places = [at for at in given[1] if at is not None and -len(first) <= at < len(first)]
            return [first[at] for at in places] if len(places) == len(given[1]) else None
        return None

    def _branch(self, node: Node, known: dict[str, Numbers]) -> Graph | None:
        """The branch that an If always takes; None where it depends on inputs, or has names that others have too."""
        numbers = known.get(node.inputs[0], []) if node.operator == "If" and not node.domain else []
        if len(numbers) != 1 or numbers[0] is None:
            return None
        branch = node.attributes.get("then_branch" if numbers[0] else "else_branch")
        if not isinstance(branch, Graph) or len(branch.outputs) != len(node.outputs):
            return None
        return branch if all(self.made[name] == 1 for name in _made(branch)) else None


def _enter(known: dict[str, Numbers], name: str, ref: TensorRef) -> None:
    found = _few(ref)
    if found is not None:
        known[name] = found


def _few(ref: TensorRef) -> Numbers | None:
    is_few = ref.dtype in ("BOOL", "I64", "I32") and ref.size <= MOST and len(ref.shape) < 2
    found = whole_numbers(ref, MOST) if is_few else None
    return None if found is None else [*found]


def _made(graph: Graph) -> Iterator[str]:
    """The names that a graph and those inside give to values."""
    yield from graph.initialisers
    yield from (value.name for value in graph.inputs if value.name not in graph.initialisers)
    for node in graph.nodes:
        yield from filter(None, node.outputs)
        for inner in node.graphs():
            yield from _made(inner)
