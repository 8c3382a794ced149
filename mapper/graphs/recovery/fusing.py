"""A graph with layers in the place of the operations that exporters write for them, and weights under their own names.

What is put together computes the same; what may differ for some input stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mapper.graphs.graph import Attribute, Graph, Node, TensorRef
from mapper.graphs.recovery.activations import activation_after
from mapper.graphs.recovery.attention import Attention, attentions
from mapper.graphs.recovery.norms import is_over_last, layer_norms, rms_norms
from mapper.graphs.recovery.origins import Origin, origin, same_numbers
from mapper.graphs.recovery.parameters import Table, parameters
from mapper.graphs.recovery.wiring import Wiring

if TYPE_CHECKING:
    import torch

DOMAIN = "mapper"
STARTS = (
    "Sigmoid",
    "Pow",
    "Erf",
    "Div",
    "Mul",
)  # what reads the input of an activation of several operations
WORDS: dict[str, tuple[str, dict[str, Attribute]]] = {
    "silu": ("Silu", {}),
    "gelu": ("Gelu", {}),
    "gelu_new": ("Gelu", {"approximate": b"tanh"}),
}


@dataclass(frozen=True)
class Arranged(TensorRef):
    """A weight as its layer holds it, where the file has it otherwise."""

    held: Origin | None = field(default=None, compare=False)
    tensors: dict[str, TensorRef] = field(default_factory=dict, compare=False)

    def read(self) -> torch.Tensor:
        """The tensor, in the order of its own rows."""
        assert self.held is not None
        return self.held.read(lambda key: self.tensors[key].read())


def fused(graph: Graph) -> Graph:
    """The graph with layers and fused calls. One with graphs inside of its nodes stays as it is."""
    if any(True for node in graph.nodes for _ in node.graphs()):
        return graph
    wiring = Wiring(graph)
    table = parameters(wiring)
    last: dict[int, Node] = {}  # what stands in the place of a node, by its identity
    for old, new in (
        *_attentions(wiring),
        *_norms(wiring),
        *_layer_norms(wiring),
        *_activations(wiring),
        *_linears(wiring, table),
    ):
        last.setdefault(id(old), new)
    nodes = [last.get(id(node), node) for node in graph.nodes]
    return _named(replace(graph, nodes=_needed(nodes, wiring.outputs)), wiring, table)


def _made(
    operator: str, old: Node, inputs: list[str], attributes: dict[str, Attribute] | None = None
) -> Node:
    """A fused node in the place of the last of those that it stands for."""
    return Node(
        operator, DOMAIN, old.name, inputs, old.outputs[:1], attributes or {}, old.metadata, version=1
    )


def _attentions(wiring: Wiring) -> Iterator[tuple[Node, Node]]:
    """Rows that a mask leaves empty give zeros in the fused call: the graph must do the same, or have no mask."""
    for call in attentions(wiring):
        if (call.zeroed or not call.mask) and not _is_cast(wiring, call):
            inputs = [call.query, call.key, call.value, *([call.mask] if call.mask else [])]
            yield call.product, _made("Attention", call.product, inputs, {"scale": call.scale})


def _is_cast(wiring: Wiring, call: Attention) -> bool:
    """Whether numbers change their type between what goes into a call of attention and its result."""
    seen = {call.query, call.key, call.mask}
    waiting = [call.product.inputs[0]]
    while waiting:
        name = waiting.pop()
        is_followed = (
            name not in seen and wiring.number(name) is None
        )  # a factor's own arithmetic is none of it
        node = wiring.producers.get(name) if is_followed else None
        seen.add(name)
        if node is not None and node.operator == "Cast":
            return True
        waiting += node.inputs if node is not None else []
    return False


def _norms(wiring: Wiring) -> Iterator[tuple[Node, Node]]:
    for norm in rms_norms(wiring):
        ref = wiring.constant(norm.weight)
        if ref is not None and ref.dtype == "F32" and not norm.offset and is_over_last(wiring, norm.node):
            old = wiring.producers[norm.result]
            yield old, _made("RmsNorm", old, [norm.of, norm.weight], {"eps": norm.epsilon})


def _layer_norms(wiring: Wiring) -> Iterator[tuple[Node, Node]]:
    for norm in layer_norms(wiring):
        old = wiring.producers[norm.result]
        yield old, _made("LayerNorm", old, [norm.of, norm.weight, norm.bias], {"eps": norm.epsilon})


def _activations(wiring: Wiring) -> Iterator[tuple[Node, Node]]:
    names = dict.fromkeys(
        node.inputs[at]
        for node in wiring.graph.nodes
        if node.operator in STARTS and not node.domain
        for at in range(len(node.inputs))
    )
    for name in names:
        found = activation_after(wiring, name) if len(wiring.users.get(name, [])) > 1 else None
        if found and found[0] in WORDS:
            operator, attributes = WORDS[found[0]]
            yield found[1], _made(operator, found[1], [name], dict(attributes))


def _linears(wiring: Wiring, table: Table) -> Iterator[tuple[Node, Node]]:
    """Products with the weight of a layer, with the bias that alone is added to them."""
    for node in wiring.graph.nodes:
        held = origin(wiring, node.inputs[1]) if node.operator == "MatMul" and not node.domain else None
        parameter = table.parameters.get(table.called(held.key, node.operator)) if held else None
        if held is None or parameter is None or len(held.shape) != 2:
            continue
        if parameter.name in wiring.producers or not _is_held(parameter.origin, held.transposed((1, 0))):
            continue
        added = wiring.only_user(node.outputs[0])
        bias = _bias(wiring, added, node.outputs[0], held.shape[1]) if added is not None else ""
        old = added if added is not None and bias else node
        yield old, _made("Linear", old, [node.inputs[0], parameter.name, *([bias] if bias else [])])


def _is_held(parameter: Origin, wanted: Origin) -> bool:
    """Whether a layer's weight is what a product needs: another use may have it the other way round."""
    return parameter == wanted or (parameter.key != wanted.key and same_numbers(parameter, wanted))


