"""A flow as a saved model needs it: without the guards that are decided alike in all of its blocks, and what they keep out."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from mapper.architecture import Block
from mapper.flows.deciding import with_decided
from mapper.flows.flow import parse_flow
from mapper.flows.guards import Answers, Unknown, holds
from mapper.flows.references import has_role
from mapper.flows.words import is_word
from mapper.rulebook.flows import FlowRule


def decided(rule: FlowRule, blocks: Sequence[Block]) -> FlowRule:
    """The flow for these blocks: what other models compute in its place is left out."""
    flow = parse_flow(rule)
    statements = flow.worded or flow.statements
    kept = list(_kept(statements, [_answers(block) for block in blocks]))
    if kept and is_word(kept[0]) and not is_word(statements[0]):  # a first word stands for the flow's own
        kept.insert(0, ast.Expr(ast.Constant(rule.doc)))
    body = "\n".join(map(ast.unparse, kept))
    named = {node.id for statement in kept for node in ast.walk(statement) if isinstance(node, ast.Name)}
    absent = {role for role in rule.options if role not in named and not _has(role, blocks)}
    shapes = {
        role: _with_decided(said, rule, blocks) for role, said in rule.shapes.items() if role not in absent
    }
    leaves = {role: said for role, said in rule.leaves.items() if role not in absent}
    options = tuple(role for role in rule.options if role not in absent)
    return replace(rule, body=body, options=options, shapes=shapes, leaves=leaves)


def _with_decided(extents: tuple[str, ...], rule: FlowRule, blocks: Sequence[Block]) -> tuple[str, ...]:
    """A shape with the factors that decide alike in all blocks: no guard is left to show that they did."""
    found = {with_decided(extents, rule.body, block.facts) for block in blocks}
    return found.pop() if len(found) == 1 else extents


def _has(role: str, blocks: Iterable[Block]) -> bool:
    return any(role in block.roles for block in blocks)


def _answers(block: Block) -> Answers:
    """What decides guards in a block; what is chosen when source is written stays open."""

    def fact(name: str) -> Any:
        if name not in block.facts:
            raise Unknown
        return block.facts[name].value

    return Answers(lambda role: has_role(block, role), fact, lambda _: None)


def _kept(statements: Iterable[ast.stmt], every: Sequence[Answers]) -> Iterator[ast.stmt]:
    for node in statements:
        if isinstance(node, ast.If):
            held = {holds(node.test, answers) for answers in every}
            if held == {True} or held == {False}:
                yield from _kept(node.body if held == {True} else node.orelse, every)
            else:
                yield _with_arms(node, list(_kept(node.body, every)), list(_kept(node.orelse, every)))
        elif isinstance(node, ast.For) and (body := list(_kept(node.body, every))):
            yield _with_arms(node, body, [])
        elif not isinstance(node, ast.For):
            yield node


def _with_arms(node: ast.If | ast.For, body: list[ast.stmt], orelse: list[ast.stmt]) -> ast.stmt:
    """A copy with these statements inside; the node itself where none would be left."""
    made = copy(node)
    made.body, made.orelse = body, orelse
    return made if body else node
