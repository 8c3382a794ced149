"""Encoders of images, of parts of them, and of texts beside them, of a type that no family lists."""

from __future__ import annotations

from typing import Any

import pytest

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.emission import emit
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK
from tests.unit.test_inference_unlisted import facts

WIDTH, WIDE = 32, 48


def of(shapes: dict[str, tuple[int, ...]], hints: dict[str, Any] | None = None, **more: Any) -> Architecture:
    tensors = {name: TensorInfo(shape, "F32") for name, shape in shapes.items()}
    config = {
        "model_type": "unheard_of",
        "architectures": ["UnheardOfModel"],
        "num_attention_heads": 4,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        **more,
    }
    return infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK, hints=hints)


def linear(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}


def norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (WIDTH,), f"{name}.bias": (WIDTH,)}


def layer(first: str, second: str) -> dict[str, tuple[int, ...]]:
    maps = [linear(f"layers.0.self_attn.{name}_proj", WIDTH, WIDTH) for name in ("q", "k", "v", "out")]
    made = norm(f"layers.0.{first}") | norm(f"layers.0.{second}")
    for one in maps:
        made |= one
    return made | linear("layers.0.mlp.fc1", WIDE, WIDTH) | linear("layers.0.mlp.fc2", WIDTH, WIDE)


def test_a_text_whose_pooled_state_is_projected_is_asked_which_state_that_is() -> None:
    shapes = {
        "embeddings.token_embedding.weight": (99, WIDTH),
        "embeddings.position_embedding.weight": (16, WIDTH),
        **layer("norm1", "norm2"),
        **norm("final_layer_norm"),
        "projection.weight": (24, WIDTH),
    }
    (asked,) = [question for question in of(shapes).questions if question.fact == "pooling"]
    assert asked.candidates == ("end", "highest", "first", "last", "mean", "mean_tokens")
    told = of(shapes, {"pooling": "highest", "attention.causal": False})
    assert told.missing == [] and set(facts(told, "pooling")) == {"highest"}


def test_a_masked_autoencoder_may_do_without_a_class_token() -> None:
    shapes = {
        "embeddings.position_embeddings": (1, 16, WIDTH),
        "embeddings.patch_embeddings.projection.weight": (WIDTH, 3, 8, 8),
        "embeddings.patch_embeddings.projection.bias": (WIDTH,),
        **layer("norm1", "norm2"),
        **norm("layernorm"),
    }
    made = of(shapes, {"pooling": None}, mask_ratio=0.5)
    assert made.missing == []
    assert "embedding/patches+table+image" in [block.flow for block in made.root.blocks()]
    assert "keep_some(" in emit(made)


def test_a_bias_of_a_head_for_classes_is_no_embedding() -> None:
    entry = next(one for one in RULEBOOK.families if one.name == "grounding_dino")
    old, new = "encoder_output_class_embed", "found_class_embed"
    found = next(one for one in map(header, entry.examples) if any(old in name for name in one.tensors))
    tensors = {name.replace(old, new): info for name, info in found.tensors.items()}
    config = {**(found.config or {}), "model_type": "unheard_of"}
    made = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK, hints={"phrases.masked": "hidden"})
    assert not any(new in line for line in made.missing)


def test_a_detector_of_several_feature_maps_needs_no_family() -> None:
    """What reads points of them is known by its names; a map beside heads for classes is no classifier."""
    entry = next(one for one in RULEBOOK.families if one.name == "deformable_detr")
    found = header(entry.examples[0])
    config = {**(found.config or {}), "model_type": "unheard_of"}
    hints = {"level_maps:convolution.stride": 1, "norm.groups": 8}
    checkpoint = Checkpoint("x", "manifest", found.tensors, config)
    made = infer(checkpoint, RULEBOOK, hints=hints, use_families=False)
    flows = {block.role: block.flow for block in made.root.blocks()}
    assert flows["decoder"] == "tower/deformable_decoder" and flows["encoder"] == "tower/positioned_encoder"
    assert "reference_map" in made.root.roles and "classifier" not in made.root.roles
    assert made.root.flow == "root/encoded_maps+object_queries+detection"


@pytest.mark.parametrize(
    ("family", "fact"),
    [
        ("rt_detr", "states.levels"),
        ("dab_detr", "queries.anchored"),
        ("sam3", "queries.anchored"),
        ("conditional_detr", "queries.conditional"),
    ],
)
def test_what_queries_are_is_shown_by_tensors(family: str, fact: str) -> None:
    """Boxes have four numbers, points a head of their own: no family has to say so."""
    entry = next(one for one in RULEBOOK.families if one.name == family)
    found = header(entry.examples[0])
    config = {**(found.config or {}), "model_type": "unheard_of"}
    made = infer(Checkpoint("x", "manifest", found.tensors, config), RULEBOOK)
    shown = {(one.value, one.evidence) for one in made.facts if one.name == fact}
    assert shown in ({(True, "name")}, {(True, "rule")}, {(True, "shape")})
