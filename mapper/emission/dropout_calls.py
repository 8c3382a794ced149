"""Calls of dropout in statements that are linked, and in the operations that make attention weights."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping

from mapper.architecture import Block, Drop
from mapper.emission.line_breaks import lines
from mapper.errors import FlowError
from mapper.flows.hidden import carried
from mapper.flows.language import dotted
from mapper.flows.program import Piece, Program
from mapper.operations.registry import operation_calls, operation_names, operation_source

TRAINING = "self.training"
ROWS = ("path", "rows")  # whole rows of a batch: more often the deeper, or everywhere alike
RATE = "dropout_p"  # what torch calls it
_FUSED = "F.scaled_dot_product_attention"
_WEIGHTS = "softmax_masked"  # the operation that gives attention weights


def place_dropout(program: Program) -> None:
    """Write what every block drops into its statements. Raises FlowError where a block has no such call."""
    weighed = weighing_operations()
    found: dict[str, bool] = {}
    for piece in program.pieces.values():
        for drop in piece.block.drops:
            done = _write(piece, drop, weighed)
            found[drop.rate] = found.get(drop.rate, False) or done
            if drop.way != "probabilities" and not done:
                raise FlowError(f"{piece.flow.rule.name} has no {drop.way} of {drop.role} for {drop.rate}")
    for name, done in found.items():
        if not done:
            raise FlowError(f"no attention here shows its probabilities, which {name} drops")


def _write(piece: Piece, drop: Drop, weighed: frozenset[str]) -> bool:
    rate = ast.Attribute(ast.Name("fact", ast.Load()), drop.rate)
    if drop.way == "probabilities":
        return _Weights(rate, weighed).over(piece.statements)
    if drop.way == "skips":
        return _skip(piece, rate)
    if drop.way == "input" and isinstance(piece.block.roles.get(drop.role), list):
        return _stream(piece, drop, rate)
    if drop.role:
        return _Calls(drop, rate).over(piece.statements)
    return _result(piece.statements, drop, rate)


def _dropped(value: ast.expr, rate: ast.expr, way: str = "result") -> ast.expr:
    """`F.dropout(value, rate, self.training)`, or of whole rows of a batch."""
    function = ast.Name("drop_path") if way in ROWS else ast.Attribute(ast.Name("F", ast.Load()), "dropout")
    return ast.Call(function, [value, rate, ast.Name(TRAINING, ast.Load())], [])


def _result(statements: list[ast.stmt], drop: Drop, rate: ast.expr) -> bool:
    last = statements[-1]
    if not isinstance(last, ast.Return) or last.value is None:
        return False
    if isinstance(last.value, ast.Tuple):
        last.value.elts[0] = _dropped(last.value.elts[0], rate, drop.way)
    else:
        last.value = _dropped(last.value, rate, drop.way)
    return True


def _loops(piece: Piece, role: str) -> list[ast.For]:
    """The loops over a list role, however it is written in their heads."""
    loops = [node for node in piece.statements if isinstance(node, ast.For)]
    names = [{name.id for name in ast.walk(loop.iter) if isinstance(name, ast.Name)} for loop in loops]
    return [loop for loop, read in zip(loops, names, strict=True) if role in read]


def _stream(piece: Piece, drop: Drop, rate: ast.expr) -> bool:
    """What goes into the first of several layers."""
    for loop in _loops(piece, drop.role):
        if passed := carried(loop):
            name = passed[0]
            value = _dropped(ast.Name(name, ast.Load()), rate)
            at = piece.statements.index(loop)
            piece.statements.insert(at, ast.Assign([ast.Name(name, ast.Store())], value))
            return True
    return False


def _skip(piece: Piece, rate: ast.expr) -> bool:
    """Layers that a training step leaves out, each with the same chance."""
    loops = _loops(piece, "layers")
    for loop in loops:
        draw = ast.Call(ast.Attribute(ast.Name("torch", ast.Load()), "rand"), [ast.Tuple([])], [])
        loop.body.insert(0, ast.If(ast.Compare(draw, [ast.Lt()], [rate]), [ast.Continue()], []))
    return bool(loops)


class _Changes(ast.NodeTransformer):
    done = False

    def over(self, statements: list[ast.stmt]) -> bool:
        statements[:] = [self.visit(node) for node in statements]
        return self.done


class _Calls(_Changes):
    """Calls of a role: what goes in or what comes out is dropped."""

    def __init__(self, drop: Drop, rate: ast.expr):
        self.drop, self.rate = drop, rate

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if dotted(node.func) != self.drop.role or (self.drop.way == "input" and not node.args):
            return node
        self.done = True
        if self.drop.way != "input":
            return _dropped(node, self.rate, self.drop.way)
        node.args[0] = _dropped(node.args[0], self.rate)
        return node


class _Weights(_Changes):
    """Calls that weigh values by probabilities get the rate: none of it outside of training."""

    def __init__(self, rate: ast.expr, weighed: frozenset[str]):
        self.rate, self.weighed = rate, weighed

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = dotted(node.func)
        if name == _FUSED or name in self.weighed:
            self.done = True
            if any(keyword.arg == RATE for keyword in node.keywords):
                raise FlowError("two rates for the probabilities of one attention")
            part = ast.BinOp(self.rate, ast.Mult(), ast.Name(TRAINING, ast.Load()))
            node.keywords.append(ast.keyword(RATE, part))
        elif name == "F.softmax" or (isinstance(node.func, ast.Attribute) and node.func.attr == "softmax"):
            self.done = True
            return _dropped(node, self.rate)
        return node


def deepening_rows(tower: Block, classes: Mapping[str, str]) -> list[str]:
    """Lines of a tower's constructor: rates of whole rows grow from 0 for the first layer on. `classes`: class -> rate."""
    if not (tower.flow or "").startswith("tower/") or not classes:
        return []
    kinds = f"({', '.join(classes)})" if len(classes) > 1 else next(iter(classes))
    rate = next(iter(classes.values()))
    return [
        f"layers = [part for part in self.modules() if isinstance(part, {kinds})]",
        "for index, layer in enumerate(layers):",
        f"    layer.{rate} *= index / max(len(layers) - 1, 1)",
    ]


