"""Vision towers that read the patches of several images in one row against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel

from tests.parity.harness import check, reference, text_inputs, transformers

SIZES = {"depth": 2, "hidden_size": 32, "num_heads": 4, "patch_size": 4, "intermediate_size": 44}
GRIDS = {
    "two images": [[1, 4, 4], [1, 6, 4]],
    "one": [[1, 2, 8]],
    "a video and an image": [[3, 4, 6], [1, 2, 2]],
    "larger": [[1, 10, 14], [2, 8, 4]],
}


def packed_inputs(pixels: int, name: str = "hidden_states") -> dict[str, dict[str, Tensor]]:
    """Patches of `pixels` values each for every set of grids."""
    generator = torch.Generator().manual_seed(1)
    cases = {}
    for case, rows in GRIDS.items():
        grid = torch.tensor(rows)
        patches = torch.randn(int(grid.prod(dim=1).sum()), pixels, generator=generator)
        cases[case] = {name: patches, "grid_thw": grid}
    return cases


INPUTS = packed_inputs(3 * 2 * 4 * 4)


def config(name: str, **more: Any) -> Any:
    return getattr(transformers, name)(**{**SIZES, **more})


@pytest.mark.parametrize("name", ["Qwen3VL", "Qwen3VLMoe", "CohereCompass"])
def test_mergers_further_down(name: str, tmp_path: Path) -> None:
    made = config(f"{name}VisionConfig", depth=3, num_position_embeddings=25, deepstack_visual_indexes=[0, 1])
    pair = check(reference(f"{name}VisionModel", made), tmp_path, INPUTS)
    wanted = pair.reference(**INPUTS["larger"]).deepstack_features
    torch.testing.assert_close(
        pair.built(**INPUTS["larger"]).deepstack_features, torch.stack(wanted), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("name", ["Qwen3_5", "Qwen3_5Moe"])
def test_qwen3_5_vision(name: str, tmp_path: Path) -> None:
    made = config(f"{name}VisionConfig", num_position_embeddings=25)
    check(reference(f"{name}VisionModel", made), tmp_path, INPUTS)


def test_qwen4_exp_vision(tmp_path: Path) -> None:
    made = config("Qwen4ExpVisionConfig", num_position_embeddings=16, hidden_act="relu", spatial_merge_size=1)
    check(reference("Qwen4ExpVisionModel", made), tmp_path, INPUTS)


@pytest.mark.parametrize("full", [[1], [0, 1], []])
def test_qwen2_5_vl_vision(full: list[int], tmp_path: Path) -> None:
    made = config("Qwen2_5_VLVisionConfig", fullatt_block_indexes=full, window_size=16, out_hidden_size=24)
    check(reference("Qwen2_5_VisionTransformerPretrainedModel", made), tmp_path, INPUTS)


def test_qwen2_vl_vision(tmp_path: Path) -> None:
    made = transformers.Qwen2VLVisionConfig(
        depth=2, embed_dim=32, hidden_size=24, num_heads=4, patch_size=4, mlp_ratio=2
    )
    check(reference(Qwen2VisionTransformerPretrainedModel, made), tmp_path, INPUTS)


@pytest.mark.parametrize("name", ["Glm4v", "Glm4vMoe", "Glm5Next"])
def test_neighbours_made_one_by_a_convolution(name: str, tmp_path: Path) -> None:
    more = {"projection_intermediate_size": 52} if name == "Glm5Next" else {"image_size": 20}
    made = config(f"{name}VisionConfig", out_hidden_size=24, **more)
    images = {key: value for key, value in INPUTS.items() if key in ("two images", "one")}
    check(reference(f"{name}VisionModel", made), tmp_path, images)  # videos come as images there


def test_bounded_gates(tmp_path: Path) -> None:
    made = config("Glm5NextVisionConfig", out_hidden_size=24, swiglu_limit=0.05, attention_bias=False)
    check(reference("Glm5NextVisionModel", made), tmp_path, INPUTS)


WORDS = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 44,
    "vocab_size": 99,
}
LAYERS = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "patch_size": 4,
    "intermediate_size": 44,
}


@pytest.mark.parametrize("merge", [1, 2])
def test_kimi_k25_vision(merge: int, tmp_path: Path) -> None:
    made = transformers.Kimi_K25VisionConfig(
        **LAYERS, merge_kernel_size=[merge, merge], pos_emb_height=6, pos_emb_width=6
    )
    patches = packed_inputs(3 * 4 * 4, "pixel_values")
    inputs = {
        name: {**case, "pixel_values": case["pixel_values"].unflatten(1, (3, 4, 4))}
        for name, case in patches.items()
        if len(set(case["grid_thw"][:, 0].tolist())) == 1  # the reference takes as many frames of each image
    }
    inputs["video"] = {"pixel_values": torch.randn(48, 3, 4, 4), "grid_thw": torch.tensor([[3, 4, 4]])}
    check(reference("Kimi_K25VisionModel", made), tmp_path, inputs)


@pytest.mark.parametrize("patches", [16, 100])
def test_cosmos3_edge_vision(patches: int, tmp_path: Path) -> None:
    made = transformers.Cosmos3EdgeVisionConfig(**LAYERS, num_patches=patches)
    check(reference("Cosmos3EdgeVisionModel", made), tmp_path, packed_inputs(3 * 4 * 4, "pixel_values"))


def padded_inputs() -> dict[str, dict[str, Tensor]]:
    """Patches of images of different shapes, padded to one length."""
    pixels = torch.randn(3, 20, 3 * 4 * 4, generator=torch.Generator().manual_seed(1))
    shapes = torch.tensor([[4, 5], [2, 8], [3, 3]])
    mask = (torch.arange(20) < shapes.prod(dim=1)[:, None]).long()
    whole = {"pixel_values": pixels, "pixel_attention_mask": mask, "spatial_shapes": shapes}
    return {"padded": whole, "one": {name: value[1:2, :16] for name, value in whole.items()}}


@pytest.mark.parametrize("options", [{"num_patches": 16}, {"num_patches": 100, "vision_use_head": False}])
def test_siglip2_vision(options: dict[str, Any], tmp_path: Path) -> None:
    made = transformers.Siglip2VisionConfig(**LAYERS, **options)
    check(reference("Siglip2VisionModel", made), tmp_path, padded_inputs())


def test_siglip2(tmp_path: Path) -> None:
    made = transformers.Siglip2Config(
        text_config={**WORDS, "projection_size": 32},
        vision_config={**LAYERS, "num_patches": 25},
    )
    words = text_inputs(99)["right"]
    check(reference("Siglip2Model", made), tmp_path, {"padded": {**words, **padded_inputs()["padded"]}})


def test_siglip2_text(tmp_path: Path) -> None:
    made = transformers.Siglip2TextConfig(**WORDS, projection_size=24)
    check(reference("Siglip2TextModel", made), tmp_path, text_inputs(99))


def test_pixtral(tmp_path: Path) -> None:
    made = transformers.PixtralVisionConfig(**LAYERS, image_size=32)
    pixels = torch.randn(3, 3, 24, 32, generator=torch.Generator().manual_seed(1))
    sizes = torch.tensor([[24, 32], [8, 20], [16, 4]])
    inputs = {
        "sizes": {"pixel_values": pixels, "image_sizes": sizes},
        "one size": {"pixel_values": pixels[:2]},
    }
    check(reference("PixtralVisionModel", made), tmp_path, inputs)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_hunyuan_vl_vision_with_vectors_between_rows_and_images(mode: str, tmp_path: Path) -> None:
    made = transformers.HunYuanVLVisionConfig(
        hidden_size=32, intermediate_size=44, num_attention_heads=4, num_hidden_layers=2, patch_size=4, max_image_size=20,
        text_hidden_size=24, interpolate_mode=mode,
    )  # fmt: skip
    inputs = packed_inputs(3 * 4 * 4, "pixel_values")
    del inputs["a video and an image"]
    inputs["larger"] = {key: value[:140] for key, value in inputs["larger"].items()}
    inputs["larger"]["grid_thw"] = inputs["larger"]["grid_thw"][:1]
    check(reference("HunYuanVLVisionTransformer", made), tmp_path, inputs)
