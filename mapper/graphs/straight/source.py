"""A whole file of a graph: its modules, its forward, and the functions that it calls."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

from mapper._version import __version__
from mapper.checkpoint import FLOATS, TORCH_NAMES
from mapper.emission.expressions import comment, quoted
from mapper.emission.guard import check_source
from mapper.emission.identifiers import identifier
from mapper.errors import ArchitectureError, FlowError
from mapper.graphs.graph import Graph, Model, TensorRef
from mapper.graphs.operators import registry
from mapper.graphs.straight.blocks import MOST, Blocks, Path, owned, statement
from mapper.graphs.straight.classes import Classes, are_plain, broken, called_for, placed, signature
from mapper.graphs.straight.planning import plan_of
from mapper.graphs.straight.support import functions_of
from mapper.graphs.straight.tidying import COUNT, WORD, renamed, tidy, used
from mapper.graphs.straight.ties import Pairs, tie_text
from mapper.graphs.straight.values import text_of
from mapper.graphs.straight.weights import Tree, is_dict, is_list, kind_of
from mapper.graphs.straight.writer import TAKEN, Writer

_PAD = "        "  # of a statement in a class
_HEAD = """from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn"""
_SOME = {"math.": "import math\n", "F.": "import torch.nn.functional as F\n"}  # imported where it is used


@dataclass(frozen=True)
class Straight:
    """A graph as source, and where the tensors of its module are."""

    text: str
    tensors: dict[str, TensorRef]
    inputs: dict[str, str]  # the graph's name of each -> the keyword
    outputs: tuple[str, ...]
    is_tied: bool = False  # whether it has a function `tie`


def write_model(model: Model) -> Straight:
    """The source of a model. Raises ArchitectureError for an operator that is not supported, by name and version."""
    plan = plan_of(model)
    graph, weights = plan.graph, plan.weights
    writer = Writer(model.opsets, weights, model.source, indent=2, layers=plan.layers)
    writer.ends = frozenset(value.name for value in graph.outputs)
    writer.taken |= set(registry.needed(functions_of(graph, model.opsets)))
    given = [value.name for value in graph.given()]
    own = {
        name: writer.variable(name) for name in given if identifier(name) == name and name not in writer.taken
    }
    inputs = {name: own[name] if name in own else writer.variable(name or "x") for name in given}
    for value in graph.given():
        writer.take(value, inputs[value.name], graph)
    outputs = [text_of(held) for held in writer.graph(graph)]
    text = _file(model, graph, writer, inputs, outputs, plan.ties)
    try:
        check_source(text)
    except FlowError as error:
        raise ArchitectureError(f"{model.source}: its graph cannot be written: {error}") from error
    return Straight(
        text, dict(weights.refs), inputs, tuple(value.name for value in graph.outputs), bool(plan.ties)
    )


def _file(
    model: Model, graph: Graph, writer: Writer, inputs: dict[str, str], outputs: list[str], ties: Pairs
) -> str:
    tree = writer.weights.tree
    called = {name: entry.file for name, entry in writer.functions.items()}
    taken = {*TAKEN, *registry.needed(called), *inputs.values(), "_"}
    classes = Classes(tree, partial(_members, classes={}), set(writer.extents.values()), taken)
    classes.members = partial(_members, classes=classes.of)
    rows, outputs = _rows(writer, classes, outputs, inputs)
    rows, outputs = tidy(rows, outputs, taken)
    first = (
        inputs[one.name] for one in graph.given() if one.kind == "tensor" and one.name == inputs[one.name]
    )
    rows, outputs = placed(rows, outputs, next(first, ""))
    written = [*classes.texts(), "\n".join(_model(graph, tree, classes.of, rows, inputs, outputs))]
    words = {word for text in written for word in WORD.findall(text)}
    functions = registry.sources({name: file for name, file in called.items() if name in words})
    head = f'"""{comment(model.source)}: written by mapper {__version__}.\n\nNo flow fits its names: its graph as straight-line code.\n"""'
    parts = [*functions, *written, *_loading(ties, tree)]
    return "\n\n\n".join([f"{head}\n\n{_imports(parts)}", *parts]) + "\n"


def _imports(parts: list[str]) -> str:
    text = _HEAD
    for word, row in _SOME.items():
        is_used = any(re.search(rf"(?<![\w.]){re.escape(word)}", part) for part in parts)
        text = text if is_used else text.replace(row, "")
    return text


def _rows(
    writer: Writer, classes: Classes, outputs: list[str], inputs: dict[str, str]
) -> tuple[list[str], list[str]]:
    """The statements of the model's own forward, where those of its modules are called."""
    kept = used(writer.rows, outputs)
    rows = [writer.rows[at] for at in kept]
    if len(rows) > MOST or not are_plain(rows):
        return rows, outputs
    tree = writer.weights.tree
    called = called_for(rows, inputs.values())
    table = {name: writer.variable(word) for name, word in called.items()}
    outputs = [renamed(text, table) for text in outputs]
    statements = [statement(renamed(writer.rows[at], table), writer.owners[at], tree) for at in kept]
    owned(statements)
    telling = (*table.values(), *writer.extents.values(), *inputs.values())
    classes.words = {name: word for name in telling if (word := COUNT.sub("", name)) not in TAKEN}
    blocks = Blocks(tree, statements, outputs, set(inputs.values()))
    return classes.rows(blocks.whole), outputs


