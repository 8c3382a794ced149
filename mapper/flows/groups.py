"""The rows of a flow in groups that no guard ties together: answers to the guards of one change nothing in another.

A flow of four steps with four guards each has 65,536 answers, and what may be wrong with it is seen in four times 16:
a role that is used under every answer is used so by one of the groups, whatever the others are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mapper.flows.answers import Question, answers, guards_of
from mapper.flows.flow import Flow
from mapper.flows.guards import ROLE
from mapper.flows.language import below, dotted
from mapper.flows.remains import Part, Row, Ties, part_of, path_names, remains, rows

Choices = tuple[tuple[Question, tuple[Any, ...], tuple[type, ...]], ...]  # 1 and True are the same in a table


@dataclass(frozen=True)
class Group:
    """Rows of a flow that share guards, and what these may be answered."""

    first: tuple[Row, ...]
    last: tuple[Row, ...]  # those of them that are the end of the flow
    choices: Choices
    roles: frozenset[str]
    ties: Ties


@dataclass(frozen=True)
class Found:
    """What all answers to the guards of a group leave of it."""

    count: int  # answers
    always: frozenset[str]  # names that it has under each
    ever: frozenset[str]  # those that it has under some
    loose: frozenset[
        str
    ]  # those that it has under some that does not say of the role of this name that it is there
    ends: tuple[ast.expr | None, ...]  # what is returned, where it has the end of the flow


@lru_cache(maxsize=2**13)
def found_in(group: Group) -> Found:
    """What is left of a group; flows of one page have most of their groups in common."""
    count, always, ever = 0, frozenset[str](), frozenset[str]()
    loose: set[str] = set()
    ends: dict[ast.expr | None, None] = {}
    for answer in answers((question, values) for question, values, _ in group.choices):
        left = remains(group.first, group.last, group.roles, group.ties, answer)
        always = always & left.names if count else left.names
        ever |= left.names
        count += 1
        loose |= left.names - {role for role, there in answer[0].items() if there}
        ends[left.end] = None
    return Found(count, always, ever, frozenset(loose), tuple(ends) if group.last else ())


def groups_of(flow: Flow) -> Iterator[Group]:
    """The groups of a flow's rows, each as small as it may be; the one with the end is the last."""
    ties = tuple(flow.rule.ties.items())
    cut = list(_cut(flow, tuple(rows(flow.statements)), ties))
    start = _start_of_end(flow, cut, ties)
    guards = guards_of(flow.statements)
    choices = {
        question: (question, values, tuple(map(type, values))) for question, values in guards.choices()
    }
    asked = [_asked(row, choices, ties) for row in cut]
    for members in _together(asked, start):
        first, last = (tuple(cut[at] for at in members if (at >= start) is late) for late in (False, True))
        questions = frozenset().union(*(asked[at] for at in members))
        yield Group(
            first,
            last,
            tuple(choice for question, choice in choices.items() if question in questions),
            flow.roles if last else frozenset(),
            tuple(tie for tie in ties if any(tie[0] in _called(cut[at]) for at in members)),
        )


def _cut(flow: Flow, every: Sequence[Row], ties: Ties) -> Iterator[Row]:
    """The rows, lines that always run cut behind the last call of a block, and one by one no further."""
    for row in every:
        callers = [at for at, part in enumerate(_parts(row, ties)) if part.calls(flow.roles)]
        if isinstance(row, tuple) and callers and callers[-1] + 1 < len(row):
            yield row[: callers[-1] + 1]
            yield row[callers[-1] + 1 :]
        else:
            yield row


def _parts(row: Row, ties: Ties) -> list[Part]:
    return [part_of(line, ties) for line in row] if isinstance(row, tuple) else []


def _start_of_end(flow: Flow, every: Sequence[Row], ties: Ties) -> int:
    """The first row from which on what runs decides what is returned, or whether a name for a path is read."""
    last = len(every) - 1
    returns = next((at for at, row in enumerate(every) if _has(row, ast.Return)), last)
    if _returns_a_name_of_output(every):
        return 0
    called = [
        at
        for at, row in enumerate(every[: returns + 1])
        if any(part.calls(flow.roles) for part in _parts(row, ties))
    ]
    behind = called[-1] + 1 if called else 0
    return next((at for at in range(behind, returns) if _names_a_path(every[at])), returns)


def _returns_a_name_of_output(every: Iterable[Row]) -> bool:
    """Whether it takes the line before a return to see that the flow ends in `output(...)`."""
    nodes = [node for row in every for node in _nodes(row)]
    returned = [node.value for node in nodes if isinstance(node, ast.Return)]
    outputs = [node for node in nodes if isinstance(node, ast.Call) and dotted(node.func) == "output"]
    return any(isinstance(value, ast.Name) for value in returned) and bool(outputs)


def _has(row: Row, kind: type[ast.stmt]) -> bool:
    return any(isinstance(node, kind) for node in _nodes(row))


def _names_a_path(row: Row) -> bool:
    return any(isinstance(node, ast.Assign) and path_names(node) for node in _nodes(row))


@lru_cache(maxsize=2**13)
def _nodes(row: Row) -> tuple[ast.AST, ...]:
    statements = [line[0] for line in row] if isinstance(row, tuple) else [row]
    return tuple(node for statement in statements for node in below(statement))


@lru_cache(maxsize=2**13)
def _questions(row: Row) -> tuple[Question, ...]:
    return () if isinstance(row, tuple) else tuple(guards_of([row]).questions())


@lru_cache(maxsize=2**13)
def _called(row: Row) -> frozenset[str]:
    return frozenset(dotted(node.func) or "" for node in _nodes(row) if isinstance(node, ast.Call))


def _asked(row: Row, choices: Mapping[Question, Any], ties: Ties) -> frozenset[Question]:
    """The questions whose answers change what a row leaves."""
    own = {*_questions(row)}
    own |= {(ROLE, name) for tie in ties if tie[0] in _called(row) for name in tie}
    own |= {
        (ROLE, name.partition(".")[0]) for kind, name in own if kind == ROLE
    }  # `a.b` is not there without `a`
    return frozenset(own & choices.keys())


def _together(asked: Sequence[frozenset[Question]], start: int) -> list[list[int]]:
    """The numbers of rows that have a question in common, and of those from `start` on, which are one end."""
    groups: list[tuple[set[Question], list[int]]] = []
    for at, questions in enumerate(asked):
        joined = (set(questions), [at])
        apart = []
        for group in groups:
            if group[0] & questions or (at > start and start in group[1]):
                joined = (group[0] | joined[0], [*group[1], *joined[1]])
            else:
                apart.append(group)
        groups = [*apart, joined]
    return [sorted(members) for _, members in groups]
