from __future__ import annotations

import pytest

from mapper.architecture import Block, Place
from mapper.flows.flow import parse_flow
from mapper.flows.hidden import collect_states, give_states
from tests.flow_rules import flow_rule, written

LAYERS = "x = embeddings()\nfor layer in layers:\n  x = layer(x)\n"


def collected(body: str) -> list[str] | None:
    statements = collect_states(list(parse_flow(flow_rule(body, needs=("layers", "norm"))).statements))
    return None if statements is None else written(statements)


def given(body: str, *towers: str) -> list[str]:
    blocks = {name: Block("other", name, Place()) for name in towers}
    return written(give_states(list(parse_flow(flow_rule(body, "root/x")).statements), blocks))


def test_a_tower_keeps_what_goes_into_each_layer_and_what_comes_out() -> None:
    assert collected(f"{LAYERS}return norm(x)") == [
        "x = embeddings()",
        "hidden_states = []",
        "for layer in layers:",
        "  hidden_states.append(x)",
        "  x = layer(x)",
        "x = norm(x)",
        "hidden_states.append(x)",
        "return x, hidden_states",
    ]


def test_a_tower_that_returns_what_the_last_layer_gives_needs_no_line_more() -> None:
    assert (collected(f"{LAYERS}return x") or [])[-2:] == [
        "hidden_states.append(x)",
        "return x, hidden_states",
    ]


def test_what_else_a_tower_returns_stays_between() -> None:
    assert (collected(f"{LAYERS}return x, norm(x[:, 0])") or [])[
        -1
    ] == "return x, norm(x[:, 0]), hidden_states"


@pytest.mark.parametrize(
    "body",
    [
        "x = embeddings()\nreturn norm(x)",
        "for layer in layers:\n  y = layer(z)\nreturn y",
        f"{LAYERS}return norm(x), x[:, 0]",
    ],
)
def test_a_tower_without_one_value_passed_on_keeps_its_statements(body: str) -> None:
    assert collected(body) is None


def test_arguments_besides_the_value_do_not_matter() -> None:
    body = "for layer, kind in zip(layers, fact.kinds):\n  x = layer(x, mask=masks[kind])\nreturn x"
    assert (collected(body) or [])[2] == "  hidden_states.append(x)"


def test_the_root_gives_them_with_its_output() -> None:
    assert given("x = tower()\nreturn output(last_hidden_state=x)", "tower") == [
        "x, hidden_states = tower()",
        "return output(last_hidden_state=x, hidden_states=hidden_states)",
    ]


def test_a_call_within_an_expression_gets_a_line_of_its_own() -> None:
    assert given("return output(logits=lm_head(tower()))", "tower") == [
        "tower_output, hidden_states = tower()",
        "return output(logits=lm_head(tower_output), hidden_states=hidden_states)",
    ]


def test_a_root_with_two_towers_names_both() -> None:
    rows = given("x, pooled = vision()\ny = text(x)\nreturn output(a=pooled, b=y)", "vision", "text")
    assert rows == [
        "x, pooled, vision_hidden_states = vision()",
        "y, text_hidden_states = text(x)",
        "return output(a=pooled, b=y, vision_hidden_states=vision_hidden_states, text_hidden_states=text_hidden_states)",
    ]
