"""What one answer to the guards leaves of a flow, as names alone: the checks ask thousands of times and copy no tree."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mapper.flows.answers import Answer, answers, guards_of
from mapper.flows.guards import Answers, holds
from mapper.flows.language import below, dotted, every, targets


@dataclass(frozen=True)
class Remains:
    """The names in what a block would run, and what it returns."""

    names: frozenset[str]
    end: ast.expr | None  # None where the last statement returns nothing


@dataclass(frozen=True)
class Part:
    """What a line names."""

    names: frozenset[str]
    reads: frozenset[str]
    heads: frozenset[str]  # what is called, up to the first dot
    bound: tuple[str, ...]  # the names that it gives to a path of roles, where it does nothing else
    is_loop: bool

    def calls(self, roles: frozenset[str]) -> bool:
        """Whether it calls a block, which may read any name before it."""
        return self.is_loop or not self.heads.isdisjoint(roles)


Line = tuple[ast.AST, ...]  # a statement, or a loop with what is reached in it
Row = (
    ast.stmt | tuple[Line, ...]
)  # a statement in which guards decide, or lines that always run, one after the other
Ties = tuple[tuple[str, str], ...]  # a role, and the path of the weight that it reads where it has none


def remains(
    first: Sequence[Row], last: Sequence[Row], roles: frozenset[str], ties: Ties, answer: Answer
) -> Remains:
    """What one answer leaves of rows, the last of which are the end of a flow; a role that nobody asks about is there.

    Of the last rows a name for a path of roles goes where neither a block nor a line behind it can read it.
    """
    said = _answering(answer)
    tied = tuple(tie for tie in ties if not said.has(tie[0]) and said.has(tie[1]))
    lines = [(line, part_of(line, tied)) for line in _reached(last, said)]
    heard = _heard(lines, roles)
    named = [part_of(line, tied).names for line in _reached(first, said)]
    return Remains(
        frozenset().union(*named, *(part.names for _, part in heard)), _end([line for line, _ in heard])
    )


@lru_cache(maxsize=2**13)
def always_calls(row: Row, roles: frozenset[str], ties: Ties) -> bool:
    """Whether a row calls a block, which may read any name before it, whatever its guards are answered."""
    if isinstance(row, tuple):
        return any(part_of(line, ties).calls(roles) for line in row)
    left = (_reached([row], _answering(answer)) for answer in answers(guards_of([row]).choices()))
    return all(any(part_of(line, ties).calls(roles) for line in lines) for lines in left)


def _answering(answer: Answer) -> Answers:
    """One answer, and of what nobody asks: a role is there, a fact is 1, an option is not chosen."""
    has, options, facts = answer
    return Answers(
        lambda role: has.get(role, True),
        lambda name: facts.get(name, 1),
        lambda name: options.get(name, False),
    )


def _heard(lines: Sequence[tuple[Line, Part]], roles: frozenset[str]) -> list[tuple[Line, Part]]:
    """The lines but those that name a path of roles, which neither a block nor a line behind them can read."""
    kept: list[tuple[Line, Part]] = []
    read: set[str] = set()
    is_called = False
    for item in reversed(lines):
        part = item[1]
        if not part.bound or is_called or not read.isdisjoint(part.bound):
            kept.append(item)
            if not is_called:
                read |= part.reads
        is_called = is_called or part.calls(roles)
    return kept[::-1]


@lru_cache(maxsize=2**13)
def part_of(line: Line, ties: Ties) -> Part:
    """What a line names, where these roles read the weights of others."""
    inside = [child for node in line for own in _own(node) for child in below(own)]
    called = [(child.func, dotted(child.func) or "") for child in inside if isinstance(child, ast.Call)]
    tied = dict(ties)
    silent = {id(name) for func, path in called if path in tied for name in every(func)}  # F.linear instead
    found = [child for child in inside if isinstance(child, ast.Name) and id(child) not in silent]
    weights = {tied[path].partition(".")[0] for _, path in called if path in tied}
    return Part(
        frozenset(name.id for name in found) | weights,
        frozenset(name.id for name in found if isinstance(name.ctx, ast.Load)) | weights,
        frozenset(path.partition(".")[0] for _, path in called if path not in tied),
        path_names(line[0]),
        isinstance(line[0], ast.For),
    )


def rows(statements: Iterable[ast.stmt]) -> Iterator[Row]:
    """The statements, those in a row that no guard decides put together as they always run."""
    together: list[Line] = []
    for node in statements:
        line = _always(node)
        if line is not None:
            together += line
        else:
            if together:
                yield tuple(together)
            together = []
            yield node
        if isinstance(node, ast.Return):
            break
    if together:
        yield tuple(together)


@lru_cache(maxsize=2**13)
def _always(node: ast.stmt) -> tuple[Line, ...] | None:
    """What always runs of a statement; None where a guard decides."""
    if any(isinstance(child, ast.If) for child in below(node)):
        return None
    return tuple(_reached([node], Answers(lambda _: False, lambda _: None, lambda _: None)))


def _reached(statements: Iterable[Row], answers: Answers) -> Iterator[Line]:
    """The statements that run, guards resolved; a loop with nothing in it does not."""
    for node in statements:
        if isinstance(node, tuple):
            yield from node
            if isinstance(node[-1][0], ast.Return):
                return
        elif isinstance(node, ast.If):
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


@lru_cache(maxsize=2**13)
def path_names(node: ast.AST) -> tuple[str, ...]:
    """The names that a statement gives to a path of roles and does nothing else."""
    is_path = isinstance(node, ast.Assign) and dotted(node.value)
    return tuple(targets(node.targets[0])) if is_path else ()  # type: ignore[attr-defined]


def _end(lines: Sequence[Line]) -> ast.expr | None:
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
