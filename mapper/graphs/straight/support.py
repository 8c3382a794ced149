"""Whether every operation of a graph can be written, without torch: what cannot is named with its version."""

from __future__ import annotations

from collections.abc import Iterator

from mapper.errors import ArchitectureError
from mapper.graphs.graph import Graph, Model, Node
from mapper.graphs.operators import registry
from mapper.graphs.recovery.fusing import fused
from mapper.graphs.recovery.unusual import draws
from mapper.graphs.recovery.wiring import Wiring
from mapper.graphs.straight.deciding import decided
from mapper.graphs.straight.inlining import inlined

CONTROL = {
    ("", "If"): 1,
    ("", "Loop"): 1,
    ("", "Scan"): 9,
    ("", "SequenceMap"): 17,
    ("", "Constant"): 1,
}  # written as Python, since a version


def check_support(model: Model) -> Graph:
    """The graph with functions where they are called. Raises ArchitectureError for an operator that cannot be written."""
    graph = inlined(model)
    missing = dict.fromkeys(_unsupported(graph, model.opsets))
    if missing:
        listed = ", ".join(list(missing)[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise ArchitectureError(f"{model.source}: its graph uses what is not supported: {listed}")
    return graph


def prepared(model: Model) -> Graph:
    """The graph that is written: functions where they are called, a branch that is always taken, layers for their operations.

    Raises ArchitectureError for an operator that cannot be written.
    """
    graph = decided(check_support(model))
    wiring = Wiring(graph)
    if any(draws(wiring, node) for node in graph.nodes):
        raise ArchitectureError(
            f"{model.source}: a Dropout of its graph is in training mode: it draws at random"
        )
    return fused(graph)


def has_choices(model: Model) -> bool:
    """Whether inputs decide which operations are run."""
    return any(node.operator == "If" and not node.domain for node in _every(decided(inlined(model)).nodes))


def _every(nodes: list[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for inner in node.graphs():
            yield from _every(inner.nodes)


def version_of(node: Node, opsets: dict[str, int]) -> int:
    """The version of its domain that a node is written in."""
    return node.version if node.version is not None else opsets.get(node.domain, 1)


def _unsupported(graph: Graph, opsets: dict[str, int]) -> Iterator[str]:
    for node in graph.nodes:
        if not is_supported(node, version_of(node, opsets)):
            yield f"{node} (version {version_of(node, opsets)})"
        for inner in node.graphs():
            yield from _unsupported(inner, opsets)


def is_supported(node: Node, version: int) -> bool:
    since = CONTROL.get((node.domain, node.operator))
    if since is not None:
        return version >= since
    return registry.find(node.operator, node.domain, version) is not None


def functions_of(graph: Graph, opsets: dict[str, int]) -> dict[str, str]:
    """The functions of a graph's operators, each with its file."""
    found: dict[str, str] = {}
    for node in graph.nodes:
        entry = registry.find(node.operator, node.domain, version_of(node, opsets))
        if entry is not None:
            found[entry.function] = entry.file
        for inner in node.graphs():
            found |= functions_of(inner, opsets)
    return found
