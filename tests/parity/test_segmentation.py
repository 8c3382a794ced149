"""Models that tell the parts of an image from each other, and their towers."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.parity.harness import check, image_inputs, reference, text_inputs, transformers
from tests.regions import roi_align

LAYERS = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def sam3_vision(**more: Any) -> Any:
    backbone = {
        **LAYERS, "model_type": "sam3_vit_model", "image_size": 32, "pretrain_image_size": 32, "patch_size": 8,
        "window_size": 2, "global_attn_indexes": [1],
    }  # fmt: skip
    return transformers.Sam3VisionConfig(backbone_config=backbone, fpn_hidden_size=24, **more)


def test_sam3_vision_model_makes_maps_of_several_sizes(tmp_path: Path) -> None:
    cases = image_inputs()
    config = sam3_vision(scale_factors=[4.0, 2.0, 1.0, 0.5, 0.5])
    made = check(reference("Sam3VisionModel", config), tmp_path, cases)
    with torch.no_grad():
        wanted = made.reference(**cases["own size"]).fpn_hidden_states
        found = made.built(**cases["own size"]).fpn_hidden_states
    assert [part.shape for part in found] == [part.shape for part in wanted]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mixed", [True, False])
def test_sam3_lite_text_model(mixed: bool, tmp_path: Path) -> None:
    config = transformers.Sam3LiteTextTextConfig(
        **{**LAYERS, "num_hidden_layers": 3}, vocab_size=99, max_position_embeddings=12, projection_dim=20,
        use_repmixer_blocks=mixed, repmixer_kernel_size=5,
    )  # fmt: skip
    check(reference("Sam3LiteTextTextModel", config), tmp_path, text_inputs(vocab_size=99, positions=False))


def asked() -> dict[str, dict[str, torch.Tensor]]:
    """A text and an image, with boxes or without: of what is meant and what is not, fewer of them, none at all."""
    generator = torch.Generator().manual_seed(1)
    boxes = torch.rand(3, 4, 4, generator=generator)
    labels = torch.tensor([[1, 0, 1, 0], [1, -10, -10, -10], [0, 1, -10, -10]])
    cases: dict[str, dict[str, torch.Tensor]] = text_inputs(vocab_size=99, positions=False)
    cases |= {
        "boxes": {**cases["no mask"], "input_boxes": boxes},
        "boxes with labels": {**cases["right"], "input_boxes": boxes, "input_boxes_labels": labels},
        "no box": {**cases["right"], "input_boxes": boxes[:, :0]},
    }
    for case in cases.values():
        rows = len(case["input_ids"])
        case["pixel_values"] = torch.randn(rows, 3, 64, 64, generator=generator)
    return cases


@pytest.mark.parametrize("name", ["Sam3", "Sam3LiteText"])
def test_sam3(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps of 16 x 16 places, so that cells of large boxes have several points."""
    model_type = "sam3" if name == "Sam3" else "sam3_lite_text"
    published = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
    aligned = SimpleNamespace(ops=SimpleNamespace(roi_align=roi_align))
    monkeypatch.setattr(
        published, "torchvision", aligned, raising=False
    )  # which is not needed here otherwise
    text = {**LAYERS, "vocab_size": 99, "max_position_embeddings": 12, "projection_dim": 20}
    backbone = {
        **LAYERS, "model_type": "sam3_vit_model", "image_size": 64, "pretrain_image_size": 64, "patch_size": 8,
        "window_size": 4, "global_attn_indexes": [1],
    }  # fmt: skip
    config = getattr(transformers, f"{name}Config")(
        vision_config={"backbone_config": backbone, "fpn_hidden_size": 40, "scale_factors": [4.0, 2.0, 1.0]},
        text_config=text if name == "Sam3" else {**text, "repmixer_kernel_size": 5},
        geometry_encoder_config={
            "hidden_size": 40, "num_layers": 1, "num_attention_heads": 2, "intermediate_size": 36, "roi_size": 3,
            "hidden_act": "silu",
        },
        detr_encoder_config={
            "hidden_size": 40, "num_layers": 2, "num_attention_heads": 4, "intermediate_size": 44,
        },
        detr_decoder_config={
            "hidden_size": 40, "num_layers": 3, "num_attention_heads": 5, "intermediate_size": 52, "num_queries": 7,
            "hidden_act": "gelu",
        },
        mask_decoder_config={"hidden_size": 40, "num_attention_heads": 10, "num_upsampling_stages": 3},
    )  # fmt: skip
    check(reference(f"{name}Model", config), tmp_path, asked())


