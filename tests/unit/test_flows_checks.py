from __future__ import annotations

from typing import Any

import pytest

from mapper.errors import FlowError
from mapper.flows.combinations import (
    MAX_GUARDS,
    bound_names,
    check_flow,
    check_length,
    combinations,
)
from mapper.flows.flow import parse_flow
from tests.flow_rules import flow_rule


def fails(message: str, body: str, **fields: Any) -> None:
    with pytest.raises(FlowError, match=message):
        check_flow(flow_rule(body, **fields))


def test_a_flow_without_guards_has_one_combination() -> None:
    assert check_flow(flow_rule("return norm(x)", needs=("norm",))) == 1


def test_every_combination_of_guards_is_run() -> None:
    body = "if has(norm):\n  x = norm(x)\nif fact.kind == 'a':\n  x = up(x)\nelse:\n  x = up(-x)\nreturn x"
    assert check_flow(flow_rule(body, needs=("up",), options=("norm",))) == 4


def test_a_fact_takes_each_literal_it_is_compared_with_and_another() -> None:
    body = "if fact.kind == 'a':\n  return up(x)\nif fact.kind == 'b':\n  return up(-x)\nreturn up(2 * x)"
    flow = parse_flow(flow_rule(body, needs=("up",)))
    kinds = [facts["kind"] for _, _, facts in combinations(flow)]
    assert len(kinds) == 3
    assert {"a", "b"} < set(kinds)


def test_a_role_within_an_absent_role_is_no_combination() -> None:
    body = "if has(pooler):\n  x = pooler(x)\nif has(pooler.dense):\n  x = -x\nreturn x"
    assert check_flow(flow_rule(body, options=("pooler",))) == 3


def test_more_guards_than_a_person_reads_are_refused() -> None:
    guards = "".join(f"if fact.f{at}:\n  x = up(x)\n" for at in range(MAX_GUARDS + 1))
    with pytest.raises(FlowError, match="has 7 guards; at most 6, make it two"):
        check_length(flow_rule(f"{guards}return up(x)", needs=("up",)))


def test_roles_that_are_asked_for_together_are_one_guard_and_apart_they_are_not() -> None:
    names = tuple(f"r{at}" for at in range(MAX_GUARDS + 1))
    together = (
        f"if {' and '.join(f'has({name})' for name in names)}:\n  x = {'('.join(names)}(x{')' * len(names)}\n"
    )
    check_length(flow_rule(f"{together}return up(x)", needs=("up",), options=names))
    apart = "".join(f"if has({name}):\n  x = {name}(x)\n" for name in names)
    for body in (apart, together + apart):
        with pytest.raises(FlowError, match="has 7 guards"):
            check_length(flow_rule(f"{body}return up(x)", needs=("up",), options=names))


def test_an_unknown_callable_is_refused_with_its_line() -> None:
    fails(
        r"flows/layer/x\.yaml:4: 'wrong' is neither a role of layer/x nor an operation",
        "x = -x\nreturn wrong(x)",
    )


@pytest.mark.parametrize(
    "call",
    ["merge_heads(x, 2)", "merge_heads()", "attend(x)", "split_heads(x, 1, 2)", "merge_heads(y=x)"],
)
def test_operations_are_called_with_what_they_take(call: str) -> None:
    fails(r"is called with \d arguments", f"return {call}")


def test_a_role_may_have_the_name_of_an_operation() -> None:
    assert check_flow(flow_rule("return merge_heads(x, x, x)", needs=("merge_heads",))) == 1


def test_a_needed_role_is_used_under_every_combination() -> None:
    body = "if fact.flag:\n  return norm(x)\nreturn x"
    fails("needs role 'norm' but does not use it under every combination", body, needs=("norm",))


def test_an_option_stands_behind_has() -> None:
    fails(r"uses the option 'norm' without has\(norm\)", "return norm(x)", options=("norm",))


def test_an_option_that_is_never_used_is_refused() -> None:
    fails("names role 'norm' and never uses it", "return x", options=("norm",))


def test_every_arm_returns() -> None:
    fails(
        "does not end in return under every combination",
        "if fact.flag:\n  return up(x)\nx = up(x)",
        needs=("up",),
    )


def test_a_root_ends_in_output() -> None:
    assert check_flow(flow_rule("return output(logits=tower())", "root/x", takes=(), needs=("tower",))) == 1
    fails(r"a root ends in output\(...\), and nothing else does", "return x", name="root/x")


def test_nothing_but_a_root_ends_in_output() -> None:
    fails(r"a root ends in output\(...\), and nothing else does", "return output(logits=x)")


def test_a_name_that_nothing_binds_is_refused() -> None:
    flow = flow_rule("return up(x, mask)", needs=("up",))
    with pytest.raises(FlowError, match="layer/x reads 'mask', which no flow binds and no input is"):
        check_flow(flow, bound_names([flow]))


@pytest.mark.parametrize(
    "above",
    [
        "mask = padding_mask(y)\nreturn mask",
        "for mask in layers:\n  y = mask(y)\nreturn y",
        "return layers(y, mask=y)",
    ],
)
def test_a_name_that_some_flow_binds_is_context(above: str) -> None:
    flow = flow_rule("return up(x, mask)", needs=("up",))
    check_flow(flow, bound_names([flow, flow_rule(above, "tower/x", takes=("y",), options=("layers",))]))


def test_a_public_input_is_context() -> None:
    check_flow(flow_rule("return up(x, mask)", needs=("up",)), {"mask"})


def test_a_role_that_a_flow_says_it_leaves_unread_need_not_be_used() -> None:
    fields = {"needs": ("up",), "options": ("bias",)}
    fails("names role 'bias' and never uses it", "return up(x)", **fields)
    assert check_flow(flow_rule("return up(x)", ignored={"bias": "the same numbers"}, **fields)) == 1
