"""The statements of a graph, node after node."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from mapper import limits
from mapper.emission.identifiers import identifier
from mapper.errors import ArchitectureError, shorten
from mapper.graphs.graph import Graph, Node, TensorRef, Value
from mapper.graphs.operators.registry import Operator
from mapper.graphs.recovery.wiring import module_of
from mapper.graphs.straight import control
from mapper.graphs.straight.arithmetic import ITEMS, WHOLE, folded
from mapper.graphs.straight.calls import COMPUTED, float_text, values_literal, write_call
from mapper.graphs.straight.layers import LAYER, Layer
from mapper.graphs.straight.masks import meaning
from mapper.graphs.straight.merging import merged, unviewed
from mapper.graphs.straight.notation import spelled
from mapper.graphs.straight.support import version_of
from mapper.graphs.straight.types import Known, Shape, types_of
from mapper.graphs.straight.values import Held, Made, sizes, text_of
from mapper.graphs.straight.weights import Weights, path_text, safe
from mapper.sources.onnx_graph import is_counted

COUNTED = re.compile(r"_\d+(?=_|$)")  # in a name: the exporter's count
SMALL = 8  # numbers of a constant that is written as text
TAKEN = frozenset({
    "self", "device", "named", "given", "open", "exec", "eval", "compile", "globals", "locals", "vars", "getattr", "setattr", "delattr",
    "breakpoint", "exit", "quit", "memoryview", "torch", "F", "nn", "math", "Tensor", "Any", "Model", "range", "len", "list", "tuple", "int", "bool", "float", "min",
    "max", "sum", "abs", "pow", "round", "all", "any", "sorted", "isinstance", "zip", "enumerate", "reversed", "slice", "str", "ValueError", "Path", "load", "load_file",
})  # fmt: skip


@dataclass
class Writer:
    """What is written so far. One for a file: names of variables are never used for two values."""

    opsets: dict[str, int]
    weights: Weights
    source: str
    rows: list[str] = field(default_factory=list)
    held: dict[str, Held] = field(default_factory=dict)
    taken: set[str] = field(default_factory=lambda: set(TAKEN))
    functions: dict[str, Operator] = field(default_factory=dict)
    indent: int = 0
    layers: dict[int, Layer] = field(default_factory=dict)  # by the identity of their nodes
    ends: frozenset[str] = frozenset()  # what the graph gives
    owner: (
        tuple[str, ...] | None
    ) = ()  # the module that the node at hand stands in; None where nothing says it
    owners: list[tuple[str, ...] | None] = field(default_factory=list)  # of the rows
    extents: dict[str, str] = field(default_factory=dict)  # the sizes that the file names, by what holds them

    def say(self, text: str) -> None:
        self.rows.append("    " * self.indent + text)
        self.owners.append(self.owner)
        if len(self.rows) > limits.GRAPH_NODES:
            raise ArchitectureError(f"{self.source}: its graph is too long to be written")

    def variable(self, word: str) -> str:
        """A free name near a word."""
        base = identifier(word)
        made, count = base, 1
        while made in self.taken or made in self.functions or made.startswith("__"):
            count += 1
            made = f"{base}_{count}"
        self.taken.add(made)
        return made

    def word_of(self, value: str, node: Node) -> str:
        """What a value is called: for its layer, or as the file names it, where that is a name, else for what makes it."""
        if node.domain == LAYER and value not in self.ends:
            path = self.layers[id(node)].path.split(".")
            return next((word for word in reversed(path) if not word.isdigit()), self.layers[id(node)].word)
        tail = value.rpartition("/")[2].rpartition("#")[2]
        is_name = tail.isascii() and "output" not in tail.lower() and "." not in tail
        word = COUNTED.sub("", tail).strip("_")
        if (
            value and is_name and not any(map(is_counted, (value, tail, f"{word}_1")))
        ):  # the first has no number
            return word.lower()
        return words_of(node.operator)

    def input(self, name: str) -> Held | None:
        if not name:
            return None
        found = self.held.get(name)
        if found is None:
            raise ArchitectureError(f"{self.source}: nothing makes {shorten(name)} where it is read")
        return found

    def enter(self, graph: Graph) -> None:
        """The initialisers of a graph; an input of that name is given by no caller."""
        for name, ref in graph.initialisers.items():
            if name in self.weights.used:
                self.held[name] = self.constant(ref, name)

    def constant(self, ref: TensorRef, name: str) -> Held:
        """A tensor of the file: whole numbers as Python's, one number as text, everything else a parameter or a buffer."""
        if ref.dtype == "STRING" or ref.dtype.startswith("F8"):
            raise ArchitectureError(
                f"{self.source}: its graph uses what is not supported: the constant {shorten(name)} of {ref.dtype}"
            )
        if ref.dtype in WHOLE.values() and len(ref.shape) < 2 and ref.size <= ITEMS:
            return sizes([str(item) for item in ref.read().reshape(-1).tolist()], not ref.shape, ref.dtype)
        floats, number = None, ""
        if ref.dtype == "F32" and ref.size <= (SMALL if len(ref.shape) < 2 else 1):
            values = ref.read()
            floats = tuple(values.reshape(-1).tolist())
            if ref.size == 1:
                number = float_text(values.item())
            if self.is_literal(ref, name):
                return Held(
                    values_literal(values, ref.dtype),
                    dtype=ref.dtype,
                    rank=len(ref.shape),
                    shape=ref.shape,
                    floats=floats,
                    number=number,
                    sure=True,
                )
        elif self.is_literal(ref, name):
            text = values_literal(ref.read(), ref.dtype)
            return Held(text, dtype=ref.dtype, rank=len(ref.shape), shape=ref.shape, sure=True)
        name = self.weights.names.get(id(ref), "")  # none of scales, whose numbers are in their call
        text = path_text(self.weights.tree, name) if name else values_literal(ref.read(), ref.dtype)
        return Held(text, dtype=ref.dtype, rank=len(ref.shape), shape=ref.shape, floats=floats, sure=True)

    @staticmethod
    def is_literal(ref: TensorRef, name: str) -> bool:
        """Whether a constant is a number of the computation rather than a weight."""
        return is_small(ref) and (ref.size <= 1 or not name or is_counted(name))

    def graph(self, graph: Graph) -> list[Held]:
        """Write the nodes; what the outputs are."""
        self.enter(graph)
        for node in graph.nodes:
            self.node(node, graph)
        return [self.held[value.name] for value in graph.outputs]

    def node(self, node: Node, graph: Graph) -> None:
        path = module_of(node) if node.domain != LAYER else None
        self.owner = None if path is None else tuple(safe(word) for word in path.split(".") if word)
        if node.domain == "" and node.operator == "Constant":
            if node.outputs[0] not in self.weights.used:
                return
            self.held[node.outputs[0]] = self.given(node)
            return
        if node.domain == "" and node.operator in control.WRITTEN:
            control.WRITTEN[node.operator](self, node)
            return
        inputs = [self.input(name) for name in node.inputs]
        if node.domain == LAYER:
            self.layer(node, self.layers[id(node)], inputs, graph)
            return
        found = folded(node, inputs)
        if found is not None:
            self.held[node.outputs[0]] = found
            return
        version = version_of(node, self.opsets)
        if node.operator == "Reshape" and self.whole(node, inputs, graph):
            return
        text = self.merged(node, inputs) or spelled(node, inputs, version)
        same = next((held for held in inputs if held is not None and held.text == text), None)
        if same is not None:  # nothing is computed
            self.held[node.outputs[0]] = same
            return
        if text is None:
            written = write_call(node, inputs, version, self.source)
            text = written.text
            if written.function is not None:
                self.functions[written.function.function] = written.function
        self.assign(node, text, graph, types_of(node, inputs), inputs)

    def merged(self, node: Node, inputs: list[Held | None]) -> str | None:
        """One call for a node and those before it; what only these needed is left out later."""
        found = merged(node, inputs)
        if found is not None and found.function is not None:
            self.functions[found.function.function] = found.function
        return found.text if found is not None else None

    def whole(self, node: Node, inputs: list[Held | None], graph: Graph) -> bool:
        """Write a linear layer with the views before and after it as one call, where that is the same."""
        made = inputs[0].made if inputs and inputs[0] is not None and not node.domain else None
        layer = self.layers.get(id(made.node)) if made is not None else None
        x = unviewed(node, inputs, layer) if layer is not None and layer.word == "linear" else None
        if x is None or made is None or layer is None:
            return False
        self.owner = None
        word = self.word_of(made.node.outputs[0], made.node)
        text = f"{path_text(self.weights.tree, layer.path)}({x})"
        self.assign(node, text, graph, types_of(node, inputs), inputs, word)
        return True

    def layer(self, node: Node, layer: Layer, inputs: list[Held | None], graph: Graph) -> None:
        """A call of a layer."""
        given = [text_of(held) for held in inputs if held is not None]
        path = path_text(self.weights.tree, layer.path)
        if layer.directions:
            self.recurrent(node, layer, path, given)
            return
        x = layer.window.around(given[0]) if layer.window is not None else given[0]
        of = inputs[0].known_shape if inputs[0] is not None else None
        dtype, shape = layer.known[0] if layer.known else (None, None)
        self.assign(node, f"{path}({x})", graph, [(dtype, _surer(layer.shape_after(of), shape))], inputs[:1])

    def recurrent(self, node: Node, layer: Layer, path: str, given: list[str]) -> None:
        """A recurrent layer gives (T, B, D H), where the graph has (T, D, B, H), and the last states."""
        is_lstm = node.operator == "LSTM"
        states = [] if len(given) < 2 else [f"({given[1]}, {given[2]})" if is_lstm else given[1]]
        outputs = [*node.outputs, "", ""][: 3 if is_lstm else 2]
        whole, *last = [
            self.variable(word) if value else "_"
            for word, value in zip(("hidden", "h", "c"), outputs, strict=False)
        ]
        ends = f"({', '.join(last)})" if is_lstm else last[0]
        ends = "_" if set(last) == {"_"} else ends
        self.say(f"{whole}, {ends} = {path}({', '.join([given[0], *states])})")
        ways = layer.directions
        text = (
            f"{whole}.unsqueeze(1)" if ways == 1 else f"{whole}.unflatten(-1, ({ways}, -1)).transpose(1, 2)"
        )
        for value, made, known in zip(outputs, [text, *last], layer.known, strict=False):
            if value:
                dtype, shape = known
                self.held[value] = Held(
                    made, dtype=dtype, rank=None if shape is None else len(shape), shape=shape
                )

    def assign(
        self,
        node: Node,
        text: str,
        graph: Graph,
        types: list[Known],
        inputs: Sequence[Held | None] = (),
        word: str = "",
    ) -> None:
        """`a = text`, or `a, b = text`."""
        outputs = list(node.outputs)
        while outputs and not outputs[-1]:
            outputs.pop()
        said = word or meaning(node, inputs)
        names = [self.variable(said or self.word_of(value, node)) if value else "_" for value in outputs]
        is_tuple = len(outputs) > 1 or node.operator in ALWAYS_TUPLES
        self.say(f"{', '.join(names)}{',' if is_tuple and len(names) == 1 else ''} = {text}")
        for place, (value, name) in enumerate(zip(outputs, names, strict=True)):
            if value:
                known = types[place] if place < len(types) else (None, None)
                held = self.told(value, name, graph, known)
                sure = known[1] is not None and all(one is None or one.is_sizes or one.sure for one in inputs)
                self.held[value] = replace(
                    held, made=Made(node, tuple(inputs), place), sure=sure and bool(inputs)
                )

    def told(self, value: str, name: str, graph: Graph, known: Known = (None, None)) -> Held:
        """A variable with what is known of its value: what follows from the operation, then what the file says."""
        said = graph.values.get(value) or Value(value)
        dtype, shape = known
        is_tensor = said.kind == "tensor"
        if shape is None and said.shape is not None and is_tensor:
            sizes_said = enumerate(said.shape)
            shape = tuple(
                size if isinstance(size, int) and size > 0 else f"{name}.shape[{axis}]"
                for axis, size in sizes_said
            )
        dtype = dtype or (said.dtype if is_tensor else None)
        return Held(name, dtype=dtype, rank=None if shape is None else len(shape), shape=shape)

    def take(self, value: Value, name: str, graph: Graph) -> None:
        """An input of the model; a size that the file gives a name is the same in all of them."""
        held = self.told(value.name, name, graph)
        shape = list(held.shape) if held.shape is not None else None
        for axis, said in (
            enumerate(value.shape or ()) if shape is not None and value.kind == "tensor" else ()
        ):
            if isinstance(said, str) and said and shape is not None:
                if said not in self.extents:
                    self.extents[said] = self.variable(_extent(said, axis))
                    self.say(f"{self.extents[said]} = {name}.shape[{axis}]")
                shape[axis] = self.extents[said]
        self.held[value.name] = replace(held, shape=None if shape is None else tuple(shape), sure=True)

    def given(self, node: Node) -> Held:
        """The value of a Constant."""
        for name, value in node.attributes.items():
            if name == "value" and isinstance(value, TensorRef):
                return self.constant(value, node.outputs[0])
            if name in ("value_int", "value_ints"):
                items = value if isinstance(value, list) else [value]
                return sizes([str(item) for item in items], name == "value_int")
            if name in ("value_float", "value_floats"):
                many = tuple(float(item) for item in (value if isinstance(value, list) else [value]))  # type: ignore[arg-type]
                text = ", ".join(map(float_text, many))
                is_one = name == "value_float"
                return Held(
                    f"torch.tensor({text})" if is_one else f"torch.tensor([{text}], dtype=torch.float32)",
                    dtype="F32",
                    rank=int(not is_one),
                    floats=many,
                    number=text if is_one else "",
                )
        raise ArchitectureError(
            f"{self.source}: a Constant holds {', '.join(node.attributes) or 'nothing'}, which is not supported"
        )


