"""What a saved model keeps of its flows: no guard that its blocks decide alike, and nothing of what these keep out."""

from __future__ import annotations

from mapper.architecture import Block, Fact, Place
from mapper.weights.built.decided import decided
from tests.flow_rules import flow_rule

BODY = """
if has(norm):
  "a norm"
  x = norm(x)
if fact.wide and option.cache:
  x = x * 2
elif fact.wide:
  x = x * 3
else:
  x = other(x)
return x
"""


def block(wide: bool, *roles: str) -> Block:
    fact = Fact("wide", wide, "", "config", "")
    inner = {role: Block("norm", role, Place(())) for role in roles}
    return Block("layer", "layer", Place(()), roles=inner, facts={"wide": fact})


def kept(*blocks: Block) -> str:
    return decided(flow_rule(BODY, options=("norm", "other")), blocks).body


def test_what_all_blocks_decide_alike_is_no_guard() -> None:
    assert kept(block(False, "other"), block(False, "other")) == "x = other(x)\nreturn x"
    assert "x = other(x)" not in kept(block(True)) and "option.cache" in kept(block(True))


def test_what_blocks_decide_otherwise_stays() -> None:
    assert "if has(norm):" in kept(block(False, "norm", "other"), block(False, "other"))


def test_the_first_word_that_is_left_does_not_stand_for_what_the_flow_says() -> None:
    rule = flow_rule(BODY, options=("norm", "other"))
    lines = decided(rule, [block(False, "norm", "other")]).body.splitlines()
    assert lines[:2] == [repr(rule.doc), "'a norm'"]


def test_options_that_no_block_has_and_no_statement_names_are_left_out() -> None:
    rule = decided(flow_rule(BODY, options=("norm", "other")), [block(True)])
    assert rule.options == ()
