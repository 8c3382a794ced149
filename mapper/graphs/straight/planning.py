"""What of a graph becomes which module, before a line is written. No torch; of tensors, those that may be one are compared."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mapper.graphs.graph import Graph, Model, Node
from mapper.graphs.straight.layers import Layer, with_layers
from mapper.graphs.straight.support import prepared, version_of
from mapper.graphs.straight.ties import Pairs, tied_layers
from mapper.graphs.straight.weights import DEPTH, Weights, safe
from mapper.graphs.straight.writer import add_weights
from mapper.sources.onnx_graph import is_counted

# What a weight is to its layer, at the end of its name: the layer's own name is before it.
ROLES = re.compile(
    r"(?:^|_)(?:weights?|bias|kernel|scale|offset|gamma|beta|[wbWRB]|w_0|b_0|weight_[ih]h(?:_l0)?|bias_[ih]h(?:_l0)?)$"
)
QUANTISED = (
    "_DequantizeLinear_Output"  # behind a weight's name: what onnxruntime's quantiser calls its numbers
)
CALL = re.compile(r"(?:[A-Z][a-z0-9]*){2,}$")  # an operation of TensorFlow in a path, such as BiasAdd


@dataclass
class Plan:
    """A graph as it is written, and its modules."""

    graph: Graph
    layers: dict[int, Layer]
    weights: Weights
    ties: Pairs = field(default_factory=list)  # layers whose weight is a table's, and those tables


def plan_of(model: Model) -> Plan:
    """Raises ArchitectureError for an operator that cannot be written, by name and version."""

    def version(node: Node) -> int:
        return version_of(node, model.opsets)

    found = with_layers(prepared(model), version)
    weights = Weights()
    counts: dict[str, int] = {}
    for layer in _in_order(found.graph, found.layers):
        words = words_of_layer(layer.names)
        if not words:
            counts[layer.word] = counts.get(layer.word, 0) + 1
            words = [f"{layer.word}{counts[layer.word]}"]
        layer.path = weights.layer(words, layer.made, layer.tensors)
    add_weights(weights, found.graph)
    return Plan(found.graph, found.layers, weights, tied_layers(found.layers.values()))


def _in_order(graph: Graph, layers: dict[int, Layer]) -> list[Layer]:
    found = []
    for node in graph.nodes:
        if id(node) in layers:
            found.append(layers[id(node)])
        for inner in node.graphs():
            found += _in_order(inner, layers)
    return found


def words_of_layer(names: list[str]) -> list[str]:
    """The dotted name of a layer, by those of its weights: without what each weight is to it. An empty list: none tells."""
    for name in names:
        whole = name.partition(";")[0].removesuffix(QUANTISED)
        if not whole or is_counted(whole):
            continue
        words = [word for word in whole.replace("/", ".").replace(":", "_").split(".") if word]
        if not words:  # the name is of dots alone
            continue
        is_path = "/" in whole
        if is_path and len(words) > 1:
            words.pop()
        while is_path and len(words) > 1 and CALL.fullmatch(words[-1]):
            words.pop()
        if not is_path and (shorter := ROLES.sub("", words[-1])) != words[-1]:
            words = [*words[:-1], *([shorter] if shorter else [])]
        elif words and words[-1].isdigit():  # counted up
            continue
        if words:
            return [safe(word) for word in words[-DEPTH:]]
    return []
