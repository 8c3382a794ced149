"""Annotations of what flows pass around, followed from the public inputs and the operations' own signatures."""

from __future__ import annotations

import ast
from typing import Any

from mapper.architecture import Architecture, Block
from mapper.checkpoint import FLOATS
from mapper.errors import FlowError
from mapper.flows.language import MODULES, dotted, is_fact, is_given, is_none_asked, is_optional
from mapper.flows.program import Loops, Piece, Program, loop_items
from mapper.flows.references import chain, refer
from mapper.flows.walk import Walk
from mapper.limits import FLOW_CALLS
from mapper.operations.registry import Signature, operation_names, operation_signature

_OPTIONAL = " | None"
_NUMBERS = ("min", "max", "len", "round")


class Types:
    """Annotations of every parameter and return value of a program."""

    def __init__(self, program: Program, inputs: dict[str, str]):
        self.program, self.inputs = program, inputs
        self.operations = frozenset(operation_names())
        self.parameters: dict[tuple[int, str], str] = {}
        self.results: dict[int, str] = {}
        self.visits = 0
        self.outputs: dict[str, str] = {}  # fields of the root's output
        self.required: set[tuple[int, str]] = set()  # parameters that may not be None, whoever passes them
        self.asserted: dict[int, list[str]] = {}  # statement -> optional names that it needs
        self.nullable: set[int] = set()  # `optional(x, value)` of which the value may be None, too
        for _ in range(3):  # a value can pass three levels before its own type is settled
            self.asserted.clear()
            self.nullable.clear()
            self.visit(program.root, dict(inputs))

    def of(self, piece: Piece, name: str) -> str:
        """The annotation of one parameter."""
        annotation = self.parameters.get((id(piece), name), "Tensor")
        return annotation.removesuffix(_OPTIONAL) if (id(piece), name) in self.required else annotation

    def returns(self, piece: Piece) -> str:
        """The annotation of the return value."""
        return "Output" if piece is self.program.root else self.results.get(id(piece), "Tensor")

    def visit(self, piece: Piece, known: dict[str, str]) -> str:
        self.visits += 1
        if self.visits > 3 * FLOW_CALLS:  # each flow of a nest calling the next one twice doubles them
            raise FlowError(f"the flows call one another more than {FLOW_CALLS} times")
        for name in (*piece.takes, *piece.context):
            key = (id(piece), name)
            self.parameters[key] = _join(self.parameters.get(key), known.get(name, "Tensor"))
        walk = _Walk(self, piece)
        walk.block(piece.statements)
        self.results[id(piece)] = walk.result
        return walk.result


def _join(one: str | None, other: str) -> str:
    """The annotation that admits both."""
    if one is None or one == other:
        return other
    if "None" in (one, other):
        rest = other if one == "None" else one
        return rest if rest.endswith(_OPTIONAL) else rest + _OPTIONAL
    return max(one, other, key=len) if one.removesuffix(_OPTIONAL) == other.removesuffix(_OPTIONAL) else one


