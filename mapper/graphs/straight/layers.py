"""Operations with weights as torch's layers, where those compute the same: convolutions, linear layers, norms, tables.

A node that becomes a layer is replaced by one of the domain `LAYER`, whose inputs are what the layer is called with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mapper.checkpoint import COUNTER, FLOATS
from mapper.graphs.graph import Graph, Node, TensorRef
from mapper.graphs.straight.constants import Constants, Derived, derived
from mapper.graphs.straight.recurrent import recurrent_layer
from mapper.graphs.straight.types import Known, Shape, integer, types_of
from mapper.graphs.straight.values import Held
from mapper.graphs.straight.windows import Window, one_or_all, window

if TYPE_CHECKING:
    import torch

LAYER = "torch.nn"  # the domain of a node that a layer computes
LEAST = 9  # elements of a table that is looked up in


@dataclass
class Layer:
    """A module, what it is called with, and its tensors."""

    made: str  # the expression that makes it
    tensors: dict[str, TensorRef]  # by their names in it
    names: list[str]  # of the values that hold them, the telling ones first
    word: str  # what it is called where no name tells
    window: Window | None = None  # of a convolution
    directions: int = 0  # of a recurrent layer
    known: list[Known] = field(default_factory=list)  # of what it gives
    path: str = ""  # in the model, once it has one

    def shape_after(self, shape: Shape) -> Shape:
        """The shape of what it gives for an input, where the last axis alone changes, or comes behind."""
        if not shape or self.word not in ("linear", "norm", "embedding"):
            return None
        if self.word == "embedding":
            return (*shape, self.tensors["weight"].shape[1])
        return (*shape[:-1], self.tensors["weight"].shape[0]) if self.word == "linear" else shape


@dataclass
class Found:
    """The graph with layers, and the layer of each such node by its identity."""

    graph: Graph
    layers: dict[int, Layer]


Look = Callable[["_Looking", Node], "tuple[Layer, list[str], Node] | None"]
_LOOKS: dict[tuple[str, str], Look] = {}


def _look(*names: str, domain: str = "") -> Callable[[Look], Look]:
    def mark(function: Look) -> Look:
        for name in names:
            _LOOKS[domain, name] = function
        return function

    return mark


def with_layers(graph: Graph, version_of: Callable[[Node], int]) -> Found:
    """The graph with layers in the place of operations, and without what only made their weights."""
    found: dict[int, Layer] = {}
    looking = _Looking(version_of, found)
    made = looking.graph(graph, Constants(), {})
    return Found(pruned(made), found)


def pruned(graph: Graph) -> Graph:
    """The graph without nodes that nothing reads."""
    wanted, kept = {value.name for value in graph.outputs}, []
    for node in reversed(graph.nodes):
        if wanted.isdisjoint(node.outputs):
            continue
        if any(True for _ in node.graphs()):
            attributes = {
                name: pruned(value) if isinstance(value, Graph) else value
                for name, value in node.attributes.items()
            }
            node = replace(node, attributes=attributes)
        wanted.update(node.inputs)
        for inner in node.graphs():
            wanted |= inner.free()
        kept.append(node)
    return replace(graph, nodes=kept[::-1])


class _Looking:
    """One pass over a graph and those inside."""

    def __init__(self, version_of: Callable[[Node], int], found: dict[int, Layer]):
        self.version_of, self.found = version_of, found
        self.turned_refs: dict[int, Derived] = {}
        self.flat_refs: dict[int, TensorRef] = {}
        self.constants = Constants()
        self.types: dict[str, Known] = {}
        self.users: dict[str, list[Node]] = {}
        self.counts: Counter[str] = Counter()

    def graph(self, graph: Graph, around: Constants, types: dict[str, Known]) -> Graph:
        """The graph with layers."""
        before = self.constants, self.types, self.users
        self.constants, self.types = around.within(graph), dict(types)
        self.types |= {
            value.name: (value.dtype, _sizes(value.shape)) for value in graph.inputs if value.kind == "tensor"
        }
        self.users = {}
        for node in graph.nodes:
            for name in node.inputs:
                self.users.setdefault(name, []).append(node)
        self.counts.update(name for node in graph.nodes for name in node.inputs)
        self.counts.update(value.name for value in graph.outputs)
        self.counts.update(name for node in graph.nodes for inner in node.graphs() for name in inner.free())
        made = replace(
            graph, nodes=[one for node in graph.nodes for one in [self.node(node)] if one is not None]
        )
        made = replace(made, nodes=self._in_place(made.nodes))
        self.constants, self.types, self.users = before
        return made

    def node(self, node: Node) -> Node:
        """The node, or the layer that it is the start of; `_in_place` puts that where its result is."""
        for place, (dtype, shape) in enumerate(types_of(node, [self.held(name) for name in node.inputs])):
            if place < len(node.outputs):
                self.types[node.outputs[place]] = dtype, shape
        if any(True for _ in node.graphs()):
            attributes = {
                name: self.graph(value, self.constants, self.types) if isinstance(value, Graph) else value
                for name, value in node.attributes.items()
            }
            return replace(node, attributes=attributes)
        look = _LOOKS.get((node.domain, node.operator))
        of = node.inputs[1 if node.operator == "Gather" else 0 :][:1]
        said = look(self, node) if look is not None and of and of[0] not in self.constants.held else None
        if said is None:
            return node
        layer, inputs, last = said
        made = Node(node.operator, LAYER, node.name, inputs, list(last.outputs), {}, node.metadata)
        layer.known = [self.types.get(name, (None, None)) for name in node.outputs]
        self.found[id(made)] = layer
        return made

    def _in_place(self, nodes: list[Node]) -> list[Node]:
        """Without the operations that a layer before them has taken in."""
        taken = {name for node in nodes if id(node) in self.found for name in node.outputs if name}
        return [node for node in nodes if id(node) in self.found or taken.isdisjoint(node.outputs)]

    def held(self, name: str) -> Held | None:
        """What is known of a value."""
        ref = self.constants.held.get(name)
        if ref is not None:
            return Held(name, dtype=ref.dtype, rank=len(ref.shape), shape=ref.shape)
        dtype, shape = self.types.get(name, (None, None))
        return (
            Held(name, dtype=dtype, rank=None if shape is None else len(shape), shape=shape) if name else None
        )

    def ref(self, node: Node, place: int, rank: int | None = None) -> TensorRef | None:
        """The float constant that a node has as an input."""
        name = node.inputs[place] if place < len(node.inputs) else ""
        ref = self.constants.held.get(name)
        is_fit = ref is not None and ref.dtype in FLOATS and (rank is None or len(ref.shape) == rank)
        return ref if is_fit else None

    def has(self, node: Node, place: int) -> bool:
        return place < len(node.inputs) and bool(node.inputs[place])

    def added(self, node: Node, width: int, behind: int) -> tuple[TensorRef, str, Node] | None:
        """The bias that alone is added to a result, of `width` numbers with `behind` axes of one behind them."""
        users = self.users.get(node.outputs[0], [])
        if (
            self.counts[node.outputs[0]] != 1
            or len(users) != 1
            or users[0].operator != "Add"
            or users[0].domain
        ):
            return None
        add = users[0]
        if self.version_of(add) < 7 or len(add.inputs) != 2:
            return None
        name = add.inputs[1] if add.inputs[0] == node.outputs[0] else add.inputs[0]
        ref = self.constants.held.get(name)
        if (
            ref is None
            or ref.dtype not in FLOATS
            or ref.size != width
            or len(ref.shape) > behind + 2 + (behind == 0)
        ):
            return None
        if ref.shape[len(ref.shape) - behind - 1 :] != (width, *[1] * behind):
            return None
        return self.flat(ref), name, add

    def flat(self, ref: TensorRef) -> TensorRef:
        """A tensor along one axis."""
        if len(ref.shape) == 1:
            return ref
        return self.flat_refs.setdefault(
            id(ref), derived((ref.size,), [ref], lambda tensors: tensors[0].reshape(-1))
        )

    def turned(self, name: str, ref: TensorRef) -> TensorRef | None:
        """A weight [inputs, outputs] as a layer has it; None where something else reads it as it is."""
        if any(user.operator not in ("MatMul", "Gemm") for user in self.users.get(name, [])):
            return None
        turned = replace(derived(ref.shape[::-1], [ref], lambda tensors: tensors[0].T), is_turned=True)
        return self.turned_refs.setdefault(id(ref), turned)


def _sizes(shape: tuple[int | str | None, ...] | None) -> tuple[int | str | None, ...] | None:
    return None if shape is None else tuple(size if isinstance(size, int) else None for size in shape)


def _typed(ref: TensorRef) -> list[str]:
    from mapper.checkpoint import TORCH_NAMES

    return [] if ref.dtype == "F32" else [f"dtype=torch.{TORCH_NAMES[ref.dtype]}"]


def _call(kind: str, words: list[str]) -> str:
    return f"nn.{kind}({', '.join(words)})"


@_look("Conv")
def _conv(looking: _Looking, node: Node) -> tuple[Layer, list[str], Node] | None:
    weight, bias = looking.ref(node, 1), looking.ref(node, 2, 1)
    found = window(node, weight.shape[2:]) if weight is not None else None
    if weight is None or found is None or weight.size == 0 or (bias is None and looking.has(node, 2)):
        return None
    rank = len(weight.shape) - 2
    added = looking.added(node, weight.shape[0], rank) if bias is None else None
    names, last = [node.inputs[1], *node.inputs[2:3]], node
    if added is not None:
        bias, name, last = added
        names.append(name)
    words = [
        str(weight.shape[1] * found.groups),
        str(weight.shape[0]),
        one_or_all(weight.shape[2:]),
        *found.keywords(),
    ]
    words += ([] if bias is not None else ["bias=False"]) + _typed(weight)
    tensors = {"weight": weight} | ({"bias": bias} if bias is not None else {})
    return Layer(_call(f"Conv{rank}d", words), tensors, names, "conv", found), node.inputs[:1], last


@_look("ConvTranspose")
def _transposed(looking: _Looking, node: Node) -> tuple[Layer, list[str], Node] | None:
    weight, bias = looking.ref(node, 1), looking.ref(node, 2, 1)
    found = window(node, weight.shape[2:]) if weight is not None else None
    is_usual = not {"output_shape", "output_padding"} & node.attributes.keys()
    way = node.attributes.get("auto_pad", b"NOTSET")
    if (
        weight is None
        or found is None
        or any(found.edges)
        or not is_usual
        or way not in (b"NOTSET", b"VALID")
    ):
        return None
    if bias is None and looking.has(node, 2):
        return None
    rank, width = len(weight.shape) - 2, weight.shape[1] * found.groups
    added = looking.added(node, width, rank) if bias is None else None
    names, last = [node.inputs[1], *node.inputs[2:3]], node
    if added is not None:
        bias, name, last = added
        names.append(name)
    words = [str(weight.shape[0]), str(width), one_or_all(weight.shape[2:]), *found.keywords()]
    words += ([] if bias is not None else ["bias=False"]) + _typed(weight)
    tensors = {"weight": weight} | ({"bias": bias} if bias is not None else {})
    return Layer(_call(f"ConvTranspose{rank}d", words), tensors, names, "conv", found), node.inputs[:1], last


def _linear_of(weight: TensorRef, bias: TensorRef | None, names: list[str]) -> Layer:
    words = [
        str(weight.shape[1]),
        str(weight.shape[0]),
        *([] if bias is not None else ["bias=False"]),
        *_typed(weight),
    ]
    tensors = {"weight": weight} | ({"bias": bias} if bias is not None else {})
    return Layer(_call("Linear", words), tensors, names, "linear")


@_look("Linear", domain="mapper")
def _fused_linear(looking: _Looking, node: Node) -> tuple[Layer, list[str], Node] | None:
    weight, bias = looking.ref(node, 1, 2), looking.ref(node, 2, 1)
    if weight is None or (bias is None and looking.has(node, 2)):
        return None
    return _linear_of(weight, bias, node.inputs[1:]), node.inputs[:1], node


@_look("MatMul")
def _product(looking: _Looking, node: Node) -> tuple[Layer, list[str], Node] | None:
    held = looking.ref(node, 1, 2)
    weight = looking.turned(node.inputs[1], held) if held is not None and held.size else None
    if weight is None:
        return None
    added = looking.added(node, weight.shape[0], 0)
    bias, name, last = added if added is not None else (None, "", node)
    return _linear_of(weight, bias, [node.inputs[1], *([name] if name else [])]), node.inputs[:1], last


@_look("Gemm")
def _gemm(looking: _Looking, node: Node) -> tuple[Layer, list[str], Node] | None:
    held = looking.ref(node, 1, 2)
    is_plain = all(node.attributes.get(word, 1.0) == 1 for word in ("alpha", "beta")) and not integer(
        node, "transA", 0
    )
    if held is None or not held.size or not is_plain or looking.version_of(node) < 7:
        return None
    weight = held if integer(node, "transB", 0) else looking.turned(node.inputs[1], held)
    if weight is None:
        return None
    bias, last, names = looking.ref(node, 2), node, node.inputs[1:]
    if bias is not None:
        if bias.shape not in ((weight.shape[0],), (1, weight.shape[0])):
            return None
        bias = looking.flat(bias)
    elif looking.has(node, 2):
        return None
    return _linear_of(weight, bias, names), node.inputs[:1], last


@_look("BatchNormalization")
def _batch_norm(looking: _Looking, node: Node) -> tuple[Layer, list[str], Node] | None:
    refs = [looking.ref(node, place, 1) for place in range(1, 5)]
    tensors = {
        word: ref
        for word, ref in zip(("weight", "bias", "running_mean", "running_var"), refs, strict=True)
        if ref is not None
    }
    shape = looking.types.get(node.inputs[0], (None, None))[1]
    is_plain = (
        not integer(node, "training_mode", 0)
        and integer(node, "spatial", 1)
        and len([one for one in node.outputs if one]) == 1
    )
    if (
        len(tensors) < 4
        or shape is None
        or not 2 <= len(shape) <= 5
        or not is_plain
        or len({one.dtype for one in tensors.values()}) > 1
    ):
        return None
    kind = f"BatchNorm{max(len(shape) - 2, 1)}d"
    words = [str(tensors["weight"].size), *_epsilon(node), *_typed(tensors["weight"])]
    tensors[COUNTER] = _counter(tensors["weight"])
    return Layer(_call(kind, words), tensors, node.inputs[1:], "norm"), node.inputs[:1], node


def _counter(weight: TensorRef) -> TensorRef:
    """The batches that torch's norm has seen: no file says how many, and none are what it begins with."""
    return replace(derived((), [weight], lambda tensors: _nought()), dtype="I64")


