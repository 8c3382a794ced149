"""One node as an expression: the body of its operator's function where that is one line, else a call of it."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass

from mapper.checkpoint import TORCH_NAMES
from mapper.errors import ArchitectureError
from mapper.graphs.graph import Graph, Node, TensorRef
from mapper.graphs.operators import registry
from mapper.graphs.operators.registry import Operator, Parameter
from mapper.graphs.reading import type_name
from mapper.graphs.straight.values import Held

# Types that torch computes with; the others (eight bits of float and narrower) have rules of their own when they are cast.
COMPUTED = frozenset({
    "F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "U16", "U32", "U64", "BOOL", "C64", "C128",
})  # fmt: skip
LARGEST = 3.4028234663852886e38  # of float32: torch takes no larger number beside a tensor
SHORT = 300  # characters of an inlined body
VALUES = 64  # of a tensor in an attribute, written as a literal


@dataclass
class Written:
    """An expression, and which function it calls, if any."""

    text: str
    function: Operator | None = None


def write_call(node: Node, inputs: list[Held | None], version: int, source: str) -> Written:
    """The expression of a node. Raises ArchitectureError for an attribute that its operator's function does not know."""
    entry = registry.find(node.operator, node.domain, version)
    if entry is None:
        raise ArchitectureError(f"{source}: its graph uses what is not supported: {node} (version {version})")
    keywords = _keywords(node, entry, version, source)
    places = [one for one in entry.parameters if one.kind != "attribute"]
    if any(one.kind == "inputs" for one in places):
        given = [_argument(places[-1], held) for held in inputs]
        simple = None
    else:
        if len(inputs) > len(places):
            raise ArchitectureError(
                f"{source}: {node} (version {version}) has {len(inputs)} inputs, at most {len(places)} are known"
            )
        given = [_argument(one, held) for one, held in zip(places, inputs, strict=False)]
        while given and given[-1] == "None":
            given.pop()
        if any(one.default is None for one in places[len(given) :]):
            raise ArchitectureError(
                f"{source}: {node} (version {version}) has {len(given)} inputs, which are too few"
            )
        simple = _substituted(entry, dict(zip((one.name for one in places), given, strict=False)) | keywords)
    if simple is not None:
        return Written(simple)
    words = [*given, *(f"{name}={text}" for name, text in keywords.items())]
    return Written(f"{entry.function}({', '.join(words)})", entry)


def _keywords(node: Node, entry: Operator, version: int, source: str) -> dict[str, str]:
    """The attributes that are not as usual, as they are written."""
    found: dict[str, str] = {}
    for name, value in node.attributes.items():
        parameter = entry.parameter(name)
        if parameter is None:
            raise ArchitectureError(
                f"{source}: {node} (version {version}) has the attribute {name!r}, which is not known there"
            )
        text = _literal(node, parameter, value, version, source)
        if parameter.default is None or text != ast.unparse(ast.parse(parameter.default)):
            found[name] = text
    wanted = next(
        (one for one in entry.parameters if one.name == "outputs" and one.kind == "attribute"), None
    )
    count = max((place for place, name in enumerate(node.outputs, 1) if name), default=1)
    if wanted is not None and str(count) != wanted.default:
        found["outputs"] = str(count)
    for one in entry.parameters:
        if one.kind == "attribute" and one.default is None and one.name not in found:
            raise ArchitectureError(f"{source}: {node} (version {version}) lacks the attribute {one.name!r}")
    return found


def _literal(node: Node, parameter: Parameter, value: object, version: int, source: str) -> str:
    if "torch.dtype" in parameter.annotation and isinstance(value, int):
        if value == 0 and parameter.default == "None":
            return "None"
        word = type_name(value)
        if word not in COMPUTED:
            raise ArchitectureError(
                f"{source}: its graph uses what is not supported: {node} (version {version}) to the type {word}"
            )
        return f"torch.{TORCH_NAMES[word]}"
    if isinstance(value, TensorRef):
        return tensor_literal(value, source)
    if isinstance(value, Graph):
        raise ArchitectureError(
            f"{source}: {node} (version {version}) has a graph in {parameter.name!r}, which is not known there"
        )
    if isinstance(value, list):
        return f"[{', '.join(_one(item) for item in value)}]"
    return _one(value)


def _one(value: object) -> str:
    if isinstance(value, bytes):
        return ascii(value.decode("utf-8", "replace"))  # places in a row are counted in bytes by `ast`
    if isinstance(value, float):
        return float_text(value)
    return repr(int(value)) if isinstance(value, int) else ascii(str(value))


