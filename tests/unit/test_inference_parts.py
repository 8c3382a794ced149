"""What a family asks of its checkpoints is asked of the part that has its names, and of nothing beside it."""

from __future__ import annotations

from typing import Any

import pytest

import mapper
from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK

Shapes = dict[str, tuple[int, ...]]


def shapes(family: str) -> tuple[Shapes, dict[str, Any] | None]:
    first = header(next(item for item in RULEBOOK.families if item.name == family).examples[0])
    return {name: info.shape for name, info in first.tensors.items()}, first.config


def read(held: Shapes, config: dict[str, Any] | None = None) -> Architecture:
    tensors = {name: TensorInfo(shape, "F32") for name, shape in held.items()}
    return infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK)


def below(folder: str, held: Shapes) -> Shapes:
    return {f"{folder}.{name}": shape for name, shape in held.items()}


def told(architecture: Architecture) -> str:
    return "\n".join([*architecture.findings, *architecture.missing])


def single_file() -> Shapes:
    """A text encoder, a U-Net and an autoencoder in one file, as diffusion models were first published."""
    attention = {f"attn{n}.to_{word}.weight": (32, 32) for n in (1, 2) for word in "qkv"}
    attention |= {
        f"attn{n}.to_out.0.{name}": (32, 32)[: 2 - (name == "bias")]
        for n in (1, 2)
        for name in ("weight", "bias")
    }
    unet = {
        "input_blocks.0.0.weight": (32, 4, 3, 3),
        "input_blocks.0.0.bias": (32,),
        "time_embed.0.weight": (64, 32),
        "time_embed.0.bias": (64,),
    }
    unet |= below("input_blocks.1.1.transformer_blocks.0", attention)
    codec = {
        f"{side}.mid.block_{n}.conv1.{name}": (8, 8, 3, 3)[: 4 - 3 * (name == "bias")]
        for side in ("encoder", "decoder")
        for n in (1, 2)
        for name in ("weight", "bias")
    }
    text, _ = shapes("clip_text")
    return {
        "betas": (1000,),
        **below("model.diffusion_model", unet),
        **below("first_stage_model", codec),
        **below("cond_stage_model.transformer", text),
    }


def reader() -> Shapes:
    """A bert without the biases that other encoders have."""
    held, _ = shapes("bert")
    return {
        name: shape for name, shape in held.items() if not name.endswith(("query.bias", "LayerNorm.bias"))
    }


@pytest.mark.parametrize("config", [None, {"model_type": "unheard_of"}])
def test_a_text_encoder_does_not_judge_the_unet_beside_it(config: dict[str, Any] | None) -> None:
    architecture = read(single_file(), config)
    assert architecture.reading == "skeleton"
    assert "attn1.to_k.bias" not in told(architecture)


def test_what_is_missing_in_the_part_itself_is_still_said() -> None:
    held = {name: shape for name, shape in single_file().items() if not name.endswith("fc1.bias")}
    assert "mlp.fc1.bias is missing: every clip_text has it" in told(read(held))
    held = {
        name: shape for name, shape in single_file().items() if not name.endswith("layers.1.mlp.fc1.bias")
    }
    with pytest.raises(mapper.MapperError, match=r"layers\.1\.mlp\.fc1\.bias is missing"):
        read(held)


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_model_does_not_judge_another_in_a_folder_beside_it(is_listed: bool) -> None:
    held, config = shapes("clip")
    architecture = read({**held, **below("captioner", reader())}, config if is_listed else None)
    assert architecture.reading == "skeleton"
    assert "every clip has it" not in told(architecture)


def test_what_a_listed_model_lacks_itself_is_an_error_beside_another() -> None:
    held, config = shapes("clip")
    lesser = {
        name: shape
        for name, shape in held.items()
        if not name.endswith("text_model.encoder.layers.0.mlp.fc1.bias")
    }
    assert len(lesser) < len(held)
    with pytest.raises(mapper.MapperError, match=r"fc1\.bias is missing"):
        read({**lesser, **below("captioner", reader())}, config)


def test_a_tower_of_its_own_names_is_no_incomplete_checkpoint_of_the_whole() -> None:
    held, config = shapes("llava")
    kept = {name: shape for name, shape in held.items() if not name.startswith("vision_tower")}
    foreign = {
        f"vision_tower.trunk.blocks.{at}.{name}.weight": (32, 32)
        for at in (0, 1)
        for name in ("attn.qkv", "ffn.a")
    }
    vision = {**(config or {})["vision_config"], "model_type": "unheard_of"}
    architecture = read({**kept, **foreign}, {**(config or {}), "vision_config": vision})
    assert architecture.reading == "skeleton"
    assert ".bias is missing" not in told(architecture)
