"""A flow's statements for one block: guards resolved, constants and copies propagated, nothing left that is not read."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mapper.errors import FlowError
from mapper.flows.flow import Flow
from mapper.flows.language import copied, dotted, is_fact, is_has, is_option, targets

Has = Callable[[str], bool]  # whether the block has this role (a dotted path)
Lookup = Callable[[str], Any]  # the value of a fact by the name the flow uses; raises KeyError


def specialise(
    flow: Flow, has: Has, lookup: Lookup, passed: frozenset[str], options: Mapping[str, bool]
) -> list[ast.stmt]:
    """The statements that this block runs; `passed` are names that blocks below may read as context.

    Raises FlowError for a guard on a fact that nobody knows.
    """
    statements = _resolve(copied(list(flow.statements)), _Guards(flow, has, lookup, options))
    statements = [_Literals(lookup).visit(statement) for statement in statements]
    return _simplify(statements, set(flow.rule.takes), passed)


class _Guards:
    def __init__(self, flow: Flow, has: Has, lookup: Lookup, options: Mapping[str, bool]):
        self.flow, self.has, self.lookup, self.options = flow, has, lookup, options

    def holds(self, node: ast.expr) -> bool:
        if isinstance(node, ast.BoolOp):
            values = (self.holds(value) for value in node.values)
            return all(values) if isinstance(node.op, ast.And) else any(values)
        if isinstance(node, ast.UnaryOp):
            return not self.holds(node.operand)
        if is_option(node):
            return self.options.get((dotted(node) or "").removeprefix("option."), False)
        if is_has(node):
            return self.has(dotted(node.args[0]) or "")  # type: ignore[attr-defined]
        if isinstance(node, ast.Compare):
            return _compare(node.ops[0], self.fact(node.left), node.comparators[0].value)  # type: ignore[attr-defined]
        return bool(self.fact(node))

    def fact(self, node: ast.expr) -> Any:
        name = (dotted(node) or "").removeprefix("fact.")
        try:
            return self.lookup(name)
        except KeyError:
            rule = self.flow.rule
            raise FlowError(
                f"{rule.file}:{rule.line}: {rule.name} needs fact {name}, which is unknown here"
            ) from None


def _compare(operator: ast.cmpop, left: Any, right: Any) -> bool:
    if isinstance(operator, ast.Eq):
        return bool(left == right)
    if isinstance(operator, ast.NotEq):
        return bool(left != right)
    if not isinstance(left, (int, float)):
        return False
    return left > right if isinstance(operator, ast.Gt) else left < right


def _resolve(statements: Iterable[ast.stmt], guards: _Guards) -> list[ast.stmt]:
    """Guards folded; what follows a return dropped."""
    kept: list[ast.stmt] = []
    for node in statements:
        if isinstance(node, ast.If):
            kept += _resolve(node.body if guards.holds(node.test) else node.orelse, guards)
        elif isinstance(node, ast.For):
            node.body = _resolve(node.body, guards)
            if node.body:
                kept.append(node)
        else:
            kept.append(node)
        if kept and isinstance(kept[-1], ast.Return):
            break
    return kept


class _Literals(ast.NodeTransformer):
    """Facts that are words, truth values or None become literals; numbers and lists stay facts (they are sizes)."""

    def __init__(self, lookup: Lookup):
        self.lookup = lookup

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if not is_fact(node):
            return self.generic_visit(node)
        try:
            value = self.lookup((dotted(node) or "").removeprefix("fact."))
        except KeyError:
            return node
        return ast.Constant(value) if value is None or isinstance(value, (str, bool)) else node


def _simplify(statements: list[ast.stmt], parameters: set[str], passed: frozenset[str]) -> list[ast.stmt]:
    while True:
        before = [ast.dump(node) for node in statements]
        statements = _drop_unread(_propagate(statements, parameters | passed), passed)
        if [ast.dump(node) for node in statements] == before:
            return _return_last(statements)


def _return_last(statements: list[ast.stmt]) -> list[ast.stmt]:
    """`x = f(y)` and then `return x` is `return f(y)`."""
    if len(statements) < 2:
        return statements
    last, end = statements[-2:]
    if not isinstance(last, ast.Assign) or not isinstance(end, ast.Return):
        return statements
    name, value = last.targets[0], end.value
    if isinstance(name, ast.Name) and isinstance(value, ast.Name) and name.id == value.id:
        return [*statements[:-2], ast.Return(last.value)]
    return statements


def _bound(statements: Iterable[ast.stmt]) -> Counter[str]:
    """How often each name is bound, loops included."""
    count: Counter[str] = Counter()
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Assign):
                count.update(targets(node.targets[0]))
            elif isinstance(node, ast.For):
                count.update(targets(node.target))
    return count


def _propagate(statements: list[ast.stmt], parameters: set[str]) -> list[ast.stmt]:
    """One copy `a = b` or constant `a = 1` at the top level is substituted, if neither name is bound again."""
    bound = _bound(statements)
    for index, node in enumerate(statements):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name, value = node.targets[0].id, node.value
        settled = isinstance(value, ast.Constant) or (
            isinstance(value, ast.Name)
            and bound[value.id] + (value.id in parameters) <= 1
            and not _bound_after(statements, index, value.id)
        )
        if settled and bound[name] == 1 and name not in parameters:
            rest = [_Rename(name, value).visit(statement) for statement in statements[index + 1 :]]
            return statements[:index] + rest
    return statements


def _bound_after(statements: list[ast.stmt], index: int, name: str) -> bool:
    """Whether a later statement binds the name."""
    return name in _bound(statements[index + 1 :])


class _Rename(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr):
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return copied(self.value) if node.id == self.name and isinstance(node.ctx, ast.Load) else node


def _drop_unread(statements: list[ast.stmt], passed: frozenset[str]) -> list[ast.stmt]:
    """Assignments whose names nobody reads vanish: operations are pure."""
    read = {
        node.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    return _without(statements, read | passed)


def _without(statements: list[ast.stmt], read: set[str]) -> list[ast.stmt]:
    kept: list[ast.stmt] = []
    for node in statements:
        if isinstance(node, ast.Assign) and not read.intersection(targets(node.targets[0])):
            continue
        if isinstance(node, ast.For):
            node.body = _without(node.body, read)
            if not node.body:
                continue
        kept.append(node)
    return kept
