"""The rows of a flow one by one, and those of its end together: what a row leaves, only the guards in it decide.

A flow of four steps with four guards each has 65,536 answers, and most that may be wrong with it is seen in four times 16:
a name that a row has under some answer, the flow has under some. Whether it has a name under every answer, the rows that
have it under some tell together, if none of them always has it.
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
from mapper.flows.remains import Row, Ties, always_calls, part_of, path_names, remains, rows

Choices = tuple[tuple[Question, tuple[Any, ...], tuple[type, ...]], ...]  # 1 and True are the same in a table


@dataclass(frozen=True)
class Group:
    """A row of a flow, its end, or several of these, and what their guards may be answered."""

    first: tuple[Row, ...]
    last: tuple[Row, ...]  # those that are the end of the flow
    choices: Choices
    ties: Ties
    roles: frozenset[str] = frozenset()  # of the flow, for its end


@dataclass(frozen=True)
class Found:
    """What all answers to the guards of a group leave of it."""

    always: frozenset[str]  # names that it has under each
    ever: frozenset[str]  # those that it has under some
    loose: frozenset[
        str
    ]  # those that it has under some that does not say of the role of this name that it is there
    ends: tuple[ast.expr | None, ...]  # what is returned, where it has the end of the flow


@lru_cache(maxsize=2**13)
def found_in(group: Group) -> Found:
    """What is left of a group; flows of one page have most of their groups in common."""
    always: frozenset[str] | None = None
    ever = frozenset[str]()
    loose: set[str] = set()
    ends: dict[ast.expr | None, None] = {}
    for answer in answers((question, values) for question, values, _ in group.choices):
        left = remains(group.first, group.last, group.roles, group.ties, answer)
        always = left.names if always is None else always & left.names
        ever |= left.names
        loose |= left.names - {role for role, there in answer[0].items() if there}
        ends[left.end] = None
    return Found(always or frozenset(), ever, frozenset(loose), tuple(ends) if group.last else ())


def groups_of(flow: Flow) -> Iterator[Group]:
    """The rows of a flow, each a group of its own but for those of its end, which are the last one."""
    ties = tuple(flow.rule.ties.items())
    cut = list(_cut(flow, tuple(rows(flow.statements)), ties))
    start = _start_of_end(flow, cut, ties)
    choices = {
        question: (question, values, tuple(map(type, values)))
        for question, values in guards_of(flow.statements).choices()
    }
    for row in cut[:start]:
        yield Group((row,), (), *_decided([row], choices, ties))
    yield Group((), tuple(cut[start:]), *_decided(cut[start:], choices, ties), flow.roles)


def joined(groups: Sequence[Group]) -> Group:
    """Groups of one flow as one: what all their guards leave under one answer."""
    return Group(
        tuple(row for group in groups for row in group.first),
        tuple(row for group in groups for row in group.last),
        tuple(dict.fromkeys(choice for group in groups for choice in group.choices)),
        tuple(dict.fromkeys(tie for group in groups for tie in group.ties)),
        frozenset().union(*(group.roles for group in groups)),
    )


def _decided(
    members: Iterable[Row], choices: Mapping[Question, tuple[Any, ...]], ties: Ties
) -> tuple[Choices, Ties]:
    """What may be answered to all that decides what is left of some rows, and the ties of what these call."""
    members = list(members)
    questions = frozenset().union(*(_asked(row, choices, ties) for row in members))
    called = frozenset().union(*map(_called, members))
    some = tuple(choice for question, choice in choices.items() if question in questions)
    return some, tuple(tie for tie in ties if tie[0] in called)


def _cut(flow: Flow, every: Sequence[Row], ties: Ties) -> Iterator[Row]:
    """The rows, lines that always run cut behind the last call of a block, and one by one no further."""
    for row in every:
        lines = row if isinstance(row, tuple) else ()
        callers = [at for at, line in enumerate(lines) if part_of(line, ties).calls(flow.roles)]
        if callers and callers[-1] + 1 < len(lines):
            yield lines[: callers[-1] + 1]
            yield lines[callers[-1] + 1 :]
        else:
            yield row


def _start_of_end(flow: Flow, every: Sequence[Row], ties: Ties) -> int:
    """The first row from which on what runs decides what is returned, or whether a name for a path is read."""
    last = len(every) - 1
    returns = next((at for at, row in enumerate(every) if _has(row, ast.Return)), last)
    if _returns_a_name_of_output(every):
        return 0
    called = [at for at, row in enumerate(every[: returns + 1]) if always_calls(row, flow.roles, ties)]
    behind = called[-1] + isinstance(every[called[-1]], tuple) if called else 0
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
