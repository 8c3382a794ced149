"""A flow's statements for one block: guards resolved, constants and copies propagated, nothing left that is not read."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any

from mapper.errors import FlowError
from mapper.flows.flow import Flow
from mapper.flows.fold import fold
from mapper.flows.guards import Answers, holds
from mapper.flows.language import copied, dotted, every, is_fact, targets
from mapper.flows.walk import bindings, names_read

ACTIVATION = "activation"  # called in a row of modules, as one of them
Has = Callable[[str], bool]  # whether the block has this role (a dotted path)
Lookup = Callable[[str], Any]  # the value of a fact by the name the flow uses; raises KeyError


def specialise(
    flow: Flow,
    has: Has,
    lookup: Lookup,
    passed: frozenset[str],
    options: Mapping[str, bool],
    lost: set[str] | None = None,
) -> list[ast.stmt]:
    """The statements that this block runs, as a reader would write them.

    `passed` are names that blocks below may read as context. Into `lost` go the names of what would be computed and
    is not, as nothing reads it, and of what is computed for an output alone. Raises FlowError for a guard on a fact
    that nobody knows.
    """
    statements = copied(_unguarded(flow.statements, _answers(flow, has, lookup, options)))
    ties = {role: path for role, path in flow.rule.ties.items() if not has(role) and has(path)}
    statements = [_Tied(ties).visit(_Literals(lookup).visit(statement)) for statement in statements]
    statements = _simplify(_unheard(statements, flow.roles), set(flow.rule.takes), passed, lost)
    if lost is not None and flow.rule.topic == "root":
        lost |= _for_outputs_alone(statements) - passed
    return fold(statements, (*flow.rule.roles, ACTIVATION), passed) if flow.rule.steps else statements


def _answers(flow: Flow, has: Has, lookup: Lookup, options: Mapping[str, bool]) -> Answers:
    """What decides the guards of a flow. Its answer is a FlowError for a fact that nobody knows."""

    def fact(name: str) -> Any:
        try:
            return lookup(name)
        except KeyError:
            rule = flow.rule
            raise FlowError(
                f"{rule.file}:{rule.line}: {rule.name} needs fact {name}, which is unknown here"
            ) from None

    return Answers(has, fact, lambda name: options.get(name, False))


def _unguarded(statements: Iterable[ast.stmt], answers: Answers) -> list[ast.stmt]:
    """Guards folded; what follows a return dropped. No statement is changed: all blocks of a flow share them."""
    kept: list[ast.stmt] = []
    for node in statements:
        if isinstance(node, ast.If):
            kept += _unguarded(node.body if holds(node.test, answers) else node.orelse, answers)
        elif isinstance(node, ast.For):
            body = _unguarded(node.body, answers)
            if body:
                kept.append(_with_body(node, body))
        else:
            kept.append(node)
        if kept and isinstance(kept[-1], ast.Return):
            break
    return kept


def _with_body(loop: ast.For, body: list[ast.stmt]) -> ast.For:
    """A loop with other statements."""
    made = copy(loop)
    made.body = body
    return made


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


class _Tied(ast.NodeTransformer):
    """A call of a map without tensors of its own reads the weight that it is tied to."""

    def __init__(self, ties: Mapping[str, str]):
        self.ties = ties

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        path = self.ties.get(dotted(node.func) or "")
        if path is None:
            return node
        linear, weight = (ast.parse(text, mode="eval").body for text in ("F.linear", f"{path}.weight"))
        return ast.Call(linear, [*node.args, weight], [])


def _unheard(statements: list[ast.stmt], roles: frozenset[str]) -> list[ast.stmt]:
    """Without a name for a path of roles, behind which neither a block nor a statement can read it."""
    kept: list[ast.stmt] = []
    read: set[str] = set()
    is_called = False
    for node in reversed(statements):
        names = [child for child in every(node) if isinstance(child, ast.Name)]
        is_path = isinstance(node, ast.Assign) and dotted(node.value)
        bound = list(targets(node.targets[0])) if is_path else []  # type: ignore[attr-defined]
        if not bound or is_called or read.intersection(bound):
            kept.insert(0, node)
            read.update(name.id for name in names if isinstance(name.ctx, ast.Load))
        calls = [child.func for child in every(node) if isinstance(child, ast.Call)]
        is_called = is_called or isinstance(node, ast.For)  # over blocks
        is_called = is_called or any((dotted(call) or "").partition(".")[0] in roles for call in calls)
    return kept


def _simplify(
    statements: list[ast.stmt], parameters: set[str], passed: frozenset[str], lost: set[str] | None
) -> list[ast.stmt]:
    while True:
        spread = _propagate(statements, parameters | passed)
        count = _count(spread)
        kept = _drop_unread(spread, passed)
        if lost is not None:
            lost |= _computed(spread) - set(bindings(kept))
        if spread is statements and _count(kept) == count:
            return _return_last(kept)
        statements = kept


def _computed(statements: list[ast.stmt]) -> set[str]:
    """The names that are bound to what a call gives."""
    made = (node for node in statements if isinstance(node, ast.Assign))
    calls = (node for node in made if any(isinstance(child, ast.Call) for child in every(node.value)))
    return {name for node in calls for name in targets(node.targets[0])}


def _for_outputs_alone(statements: list[ast.stmt]) -> set[str]:
    """The names that are bound to what a call gives and that nothing but the outputs of a model reads."""
    return _computed(statements) - names_read(node for node in statements if not isinstance(node, ast.Return))


def _count(statements: Iterable[ast.stmt]) -> int:
    return sum(1 + (_count(node.body) if isinstance(node, ast.For) else 0) for node in statements)


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


def _propagate(statements: list[ast.stmt], parameters: set[str]) -> list[ast.stmt]:
    """One copy `a = b` or constant `a = 1` at the top level is substituted, if neither name is bound again."""
    bound = Counter(bindings(statements))
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
    return name in bindings(statements[index + 1 :])


class _Rename(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr):
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return copied(self.value) if node.id == self.name and isinstance(node.ctx, ast.Load) else node


def _drop_unread(statements: list[ast.stmt], passed: frozenset[str]) -> list[ast.stmt]:
    """Assignments whose names nobody reads vanish, as operations are pure, and copies that are bound again before."""
    heard = [
        node for at, node in enumerate(statements) if not _is_overwritten(node, statements[at + 1 :], passed)
    ]
    return _without(heard, names_read(heard) | passed)


def _is_overwritten(node: ast.stmt, following: list[ast.stmt], passed: frozenset[str]) -> bool:
    """Whether a copy's or a constant's name is bound again before any statement, or block below, reads it."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return False
    if not isinstance(node.value, (ast.Name, ast.Constant)):
        return False
    name = node.targets[0].id
    for later in following:
        if name in passed or name in names_read([later]):
            return False
        if isinstance(later, ast.Assign) and name in targets(later.targets[0]):
            return True
    return False


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