def _nought() -> torch.Tensor:
    import torch

    return torch.zeros((), dtype=torch.int64)


def _epsilon(node: Node, word: str = "epsilon") -> list[str]:
    from mapper.graphs.straight.calls import float_text

    said = node.attributes.get(word, 1e-5)
    text = float_text(said) if isinstance(said, float) else "1e-05"
    return [] if text == "1e-05" else [f"eps={text}"]


@_look("LayerNormalization")
def _layer_norm(looking: _Looking, node: Node) -> tuple[Layer, list[str], Node] | None:
    """Over the last axis; one of float32, which is what the node computes in."""
    weight, bias = looking.ref(node, 1, 1), looking.ref(node, 2, 1)
    shape = looking.types.get(node.inputs[0], (None, None))[1]
    axis = integer(node, "axis", -1)
    is_last = axis == -1 or (shape is not None and axis == len(shape) - 1)
    if weight is None or weight.dtype != "F32" or not is_last or (bias is None and looking.has(node, 2)):
        return None
    if len([one for one in node.outputs if one]) > 1 or (bias is not None and bias.shape != weight.shape):
        return None
    words = [str(weight.size), *_epsilon(node), *([] if bias is not None else ["bias=False"])]
    tensors = {"weight": weight} | ({"bias": bias} if bias is not None else {})
    return Layer(_call("LayerNorm", words), tensors, node.inputs[1:], "norm"), node.inputs[:1], node


