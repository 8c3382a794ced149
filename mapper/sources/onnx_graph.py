"""What the graph of an ONNX model holds beside its initialisers, and which names an exporter made up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from mapper import limits
from mapper.errors import FormatError, listed, shorten
from mapper.sources.wire import BYTES, VARINT, Field, Message

NODE, INITIALIZER = 1, 5  # of a graph
OPERATION, ATTRIBUTE = 4, 5  # of a node
ATTRIBUTE_NAME, TENSOR, GRAPH = 1, 5, 6  # of an attribute
DIMS = 1  # of a tensor
# Last words of names that exporters count up where a weight has none of its own.
COUNTED = frozenset((
    "val", "const", "constant", "tensor", "init", "initializer", "initialiser", "t", "transpose", "lifted_tensor", "matmul",
    "gemm", "conv", "add", "mul", "div", "sub", "reshape", "permute", "slice", "concat", "unsqueeze", "expand", "stack", "view",
    "arange", "scalar_tensor", "const_fold_opt", "const_axes", "const_starts", "const_ends", "begin_masked", "end_masked",
    "slice_axes", "new_shape", "shape", "arg", "buffer", "param", "dequantized", "quantized",
))  # fmt: skip
CONSTANT = ("const", "constant")
WEIGHT = 64  # numbers from which a constant is taken for a weight


def is_counted(name: str) -> bool:
    """Whether an exporter counted a name up, as `val_100`, `onnx::MatMul_123` or `/layer/Constant_3_output_0`."""
    if "::" in name:
        return True
    word = name.rpartition("/")[2].partition(":")[0].lower()
    if "." in word:
        return False
    if word.endswith("_default"):  # of an operation's overload
        return word.removesuffix("_default") in COUNTED
    stem = word.removesuffix("_output_0")
    base = stem.rstrip("0123456789")
    if base == word:
        return word in CONSTANT
    return not base or (base.strip("_") in COUNTED and (stem != word or base.endswith("_")))


@dataclass
class Branch:
    """What lies in the graphs that one attribute of an operation holds: `If.then_branch`."""

    name: str
    initialisers: int = 0
    constants: int = 0
    weights: int = 0  # of both, those large enough to be weights


@dataclass
class Survey:
    """The constants of a graph, and what lies in the graphs inside of it; of a very large one, its beginning."""

    constants: int = 0
    weights: int = 0
    branches: dict[str, Branch] | None = None
    whole: bool = True

    def inner(self) -> str:
        """`If.then_branch (17 initialisers, 210 constants), ...`; "" where nothing lies there."""
        told = []
        for branch in (self.branches or {}).values():
            counts = ((branch.initialisers, "initialiser"), (branch.constants, "constant"))
            words = [_counted(count, noun) for count, noun in counts if count]
            told += [f"{branch.name} ({', '.join(words)})"] if branch.weights else []
        return ", ".join(told)


def survey(message: Message, graph: Field) -> Survey:
    """What there is in a graph beside its initialisers."""
    found = Survey(branches={})
    looked = Message(message.file, message.size, message.name)
    try:
        _look(looked, graph, found, None, 0)
    except (FormatError, _Enough):
        found.whole = False  # what is damaged is said where it is read
    return found


class _Enough(Exception):
    """The graph is larger than what is looked at."""


def _look(message: Message, graph: Field, found: Survey, branch: Branch | None, depth: int) -> None:
    for part in message.fields(graph.start, graph.end):
        if message.read > limits.GRAPH_FIELDS:
            raise _Enough
        if part.number == INITIALIZER and branch is not None and part.wire == BYTES:
            branch.initialisers += 1
            branch.weights += _is_weight(message, part)
        elif part.number == NODE and part.wire == BYTES:
            _node(message, part, found, branch, depth)


def _node(message: Message, node: Field, found: Survey, branch: Branch | None, depth: int) -> None:
    operation = ""
    attributes: list[Field] = []
    for part in message.fields(node.start, node.end):
        if part.number == OPERATION and part.wire == BYTES:
            operation = message.text(part)
        elif part.number == ATTRIBUTE and part.wire == BYTES:
            attributes.append(part)
    for attribute in attributes:
        name, held = "", []
        for part in message.fields(attribute.start, attribute.end):
            if part.number == ATTRIBUTE_NAME and part.wire == BYTES:
                name = message.text(part)
            elif part.number in (TENSOR, GRAPH) and part.wire == BYTES:
                held.append(part)
        for part in held:
            if part.number == TENSOR and operation == "Constant":
                target = branch or found
                target.constants += 1
                target.weights += _is_weight(message, part)
            elif part.number == GRAPH and depth < limits.NAME_DEPTH and found.branches is not None:
                inner = branch or found.branches.setdefault(
                    f"{operation}.{name}", Branch(f"{operation}.{name}")
                )
                _look(message, part, found, inner, depth + 1)


def _is_weight(message: Message, tensor: Field) -> bool:
    size = 1
    for part in message.fields(tensor.start, tensor.end):
        if part.number == DIMS and part.wire in (VARINT, BYTES):
            for extent in message.numbers(part, limits.DIMENSIONS + 1):
                size *= extent
    return size >= WEIGHT


def nothing_read(name: str, found: Survey) -> str:
    """Why a model without initialisers has no tensors, with what there is in their place; "" for nothing."""
    inside, own = found.inner(), found.weights
    where = [f"{_counted(own, 'constant')} of its graph"] if own else []
    where += [f"the graphs inside of its operations: {inside}"] if inside else []
    if not where:
        return ""
    return (
        f"{name}: no initialisers; its weights lie in {' and '.join(where)}, where names are the exporter's and which "
        "are not read; give the weights that it was exported from, or export it without branches"
    )


def notes(name: str, keys: Iterable[str], found: Survey) -> Iterator[str]:
    """What of a model's weights is not read, or has a name that an exporter made up."""
    if inside := found.inner():
        yield f"{name}: weights lie in graphs inside of its operations, too, and were not read: {inside}"
    if found.weights:
        yield f"{name}: {_counted(found.weights, 'constant')} of its graph may be weights and were not read"
    every = list(keys)
    if counted := [key for key in every if is_counted(key)]:
        yield f"{name}: {len(counted)} of {len(every)} initialisers have names that the exporter made up: {listed(counted, 3)}"


def notes_of_read(
    name: str, keys: Iterable[str], inner: str, is_made_up: Callable[[str], bool]
) -> Iterator[str]:
    """The same of a model whose graph was read."""
    if inner:
        yield f"{name}: weights lie in graphs inside of its operations, too, and were not read: {inner}"
    every = list(keys)
    if counted := [key for key in every if is_made_up(key)]:
        yield f"{name}: {len(counted)} of {len(every)} weights have names that the exporter made up: {listed(counted, 3)}"


def nameless(tensors: dict[str, tuple[int, ...]], is_made_up: Callable[[str], bool] = is_counted) -> str:
    """Why the names do not say what the model is: the exporter counted its maps up; "" where they have names."""
    maps = [key for key, shape in tensors.items() if len(shape) > 1 and _size(shape) >= WEIGHT]
    counted = [key for key in maps if is_made_up(key)]
    if not counted:
        return ""
    return (
        f"{len(counted)} of {len(maps)} maps have names that the exporter made up ({shorten(counted[0])}): which layer's they "
        "are the graph does not say for sure; give the weights that the model was exported from"
    )


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