class _Walk(Walk):
    def __init__(self, types: Types, piece: Piece):
        self.types, self.piece = types, piece
        self.own = (*piece.takes, *piece.context)
        self.names = {name: types.of(piece, name) for name in self.own}
        self.loops: Loops = {}
        self.result = "Tensor"
        self.looked_at: ast.stmt | None = None  # the one that is looked at
        self.in_choice = False  # in the value of `optional(x, value)`

    def statement(self, node: ast.stmt) -> None:
        self.looked_at = node
        super().statement(node)

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        self.name(target, self.type(value))

    def loop(self, node: ast.For) -> None:
        self.loops.update(loop_items(self.piece.block, node, self.loops))
        self.elements(node.target, node.iter)

    def leave(self, value: ast.expr) -> None:
        self.result = self.type(value)

    def read(self, node: ast.expr) -> None:
        self.type(node)

    def name(self, target: ast.expr, annotation: str) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = annotation
        elif isinstance(target, ast.Tuple):
            for item, part in zip(target.elts, _parts(annotation, len(target.elts)), strict=True):
                self.name(item, part)

    def elements(self, target: ast.expr, source: ast.expr) -> None:
        call = dotted(source.func) if isinstance(source, ast.Call) else None
        if call == "zip" and isinstance(target, ast.Tuple) and isinstance(source, ast.Call):
            for part, item in zip(target.elts, source.args, strict=False):
                self.elements(part, item)
        elif call == "enumerate" and isinstance(target, ast.Tuple) and isinstance(source, ast.Call):
            self.name(target.elts[0], "int")
            self.elements(target.elts[1], source.args[0])
        elif is_fact(source):
            values = self.fact(source) or [0]
            self.name(target, type(values[0]).__name__ if isinstance(values, (list, tuple)) else "int")
        elif isinstance(source, ast.Subscript) and isinstance(source.slice, ast.Slice):
            self.elements(target, source.value)
        else:
            outer = self.type(source)
            self.name(target, outer[5:-1] if outer.startswith("list[") else "Tensor")

    def fact(self, node: ast.expr) -> Any:
        fact = self.piece.block.facts.get((dotted(node) or "").removeprefix("fact."))
        return fact.value if fact else None

    def require(self, node: ast.expr) -> None:
        """A name that is read where None will not do: a parameter is asked of the callers, others are asserted."""
        if not isinstance(node, ast.Name) or not self.names.get(node.id, "").endswith(_OPTIONAL):
            return
        if not self.in_choice and node.id in self.own and self.piece is not self.types.program.root:
            self.types.required.add((id(self.piece), node.id))
        else:
            self.types.asserted.setdefault(id(self.looked_at), []).append(node.id)
        self.names[node.id] = self.names[node.id].removesuffix(_OPTIONAL)

    def chosen(self, node: ast.Call) -> str:
        """The type of `optional(x, value)`: in the value, x is there, and what is asserted there holds there alone."""
        before = dict(self.names)
        name = dotted(node.args[0]) or ""
        self.names[name] = self.names.get(name, "Tensor").removesuffix(_OPTIONAL)
        self.in_choice = True
        result = self.type(node.args[1])
        if result.endswith(_OPTIONAL):
            self.types.nullable.add(id(node))
        self.names, self.in_choice = before, False
        return _join(result, "None")

    def either(self, node: ast.IfExp) -> str:
        """The type of `a if x is None else b`: in one of them, x is there."""
        assert isinstance(node.test, ast.Compare)
        without, with_it = (
            (node.body, node.orelse) if isinstance(node.test.ops[0], ast.Is) else (node.orelse, node.body)
        )
        result = self.type(without)
        return _join(
            self.chosen(ast.Call(ast.Name("optional"), [node.test.left, with_it], [])).removesuffix(
                _OPTIONAL
            ),
            result,
        )

    def type(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return self.names.get(node.id, "Tensor")
        if isinstance(node, ast.Constant):
            return "None" if node.value is None else type(node.value).__name__
        if isinstance(node, ast.Tuple):
            return f"tuple[{', '.join(self.type(item) for item in node.elts)}]"
        if isinstance(node, ast.List):
            return f"list[{self.type(node.elts[0])}]" if node.elts else "list[Tensor]"
        if isinstance(node, ast.Dict):
            joined = None
            for value in node.values:
                empty = isinstance(value, ast.List) and not value.elts
                joined = _join(joined, "list[Any]" if empty else self.type(value))
            return f"dict[str, {joined}]"
        if isinstance(node, ast.Subscript):
            return self.subscript(node)
        if isinstance(node, ast.Call):
            return self.call(node)
        if is_fact(node):
            return type(self.fact(node)).__name__
        if isinstance(node, ast.IfExp):
            return self.either(node)
        if is_none_asked(node):
            node.is_settled = not self.type(node.left).endswith("None")  # type: ignore[attr-defined]
            return "bool"
        return self.computed(node)

    def computed(self, node: ast.expr) -> str:
        """The type of arithmetic and of what a tensor has: extents are whole numbers, lists are put together."""
        kinds = set()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                kinds.add(self.type(child))
                self.require(child)
        if isinstance(node, ast.Attribute) and node.attr == "shape":
            return "tuple[int, ...]"
        kind = kinds.pop() if isinstance(node, ast.BinOp) and len(kinds) == 1 else ""
        return kind if kind == "int" or kind.startswith("list[") else "Tensor"

    def subscript(self, node: ast.Subscript) -> str:
        outer = self.type(node.value).removesuffix(_OPTIONAL)
        self.require(node.value)
        if outer.startswith("dict[str, "):
            return outer[10:-1]
        if outer.startswith("list["):
            return outer if isinstance(node.slice, ast.Slice) else outer[5:-1]
        if outer == "tuple[int, ...]":
            return outer if isinstance(node.slice, ast.Slice) else "int"
        return "Tensor"

    def call(self, node: ast.Call) -> str:
        parts = chain(node.func)
        reference = refer(self.piece.block, parts, self.loops) if parts else None
        if reference is not None and not reference.rest:
            return self.module(node, tuple(item for item in reference.items if isinstance(item, Block)))
        name = dotted(node.func)
        if name == "output" and self.piece is self.types.program.root:
            self.types.outputs = {str(keyword.arg): self.type(keyword.value) for keyword in node.keywords}
        if is_optional(node):
            return self.chosen(node)
        if is_given(node):
            return _join(self.type(node.args[0]).removesuffix(_OPTIONAL), self.type(node.args[1]))
        self.type(node.func)
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            self.type(argument)
        module, _, _ = (name or "").partition(".")
        for argument in node.args[: len(node.args) if reference else 1 if module in MODULES else 0]:
            self.require(argument)
        if name in self.types.operations:
            return self.operation(node, operation_signature(str(name)))
        if name in _NUMBERS and {self.type(argument) for argument in node.args} == {"int"}:
            return "int"
        return "Tensor"

    def operation(self, node: ast.Call, signature: Signature) -> str:
        """What an operation returns; it says which arguments may be None."""
        annotations = dict(zip(signature.parameters, signature.annotations, strict=True))
        named = ((annotations.get(str(keyword.arg)), keyword.value) for keyword in node.keywords)
        for annotation, argument in (*zip(signature.annotations, node.args, strict=False), *named):
            if annotation and not annotation.endswith("None"):
                self.require(argument)
        return signature.returns or "Tensor"

    def module(self, node: ast.Call, blocks: tuple[Block, ...]) -> str:
        result = "Tensor"
        given = [self.type(argument) for argument in node.args]
        named = {str(keyword.arg): self.type(keyword.value) for keyword in node.keywords}
        for block in blocks:
            piece = self.types.program.piece(block)
            known = {
                **{name: self.names.get(name, "Tensor") for name in piece.context},
                **dict(zip(piece.takes, given, strict=False)),
                **named,
            }
            result = self.types.visit(piece, known)
            for name, argument in (*zip(piece.takes, node.args, strict=False), *_named(node, piece)):
                if (id(piece), name) in self.types.required:
                    self.require(argument)
        return result


def _named(node: ast.Call, piece: Piece) -> list[tuple[str, ast.expr]]:
    """What a call gives by keyword, and the context that it passes on under the same name."""
    named = {str(keyword.arg): keyword.value for keyword in node.keywords}
    return [(name, named.get(name) or ast.Name(name)) for name in (*named, *piece.context)]


def _parts(annotation: str, count: int) -> list[str]:
    if annotation.startswith("tuple["):
        from mapper.emission.expressions import split

        parts = split(annotation[6:-1])
        if len(parts) == count:
            return parts
        if len(parts) == 2 and parts[1] == "...":
            return [parts[0]] * count
    return ["Tensor"] * count


def main_dtype(architecture: Architecture) -> str:
    """The floating-point type of most elements."""
    counts: dict[str, int] = {}
    for leaf in architecture.leaves:
        for info in leaf.tensors.values():
            if info.dtype in FLOATS:
                counts[info.dtype] = counts.get(info.dtype, 0) + info.size * leaf.place.instances
    return max(counts, key=lambda name: counts[name], default="F32")
