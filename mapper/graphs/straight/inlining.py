"""Functions of a model put where they are called, so that what is left are operators."""

from __future__ import annotations

from dataclasses import replace

from mapper.errors import FormatError
from mapper.graphs.graph import Argument, Attribute, Function, Graph, Model, Node


def inlined(model: Model) -> Graph:
    """The graph without calls of the model's functions; their nodes know the versions that they are written in.

    `check_model` has made sure that no function calls itself, and that what comes out is bounded.
    """
    return _Inlining(model).graph(model.graph)


class _Inlining:
    def __init__(self, model: Model):
        self.model, self.calls = model, 0

    def graph(self, graph: Graph) -> Graph:
        return replace(graph, nodes=[made for node in graph.nodes for made in self.node(node)])

    def node(self, node: Node) -> list[Node]:
        function = self.model.function(node)
        if function is not None:
            return self.call(node, function)
        if not any(True for _ in node.graphs()):
            return [node]
        return [
            replace(node, attributes={name: self.within(value) for name, value in node.attributes.items()})
        ]

    def within(self, value: Attribute) -> Attribute:
        return self.graph(value) if isinstance(value, Graph) else value

    def call(self, node: Node, function: Function) -> list[Node]:
        """The nodes of a function with its caller's values and attributes."""
        self.calls += 1
        for name in function.required:
            if name not in node.attributes:
                raise FormatError(f"{self.model.source}: {node} lacks the attribute {name!r} of its function")
        given = {**function.defaults, **node.attributes}
        names = dict(zip(function.inputs, [*node.inputs, *[""] * len(function.inputs)], strict=False))
        names |= dict(zip(function.outputs, node.outputs, strict=False))
        prefix = f"{node.name or function.name}#{self.calls}/"
        copy = _Copy(names, prefix, given, function.opsets)
        made = [copy.node(inner) for inner in function.nodes]
        straight = {  # an output that is an input as it is
            names[name]: value
            for name, value in zip(function.inputs, node.inputs, strict=False)
            if name in function.outputs
        }
        made += [Node("Identity", "", "", [value], [output]) for output, value in straight.items() if output]
        return [found for inner in made for found in self.node(inner)]


class _Copy:
    """Nodes under other names."""

    def __init__(
        self, names: dict[str, str], prefix: str, given: dict[str, Attribute], opsets: dict[str, int]
    ):
        self.names, self.prefix, self.given, self.opsets = names, prefix, given, opsets

    def name(self, value: str) -> str:
        return self.names.setdefault(value, self.prefix + value) if value else ""

    def node(self, node: Node) -> Node:
        attributes = {name: self.attribute(value) for name, value in node.attributes.items()}
        return replace(
            node,
            name=self.prefix + node.name,
            inputs=[self.name(value) for value in node.inputs],
            outputs=[self.name(value) for value in node.outputs],
            attributes={name: value for name, value in attributes.items() if not isinstance(value, Argument)},
            version=self.opsets.get(node.domain),
        )

    def attribute(self, value: Attribute) -> Attribute:
        if isinstance(value, Argument):
            return self.given.get(value.name, value)
        return self.graph(value) if isinstance(value, Graph) else value

    def graph(self, graph: Graph) -> Graph:
        """A graph in an attribute: what it names itself gets the prefix too, so that no call meets another."""
        inner = _Copy(dict(self.names), self.prefix, self.given, self.opsets)
        for own in [*graph.initialisers, *(value.name for value in graph.inputs)]:
            inner.names[own] = f"{self.prefix}{own}"
        return replace(
            graph,
            nodes=[inner.node(node) for node in graph.nodes],
            initialisers={inner.name(name): ref for name, ref in graph.initialisers.items()},
            inputs=[replace(value, name=inner.name(value.name)) for value in graph.inputs],
            outputs=[replace(value, name=inner.name(value.name)) for value in graph.outputs],
            values={},
        )
