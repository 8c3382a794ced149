"""Flows are checked row by row: what is found must be what the product of all answers to all guards shows."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from mapper.authoring.pairs import pairs
from mapper.flows import combinations
from mapper.flows.answers import answers, count_of, guards_of
from mapper.flows.flow import parse_flow
from mapper.flows.groups import Found, Group, found_in, groups_of
from mapper.flows.remains import rows
from mapper.rulebook.flows import FlowRule
from tests.flow_rules import flow_rule
from tests.shipped import RULEBOOK

Told = tuple[int, frozenset[str], frozenset[str], frozenset[str], set[Any]]
MANY = 2**12  # answers together: of more the product is made of other flows
ROOTS = ("root", "tower", "layer", "attention", "embedding")  # whose flows have most guards
LINES = (
    "x = up(x)",
    "y = folder.weight",
    "x = x + y",
    "if has(norm):\n  x = norm(x)",
    "if fact.kind == 'a':\n  x = down(x)\nelse:\n  y = x",
    "if fact.kind == 'b':\n  y = folder.norm\nelse:\n  x = norm(x)",
    "if option.keep:\n  y = folder.weight",
    "if has(folder.norm):\n  x = folder.norm(x)",
    "if has(folder):\n  x = x + 1",
    "if fact.early:\n  return x",
    "x = output(x=x)",
    "for one in layers:\n  if has(norm):\n    x = one(x, y=y)",
    "if has(up):\n  x = up(x)\nelse:\n  x = down(x)",
)


def product_of(rule: FlowRule) -> Told:
    """What all answers to all guards leave, every row together with every other."""
    flow = parse_flow(rule, shared=True)
    asked = list(guards_of(flow.statements).choices())
    choices = tuple((question, some, ()) for question, some in asked)
    group = Group((), tuple(rows(flow.statements)), choices, tuple(rule.ties.items()), flow.roles)
    return told(sum(1 for _ in answers(asked)), found_in(group))


def together(rule: FlowRule) -> Told:
    """What is found out row by row."""
    flow = parse_flow(rule, shared=True)
    groups = list(groups_of(flow))
    found = [found_in(group) for group in groups]
    ever, loose = (frozenset().union(*(getattr(one, of) for one in found)) for of in ("ever", "loose"))
    always = frozenset(name for name in ever if combinations._is_always(rule, name, groups, found))
    ends = tuple(end for one in found for end in one.ends)
    return told(count_of(guards_of(flow.statements).choices()), Found(always, ever, loose, ends))


def told(count: int, found: Found) -> Told:
    """All that a check asks: of what is returned only whether it is something, and a call of `output`."""
    ends = {end and getattr(getattr(end, "func", None), "id", "") == "output" for end in found.ends}
    return count, found.always, found.ever, found.loose, ends


def composed(topic: str) -> list[FlowRule]:
    """A few flows of each spine of a topic, by chance: always the same."""
    every = [list(pairs(page)) for page in RULEBOOK.flows.pages(topic) if page.slots]
    some = [rule for rules in every for rule in Random(0).sample(rules, min(len(rules), 12))]
    return [rule for rule in some if together(rule)[0] <= MANY]


@pytest.mark.parametrize("topic", ROOTS)
def test_groups_show_of_shipped_flows_what_all_answers_show(topic: str) -> None:
    found = {rule.name: (together(rule), product_of(rule)) for rule in composed(topic)}
    assert len(found) >= 10
    assert [name for name, (by_groups, by_all) in found.items() if by_groups != by_all] == []


@pytest.mark.parametrize("seed", range(120))
def test_groups_show_of_any_lines_what_all_answers_show(seed: int) -> None:
    chance = Random(seed)
    lines = [
        *chance.choices(LINES, k=chance.randrange(1, 7)),
        chance.choice(("return x", "return output(x=x)", "")),
    ]
    ties = {"up": "folder.weight"} if chance.random() < 0.5 else {}
    rule = flow_rule("\n".join(lines), needs=("up", "down"), options=("norm", "folder", "layers"), ties=ties)
    assert together(rule) == product_of(rule)


def test_groups_are_smaller_than_the_flow() -> None:
    guards = "".join(f"if fact.f{at}:\n  x = up(x)\n" for at in range(6))
    flow = parse_flow(flow_rule(f"{guards}return up(x)", needs=("up",)))
    assert [len(group.choices) for group in groups_of(flow)] == [1] * 6 + [0]


def test_rows_that_share_a_guard_are_asked_together_what_they_always_have() -> None:
    rule = flow_rule("if fact.a:\n  x = up(x)\nif not fact.a:\n  x = up(-x)\nreturn x", needs=("up",))
    assert "up" in together(rule)[1]
    assert "up" not in together(replace(rule, body=rule.body.replace("not fact.a", "not fact.b")))[1]


def test_guards_that_hang_together_in_too_many_answers_are_refused(monkeypatch):
    """A page whose steps all ask of the same roles would be tried for hours: the page is told so at once."""
    from mapper.errors import FlowError

    rule = RULEBOOK.flows["attention/windows_cosine"]
    assert combinations.check_flow(rule) > 1
    monkeypatch.setattr(combinations, "MAX_TIED", 1)
    with pytest.raises(FlowError, match=r"guards that hang together have \d+ answers; at most 1"):
        combinations.check_flow(rule)
