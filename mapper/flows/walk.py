"""The statements of a flow in the order in which they run, and the names that they bind and read."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from mapper.flows.language import every, targets


class Walk:
    """Visits statements in order: what each reads comes before what it binds, and a loop's body once, after its head."""

    def block(self, statements: Iterable[ast.stmt]) -> None:
        for node in statements:
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            self.assign(node.targets[0], node.value)
        elif isinstance(node, ast.For):
            self.loop(node)
            self.block(node.body)
        elif isinstance(node, ast.If):
            self.branch(node)
        elif isinstance(node, ast.Return) and node.value is not None:
            self.leave(node.value)
        elif isinstance(node, ast.Expr):
            self.read(node.value)

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        self.read(value)
        self.bind(target)

    def loop(self, node: ast.For) -> None:
        self.read(node.iter)
        self.bind(node.target)

    def branch(self, node: ast.If) -> None:
        self.read(node.test)
        self.block(node.body)
        self.block(node.orelse)

    def leave(self, value: ast.expr) -> None:
        self.read(value)

    def read(self, node: ast.expr) -> None:
        """An expression whose value is used."""

    def bind(self, target: ast.expr) -> None:
        """Names that get a value."""


class _Bindings(Walk):
    def __init__(self) -> None:
        self.names: list[str] = []

    def bind(self, target: ast.expr) -> None:
        self.names += targets(target)


def bindings(statements: Iterable[ast.stmt]) -> list[str]:
    """Every name that the statements bind, in order and as often as they do, loops and branches included."""
    walk = _Bindings()
    walk.block(statements)
    return walk.names


def names_read(statements: Iterable[ast.stmt]) -> set[str]:
    """Every name that is read somewhere in the statements."""
    return {
        node.id
        for node in nodes(statements)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)
    }


def nodes(statements: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """Every node of the statements."""
    for statement in statements:
        yield from every(statement)
