"""What no ONNX model may be: values read before they are made, functions that call themselves, versions nobody knows yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mapper import limits
from mapper.errors import FormatError, shorten
from mapper.graphs.graph import Function, Graph, Key, Model, Node
from mapper.graphs.operators import registry

# Places of inputs that these must have, named or left out; the registry knows those of the others.
CONTROL = {"If": 1, "Loop": 2, "Scan": 1, "SequenceMap": 1}


def check_model(model: Model) -> None:
    """Raises FormatError where a model cannot be run by any reader, in time and memory that grow with the file alone."""
    name = model.source
    _check_versions(model)
    nodes = [
        *_every(model.graph.nodes),
        *(node for one in model.functions.values() for node in _every(one.nodes)),
    ]
    if len(nodes) > limits.GRAPH_NODES:
        raise FormatError(f"{name}: more than {limits.GRAPH_NODES:,} nodes, which is the most that is read")
    _check_graph(model.graph, set(), name)
    for function in model.functions.values():
        _check_order(function.nodes, set(function.inputs), name)
        _check_made(
            function.outputs,
            {out for node in function.nodes for out in node.outputs} | set(function.inputs),
            name,
        )
    for node in nodes:
        _check_ends(node, model)
    _check_calls(model)


def _check_versions(model: Model) -> None:
    name = model.source
    for versions in (model.opsets, *(function.opsets for function in model.functions.values())):
        version = versions.get("", 1)
        if not 1 <= version <= limits.OPSET:
            raise FormatError(
                f"{name}: uses version {version} of ONNX's operators; those up to {limits.OPSET} are known: "
                "export it with an older opset"
            )


def _every(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for graph in node.graphs():
            yield from _every(graph.nodes)


def _check_ends(node: Node, model: Model) -> None:
    """Raises FormatError for a node of ONNX's own that has fewer inputs than its operator takes, or no output."""
    if node.domain or model.function(node) is not None:
        return
    least = _least_inputs(node, model)
    is_named = node.operator not in CONTROL  # these may leave out any of theirs
    given = len([value for value in node.inputs[:least] if value or not is_named])
    if given < least:
        raise FormatError(f"{model.source}: {_called(node)} has {given} inputs, of at least {least}")
    if least and not node.outputs:
        raise FormatError(f"{model.source}: {_called(node)} has no output")


def _least_inputs(node: Node, model: Model) -> int:
    """How many inputs a node must have; 0 where its operator is not known."""
    if node.operator in CONTROL:
        return CONTROL[node.operator]
    version = node.version if node.version is not None else model.opsets.get("", 1)
    found = registry.find(node.operator, "", version)
    candidates = [found] if found else registry.known(node.operator, "")
    return min((one.least for one in candidates), default=0)


def _check_graph(graph: Graph, around: set[str], name: str) -> None:
    given = [value.name for value in graph.inputs]
    if len(set(given)) < len(given):
        raise FormatError(f"{name}: two inputs have the same name")
    known = around | set(graph.initialisers) | set(given)
    for node in graph.nodes:
        for value in node.outputs:
            if value in graph.initialisers or value in given:
                raise FormatError(f"{name}: {_called(node)} makes {shorten(value)}, which is given already")
    made = _check_order(graph.nodes, known, name)
    _check_made([value.name for value in graph.outputs], made, name)


def _check_order(nodes: list[Node], known: set[str], name: str) -> set[str]:
    """The names after these nodes. Raises FormatError where one is read that is not made yet, or made twice."""
    known = set(known)
    later = {out for node in nodes for out in node.outputs}
    own: set[str] = set()
    for node in nodes:
        for value in node.inputs:
            if value and value not in known:
                raise FormatError(f"{name}: {_called(node)} reads {shorten(value)}, {_why(value, later)}")
        for graph in node.graphs():
            _check_graph(graph, known, name)
        for value in filter(None, node.outputs):
            if value in own:
                raise FormatError(f"{name}: two nodes make {shorten(value)}")
            own.add(value)
            known.add(value)
    return known


def _why(value: str, later: set[str]) -> str:
    if value in later:
        return "which only a later node makes: the graph has a cycle, or is out of order"
    return "which nothing makes"


def _check_made(outputs: Iterable[str], made: set[str], name: str) -> None:
    for value in outputs:
        if value and value not in made:
            raise FormatError(f"{name}: its output {shorten(value)} is made by nothing")


def _called(node: Node) -> str:
    return f"{node} {shorten(node.name)}" if node.name else str(node)


def _check_calls(model: Model) -> None:
    """Raises FormatError where functions call themselves, too deep, or more often than can be followed."""
    counts: dict[Key, int] = {}
    total = sum(_weight(node, model, counts, ()) for node in _every(model.graph.nodes))
    for key in model.functions:
        _count(model.functions[key], key, model, counts, ())
    if total > limits.CALLED_NODES:
        raise FormatError(
            f"{model.source}: {total:,} nodes with its functions as often as they are called; "
            f"at most {limits.CALLED_NODES:,} are read"
        )


def _weight(node: Node, model: Model, counts: dict[Key, int], callers: tuple[Key, ...]) -> int:
    function = model.function(node)
    if function is None:
        return 1
    return _count(function, (node.domain, node.operator, node.overload), model, counts, callers)


def _count(
    function: Function, key: Key, model: Model, counts: dict[Key, int], callers: tuple[Key, ...]
) -> int:
    if key in callers:
        raise FormatError(f"{model.source}: function {shorten(key[1])} calls itself")
    if len(callers) >= limits.GRAPH_DEPTH:
        raise FormatError(
            f"{model.source}: functions call functions more than {limits.GRAPH_DEPTH} deep, which is the most that is read"
        )
    if key not in counts:
        counts[key] = sum(_weight(node, model, counts, (*callers, key)) for node in _every(function.nodes))
    return counts[key]