def _model(
    graph: Graph,
    tree: Tree,
    classes: dict[Path, str],
    rows: list[str],
    inputs: dict[str, str],
    outputs: list[str],
) -> list[str]:
    found = [
        f"class Model({kind_of(tree)}):",
        "    def __init__(self) -> None:",
        "        super().__init__()",
    ]
    found += [*broken(_members(tree, (), classes=classes)), "", *_forward(graph, inputs)]
    keys = [value.name for value in graph.outputs]
    told = ", ".join(f"{quoted(key)}: {text}" for key, text in zip(keys, outputs, strict=True))
    return [*found, *broken([*rows, f"        return {{{told}}}"])]


def _forward(graph: Graph, inputs: dict[str, str]) -> list[str]:
    """The head of `forward`: each input under the graph's own name, also where that is no identifier."""
    own = {value: name for value, name in inputs.items() if value == name}
    others = {value: name for value, name in inputs.items() if value != name}
    names = [f"{name}: {_annotation(graph, value)}" for value, name in own.items()]
    names += [f"{name}: {_annotation(graph, value)} | None = None" for value, name in others.items()]
    names += ["**named: Any"] if others else []
    rows = _call(others["self"]) if "self" in others else []
    rows += signature(["self", *names], "dict[str, Any]")
    return rows + [f"        {name} = named.get({quoted(value)}, {name})" for value, name in others.items()]


def _call(name: str) -> list[str]:
    """How an input that is called `self` is given by keyword: Python has the word already."""
    return [
        "    def __call__(self, /, *given: Any, **named: Any) -> Any:",
        f'        return super().__call__(*given, **{{"{name}" if word == "self" else word: x for word, x in named.items()}})',
        "",
    ]


def _annotation(graph: Graph, name: str) -> str:
    value = graph.values[name]
    return "Tensor" if value.kind == "tensor" else "Any"


def _members(tree: Tree, path: Path, place: str = "self", *, classes: dict[Path, str]) -> list[str]:
    """The statements that make the modules of the one at a path, and their tensors; `classes` are those that have one."""
    rows: list[str] = []
    children = (
        sorted(tree.children.items(), key=lambda one: int(one[0])) if is_list(tree) else tree.children.items()
    )
    for word, child in children:
        if isinstance(child, TensorRef):
            made = f"torch.empty({tuple(child.shape)}{_dtype(child)})"
            if child.dtype in FLOATS:
                rows.append(f"{_PAD}{_at(tree, place, word)} = nn.Parameter({made})")
            else:
                rows.append(f'{_PAD}{place}.register_buffer("{word}", {made})')
            continue
        inside = (*path, word)
        whole = classes.get(inside) or child.made
        made = (
            f"{classes[inside]}()"
            if inside in classes
            else child.made or _equal_items(child, inside, classes)
        )
        rows += _container(tree, place, word, made or f"{kind_of(child)}()")
        rows += [] if whole or made else _members(child, inside, _at(tree, place, word), classes=classes)
    return rows


def _equal_items(tree: Tree, path: Path, classes: dict[Path, str]) -> str:
    """The expression of a list of modules of one class; "" for any other."""
    names = [classes.get((*path, word)) for word in tree.children] if is_list(tree) else []
    if not names or None in names or len(set(names)) > 1:
        return ""
    return f"nn.ModuleList({names[0]}() for _ in range({len(names)}))"


def _container(tree: Tree, place: str, word: str, made: str) -> list[str]:
    if is_list(tree):
        return [f"{_PAD}{place}.append({made})"]
    return [f"{_PAD}{_at(tree, place, word)} = {made}"]


def _at(tree: Tree, place: str, word: str) -> str:
    if is_list(tree):
        return f"{place}[{word}]"
    is_item = is_dict(tree) and isinstance(tree.children[word], Tree)  # a tensor is an attribute also there
    return f'{place}["{word}"]' if is_item else f"{place}.{word}"


def _dtype(ref: TensorRef) -> str:
    return "" if ref.dtype == "F32" else f", dtype=torch.{TORCH_NAMES.get(ref.dtype, 'uint8')}"


_LOAD = '''def load(path: str | Path) -> Model:
    """The model with the weights of a .safetensors file, ready to evaluate."""
    from safetensors.torch import load_file

    with torch.device("meta"):
        model = Model()
    model.load_state_dict(load_file(path), strict=True, assign=True)
    return model.eval()'''


def _loading(ties: Pairs, tree: Tree) -> list[str]:
    if not ties:
        return [_LOAD]
    return [tie_text(ties, tree), _LOAD.replace("    return", "    tie(model)\n    return")]