def _bias(wiring: Wiring, added: Node, product: str, width: int) -> str:
    if added.operator != "Add" or added.domain:
        return ""
    other = next((name for name in added.inputs if name != product), "")
    ref = wiring.constant(other) if other else None
    return other if ref is not None and ref.shape == (width,) else ""


def _needed(nodes: list[Node], outputs: set[str]) -> list[Node]:
    """The nodes from which the outputs are made."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs):
            wanted.update(node.inputs)
            kept.append(node)
    return kept[::-1]


def _named(graph: Graph, wiring: Wiring, table: Table) -> Graph:
    """The graph with its weights under the names that the model has for them."""
    linear = {id(node) for node in graph.nodes if node.operator == "Linear" and node.domain == DOMAIN}
    wanted = {node.inputs[1] for node in graph.nodes if id(node) in linear}
    plain = {name: one.origin for name, one in table.parameters.items() if one.origin.is_plain}
    arranged = {name: table.parameters[name].origin for name in wanted if name not in plain}
    given = ({value.name for value in graph.inputs} | set(wiring.producers)) - set(wiring.held)
    renamed = {
        held.key: name
        for name, held in plain.items()
        if name not in (held.key, *given) and held.key not in wiring.outputs and name == table.names[held.key]
    }
    nodes = [
        replace(node, inputs=[
            name if id(node) in linear and at == 1 else _of_operator(table, name, node) or renamed.get(name, name)
            for at, name in enumerate(node.inputs)
        ])
        for node in graph.nodes
    ]  # fmt: skip
    used = {name for node in nodes for name in node.inputs} | wiring.outputs
    found: dict[str, TensorRef] = {}
    for key, ref in wiring.held.items():
        if key in graph.initialisers and key not in renamed and key in used:
            found[key] = ref
    for name, held in plain.items():
        if name in used:
            found[name] = replace(held.ref, name=name)
    for name, held in arranged.items():
        if name in used:
            found[name] = _arranged(name, held, wiring)
    return replace(
        graph,
        nodes=_needed([node for node in nodes if not set(node.outputs) & set(found)], wiring.outputs),
        initialisers=found,
    )


def _of_operator(table: Table, key: str, node: Node) -> str:
    """The name of a tensor with two of them, where a node takes it as it is; "" for any other."""
    name = table.shared.get(key, {}).get(node.operator, "") if not node.domain else ""
    return name if name and table.parameters[name].origin.is_plain else ""


def _arranged(name: str, held: Origin, wiring: Wiring) -> Arranged:
    keys = [held.key, *(held.scaled[:2] if held.scaled else ())]
    tensors = {key: ref for key in keys if key and (ref := wiring.constant(key))}
    ref = held.ref
    return Arranged(
        name, held.dtype, held.shape, ref.path, ref.start, ref.end, ref.packing, ref.stamp, held, tensors
    )
