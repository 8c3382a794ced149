"""What the name of a network says, in the config that timm writes, and what beside it says more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

import mapper
from mapper.inference.entries import goes_by_form, is_silent, mapped
from mapper.rulebook.facts import FactRule

FORMS = {"tf_*": "same", "tf_lite*": "after", "vit_*_clip_*": "clip", "exact": "one", "*": None}


def rule(words: Mapping[str, Any], nullable: bool = False) -> FactRule:
    return FactRule("padding", "rules.yaml", 1, map=dict(words), nullable=nullable)


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("tf_b0", "same"),
        ("tf_lite0", "after"),
        ("vit_base_clip_224", "clip"),
        ("exact", "one"),
        ("other", None),
    ],
)
def test_the_longest_form_of_a_word_says_what_it_is(word: str, wanted: str | None) -> None:
    assert mapped(rule(FORMS), word) == wanted


def test_a_word_that_a_rule_has_null_for_says_nothing_unless_null_is_a_value() -> None:
    assert is_silent(rule(FORMS), "other")
    assert not is_silent(rule(FORMS), "tf_b0")
    assert not is_silent(rule(FORMS, nullable=True), "other")
    assert goes_by_form(rule(FORMS))
    assert not goes_by_form(rule({"a": 1, "*": 2}))


def vit(width: int, layers: int, inner: int) -> dict[str, torch.Tensor]:
    """The names and shapes of timm's vision transformer, without numbers."""
    shapes: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, width), "pos_embed": (1, 197, width), "patch_embed.proj.weight": (width, 3, 16, 16), "patch_embed.proj.bias": (width,),
        "norm.weight": (width,), "norm.bias": (width,), "head.weight": (5, width), "head.bias": (5,),
    }  # fmt: skip
    for index in range(layers):
        for name, (rows, columns) in {"attn.qkv": (3 * width, width), "attn.proj": (width, width), "mlp.fc1": (inner, width), "mlp.fc2": (width, inner)}.items():  # fmt: skip
            shapes |= {
                f"blocks.{index}.{name}.weight": (rows, columns),
                f"blocks.{index}.{name}.bias": (rows,),
            }
        for name in ("norm1", "norm2"):
            shapes |= {f"blocks.{index}.{name}.{part}": (width,) for part in ("weight", "bias")}
    return {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("size", "heads"), [((192, 12, 768), 3), ((384, 12, 1536), 6), ((768, 12, 3072), 12)]
)
def test_a_vision_transformer_of_a_published_size_has_its_heads(
    size: tuple[int, int, int], heads: int
) -> None:
    read = mapper.inspect(vit(*size)).architecture
    assert not read.questions
    assert {fact.value for fact in read.facts if fact.name == "attention.heads"} == {heads}


def test_one_of_another_size_is_asked_for_its_heads() -> None:
    for size in ((192, 2, 768), (192, 12, 700), (200, 12, 800)):
        asked = {question.fact for question in mapper.inspect(vit(*size)).architecture.questions}
        assert "attention.heads" in asked, size


def gated(norm: bool) -> dict[str, torch.Tensor]:
    """The same with a gate of its own in each feed-forward network, and a norm behind it or none."""
    shapes = {name: tuple(tensor.shape) for name, tensor in vit(48, 2, 96).items()}
    for index in range(2):
        for part in ("weight", "bias"):
            up = shapes.pop(f"blocks.{index}.mlp.fc1.{part}")
            shapes |= {f"blocks.{index}.mlp.{name}.{part}": up for name in ("fc1_g", "fc1_x")}
            shapes |= {f"blocks.{index}.mlp.norm.{part}": (96,)} if norm else {}
    return {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}


def test_names_of_eva02_say_how_its_patches_turn_queries_and_keys() -> None:
    facts = {fact.name: fact.value for fact in mapper.inspect(gated(True)).architecture.facts}
    assert facts["rotary"] is True
    assert facts["rotary.coordinates"] == "spread"
    assert facts["rotary.side"] == 16


def test_a_gate_alone_says_nothing_of_rotary_embeddings() -> None:
    facts = {fact.name: fact.value for fact in mapper.inspect(gated(False)).architecture.facts}
    assert facts["rotary"] is False