ALWAYS_TUPLES = frozenset(
    {
        "Split",
        "LSTM",
        "GRU",
        "RNN",
        "TopK",
        "Unique",
        "DynamicQuantizeLinear",
        "CausalConvWithState",
        "LinearAttention",
    }
)


def _surer(shape: Shape, other: Shape) -> Shape:
    """A shape with what another says of the axes that it does not know."""
    if shape is None or other is None or len(shape) != len(other):
        return shape if shape is not None else other
    return tuple(one if one is not None else two for one, two in zip(shape, other, strict=True))


def _extent(said: str, axis: int) -> str:
    """What a size is called: as in the file where that is a word, else by its axis."""
    is_word = said.isascii() and said.isidentifier() and said.islower() and not any(map(str.isdigit, said))
    return said if is_word else ("batch", "length")[axis] if axis < 2 else "size"


def is_small(ref: TensorRef) -> bool:
    return ref.size <= SMALL and ref.dtype in COMPUTED and not ref.dtype.startswith("C")


def words_of(operator: str) -> str:
    """`GlobalAveragePool` is global_average_pool."""
    made = ""
    for before, char in zip(" " + operator, operator, strict=False):
        made += f"_{char.lower()}" if char.isupper() and before.islower() else char.lower()
    return made


def every_tensor(graph: Graph) -> Iterator[tuple[str, TensorRef]]:
    """The constants of a graph and of those inside, each with the name of its value."""
    yield from graph.initialisers.items()
    for node in graph.nodes:
        value = node.attributes.get("value")
        if node.operator == "Constant" and node.domain == "" and isinstance(value, TensorRef):
            yield node.outputs[0], value
        for inner in node.graphs():
            yield from every_tensor(inner)


