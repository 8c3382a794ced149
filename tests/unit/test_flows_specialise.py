from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from mapper.errors import FlowError
from mapper.flows.flow import parse_flow
from mapper.flows.specialise import specialise
from tests.flow_rules import flow_rule, written


def special(
    body: str,
    *,
    roles: Iterable[str] = (),
    facts: Mapping[str, Any] | None = None,
    passed: Iterable[str] = (),
    options: Mapping[str, bool] | None = None,
) -> list[str]:
    """The statements that are left, as text."""
    flow = parse_flow(flow_rule(body, options=("a", "b", "norm", "layers")))
    has, known = set(roles), dict(facts or {})
    statements = specialise(flow, has.__contains__, known.__getitem__, frozenset(passed), options or {})
    return written(statements)


@pytest.mark.parametrize(("roles", "left"), [([], ["return x"]), (["norm"], ["return norm(x)"])])
def test_a_guard_on_a_role_leaves_one_arm(roles: list[str], left: list[str]) -> None:
    assert special("if has(norm):\n  x = norm(x)\nreturn x", roles=roles) == left


@pytest.mark.parametrize(
    ("guard", "holds"),
    [
        ("fact.kind == 'own'", True),
        ("fact.kind != 'own'", False),
        ("fact.count > 2", True),
        ("fact.count < 2", False),
        ("fact.flag", True),
        ("not fact.flag", False),
        ("fact.none", False),
        ("fact.none == None", True),
        ("fact.none > 1", False),
        ("fact.kind == 'own' and fact.count > 5", False),
        ("fact.kind == 'else' or has(norm)", True),
        ("not (has(a) or has(b))", True),
        ("option.cache", False),
    ],
)
def test_guards_are_decided_by_what_is_known(guard: str, holds: bool) -> None:
    facts = {"kind": "own", "count": 3, "flag": True, "none": None}
    body = f"if {guard}:\n  return a(x)\nreturn b(x)"
    assert special(body, roles=["norm"], facts=facts) == ["return a(x)" if holds else "return b(x)"]


def test_an_option_of_the_caller_is_a_guard() -> None:
    body = "if option.cache:\n  x = a(x)\nreturn x"
    assert special(body, options={"cache": True}) == ["return a(x)"]
    assert special(body, options={"cache": False}) == ["return x"]


def test_a_guard_on_an_unknown_fact_names_the_file() -> None:
    with pytest.raises(
        FlowError, match=r"flows/layer/x\.yaml:3: layer/x needs fact kind, which is unknown here"
    ):
        special("if fact.kind == 'own':\n  x = a(x)\nreturn x")


def test_the_second_operand_is_not_asked_where_the_first_decides() -> None:
    assert special("if has(norm) and fact.unknown:\n  x = norm(x)\nreturn x") == ["return x"]


def test_what_follows_a_return_is_dropped() -> None:
    assert special("return a(x)\nx = b(x)\nreturn x") == ["return a(x)"]


def test_words_and_truth_values_become_literals_and_numbers_stay_facts() -> None:
    facts = {"word": "own", "flag": True, "none": None, "number": 3}
    left = special("return a(x, fact.word, fact.flag, fact.none, fact.number)", facts=facts)
    assert left == ['return a(x, "own", True, None, fact.number)']


def test_copies_and_constants_are_put_in_place() -> None:
    assert special("y = x\nz = None\nreturn a(y, z)") == ["return a(x, None)"]


def test_a_copy_of_a_name_that_changes_later_stays() -> None:
    body = "y = x\nx = a(x)\nreturn b(x, y)"
    assert special(body) == ["y = x", "x = a(x)", "return b(x, y)"]


def test_a_copy_of_a_name_that_a_loop_changes_stays() -> None:
    body = "y = x\nfor layer in layers:\n  x = layer(x)\nreturn a(x, y)"
    assert special(body, roles=["layers"]) == [
        "y = x",
        "for layer in layers:",
        "  x = layer(x)",
        "return a(x, y)",
    ]


def test_a_name_that_is_bound_twice_is_not_replaced() -> None:
    body = "y = None\nfor layer in layers:\n  y = layer(x, y)\nreturn y"
    assert special(body, roles=["layers"]) == [
        "y = None",
        "for layer in layers:",
        "  y = layer(x, y)",
        "return y",
    ]


def test_arithmetic_is_never_folded() -> None:
    assert special("y = 2 * 3\nreturn a(x, y)") == ["y = 2 * 3", "return a(x, y)"]


def test_unread_assignments_vanish_with_what_only_they_read() -> None:
    assert special("y = a(x)\nz = b(y)\nreturn x") == ["return x"]


def test_a_loop_without_effect_vanishes() -> None:
    assert special("for layer in layers:\n  y = layer(x)\nreturn x", roles=["layers"]) == ["return x"]


def test_names_that_blocks_below_read_stay() -> None:
    body = "mask = a(x)\nfor layer in layers:\n  x = layer(x)\nreturn x"
    assert special(body, roles=["layers"], passed=["mask"])[0] == "mask = a(x)"
    assert special(body, roles=["layers"])[0] == "for layer in layers:"


def test_a_copy_that_blocks_below_read_by_its_name_stays() -> None:
    body = "mask = x\nreturn a(x)"
    assert special(body, passed=["mask"]) == ["mask = x", "return a(x)"]


def test_an_assignment_before_the_return_is_the_return() -> None:
    assert special("x = a(x)\nx = b(x)\nreturn x") == ["x = a(x)", "return b(x)"]


def test_the_flow_itself_is_not_changed() -> None:
    flow = parse_flow(flow_rule("if has(norm):\n  x = norm(x)\nreturn x", options=("norm",)))
    before = [ast.dump(node) for node in flow.statements]
    specialise(flow, lambda role: True, {}.__getitem__, frozenset(), {})
    assert [ast.dump(node) for node in flow.statements] == before


def test_what_is_bound_again_before_anyone_reads_it_vanishes() -> None:
    body = "y = x\nif has(norm):\n  y = norm(x)\nreturn y + x"
    assert special(body, roles=["norm"]) == ["y = norm(x)", "return y + x"]
    assert special(body) == ["return x + x"]
    called = "y = norm(x)\ny = x\nreturn y + x"
    assert special(called, roles=["norm"]) == [
        "y = norm(x)",
        "y = x",
        "return y + x",
    ]  # who checks calls sees them
    assert special(body, roles=["norm"], passed=["y"]) == ["y = x", "y = norm(x)", "return y + x"]
