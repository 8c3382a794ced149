"""Encoders of image patches beside ViT itself, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.parity.harness import check, image_inputs, reference, text_inputs, transformers

PATCHES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 44, "image_size": 32, "patch_size": 8,
}  # fmt: skip
RESIZE = "interpolate_pos_encoding"
OTHER_SIZES = ((40, 64), (27, 35))


@pytest.mark.parametrize("name", ["Beit", "Data2VecVision"])
@pytest.mark.parametrize("head", ["Model", "ForImageClassification"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_relative_position_bias": True},
        {"use_absolute_position_embeddings": True, "use_mean_pooling": False, "use_mask_token": True},
    ],
)
def test_beit(name: str, head: str, options: dict[str, Any], tmp_path: Path) -> None:
    config = getattr(transformers, f"{name}Config")(**PATCHES, **options, num_labels=5)
    check(reference(f"{name}{head}", config), tmp_path, image_inputs(*OTHER_SIZES))


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("name", ["QianfanOCRVision", "InternVLVision"])
def test_towers_of_larger_models(name: str, normed: bool, tmp_path: Path) -> None:
    sizes = {"image_size": [32, 32], "patch_size": [8, 8], "use_mean_pooling": not normed}
    config = getattr(transformers, f"{name}Config")(**{**PATCHES, **sizes}, use_mask_token=True)
    check(reference(f"{name}Model", config), tmp_path, image_inputs(*OTHER_SIZES, patch=8))


@pytest.mark.parametrize("head", ["Model", "ForImageClassification"])
def test_ijepa(head: str, tmp_path: Path) -> None:
    config = transformers.IJepaConfig(**PATCHES, num_labels=5)
    check(reference(f"IJepa{head}", config), tmp_path, image_inputs(*OTHER_SIZES, resize=RESIZE))


@pytest.mark.parametrize("tokens", [1, 4])
def test_pixio(tokens: int, tmp_path: Path) -> None:
    sizes = {key: value for key, value in PATCHES.items() if key != "intermediate_size"}
    config = transformers.PixioConfig(**sizes, mlp_ratio=2, n_cls_tokens=tokens)
    check(reference("PixioModel", config), tmp_path, image_inputs(*OTHER_SIZES))


@pytest.mark.parametrize("options", [{}, {"qkv_bias": False, "num_cls_tokens": 2, "summary_idxs": [1]}])
def test_radio(options: dict[str, Any], tmp_path: Path) -> None:
    sizes = {key: value for key, value in PATCHES.items() if key != "intermediate_size"}
    config = transformers.RadioConfig(**sizes, max_img_size=64, mlp_ratio=2.0, num_registers=3, **options)
    check(reference("RadioModel", config), tmp_path, image_inputs((40, 64), (24, 32)))


@pytest.mark.parametrize("options", [{}, {"qkv_bias": True, "mlp_bias": True, "use_head": False}])
@pytest.mark.parametrize("native", [False, True])
def test_aimv2_vision(options: dict[str, Any], native: bool, tmp_path: Path) -> None:
    config = transformers.Aimv2VisionConfig(**PATCHES, **options, is_native=native)
    check(reference("Aimv2VisionModel", config), tmp_path, image_inputs(*(OTHER_SIZES if native else ())))


def test_aimv2(tmp_path: Path) -> None:
    text = {key: value for key, value in PATCHES.items() if key not in ("image_size", "patch_size")}
    config = transformers.Aimv2Config(
        text_config={**text, "vocab_size": 99, "eos_token_id": 98, "max_position_embeddings": 20},
        vision_config=PATCHES, projection_dim=24, max_logit_scale=1.1,
    )  # fmt: skip
    images = image_inputs()["own size"]
    words = {
        name: {**case, **images} for name, case in text_inputs(98, positions=False).items() if name != "one"
    }
    for case in words.values():
        case["input_ids"][:, 5] = 98
    check(reference("Aimv2Model", config), tmp_path, words)


def test_vit_mae(tmp_path: Path) -> None:
    config = transformers.ViTMAEConfig(**PATCHES, mask_ratio=0.6)
    noise = torch.rand(3, 16, generator=torch.Generator().manual_seed(1))
    inputs = {
        name: {**case, "noise": noise[: len(case["pixel_values"])]} for name, case in image_inputs().items()
    }
    check(reference("ViTMAEModel", config), tmp_path, inputs)


def video_inputs(frames: int, name: str = "pixel_values") -> dict[str, dict[str, torch.Tensor]]:
    pixels = torch.randn(2, frames, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return {"own size": {name: pixels}, "one": {name: pixels[:1]}}


@pytest.mark.parametrize(("head", "frames"), [("Model", 4), ("ForVideoClassification", 4), ("Model", 8)])
def test_timesformer(head: str, frames: int, tmp_path: Path) -> None:
    fields = {**PATCHES, "intermediate_size": 44, "num_labels": 5, "qkv_bias": head == "Model"}
    config = transformers.TimesformerConfig(**fields, num_frames=4, layer_norm_eps=1e-4)
    check(reference(f"Timesformer{head}", config), tmp_path, video_inputs(frames))


def test_timesformer_with_a_table_of_another_size(tmp_path: Path) -> None:
    config = transformers.TimesformerConfig(**{**PATCHES, "image_size": 16}, num_frames=4)
    check(reference("TimesformerModel", config), tmp_path, video_inputs(4))


@pytest.mark.parametrize("head", ["Model", "ForVideoClassification"])
@pytest.mark.parametrize("options", [{}, {"use_mean_pooling": False, "qv_bias": False}])
def test_videomae(head: str, options: dict[str, Any], tmp_path: Path) -> None:
    config = transformers.VideoMAEConfig(**PATCHES, num_frames=4, **options, num_labels=5)
    check(reference(f"VideoMAE{head}", config), tmp_path, video_inputs(4))


@pytest.mark.parametrize("head", ["Model", "ForVideoClassification"])
@pytest.mark.parametrize("bias", [True, False])
def test_vivit(head: str, bias: bool, tmp_path: Path) -> None:
    sizes = {key: value for key, value in PATCHES.items() if key != "patch_size"}
    config = transformers.VivitConfig(
        **sizes, num_frames=4, tubelet_size=[2, 8, 16], qkv_bias=bias, num_labels=5
    )
    check(reference(f"Vivit{head}", config), tmp_path, video_inputs(4))


@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("windows", [[], [0]])
def test_vitdet(positions: bool, windows: list[int], tmp_path: Path) -> None:
    sizes = {key: value for key, value in PATCHES.items() if key != "intermediate_size"}
    config = transformers.VitDetConfig(
        **sizes, mlp_ratio=2, pretrain_image_size=24, window_block_indices=windows, window_size=3 if windows else 0,
        use_relative_position_embeddings=positions, qkv_bias=positions,
    )  # fmt: skip
    check(reference("VitDetModel", config), tmp_path, image_inputs(*OTHER_SIZES))


@pytest.mark.parametrize("name", ["Sam", "SamHQ"])
@pytest.mark.parametrize("positions", [True, False])
def test_sam_vision(name: str, positions: bool, tmp_path: Path) -> None:
    sizes = {key: value for key, value in PATCHES.items() if key != "intermediate_size"}
    config = getattr(transformers, f"{name}VisionConfig")(
        **sizes, mlp_dim=44, output_channels=24, window_size=3, global_attn_indexes=[1],
        use_rel_pos=positions, use_abs_pos=positions, qkv_bias=positions,
    )  # fmt: skip
    check(reference(f"{name}VisionModel", config), tmp_path, image_inputs())


@pytest.mark.parametrize("window", [3, 4])
def test_sam3_vit(window: int, tmp_path: Path) -> None:
    config = transformers.Sam3ViTConfig(
        **PATCHES, pretrain_image_size=24, window_size=window, global_attn_indexes=[1]
    )
    check(reference("Sam3ViTModel", config), tmp_path, image_inputs())


@pytest.mark.parametrize("head", ["Model", "ForImageClassification"])
@pytest.mark.parametrize(
    "options",
    [
        {"window_size": 3},
        {"window_size": 4, "pretrained_window_sizes": [2, 3], "qkv_bias": False},
        {"window_size": 16, "hidden_act": "relu", "layer_norm_eps": 1e-3},
    ],
)
def test_swinv2(head: str, options: dict[str, Any], tmp_path: Path) -> None:
    config = transformers.Swinv2Config(
        image_size=32, patch_size=4, embed_dim=8, depths=[2, 2], num_heads=[2, 4], num_labels=5, **options
    )
    check(reference(f"Swinv2{head}", config), tmp_path, image_inputs((32, 46), (41, 40)))


@pytest.mark.parametrize("fine", [True, False])
def test_granite_docling_vision(fine: bool, tmp_path: Path) -> None:
    config = transformers.GraniteDoclingVisionConfig(
        **PATCHES, out_hidden_size=24, scale_factor=2, use_fine_route=fine, deepstack_visual_indexes=[0, 1]
    )
    pair = check(reference("GraniteDoclingVisionModel", config), tmp_path, image_inputs())
    inputs = image_inputs()["own size"]
    wanted = torch.stack(pair.reference(**inputs).deepstack_features)
    torch.testing.assert_close(pair.built(**inputs).deepstack_features, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["OwlViT", "Owlv2"])
def test_owlvit(name: str, tmp_path: Path) -> None:
    text = {key: value for key, value in PATCHES.items() if key not in ("image_size", "patch_size")}
    config = getattr(transformers, f"{name}Config")(
        text_config={**text, "vocab_size": 99, "max_position_embeddings": 16},
        vision_config={**PATCHES, "hidden_size": 40},
        projection_dim=32,
    )
    words = text_inputs(99, positions=False, length=9)
    pixels = image_inputs()["own size"]["pixel_values"]
    cases = {
        key: {**case, "pixel_values": pixels} for key, case in words.items() if key in ("all ones", "right")
    }
    ids = torch.cat((words["right"]["input_ids"], words["right"]["input_ids"].flip(1)))
    ids[1, 0] = 0  # no text
    cases["two texts for each image"] = {"input_ids": ids, "pixel_values": pixels}
    check(reference(f"{name}ForObjectDetection", config), tmp_path, cases)