def float_text(value: float) -> str:
    """A float32 as short as it can be written, and no larger than the largest; what is no number as `math` has it."""
    if math.isnan(value):
        return "math.nan"
    if math.isinf(value):
        return "math.inf" if value > 0 else "-math.inf"
    import struct

    for digits in range(6, 18):
        text = f"{value:.{digits}g}"
        try:
            if struct.pack("<f", float(text)) == struct.pack("<f", value) and abs(float(text)) <= LARGEST:
                return repr(float(text))
        except OverflowError:
            continue
    return repr(value)


def tensor_literal(ref: TensorRef, source: str) -> str:
    """A small tensor as text."""
    if ref.size > VALUES or ref.dtype not in COMPUTED or ref.dtype.startswith("C"):
        raise ArchitectureError(
            f"{source}: a tensor of {ref.dtype} {list(ref.shape)} in an attribute is not written as text"
        )
    return values_literal(ref.read(), ref.dtype)


def values_literal(tensor: object, dtype: str) -> str:
    found = tensor.tolist()  # type: ignore[attr-defined]

    def text(value: object) -> str:
        if isinstance(value, list):
            return f"[{', '.join(map(text, value))}]"
        if isinstance(value, float) and dtype == "F64" and math.isfinite(value):
            return repr(value)
        return float_text(value) if isinstance(value, float) else repr(value)

    usual = {"F32": "", "I64": "", "BOOL": ""}.get(dtype, f", dtype=torch.{TORCH_NAMES[dtype]}")
    empty = 0 in getattr(tensor, "shape", ())
    if empty:
        return f"torch.zeros({tuple(tensor.shape)}, dtype=torch.{TORCH_NAMES[dtype]})"  # type: ignore[attr-defined]
    return f"torch.tensor({text(found)}{usual})"


def _argument(parameter: Parameter, held: Held | None) -> str:
    """A value as a function takes it: whole numbers as Python's own where it says so."""
    if held is None:
        return "None"
    if held.is_sizes:
        return held.as_python() if parameter.takes_ints else held.as_tensor()
    if parameter.takes_floats and held.floats is not None:
        return f"[{', '.join(float_text(value) for value in held.floats)}]"
    return held.text


def _substituted(entry: Operator, given: dict[str, str]) -> str | None:
    """The body of a function of one line with its arguments in place; None where it is longer, or would compute one twice."""
    node = registry.definition(entry.file, entry.function)
    body = [
        row for row in node.body if not (isinstance(row, ast.Expr) and isinstance(row.value, ast.Constant))
    ]
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        return None
    arguments = {one.name: given.get(one.name, one.default) for one in entry.parameters}
    replaced = _Replaced(
        {name: ast.parse(text, mode="eval").body for name, text in arguments.items() if text is not None}
    )
    tree = replaced.visit(ast.parse(ast.unparse(body[0].value), mode="eval").body)
    if replaced.is_repeated or _calls_own(body[0].value, tree, entry):
        return None
    text = ast.unparse(tree)
    return text if len(text) <= SHORT else None


def _calls_own(body: ast.expr, tree: ast.expr, entry: Operator) -> bool:
    """Whether another function of the operators is called in what is left of a body: it would have to be printed as well."""
    left = _names(tree) & _names(body) - {one.name for one in entry.parameters}
    return registry.has_functions(entry.file, left)


def _names(tree: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


class _Replaced(ast.NodeTransformer):
    def __init__(self, arguments: dict[str, ast.expr]):
        self.arguments, self.seen, self.is_repeated = arguments, set[str](), False

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.arguments.get(node.id)
        if found is None:
            return node
        if node.id in self.seen and not isinstance(found, (ast.Name, ast.Constant, ast.Attribute)):
            self.is_repeated = True
        self.seen.add(node.id)
        return found

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """A condition on an attribute is decided here."""
        test = _decided(_Replaced(self.arguments).visit(ast.parse(ast.unparse(node.test), mode="eval").body))
        if test is None:
            return self.generic_visit(node)
        return self.visit(node.body if test else node.orelse)


def _decided(test: ast.expr) -> bool | None:
    """Whether a condition of constants holds; None for any other."""
    try:
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            return bool(ast.literal_eval(test.left) == ast.literal_eval(test.comparators[0]))
        return bool(ast.literal_eval(test))
    except ValueError:
        return None
