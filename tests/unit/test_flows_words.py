"""Strings between the statements of a flow: what a branch adds to the docstring of its class."""

import ast
from typing import Any

from mapper.flows.flow import parse_flow
from mapper.flows.words import docstring
from tests.flow_rules import flow_rule

BODY = """if has(gate):
  "a gate"
  x = gate(x)
if fact.scale != 1.0:
  "a scale"
  x = x * fact.scale
return x
"""


def said(body: str, there: set[str], facts: dict[str, Any], doc: str = "a mixer") -> str:
    flow = parse_flow(flow_rule(body, options=("gate",)))
    return docstring(doc, flow.worded, there.__contains__, facts.__getitem__)


def test_a_branch_that_is_taken_adds_its_words():
    assert said(BODY, {"gate"}, {"scale": 2.0}) == "a mixer with a gate and a scale"
    assert said(BODY, set(), {"scale": 2.0}) == "a mixer with a scale"
    assert said(BODY, {"gate"}, {"scale": 1.0}) == "a mixer with a gate"
    assert said(BODY, set(), {"scale": 1.0}) == "a mixer"


def test_a_fact_that_nobody_knows_adds_nothing():
    assert said(BODY, {"gate"}, {}) == "a mixer with a gate"


def test_a_string_before_all_is_what_the_others_add_to():
    assert said(f'"a layer"\n{BODY}', {"gate"}, {"scale": 1.0}) == "a layer with a gate"


def test_nothing_that_computes_sees_the_words():
    statements = parse_flow(flow_rule(BODY, options=("gate",))).statements
    assert "a gate" not in "".join(map(ast.unparse, statements))


def test_a_flow_without_words_is_not_kept_twice():
    assert parse_flow(flow_rule("return x\n")).worded == ()


def test_what_follows_a_return_adds_nothing():
    body = 'if has(gate):\n  "a gate"\n  return gate(x)\n"no gate"\nreturn x\n'
    assert said(body, {"gate"}, {}) == "a mixer with a gate"
    assert said(body, set(), {}) == "a mixer with no gate"


def test_what_is_added_stands_apart_from_a_part_of_what_is_said_before():
    doc = "an image through stages, each coarser than the one before"
    assert said(BODY, {"gate"}, {"scale": 1.0}, doc) == f"{doc}, with a gate"