def weighing_operations() -> frozenset[str]:
    """Operations that make attention weights, by torch's function, by `softmax_masked` or by another of them."""
    known: set[str] = {_WEIGHTS}
    names = operation_names()
    known.update(name for name in names if f"{_FUSED}(" in operation_source(name))
    while more := {name for name in names if name not in known and known.intersection(operation_calls(name))}:
        known |= more
    return frozenset(known)


def training_source(name: str, weighed: frozenset[str]) -> str:
    """The source of an operation that takes the rate of what it drops of its weights."""
    rows = operation_source(name).split("\n")
    (node,) = ast.parse("\n".join(rows)).body
    if not isinstance(node, ast.FunctionDef):
        return "\n".join(rows)
    head_end = node.body[0].lineno - 1
    edits: list[tuple[int, int, list[str]]] = [(0, head_end, _head(rows[:head_end]))]
    for statement in _simple(node.body):
        start, end = statement.lineno - 1, statement.end_lineno or statement.lineno
        text = _joined(rows[start:end])
        changed = _with_rate(name, text, weighed)
        if changed != text:
            edits.append((start, end, lines(changed, statement.col_offset)))
    for start, end, new in reversed(edits):
        rows[start:end] = new
    return "\n".join(rows)


def _simple(body: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    for statement in body:
        inner = [*getattr(statement, "body", []), *getattr(statement, "orelse", [])]
        if inner:
            yield from _simple(inner)
        else:
            yield statement


def _joined(rows: list[str]) -> str:
    """A statement as one line, without the comment at its end."""
    text = " ".join(row.partition("  # ")[0].strip() for row in rows)
    return re.sub(r",? ([)\]])", r"\1", re.sub(r"([(\[]) ", r"\1", text))


def _head(rows: list[str]) -> list[str]:
    before, arrow, after = _joined(rows).rpartition(") -> ")
    return lines(f"{before}, {RATE}: float = 0.0{arrow}{after}", 0)


def _with_rate(name: str, text: str, weighed: frozenset[str]) -> str:
    if name == _WEIGHTS and text.startswith("return "):
        return f"return F.dropout({text.removeprefix('return ')}, {RATE})"
    for callee in (_FUSED, *weighed):
        for found in reversed(list(re.finditer(rf"(?<![\w.]){re.escape(callee)}\(", text))):
            end = _closing(text, found.end())
            text = f"{text[:end]}, {RATE}={RATE}{text[end:]}"
    return text


def _closing(text: str, start: int) -> int:
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0:
            return at
    raise FlowError(f"brackets in {text!r}")
