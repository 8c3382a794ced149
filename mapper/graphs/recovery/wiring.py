"""Which node makes a value, which read it, and in which module of the exported model a node stood."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cached_property

from mapper import limits
from mapper.graphs.graph import Graph, Node, TensorRef
from mapper.graphs.recovery.figures import DEEPEST, figure
from mapper.graphs.recovery.scalars import numbers

SCOPES = "pkg.torch.onnx.name_scopes"  # of torch's exporter by way of torch.export: module paths from the root to the call
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'")
LONGEST = 64  # nodes that are followed one after the other
SAME = ("Identity", "Cast", "Dropout")  # give what they get


class Wiring:
    """The nodes of a graph by what goes into them and comes out. Graphs inside of nodes are not looked into."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.producers = {name: node for node in graph.nodes for name in node.outputs if name}
        self.held = dict(
            graph.initialisers
        )  # and what an exporter made of equal ones: one, and Identity nodes
        for node in graph.nodes:
            if node.operator == "Identity" and not node.domain and node.inputs[0] in self.held:
                self.held[node.outputs[0]] = self.held[node.inputs[0]]
        self._numbers: dict[str, float | None] = {}
        self.users: dict[str, list[tuple[Node, int]]] = defaultdict(list)
        for node in graph.nodes:
            for position, name in enumerate(node.inputs):
                if name:  # "" is one that is left out
                    self.users[name].append((node, position))
        self.inner = {name for node in graph.nodes for held in node.graphs() for name in held.free()}
        self.outputs = {value.name for value in graph.outputs}

    @cached_property
    def modules(self) -> dict[str, list[Node]]:
        """The nodes of each module by its dotted path, without those of the modules in it."""
        found: dict[str, list[Node]] = defaultdict(list)
        for node in self.graph.nodes:
            path = module_of(node)
            if path is not None:
                found[path].append(node)
        return found

    @cached_property
    def parents(self) -> set[str]:
        """The paths of modules with modules in them."""
        return {path[:end] for path in self.modules for end, letter in enumerate(path) if letter == "."} | {
            ""
        }

    def producer(self, name: str) -> Node | None:
        """The node that a value comes from, seen through those that change nothing."""
        node = self.producers.get(name)
        for _ in range(len(SAME) * 4):
            if node is None or node.operator not in SAME or node.domain or not node.inputs:
                break
            node = self.producers.get(node.inputs[0])
        return node

    def only_user(self, name: str) -> Node | None:
        """The one node that reads a value, if nothing else does."""
        users = self.users.get(name, [])
        is_read_elsewhere = name in self.inner or name in self.outputs
        return users[0][0] if len(users) == 1 and not is_read_elsewhere else None

    def constant(self, name: str) -> TensorRef | None:
        """The tensor that a value always is: an initialiser, or what a Constant holds."""
        for _ in range(len(SAME) * 4):
            if name in self.held:
                return self.held[name]
            node = self.producers.get(name)
            if node is None or node.domain:
                return None
            if node.operator == "Constant":
                value = node.attributes.get("value")
                return value if isinstance(value, TensorRef) else None
            if node.operator != "Identity":
                return None
            name = node.inputs[0]
        return None

    def number(self, name: str) -> float | None:
        """The one number that a value always is; None for any other value."""
        return self._number(name, 0)

    def _number(self, name: str, depth: int) -> float | None:
        if name not in self._numbers and depth < DEEPEST:
            ref, node = self.constant(name), self.producers.get(name)
            found = numbers(ref) if ref is not None and ref.size == 1 else None
            made = figure(node, lambda one: self._number(one, depth + 1)) if ref is None and node else None
            self._numbers[name] = float(found[0]) if found else made
        return self._numbers.get(name)

    def scaled_by(self, name: str) -> tuple[str, float]:
        """What a value is a constant multiple of, and the factor."""
        factor = 1.0
        for _ in range(LONGEST):
            node = self.producer(name)
            if node is None or node.domain or node.operator not in ("Mul", "Div"):
                return name, factor
            left, right = (self.number(one) for one in node.inputs)
            if right:
                name, factor = node.inputs[0], factor * right if node.operator == "Mul" else factor / right
            elif left and node.operator == "Mul":
                name, factor = node.inputs[1], factor * left
            else:
                break
        return name, factor


def module_of(node: Node) -> str | None:
    """The dotted path of the module that a node comes from, "" for the outermost; None where the exporter does not say.

    torch.export's scopes are a list of paths, the last of which is the call; the tracing exporter names nodes /a/b.0/MatMul.
    """
    written = node.metadata.get(SCOPES)
    if written is not None:
        scopes = _QUOTED.findall(written)
        return _bounded(scopes[-2]) if len(scopes) > 1 and scopes[0] == "" else None
    if not node.name.startswith("/"):
        return None
    parts = node.name.split("/")[1:-1]
    return _bounded(".".join(parts)) if all(parts) else None


def _bounded(path: str) -> str | None:
    """A path that is no longer than a name may be."""
    is_short = len(path) < limits.NAME_CHARACTERS and path.count(".") < limits.NAME_DEPTH
    return path if is_short else None
