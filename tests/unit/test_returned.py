"""What a root's steps return: values that hang on guards, and steps that stand beside one of several roles."""

from __future__ import annotations

from mapper.architecture import Block, Leaf, Place
from mapper.flows.references import has_one
from mapper.rulebook.returned import returns


def test_what_hangs_on_nothing_is_one_return():
    assert returns({"logits": "head(x)", "last_hidden_state": "x"}) == [
        "return output(logits=head(x), last_hidden_state=x)"
    ]


def test_a_value_that_hangs_on_a_guard_is_given_behind_it_alone():
    given = {"last_hidden_state": "x", "points": "centres if fact.queries.conditional else None"}
    assert returns(given) == [
        "if fact.queries.conditional:",
        "  return output(last_hidden_state=x, points=centres)",
        "return output(last_hidden_state=x)",
    ]


def test_values_of_one_guard_share_its_returns():
    given = {name: f"{name}(x) if has(first) else {name}(y)" for name in ("one", "two")}
    assert returns(given) == [
        "if has(first):",
        "  return output(one=one(x), two=two(x))",
        "return output(one=one(y), two=two(y))",
    ]


def test_guards_stand_within_each_other():
    given = {"one": "x if has(first) else None", "two": "y if fact.kind == 'b' else z"}
    assert returns(given) == [
        "if has(first):",
        "  if fact.kind == 'b':",
        "    return output(one=x, two=y)",
        "  return output(one=x, two=z)",
        "if fact.kind == 'b':",
        "  return output(two=y)",
        "return output(two=z)",
    ]


def test_one_of_three_is_chosen_from_the_left():
    assert returns({"logits": "x if has(a) else y if has(b) else z"}) == [
        "if has(a):",
        "  return output(logits=x)",
        "if has(b):",
        "  return output(logits=y)",
        "return output(logits=z)",
    ]


def test_a_value_that_is_chosen_as_the_model_runs_is_no_guard():
    assert returns({"x": "x if mask is None else y"}) == ["return output(x=x if mask is None else y)"]


def test_a_block_has_one_of_several_roles():
    block = Block("other", "root", Place())
    block.roles["ctc_head"] = Leaf(Place(("ctc_head",)), "Conv1d", {}, "")
    assert has_one(block, "lm_head | ctc_head") and has_one(block, "ctc_head")
    assert not has_one(block, "lm_head") and not has_one(block, "lm_head | classifier")
