"""What the guards of a flow ask, and every answer to them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

from mapper.flows.guards import FACT, OPTION, ROLE, fact_name, parts, question
from mapper.flows.language import below

_OTHER = "\0other"  # a value that equals no literal
Question = tuple[str, str]  # its kind, and the name of the role, option or fact
Answer = tuple[dict[str, bool], dict[str, bool], dict[str, Any]]  # of roles, of options, of facts


@dataclass
class Guards:
    """What guards ask: roles, options, and facts with the values they are compared with."""

    roles: dict[str, None] = field(default_factory=dict)
    options: dict[str, None] = field(default_factory=dict)
    facts: dict[str, list[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.roles) + len(self.options) + len(self.facts)

    def questions(self) -> Iterator[Question]:
        """Each question, by its kind and name."""
        for kind, names in ((ROLE, self.roles), (OPTION, self.options), (FACT, self.facts)):
            yield from ((kind, name) for name in names)

    def choices(self) -> Iterator[tuple[Question, tuple[Any, ...]]]:
        """What may be answered to each question."""
        for kind, name in self.questions():
            values = self.facts[name] if kind == FACT else [False, True]
            yield (kind, name), tuple(dict.fromkeys(values))


def guards_of(statements: Iterable[ast.stmt]) -> Guards:
    """Every question that the guards in some statements ask."""
    found = Guards()
    for statement in statements:
        _collect(_questions(statement), found)
    return found


@lru_cache(maxsize=4096)
def _questions(statement: ast.stmt) -> tuple[ast.expr, ...]:
    """What the guards in a statement of a parsed body ask."""
    guards = (node.test for node in below(statement) if isinstance(node, ast.If))
    return tuple(node for guard in guards for node in parts(guard))


def _collect(questions: Iterable[ast.expr], found: Guards) -> None:
    for node in questions:
        kind, name = question(node)
        if kind == ROLE:
            found.roles[name] = None
        elif kind == OPTION:
            found.options[name] = None
        elif isinstance(node, ast.Compare):
            other = node.comparators[0]
            value = other.value if isinstance(other, ast.Constant) else 1
            found.facts.setdefault(name, [_OTHER]).append(value)
            if value == 1 and not isinstance(other, ast.Constant):
                found.facts.setdefault(fact_name(other), [1])
        else:
            found.facts.setdefault(name, [False]).append(1)


def answers(choices: Iterable[tuple[Question, tuple[Any, ...]]]) -> Iterator[Answer]:
    """Every answer to some questions, of each of which these are the answers."""
    asked = list(choices)
    for values in product(*(some for _, some in asked)):
        answer: dict[str, dict[str, Any]] = {ROLE: {}, OPTION: {}, FACT: {}}
        for ((kind, name), _), value in zip(asked, values, strict=True):
            answer[kind][name] = value
        if not _contradicts(answer[ROLE]):
            yield answer[ROLE], answer[OPTION], answer[FACT]


def count_of(choices: Iterable[tuple[Question, tuple[Any, ...]]]) -> int:
    """How many answers there are, without making them."""
    asked = list(choices)
    roles = {name for (kind, name), _ in asked if kind == ROLE}
    inner = Counter(name.partition(".")[0] for name in roles if "." in name)
    others = prod(len(values) for (kind, _), values in asked if kind != ROLE)
    within = prod(2**count + (name in roles) for name, count in inner.items())  # all are absent without it
    return others * within * 2 ** sum("." not in name and name not in inner for name in roles)


def _contradicts(roles: Mapping[str, bool]) -> bool:
    """`has(a.b)` without `has(a)` cannot be."""
    return any(there and roles.get(name.partition(".")[0]) is False for name, there in roles.items())
