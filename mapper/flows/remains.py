"""What one answer to the guards leaves of a flow, as names alone: the checks ask thousands of times and copy no tree."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mapper.flows.flow import Flow
from mapper.flows.guards import Answers, holds
from mapper.flows.language import dotted, every, targets


@dataclass(frozen=True)
class Remains:
    """The names in what a block would run, and what it returns."""

    names: frozenset[str]
    end: ast.expr | None  # None where the last statement returns nothing


@dataclass(frozen=True)
class _Part:
    """A statement without those in it, or the head of a loop."""

    names: frozenset[str]
    reads: frozenset[str]
    calls: bool  # a block of the flow


_Line = tuple[ast.AST, ...]  # a statement, or a loop with what is reached in it


class Remainder:
    """Resolves one flow again and again, by names; `specialise` does it once, for the text."""

    def __init__(self, flow: Flow):
        self._flow = flow
        self._parts: dict[tuple[ast.AST, frozenset[str]], _Part] = {}
        self._known: dict[tuple[tuple[_Line, ...], frozenset[str]], Remains] = {}

    def under(
        self, roles: Mapping[str, bool], options: Mapping[str, bool], facts: Mapping[str, Any]
    ) -> Remains:
        """What is left with these roles, options and values of facts; a role that nobody asks about is there."""
        answers = Answers(
            lambda role: roles.get(role, True),
            lambda name: facts.get(name, 1),
            lambda name: options.get(name, False),
        )
        ties = self._flow.rule.ties
        tied = frozenset(role for role in ties if not answers.has(role) and answers.has(ties[role]))
        lines = tuple(_reached(self._flow.statements, answers))
        if (lines, tied) not in self._known:
            heard = self._heard(lines, tied)
            names = [self._part(node, tied).names for line in heard for node in line]
            self._known[lines, tied] = Remains(frozenset().union(*names), _end(heard))
        return self._known[lines, tied]

    def _heard(self, lines: tuple[_Line, ...], tied: frozenset[str]) -> list[_Line]:
        """The lines but those that name a path of roles, which neither a block nor a line behind them can read."""
        kept: list[_Line] = []
        read: set[str] = set()
        is_called = False
        for line in reversed(lines):
            parts = [self._part(node, tied) for node in line]
            bound = _path_names(line[0])
            if not bound or is_called or read.intersection(bound):
                kept.append(line)
                read.update(*(part.reads for part in parts))
            is_called = is_called or isinstance(line[0], ast.For) or any(part.calls for part in parts)
        return kept[::-1]

    def _part(self, node: ast.AST, tied: frozenset[str]) -> _Part:
        key = (node, tied)
        if key not in self._parts:
            self._parts[key] = self._read(node, tied)
        return self._parts[key]

    def _read(self, node: ast.AST, tied: frozenset[str]) -> _Part:
        below = [child for own in _own(node) for child in every(own)]
        called = [(child.func, dotted(child.func) or "") for child in below if isinstance(child, ast.Call)]
        silent = {
            id(name) for func, path in called if path in tied for name in every(func)
        }  # F.linear instead
        found = [child for child in below if isinstance(child, ast.Name) and id(child) not in silent]
        weights = {self._flow.rule.ties[path].partition(".")[0] for _, path in called if path in tied}
        heads = {path.partition(".")[0] for _, path in called if path not in tied}
        return _Part(
            frozenset(name.id for name in found) | weights,
            frozenset(name.id for name in found if isinstance(name.ctx, ast.Load)) | weights,
            not heads.isdisjoint(self._flow.roles),
        )


def _reached(statements: Iterable[ast.stmt], answers: Answers) -> Iterator[_Line]:
    """The statements that run, guards resolved; a loop with nothing in it does not."""
    for node in statements:
        if isinstance(node, ast.If):
            inner = list(_reached(node.body if holds(node.test, answers) else node.orelse, answers))
            yield from inner
            if inner and isinstance(inner[-1][0], ast.Return):
                return
        elif isinstance(node, ast.For):
            body = tuple(part for line in _reached(node.body, answers) for part in line)
            if body:
                yield (node, *body)
        else:
            yield (node,)
        if isinstance(node, ast.Return):
            return


def _own(node: ast.AST) -> tuple[ast.AST, ...]:
    """A loop is read by its head: what of its body runs stands beside it."""
    return (node.target, node.iter) if isinstance(node, ast.For) else (node,)


def _path_names(node: ast.AST) -> list[str]:
    """The names that a statement gives to a path of roles and does nothing else."""
    is_path = isinstance(node, ast.Assign) and dotted(node.value)
    return list(targets(node.targets[0])) if is_path else []  # type: ignore[attr-defined]


def _end(lines: list[_Line]) -> ast.expr | None:
    """What the last line returns; `x = f(y)` and then `return x` is `return f(y)`."""
    last = lines[-1][0] if lines else None
    if not isinstance(last, ast.Return):
        return None
    before = lines[-2][0] if len(lines) > 1 else None
    if isinstance(before, ast.Assign) and isinstance(last.value, ast.Name):
        name = before.targets[0]
        if isinstance(name, ast.Name) and name.id == last.value.id:
            return before.value
    return last.value
