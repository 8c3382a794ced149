"""What the guards of a flow ask, and whether they hold: `has(role)`, `option.x`, `fact.x == 1`, joined by and, or, not."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from mapper._dataclass import dataclass
from mapper.flows.language import dotted, is_fact, is_has, is_option

ROLE, OPTION, FACT = "role", "option", "fact"


class Unknown(Exception):
    """Raised by whoever answers for a fact: nobody knows it."""


@dataclass(frozen=True)
class Answers:
    """Who answers the questions of guards."""

    has: Callable[[str], bool]  # whether the block has a role
    fact: Callable[[str], Any]  # the value of a fact; raises Unknown
    option: Callable[[str], bool | None]  # what whoever generates has chosen; None where that is open


def holds(node: ast.expr, answers: Answers) -> bool | None:
    """Whether a guard holds; None where something unknown decides."""
    if isinstance(node, ast.BoolOp):
        stop = isinstance(node.op, ast.Or)
        unsure = False
        for value in node.values:
            held = holds(value, answers)
            if held is stop:
                return stop
            unsure = unsure or held is None
        return None if unsure else not stop
    if isinstance(node, ast.UnaryOp):
        held = holds(node.operand, answers)
        return None if held is None else not held
    kind, name = question(node)
    if kind == OPTION:
        return answers.option(name)
    if kind == ROLE:
        return answers.has(name)
    return _compared(node, answers) if isinstance(node, ast.Compare) else _true(name, answers)


def _true(name: str, answers: Answers) -> bool | None:
    try:
        return bool(answers.fact(name))
    except Unknown:
        return None


def _compared(node: ast.Compare, answers: Answers) -> bool | None:
    values: list[Any] = []
    for side in (node.left, node.comparators[0]):
        try:
            values.append(side.value if isinstance(side, ast.Constant) else answers.fact(fact_name(side)))
        except Unknown:
            values.append(Unknown)
    if Unknown in values:
        return None
    left, right = values
    if isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
        return bool(left == right) is isinstance(node.ops[0], ast.Eq)
    if isinstance(left, bool) or not isinstance(left, (int, float)):
        return False
    return bool(left > right if isinstance(node.ops[0], ast.Gt) else left < right)


@lru_cache(maxsize=2**14)
def question(node: ast.expr) -> tuple[str, str]:
    """What one part of a guard asks for: a role, an option or a fact, and its name."""
    if is_has(node):
        return ROLE, dotted(node.args[0]) or ""  # type: ignore[attr-defined]
    if is_option(node):
        return OPTION, (dotted(node) or "").removeprefix("option.")
    return FACT, fact_name(node.left if isinstance(node, ast.Compare) else node)


@lru_cache(maxsize=2**14)
def fact_name(node: ast.expr) -> str:
    """`heads` of `fact.heads`."""
    return (dotted(node) or "").removeprefix("fact.")


def parts(node: ast.expr) -> Iterator[ast.expr]:
    """The questions of which a guard is made."""
    if isinstance(node, (ast.BoolOp, ast.UnaryOp)):
        for value in node.values if isinstance(node, ast.BoolOp) else [node.operand]:
            yield from parts(value)
    elif is_has(node) or is_option(node) or is_fact(node) or isinstance(node, ast.Compare):
        yield node
