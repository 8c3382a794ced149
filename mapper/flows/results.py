"""How many values each block of a program gives, and whether those who call it take as many.

A flow is checked by itself when rules are read; which blocks stand around it is known of a checkpoint alone. Where
nobody vouches for how they were put together, one may give several values and another read them as one tensor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from mapper.architecture import Block, Leaf
from mapper.errors import FlowError
from mapper.flows.language import dotted, is_fact
from mapper.flows.program import Loops, Piece, Program, loop_items
from mapper.flows.references import Reference, chain, refer
from mapper.flows.walk import Walk
from mapper.limits import FLOW_CALLS
from mapper.operations.registry import operation_names, operation_signature

_UNKNOWN, _ONE = 0, 1  # results; two and more are so many
_STATES = "last_hidden_state"  # the output that is one tensor in every model
_TORCH = "F."  # before torch's own functions, whose first argument is one tensor
_SINGLE = ("Linear", "Embedding", "Conv", "Norm")  # in the kinds of leaves that give one


def check_results(program: Program) -> None:
    """FlowError where a block gives several values that are read as one tensor, or another number of them."""
    _Results(program).visit(program.root, {})


class _Results:
    """The number of results of each piece, for what it is given."""

    def __init__(self, program: Program):
        self.program = program
        self.operations = frozenset(operation_names())
        self.known: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}

    def visit(self, piece: Piece, given: dict[str, int]) -> int:
        several = {name: count for name, count in given.items() if count > _ONE}
        key = (id(piece), tuple(sorted(several.items())))
        if key not in self.known:
            if len(self.known) > FLOW_CALLS:
                raise FlowError(f"the flows call one another more than {FLOW_CALLS} times")
            self.known[key] = _UNKNOWN
            walk = _Walk(self, piece, several)
            walk.block(piece.statements)
            self.known[key] = walk.result
        return self.known[key]


class _Walk(Walk):
    def __init__(self, results: _Results, piece: Piece, several: dict[str, int]):
        self.results, self.piece = results, piece
        self.names = dict(several)
        self.loops: Loops = {}
        self.result = _UNKNOWN

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        count = self.count(value)
        if isinstance(target, ast.Tuple):
            if count and count != len(target.elts):
                raise self.misfit(value, count, f"{len(target.elts)} are read")
            for item in target.elts:
                self.names.pop(dotted(item) or "", None)
        elif isinstance(target, ast.Name):
            self.names[target.id] = count

    def loop(self, node: ast.For) -> None:
        self.loops.update(loop_items(self.piece.block, node, self.loops))
        self.read(node.iter)

    def leave(self, value: ast.expr) -> None:
        self.result = self.count(value)

    def read(self, node: ast.expr) -> None:
        self.count(node)

    def count(self, node: ast.expr) -> int:
        """How many values an expression gives; what it reads is looked at on the way."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, _UNKNOWN)
        if isinstance(node, ast.Tuple):
            counts = [self.count(item) for item in node.elts]
            return len(counts) if not any(isinstance(item, ast.Starred) for item in node.elts) else _UNKNOWN
        if isinstance(node, ast.Call):
            return self.call(node)
        if is_fact(node):
            return _UNKNOWN
        children = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        if isinstance(node, ast.BinOp):
            self.take_one(children)
            return _ONE
        for child in children:
            self.count(child)
        return _UNKNOWN

    def call(self, node: ast.Call) -> int:
        parts = chain(node.func)
        reference = refer(self.piece.block, parts, self.loops) if parts else None
        if reference is not None and not reference.rest:
            return self.module(node, reference)
        name = dotted(node.func) or ""
        if name in self.results.operations:
            signature = operation_signature(name)
            pairs = zip(node.args, signature.annotations, strict=False)
            self.take_one(argument for argument, said in pairs if said.removesuffix(" | None") == "Tensor")
            return _UNKNOWN if signature.is_module else signature.arity
        if isinstance(node.func, ast.Attribute):
            self.count(node.func)
        if name.startswith(_TORCH):
            self.take_one(node.args[:1])
        if name == "output":
            self.take_one(keyword.value for keyword in node.keywords if keyword.arg == _STATES)
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            self.count(argument)
        return _UNKNOWN

    def module(self, node: ast.Call, reference: Reference) -> int:
        """The results of a leaf, which takes tensors alone (but for a state), or of blocks, which may pass on what they get."""
        if all(isinstance(item, Leaf) for item in reference.items):
            is_single = all(any(kind in str(item.kind) for kind in _SINGLE) for item in reference.items)
            self.take_one(node.args if is_single else node.args[:1])
            return _ONE if is_single else _UNKNOWN  # recurrent networks give several, and take a state of two
        given = [self.count(argument) for argument in node.args]
        named = {str(keyword.arg): self.count(keyword.value) for keyword in node.keywords}
        found = {
            self.block_results(item, given, named) for item in reference.items if isinstance(item, Block)
        }
        return found.pop() if len(found) == 1 else _UNKNOWN

    def block_results(self, block: Block, given: list[int], named: dict[str, int]) -> int:
        piece = self.results.program.piece(block)
        around = {name: self.names.get(name, _UNKNOWN) for name in piece.context}
        return self.results.visit(piece, {**around, **dict(zip(piece.takes, given, strict=False)), **named})

    def take_one(self, arguments: Iterable[ast.expr]) -> None:
        for argument in arguments:
            count = self.count(argument)
            if count > _ONE:
                raise self.misfit(argument, count, "one is read")

    def misfit(self, value: ast.expr, count: int, read: str) -> FlowError:
        rule, home = self.piece.flow.rule, self.piece.block.home
        given = "1 value" if count == _ONE else f"{count} values"
        return FlowError(f"{rule.name} at '{home}': {ast.unparse(value)} is {given} here, and {read}")
