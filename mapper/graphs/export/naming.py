"""The names in an exported graph: weights by the checkpoint's keys, each once, inputs, outputs and extents by their words."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from mapper.graphs.export.tracing import Extents

if TYPE_CHECKING:
    import onnx_ir as ir

# What the exporter notes of each node: the modules that it is in stay, lines of code with paths of this machine go.
NOTED = "pkg.torch.onnx.name_scopes"
_WORD = re.compile(r"[A-Za-z_]\w*")


def name_weights(model: ir.Model, weights: Mapping[str, torch.Tensor], aliases: Mapping[str, str]) -> None:
    """Initialisers are `weights`, all of them and no others, in their order.

    `aliases` says which of them a tensor is that the graph knows under another name. What else the exporter made an
    initialiser of, tables that a forward computes, is a constant of the graph.
    """
    graph = model.graph
    made = dict(graph.initializers)
    for name in made:
        del graph.initializers[name]
    known: dict[str, ir.Value] = {}
    for name, value in made.items():
        key = aliases.get(name, name)
        if key not in weights:
            _as_constant(graph, value)
        elif key in known:
            value.replace_all_uses_with(known[key])
        else:
            known[key] = value
    _free_names(graph, weights)
    for key, tensor in weights.items():
        graph.register_initializer(_weight(known.get(key), key, tensor))


def name_interface(
    model: ir.Model, extents: Extents, outputs: Sequence[str], apart: Collection[str] = ()
) -> dict[str, str]:
    """Outputs by their names, extents by their words; returns {input.axis: word} of those that the graph leaves free.

    The inputs `apart` need not have as many rows as others: where the graph leaves that open, their extents have names of their own.
    """
    graph = model.graph
    _free_names(graph, outputs, but=graph.outputs)
    for value, name in zip(graph.outputs, outputs, strict=True):
        value.name = name
    words: dict[str, str] = {}  # the exporter's symbol -> ours
    free: dict[str, str] = {}
    for value in graph.inputs:
        for axis, extent in enumerate(value.shape or ()):
            word = extents[str(value.name)][axis]
            symbol = _spelled(extent, {})
            if isinstance(symbol, str) and isinstance(word, str):
                if symbol not in words:
                    is_own = word in words.values() and value.name in apart
                    words[symbol] = f"{value.name}_{word}" if is_own else word
                free[f"{value.name}.{axis}"] = words[symbol]
    for value in _values(graph):
        _spell(value, words)
    return free


def strip_notes(model: ir.Model) -> None:
    """Leave of the exporter's notes the modules that each node is in; nothing says where or when it was made."""
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    model.doc_string = model.graph.doc_string = None
    for node in model.graph.all_nodes():
        noted = node.metadata_props.get(NOTED)
        node.metadata_props.clear()
        node.doc_string = None
        if noted is not None:
            node.metadata_props[NOTED] = noted
    for value in _values(model.graph):
        value.metadata_props.clear()
        value.doc_string = None


def _as_constant(graph: ir.Graph, value: ir.Value) -> None:
    """A constant node in the place of an initialiser; nothing where nobody reads it."""
    import onnx_ir as ir

    if not value.uses():
        return
    node = ir.node("Constant", [], attributes={"value": value.const_value}, name=f"node_{value.name}")
    made = node.outputs[0]
    made.name, made.shape, made.type = value.name, value.shape, value.type
    value.replace_all_uses_with(made)
    graph.insert_before(graph[0], node)


def _weight(value: ir.Value | None, key: str, tensor: torch.Tensor) -> ir.Value:
    """The graph's value of a weight, or a new one that nothing reads: every tensor of the checkpoint is in the file."""
    import onnx_ir as ir
    from onnx_ir import tensor_adapters

    held = tensor_adapters.TorchTensor(tensor.detach(), name=key)
    value = ir.Value() if value is None else value
    value.name, value.const_value = key, held
    value.shape, value.dtype = held.shape, held.dtype
    return value


def _free_names(graph: ir.Graph, wanted: Iterable[str], but: Iterable[ir.Value] = ()) -> None:
    """Other values give up the names that are wanted."""
    names, keep = set(wanted), {id(value) for value in (*graph.inputs, *but)}
    taken = {value.name for value in _values(graph)} | names
    for value in _values(graph):
        if value.name in names and id(value) not in keep:
            number = next(number for number in range(len(taken) + 1) if f"{value.name}_{number}" not in taken)
            value.name = f"{value.name}_{number}"
            taken.add(value.name)


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Every value of a graph and of those inside of it."""
    yield from graph.inputs
    for node in graph.all_nodes():
        yield from node.outputs
        for attribute in node.attributes.values():
            if attribute.type.name == "GRAPH":
                yield from attribute.as_graph().inputs


def _spell(value: ir.Value, words: Mapping[str, str]) -> None:
    """The free extents of a value's shape in our words; an extent computed of several is left as it is computed."""
    import onnx_ir as ir

    if value.shape is not None:
        value.shape = ir.Shape([_spelled(extent, words) for extent in value.shape])


def _spelled(extent: Any, words: Mapping[str, str]) -> str | int | None:
    """An extent in our words; the exporter writes numbers that it found out as texts."""
    known = extent if isinstance(extent, int) else extent.value
    if known is None or isinstance(known, int):
        return known
    return int(known) if known.isdigit() else _WORD.sub(lambda found: words.get(found[0], found[0]), known)
