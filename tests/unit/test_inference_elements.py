"""Layers with equal tensors that a config tells apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mapper.architecture import Architecture, Block
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import MapperError
from mapper.inference import infer
from mapper.inference.computed import calculate
from mapper.rulebook.examples import header
from mapper.rulebook.facts import FactRule
from tests.shipped import RULEBOOK

LAYERS = 4


def read(**config: Any) -> Architecture:
    shapes: dict[str, list[int]] = {"embed_tokens": [99, 64], "norm": [64]}
    for layer in range(LAYERS):
        shapes |= {f"layers.{layer}.self_attn.{name}_proj": [64, 64] for name in "qkvo"}
        shapes |= {f"layers.{layer}.mlp.{name}_proj": [96, 64] for name in ("gate", "up")}
        shapes |= {f"layers.{layer}.mlp.down_proj": [64, 96]}
        shapes |= {f"layers.{layer}.{name}_layernorm": [64] for name in ("input", "post_attention")}
    tensors = {f"{name}.weight": TensorInfo(tuple(shape), "F32") for name, shape in shapes.items()}
    fields: dict[str, Any] = {"model_type": "unheard_of", "rope_theta": 1e4, "num_attention_heads": 4}
    return infer(Checkpoint("test", "manifest", tensors, fields | config), RULEBOOK)


def layers(made: Architecture) -> list[Block]:
    tower = made.root.roles["tower"]
    assert isinstance(tower, Block)
    return [block for block in tower.roles["layers"] if isinstance(block, Block)]


def turned(block: Block) -> Any:
    filled = {item.slot: item.step for item in block.roles["attention"].slots}  # type: ignore[union-attr]
    return filled["rotary"] != "empty"


@pytest.mark.parametrize("model_type", ["unheard_of", "llama", "mistral"])
def test_equal_layers_are_one_block_where_nothing_tells_them_apart(model_type: str) -> None:
    made = read(model_type=model_type, num_hidden_layers=LAYERS)
    assert [(block.indices, turned(block)) for block in layers(made)] == [((0, 1, 2, 3), True)]


def test_layers_in_which_a_fact_differs_are_told_apart() -> None:
    made = layers(read(no_rope_layers=[1, 0, 1, 1]))
    assert {block.indices: turned(block) for block in made} == {(0, 2, 3): True, (1,): False}


def test_a_period_tells_layers_apart_too() -> None:
    made = layers(read(no_rope_layer_interval=2, num_hidden_layers=LAYERS))
    assert {block.indices: turned(block) for block in made} == {(0, 2): True, (1, 3): False}


def test_an_entry_is_that_of_the_elements_that_a_block_stands_for() -> None:
    rule = FactRule("x", "x.yaml", 1, entry="list", map={"near": True})
    assert calculate(rule, {"list": ["near", "far", "near"]}, (0, 2)) is True
    assert calculate(rule, {"list": "near"}, (0, 2)) is True  # the config was asked for these elements
    for indices in ((0, 1), (3,), None):
        with pytest.raises(ValueError, match="list"):
            calculate(rule, {"list": ["near", "far", "near"]}, indices)


@pytest.mark.parametrize("lost", ["attention.", "intermediate.", "output."])
def test_a_layer_that_lacks_what_the_others_have_is_never_exact(lost: str) -> None:
    bert = next(family for family in RULEBOOK.families if family.name == "bert").examples[0]
    whole = header(bert)
    assert infer(whole, RULEBOOK).reading == "exact"
    rest = {name: info for name, info in whole.tensors.items() if f"layer.1.{lost}" not in name}
    try:
        made = infer(replace(whole, tensors=rest), RULEBOOK)
    except MapperError:
        return
    assert made.reading != "exact"
    assert made.findings or made.missing
