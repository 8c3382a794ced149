"""Guards have one meaning: for who checks them, who asks what they need, and who resolves them."""

from __future__ import annotations

import ast

import pytest

from mapper.flows.guards import FACT, OPTION, ROLE, Answers, Unknown, holds, parts, question


def answers(**facts):
    def fact(name):
        if name not in facts:
            raise Unknown
        return facts[name]

    return Answers(lambda role: role == "query", fact, {"cache": True, "open": None}.get)


@pytest.mark.parametrize(
    ("guard", "held"),
    [
        ("has(query)", True),
        ("not has(query)", False),
        ("option.cache and has(query)", True),
        ("option.open", None),
        ("fact.heads == 4", True),
        ("fact.heads == fact.groups", True),
        ("fact.heads != fact.groups", False),
        ("fact.heads == fact.missing", None),
        ("fact.heads > 3", True),
        ("fact.flag > 0", False),
        ("fact.missing", None),
        ("not fact.missing", None),
        ("fact.missing or has(query)", True),
        ("fact.missing and has(key)", False),
        ("fact.missing and has(query)", None),
        ("fact.missing or has(key)", None),
    ],
)
def test_a_guard_holds_fails_or_is_open(guard, held):
    node = ast.parse(guard, mode="eval").body
    assert holds(node, answers(heads=4, groups=4, flag=True)) is held


def test_what_a_guard_asks():
    node = ast.parse("has(a.b) and (option.cache or not fact.x == fact.y)", mode="eval").body
    assert [question(part) for part in parts(node)] == [(ROLE, "a.b"), (OPTION, "cache"), (FACT, "x")]
