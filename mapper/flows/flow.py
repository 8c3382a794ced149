"""A parsed flow: its statements, and which facts, roles and names they use."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from mapper._dataclass import dataclass
from mapper.flows.language import (
    MODULES,
    SPECIAL,
    below,
    dotted,
    every,
    is_fact,
    is_has,
    parse_body,
    parse_expression,
    targets,
)
from mapper.flows.walk import Walk
from mapper.flows.words import has_words, without_words
from mapper.operations.registry import operation_names

if TYPE_CHECKING:
    from mapper.rulebook.flows import FlowRule
    from mapper.rulebook.rulebook import Rulebook


@dataclass(frozen=True, eq=False)
class Flow:
    """One flow rule with its body parsed and checked against the language."""

    rule: FlowRule
    statements: tuple[ast.stmt, ...]
    worded: tuple[ast.stmt, ...] = ()  # with the words for the docstring between them, if any

    @property
    def roles(self) -> frozenset[str]:
        return frozenset(self.rule.roles)

    @cached_property
    def leaf_facts(self) -> Mapping[str, frozenset[str]]:
        """Role -> facts in its `leaves:`."""
        found: dict[str, set[str]] = {role: set() for role in self.rule.leaves}
        for role, arguments in self.rule.leaves.items():
            for text in arguments.values():
                found[role].update(facts_in(parse_expression(str(text), self.rule.file, self.rule.line)))
        return {role: frozenset(facts) for role, facts in found.items()}

    @cached_property
    def reached(self) -> frozenset[str]:
        """Roles of blocks that the body goes through to what they hold: `embeddings` of `embeddings.token(x)`."""
        nodes = [node for statement in self.statements for node in every(statement)]
        paths = [dotted(node) or "" for node in nodes if isinstance(node, ast.Attribute)]
        return frozenset(path.partition(".")[0] for path in paths) & self.roles

    @cached_property
    def free_names(self) -> tuple[str, ...]:
        """Names that the body reads and nothing in it binds, in order of appearance, before guards are resolved."""
        return tuple(free_names(self.statements, self.rule.takes, self.roles | self.asked))

    @cached_property
    def asked(self) -> frozenset[str]:
        """Roles of which the steps of a composed flow ask: another step, taken or not, reads them."""
        if not self.rule.steps:
            return frozenset()
        return frozenset(role for part in self.statements for role in _asked(part))


@lru_cache(maxsize=4096)
def _asked(statement: ast.stmt) -> frozenset[str]:
    """The roles of which the guards in a statement ask."""
    guards = [node.test for node in below(statement) if isinstance(node, ast.If)]
    calls = [node for guard in guards for node in every(guard) if is_has(node)]
    return frozenset((dotted(call.args[0]) or "").partition(".")[0] for call in calls)  # type: ignore[attr-defined]


def parse_flow(rule: FlowRule, shared: bool = False) -> Flow:
    """The flow of a rule. Raises FlowError with file and line.

    `shared` is for checks, which read thousands of flows that have most statements in common, and change none.
    """
    roles = (*rule.roles, *rule.roles_beside)
    statements = parse_body(rule.body, rule.file, rule.line, roles, shared)
    if not has_words(statements):
        return Flow(rule, tuple(statements))
    return Flow(rule, tuple(without_words(statements)), tuple(statements))


_parsed: WeakKeyDictionary[Rulebook, dict[str, Flow]] = WeakKeyDictionary()  # each rule set's, while it lives


def flow_of(rulebook: Rulebook, name: str) -> Flow:
    """A flow of the rulebook, parsed once: whoever changes statements changes copies."""
    parsed = _parsed.setdefault(rulebook, {})
    if name not in parsed:
        parsed[name] = parse_flow(rulebook.flows[name])
    return parsed[name]


def facts_in(node: ast.AST) -> Iterator[str]:
    """Every fact named in an expression or statement, longest chain first."""
    if isinstance(node, ast.Attribute) and is_fact(node):
        yield dotted(node).removeprefix("fact.")  # type: ignore[union-attr]
        return
    for child in ast.iter_child_nodes(node):
        yield from facts_in(child)


@lru_cache(maxsize=1)
def known_names() -> frozenset[str]:
    """Names that are neither roles nor context: operations, torch, the words of the language."""
    return frozenset(operation_names()) | SPECIAL | MODULES


def free_names(
    statements: tuple[ast.stmt, ...] | list[ast.stmt],
    takes: tuple[str, ...] | list[str],
    roles: frozenset[str],
) -> list[str]:
    """Names read before anything binds them, in order."""
    walker = _FreeNames(set(takes) | set(roles) | SPECIAL | MODULES)
    walker.block(statements)
    return walker.free


class _FreeNames(Walk):
    def __init__(self, bound: set[str]):
        self.bound = bound
        self.free: list[str] = []

    def branch(self, node: ast.If) -> None:
        self.read(node.test)
        before = set(self.bound)
        self.block(node.body)
        then, self.bound = self.bound, before
        self.block(node.orelse)
        self.bound |= then

    def bind(self, target: ast.expr) -> None:
        self.bound.update(targets(target))

    def read(self, node: ast.expr) -> None:
        for name, is_called in _read(node):
            if name in self.bound or name in self.free:
                continue
            if not is_called or name not in known_names():  # an input may be called as one is
                self.free.append(name)


@lru_cache(maxsize=2**13)
def _read(node: ast.expr) -> tuple[tuple[str, bool], ...]:
    """The names in an expression of a parsed body, each with whether it is called."""
    nodes = below(node)
    called = {id(child.func) for child in nodes if isinstance(child, ast.Call)}
    return tuple((child.id, id(child) in called) for child in nodes if isinstance(child, ast.Name))