@pytest.mark.parametrize("end", [2, 60])
def test_groupvit(end: int, tmp_path: Path) -> None:
    config = transformers.GroupViTConfig(
        text_config={**LAYERS, "vocab_size": 99, "max_position_embeddings": 12, "eos_token_id": end},
        vision_config={
            **LAYERS, "hidden_size": 48, "image_size": 32, "patch_size": 8, "depths": [1, 2, 1],
            "num_group_tokens": [6, 4, 0], "num_output_groups": [6, 4, 4], "assign_eps": 0.5,
        },
        projection_dim=20,
        projection_intermediate_dim=28,
    )  # fmt: skip
    texts = text_inputs(vocab_size=60, positions=False)
    for text in texts.values():
        text["input_ids"][:, -2] = 60
        text["pixel_values"] = torch.randn(len(text["input_ids"]), 3, 32, 32)
    check(reference("GroupViTModel", config), tmp_path, texts)


def prompted() -> dict[str, dict[str, torch.Tensor]]:
    """Two images, and for each three prompts of points with every label, boxes, both, and with a mask; or none."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(2, 3, 32, 32, generator=generator)
    points = torch.rand(2, 3, 4, 2, generator=generator) * 32
    labels = torch.tensor([1, 0, -1, -10]).expand(2, 3, 4)
    corners = torch.rand(2, 3, 4, generator=generator) * 32
    mask = torch.randn(2, 1, 16, 16, generator=generator)
    return {
        "points": {"pixel_values": images, "input_points": points, "input_labels": labels},
        "points inside": {"pixel_values": images[:1], "input_points": points[:1, :1]},
        "boxes": {"pixel_values": images, "input_boxes": corners},
        "both": {
            "pixel_values": images,
            "input_points": points,
            "input_labels": labels,
            "input_boxes": corners,
        },
        "a mask": {"pixel_values": images, "input_points": points, "input_masks": mask},
    }


@pytest.mark.parametrize("act", ["relu", "gelu"])
def test_sam_hq(act: str, tmp_path: Path) -> None:
    config = transformers.SamHQConfig(
        vision_config={
            "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 32, "patch_size": 8,
            "mlp_dim": 44, "output_channels": 32, "num_pos_feats": 16, "window_size": 2, "global_attn_indexes": [1, 2],
        },
        prompt_encoder_config={
            "hidden_size": 32, "image_size": 32, "patch_size": 8, "mask_input_channels": 8, "hidden_act": act,
        },
        mask_decoder_config={
            "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "mlp_dim": 52, "vit_dim": 48,
            "iou_head_hidden_dim": 24, "iou_head_depth": 3 if act == "relu" else 2, "hidden_act": act,
        },
    )  # fmt: skip
    check(reference("SamHQModel", config), tmp_path, prompted())


@pytest.mark.parametrize("act", ["relu", "gelu"])
def test_sam(act: str, tmp_path: Path) -> None:
    config = transformers.SamConfig(
        vision_config={
            "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32, "patch_size": 8,
            "mlp_dim": 44, "output_channels": 32, "num_pos_feats": 16, "window_size": 2, "global_attn_indexes": [1],
        },
        prompt_encoder_config={
            "hidden_size": 32, "image_size": 32, "patch_size": 8, "mask_input_channels": 8, "hidden_act": act,
        },
        mask_decoder_config={
            "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "mlp_dim": 52,
            "iou_head_hidden_dim": 24, "iou_head_depth": 3 if act == "relu" else 2, "hidden_act": act,
        },
    )  # fmt: skip
    check(reference("SamModel", config), tmp_path, prompted())