@_look("RmsNorm", domain="mapper")
def _rms_norm(looking: _Looking, node: Node) -> tuple[Layer, list[str], Node] | None:
    weight = looking.ref(node, 1, 1)
    if weight is None:
        return None
    words = [str(weight.size), *(_epsilon(node, "eps") or ["eps=1e-05"]), *_typed(weight)]
    return Layer(_call("RMSNorm", words), {"weight": weight}, node.inputs[1:], "norm"), node.inputs[:1], node


@_look("LayerNorm", domain="mapper")
def _fused_layer_norm(looking: _Looking, node: Node) -> tuple[Layer, list[str], Node] | None:
    weight, bias = looking.ref(node, 1, 1), looking.ref(node, 2, 1)
    if weight is None or bias is None or weight.shape != bias.shape:
        return None
    words = [str(weight.size), *_epsilon(node, "eps")]
    tensors = {"weight": weight, "bias": bias}
    return Layer(_call("LayerNorm", words), tensors, node.inputs[1:], "norm"), node.inputs[:1], node


@_look("LSTM", "GRU", "RNN")
def _recurrent(looking: _Looking, node: Node) -> tuple[Layer, list[str], Node] | None:
    refs = [looking.ref(node, place, rank) for place, rank in ((1, 3), (2, 3), (3, 2))]
    found = recurrent_layer(node, refs, looking.has(node, 3))
    if found is None:
        return None
    made, tensors = found
    directions = refs[0].shape[0] if refs[0] is not None else 1
    layer = Layer(made, tensors, node.inputs[1:4], node.operator.lower(), None, directions)
    return layer, [node.inputs[0], *node.inputs[5:7]], node


@_look("Gather")
def _table(looking: _Looking, node: Node) -> tuple[Layer, list[str], Node] | None:
    """Rows of a table by ids. Ids below zero, which count from the end, are an error in torch's layer."""
    weight, (kind, _) = looking.ref(node, 0, 2), looking.types.get(node.inputs[1], (None, None))
    if weight is None or weight.size < LEAST or kind not in ("I64", "I32") or integer(node, "axis", 0):
        return None
    words = [*map(str, weight.shape), *_typed(weight)]
    return (
        Layer(_call("Embedding", words), {"weight": weight}, node.inputs[:1], "embedding"),
        node.inputs[1:2],
        node,
    )
