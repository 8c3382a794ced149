"""Blocks that were put together by what is there: how many values one gives, and how many another one reads."""

from __future__ import annotations

import pytest

from mapper.architecture import Block
from mapper.errors import FlowError
from mapper.flows.results import check_results
from tests.unit.test_flows_program import block, layers, leaf, linked

PAIR = "y = dense(input_ids)\nreturn y, y + 1"


def root() -> Block:
    tower = block("tower", "tower/x", dense=leaf("dense"), layers=layers("layer/x"))
    return block("root", "root/x", tower=tower, head=leaf("head"))


@pytest.mark.parametrize(
    "body",
    [
        "return output(y=head(tower()))",
        "x = tower()\nreturn output(y=head(x))",
        "x = tower()\nreturn output(y=x + 1)",
        "x = tower()\nreturn output(y=merge_heads(x))",
        "x = tower()\nreturn output(y=F.relu(x))",
        "a, b, c = tower()\nreturn output(y=head(a + b + c))",
        "x = tower()\nreturn output(last_hidden_state=x, y=head(input_ids))",
    ],
)
def test_several_values_are_not_read_as_one_nor_as_another_number(body: str) -> None:
    with pytest.raises(FlowError, match="2 values here"):
        check_results(linked(root(), root_x=body, tower_x=PAIR, layer_x="return dense(x)"))


def test_what_is_handed_on_is_followed_into_the_block_that_reads_it() -> None:
    tower = "y = dense(input_ids), input_ids\nfor layer in layers:\n    y = layer(y)\nreturn y"
    with pytest.raises(FlowError, match="layer/x"):
        check_results(
            linked(root(), root_x="return output(y=tower())", tower_x=tower, layer_x="return dense(x)")
        )


def test_as_many_as_are_read_are_right() -> None:
    body = "a, b = tower()\nreturn output(y=head(a), z=b)"
    check_results(linked(root(), root_x=body, tower_x=PAIR, layer_x="return dense(x)"))


def test_one_value_of_a_layer_is_not_read_as_two() -> None:
    with pytest.raises(FlowError, match="1 value here"):
        body = "a, b = tower()\nreturn output(y=head(a), z=b)"
        check_results(
            linked(root(), root_x=body, tower_x="y = dense(input_ids)\nreturn y", layer_x="return dense(x)")
        )
