"""Tokens beside the patches of an image, and an image embedding without positions."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from mapper._api import _read
from mapper._compiling import compile_source
from mapper.architecture import Architecture
from mapper.emission import emit
from mapper.rulebook.examples import Example, header
from tests.shipped import RULEBOOK

PATCHES = 16  # 32 x 32 pixels in squares of 8


def read(tokens: dict[str, list[int]], rows: int | None) -> Architecture:
    """A vision transformer of a type that no family lists, with `rows` position embeddings, if any."""
    block = "encoder.layer.{0..1}"
    tensors = {
        **tokens,
        **({"embeddings.position_embeddings": [1, rows, 32]} if rows else {}),
        "embeddings.patch_embeddings.projection.weight": [32, 3, 8, 8],
        "embeddings.patch_embeddings.projection.bias": [32],
        f"{block}.attention.attention.{{query,key,value}}.weight": [32, 32],
        f"{block}.attention.attention.{{query,key,value}}.bias": [32],
        f"{block}.attention.output.dense.weight": [32, 32],
        f"{block}.attention.output.dense.bias": [32],
        f"{block}.intermediate.dense.weight": [44, 32],
        f"{block}.intermediate.dense.bias": [44],
        f"{block}.output.dense.weight": [32, 44],
        f"{block}.output.dense.bias": [32],
        f"{block}.layernorm_{{before,after}}.{{weight,bias}}": [32],
        "layernorm.{weight,bias}": [32],
    }
    config = {
        "model_type": "unheard_of",
        "num_attention_heads": 4,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-6,
    }
    answers = {"pooling": None} if "embeddings.cls_token" in tokens else None
    return _read(header(Example("unheard_of", tensors, config, {}, "test", 1)), answers, RULEBOOK, True)


def module(architecture: Architecture) -> ModuleType:
    return compile_source(emit(architecture), "unheard_of")


CLASS, DISTILLATION, REGISTERS = (
    {"embeddings.cls_token": [1, 1, 32]},
    {"embeddings.distillation_token": [1, 1, 32]},
    {"embeddings.register_tokens": [1, 4, 32]},
)


@pytest.mark.parametrize(
    ("tokens", "rows", "leading"),
    [(CLASS, 1, 1), ({**CLASS, **DISTILLATION}, 2, 2), ({**CLASS, **REGISTERS}, 1, 5)],
)
def test_tokens_stand_before_the_patches(tokens, rows, leading):
    architecture = read(tokens, rows + PATCHES)
    assert architecture.reading == "unverified", architecture.missing
    model = module(architecture).Model()
    assert model(torch.zeros(1, 3, 32, 32)).last_hidden_state.shape == (1, leading + PATCHES, 32)


def test_registers_have_no_positions_and_stand_behind_the_class_token():
    model = module(read({**CLASS, **REGISTERS}, 1 + PATCHES)).Model()
    with torch.no_grad():
        for parameter in model.embeddings.parameters():
            parameter.zero_()
        model.embeddings.position_embeddings += 1
        model.embeddings.register_tokens += 2
        rows = model.embeddings(torch.zeros(1, 3, 32, 32))[0, :, 0]
    assert rows.tolist() == [1, 2, 2, 2, 2] + [1] * PATCHES


def test_an_image_without_positions_is_no_fit():
    architecture = read(CLASS, None)
    assert architecture.reading == "skeleton"
    assert any("embeddings" in str(item) for item in architecture.missing)