def add_weights(found: Weights, graph: Graph) -> None:
    """Enter what else of a graph's constants becomes a parameter or a buffer."""
    used = uses(graph)
    found.used = frozenset(used)
    figures = _figures(graph)
    for name, ref in every_tensor(graph):
        is_python = ref.dtype in WHOLE.values() and len(ref.shape) < 2 and ref.size <= ITEMS
        if name in figures and ref.dtype == "F32" and ref.size <= SMALL and len(ref.shape) < 2:
            continue
        if name in used and not is_python and not Writer.is_literal(ref, name):
            found.add(name, ref, used[name])


def _figures(graph: Graph) -> set[str]:
    """The names that are read as scales and boxes of a Resize alone: its call has their numbers."""
    found: set[str] = set()
    others = {value.name for value in graph.outputs}

    def look(inside: Graph) -> None:
        for node in inside.nodes:
            places = {"Resize": (1, 2), "Upsample": (1,)}.get(node.operator, ()) if not node.domain else ()
            for place, name in enumerate(node.inputs):
                (found if place in places else others).add(name)
            for inner in node.graphs():
                others.update(value.name for value in inner.outputs)
                look(inner)

    look(graph)
    return found - others


def uses(graph: Graph) -> dict[str, str]:
    """What first reads each value, as a word for it."""
    found: dict[str, str] = {}
    counts: Counter[str] = Counter()

    def look(inside: Graph) -> None:
        for node in inside.nodes:
            for name in node.inputs:
                if name and name not in found:
                    word = words_of(node.operator)
                    counts[word] += 1
                    found[name] = f"{word}_{counts[word]}"
            for inner in node.graphs():
                look(inner)
        for value in inside.outputs:
            found.setdefault(value.name, "constant")

    look(graph)
    return found
