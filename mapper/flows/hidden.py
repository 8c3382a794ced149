"""The option `hidden_states`: towers also give back what went into each of their layers, and what came out at the end."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mapper.architecture import Block
from mapper.flows.language import dotted, every, is_optional, targets

STATES = "hidden_states"


def collect_states(statements: list[ast.stmt]) -> list[ast.stmt] | None:
    """A tower's statements with its states collected; None where no loop passes one value from layer to layer."""
    loops = (
        node for node in reversed(statements) if isinstance(node, ast.For)
    )  # the last: convolutions come first
    loop = next((node for node in loops if carried(node)), None)
    if loop is not None and isinstance(loop.iter, ast.Subscript):
        return None  # the layers before a place and those behind it: two loops
    last = statements[-1]
    if loop is None or not isinstance(last, ast.Return) or last.value is None:
        return None
    name, body = carried(loop) or ("", loop.body)
    first, *others = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    if others and not _is(first, name):
        return None  # what else is returned may be made of what the loop gave, not of the first value
    body.insert(0, _append(name))
    start = ast.Assign([ast.Name(STATES, ast.Store())], ast.List([]))
    end = [] if _is(first, name) else [ast.Assign([ast.Name(name, ast.Store())], first)]
    value = ast.Tuple([ast.Name(name, ast.Load()), *others, ast.Name(STATES, ast.Load())])
    at = statements.index(loop)
    return [*statements[:at], start, *statements[at:-1], *end, _append(name), ast.Return(value)]


def _append(name: str) -> ast.Expr:
    call = ast.Call(ast.Attribute(ast.Name(STATES, ast.Load()), "append"), [ast.Name(name, ast.Load())], [])
    return ast.Expr(call)


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def carried(loop: ast.For, outer: frozenset[str] = frozenset()) -> tuple[str, list[ast.stmt]] | None:
    """The name that each layer takes and assigns, `x` in `x = layer(x)`, and the body in which it does."""
    variables = outer.union(targets(loop.target))
    for node in loop.body:
        if isinstance(node, ast.For) and (found := carried(node, variables)):
            return found
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Call)
        ):
            name, arguments = node.targets[0].id, node.value.args
            if dotted(node.value.func) in variables and arguments and _is(arguments[0], name):
                return name, loop.body
    return None


def give_states(statements: list[ast.stmt], towers: dict[str, Block]) -> list[ast.stmt]:
    """The root's statements: calls of the towers named take the states too, and the output has them."""
    names: dict[str, str] = {}
    rows: list[ast.stmt] = []
    for node in statements:
        for role in list(_called(node, towers)):
            names[role] = STATES if len(towers) == 1 else f"{role}_{STATES}"
            hoisted, node = _hoist(node, role, names[role])
            rows += hoisted
        rows.append(node)
    last = rows[-1]
    if isinstance(last, ast.Return) and isinstance(last.value, ast.Call):
        last.value.keywords += [ast.keyword(name, ast.Name(name, ast.Load())) for name in names.values()]
    return rows


def _called(node: ast.stmt, towers: dict[str, Block]) -> Iterator[str]:
    if isinstance(node, ast.Assign) and is_optional(node.value):
        return  # it does not always run
    for child in every(node):
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id in towers:
            yield child.func.id


def _hoist(node: ast.stmt, role: str, name: str) -> tuple[list[ast.stmt], ast.stmt]:
    """`x = tower()` becomes `x, states = tower()`; a call inside of an expression gets a line of its own."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and dotted(node.value.func) == role:
        given = node.targets[0]
        values = given.elts if isinstance(given, ast.Tuple) else [given]
        node.targets = [ast.Tuple([*values, ast.Name(name, ast.Store())])]
        return [], node
    finder = _Replace(role)
    node = finder.visit(node)
    pair = ast.Tuple([ast.Name(f"{role}_output", ast.Store()), ast.Name(name, ast.Store())])
    return [ast.Assign([pair], finder.found)] if finder.found else [], node


class _Replace(ast.NodeTransformer):
    def __init__(self, role: str):
        self.role = role
        self.found: ast.Call | None = None

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if self.found is None and dotted(node.func) == self.role:
            self.found = node
            return ast.Name(f"{self.role}_output", ast.Load())
        return self.generic_visit(node)
