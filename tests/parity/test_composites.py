"""Models of several towers: each tower as its own family reads it, joined by features in the place of words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.parity.harness import Inputs, check, image_inputs, reference, text_inputs, transformers

PLACE = 90  # the id that keeps a place for a vector of an image
TEXT = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": 1,
}  # fmt: skip
VISION = {
    "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 16,
    "patch_size": 8,
}  # fmt: skip


def image_text_inputs(vectors: int, *shape: int) -> dict[str, Inputs]:
    """Texts with one image each, padded on either side, one alone, and a text without an image."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, PLACE, (3, 14), generator=generator)
    ids[:, 4 : 4 + vectors] = PLACE
    right = torch.ones_like(ids)
    right[1, -3:] = 0
    pixels = torch.randn(3, *shape, generator=generator)
    words = torch.randint(3, PLACE, (2, 7), generator=generator)
    return {
        "right": {"input_ids": ids, "attention_mask": right, "pixel_values": pixels},
        "left": {"input_ids": ids, "attention_mask": right.flip(1), "pixel_values": pixels},
        "one": {"input_ids": ids[:1], "pixel_values": pixels[:1]},
        "no image": {"input_ids": words, "attention_mask": torch.ones_like(words)},
    }


def llava(name: str, **more: Any) -> Any:
    return getattr(transformers, name)(
        text_config=transformers.LlamaConfig(**TEXT),
        vision_config=transformers.CLIPVisionConfig(**VISION),
        image_token_index=PLACE,
        **more,
    )


@pytest.mark.parametrize("strategy", ["default", "full"])
def test_llava(strategy: str, tmp_path: Path) -> None:
    config = llava("LlavaConfig", vision_feature_select_strategy=strategy, vision_feature_layer=-1)
    vectors = 4 + (strategy == "full")
    check(reference("LlavaForConditionalGeneration", config), tmp_path, image_text_inputs(vectors, 3, 16, 16))


def test_llava_with_other_towers(tmp_path: Path) -> None:
    config = transformers.LlavaConfig(
        text_config=transformers.Qwen2Config(**TEXT, tie_word_embeddings=False),
        vision_config=transformers.CLIPVisionConfig(**VISION, hidden_act="gelu"),
        image_token_index=PLACE,
    )
    check(reference("LlavaForConditionalGeneration", config), tmp_path, image_text_inputs(4, 3, 16, 16))


def test_vipllava_takes_several_layers(tmp_path: Path) -> None:
    config = llava("VipLlavaConfig", vision_feature_layers=[-1, -2])
    check(reference("VipLlavaForConditionalGeneration", config), tmp_path, image_text_inputs(4, 3, 16, 16))


@pytest.mark.parametrize("strategy", ["default", "full"])
def test_video_llava(strategy: str, tmp_path: Path) -> None:
    config = llava(
        "VideoLlavaConfig",
        video_token_index=PLACE + 1,
        vision_feature_select_strategy=strategy,
        multimodal_projector_bias=strategy == "full",
    )
    cases = image_text_inputs(4 + (strategy == "full"), 3, 16, 16)
    words = cases["no image"]["input_ids"]
    ids = torch.cat((words, torch.full((2, 3 * 5), PLACE + 1)), dim=1)
    frames = torch.randn(2, 3, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    cases["videos"] = {
        "input_ids": ids,
        "pixel_values_videos": frames,
        "attention_mask": torch.ones_like(ids),
    }
    check(reference("VideoLlavaForConditionalGeneration", config), tmp_path, cases)


def siglip(**more: Any) -> Any:
    return transformers.SiglipVisionConfig(**VISION, **more)


def test_deepseek_vl(tmp_path: Path) -> None:
    config = transformers.DeepseekVLConfig(
        text_config=transformers.LlamaConfig(**TEXT), vision_config=siglip(), image_token_id=PLACE
    )
    model = reference("DeepseekVLForConditionalGeneration", config)
    check(model, tmp_path, image_text_inputs(4, 3, 16, 16))


def test_gemma3_whose_patches_see_each_other(tmp_path: Path) -> None:
    text = transformers.Gemma3TextConfig(
        **TEXT, head_dim=8, sliding_window=5, layer_types=["sliding_attention", "full_attention"]
    )
    config = transformers.Gemma3Config(
        text_config=text,
        vision_config=siglip(vision_use_head=False),
        image_token_index=PLACE,
        mm_tokens_per_image=4,
    )
    inputs = {
        name: {**values, "token_type_ids": (values["input_ids"] == PLACE).long()}
        for name, values in image_text_inputs(4, 3, 16, 16).items()
    }
    check(reference("Gemma3ForConditionalGeneration", config), tmp_path, inputs)


def test_paligemma_whose_prefix_sees_itself_whole(tmp_path: Path) -> None:
    text = transformers.GemmaConfig(**TEXT, head_dim=8)
    config = transformers.PaliGemmaConfig(
        text_config=text, vision_config=siglip(projection_dim=32), image_token_index=PLACE, projection_dim=32
    )
    plain = image_text_inputs(4, 3, 16, 16)
    types = {name: torch.arange(values["input_ids"].shape[1]) // 9 for name, values in plain.items()}
    inputs = {
        **plain,
        **{
            f"{name}, types": {**values, "token_type_ids": types[name].expand_as(values["input_ids"])}
            for name, values in plain.items()
        },
    }
    check(reference("PaliGemmaForConditionalGeneration", config), tmp_path, inputs)


def packed_inputs(video: bool = False, channels: int = 6) -> dict[str, Inputs]:
    """Texts with images of several sizes, their patches in one row; padding on either side; a text alone."""
    generator = torch.Generator().manual_seed(1)
    grids = torch.tensor([[1, 4, 4], [1, 2, 4], [1, 4, 4]])
    ids = torch.randint(3, 80, (2, 18), generator=generator)
    types = torch.zeros_like(ids)
    for row, start, count in ((0, 2, 4), (0, 8, 2), (1, 3, 4)):
        types[row, start : start + count] = 1
    ids[types == 1] = PLACE
    right = torch.ones_like(ids)
    right[1, -4:] = 0
    values = {
        "input_ids": ids, "mm_token_type_ids": types, "image_grid_thw": grids,
        "pixel_values": torch.randn(40, channels * 8 * 8, generator=generator),
    }  # fmt: skip
    words = torch.randint(3, 80, (2, 7), generator=generator)
    cases: dict[str, Inputs] = {
        "all ones": {**values, "attention_mask": torch.ones_like(ids)},
        "right": {**values, "attention_mask": right},
        "left": {**_rolled(values, 4), "attention_mask": right.flip(1)},
        "words": {"input_ids": words, "attention_mask": torch.ones_like(words)},
    }
    if video:
        frames = {
            **values,
            "input_ids": torch.where(types == 1, PLACE + 1, ids),
            "mm_token_type_ids": types * 2,
        }
        frames["video_grid_thw"] = torch.tensor([[2, 2, 4], [1, 2, 4], [2, 2, 4]])
        frames["pixel_values_videos"] = frames.pop("pixel_values")
        del frames["image_grid_thw"]
        cases["video"] = {**frames, "attention_mask": right}
        cases["seconds"] = {**frames, "second_per_grid_ts": torch.tensor([1.0, 0.5, 2.0])}
    return cases


def packed_frames(images: Inputs, place: int = PLACE) -> Inputs:
    """A video of two frames where the first two images stand, and another for the third."""
    frames = {key: value for key, value in images.items() if key not in ("image_grid_thw", "pixel_values")}
    types = torch.zeros_like(images["input_ids"])
    types[0, 2:6] = types[0, 8:12] = types[1, 3:7] = 2
    return {
        **frames,
        "input_ids": torch.where(types == 2, place, images["input_ids"].clamp(max=PLACE - 1)),
        "mm_token_type_ids": types,
        "video_grid_thw": torch.tensor([[2, 4, 4], [1, 4, 4]]),
        "pixel_values_videos": torch.randn(
            48, images["pixel_values"].shape[1], generator=torch.Generator().manual_seed(2)
        ),
    }


def _rolled(values: dict[str, Any], count: int) -> dict[str, Any]:
    """The second text pushed to the right, over its padding."""
    moved = {}
    for name in ("input_ids", "mm_token_type_ids"):
        moved[name] = values[name].clone()
        moved[name][1] = values[name][1].roll(count)
    return {**values, **moved}


@pytest.mark.parametrize("name", ["Qwen2VL", "Qwen2_5_VL"])
def test_qwen2_vl(name: str, tmp_path: Path) -> None:
    text = {
        **TEXT,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [2, 1, 1]},
    }
    sizes = (
        {"embed_dim": 24, "hidden_size": 32}
        if name == "Qwen2VL"
        else {"hidden_size": 24, "out_hidden_size": 32}
    )
    more = (
        {}
        if name == "Qwen2VL"
        else {"intermediate_size": 40, "window_size": 32, "fullatt_block_indexes": [1]}
    )
    vision = {"depth": 2, "num_heads": 2, "patch_size": 8, "temporal_patch_size": 2, "spatial_merge_size": 2}
    config = getattr(transformers, f"{name}Config")(
        text_config=text,
        vision_config={**vision, **sizes, **more},
        image_token_id=PLACE,
        video_token_id=PLACE + 1,
    )
    inputs = packed_inputs(video=True)
    if name == "Qwen2VL":
        del inputs["seconds"]
    check(reference(f"{name}ForConditionalGeneration", config), tmp_path, inputs)


@pytest.mark.parametrize("name", ["Qwen3VL", "Qwen3VLMoe", "Cosmos3Omni"])
def test_qwen3_vl_whose_first_layers_take_in_deeper_features(name: str, tmp_path: Path) -> None:
    rope = {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [2, 1, 1]}
    experts = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2}
    text = {**TEXT, "head_dim": 8, "rope_parameters": rope, **(experts if name == "Qwen3VLMoe" else {})}
    vision = {
        "depth": 3, "num_heads": 2, "patch_size": 8, "temporal_patch_size": 2, "spatial_merge_size": 2, "hidden_size": 24,
        "out_hidden_size": 32, "intermediate_size": 40, "deepstack_visual_indexes": [0, 2], "num_position_embeddings": 16,
    }  # fmt: skip
    config = getattr(transformers, f"{name}Config")(
        text_config=text, vision_config=vision, image_token_id=PLACE, video_token_id=PLACE + 1
    )
    check(reference(f"{name}ForConditionalGeneration", config), tmp_path, packed_inputs())


@pytest.mark.parametrize("name", ["Qwen3_5", "Qwen3_5Moe"])
def test_qwen3_5_whose_layers_have_linear_attention(name: str, tmp_path: Path) -> None:
    text = {
        **TEXT, "head_dim": 16, "layer_types": ["linear_attention", "full_attention"], "linear_key_head_dim": 8, "linear_num_key_heads": 2,
        "linear_value_head_dim": 8, "linear_num_value_heads": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5},
    }  # fmt: skip
    if name == "Qwen3_5Moe":
        del text["intermediate_size"]  # every layer has experts
        text |= {
            "moe_intermediate_size": 16,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "shared_expert_intermediate_size": 24,
        }
    vision = {
        "depth": 2, "num_heads": 2, "patch_size": 8, "temporal_patch_size": 2, "spatial_merge_size": 2, "hidden_size": 24,
        "out_hidden_size": 32, "intermediate_size": 40, "num_position_embeddings": 16,
    }  # fmt: skip
    config = getattr(transformers, f"{name}Config")(
        text_config=text, vision_config=vision, image_token_id=PLACE, video_token_id=PLACE + 1
    )
    inputs = packed_inputs()
    inputs["video"] = packed_frames(inputs["all ones"], PLACE + 1)
    check(reference(f"{name}ForConditionalGeneration", config), tmp_path, inputs)


@pytest.mark.parametrize("name", ["Glm4v", "Glm46V", "Glm4vMoe", "Glmga"])
def test_glm4v_whose_videos_are_images_with_words_between(name: str, tmp_path: Path) -> None:
    rope = {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [2, 1, 1]}
    text = {**TEXT, "rope_parameters": rope}
    if name == "Glm4vMoe":
        text |= {"moe_intermediate_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}
    vision = {
        "depth": 2, "num_heads": 2, "patch_size": 8, "image_size": 32, "hidden_size": 24, "out_hidden_size": 32,
        "intermediate_size": 40,
    }  # fmt: skip
    config = getattr(transformers, f"{name}Config")(
        text_config=text, vision_config=vision, image_token_id=PLACE, video_token_id=PLACE + 1
    )
    kind = "Glm46V" if name == "Glmga" else name
    inputs = packed_inputs()
    inputs["video"] = packed_frames(inputs["all ones"])
    check(reference(f"{kind}ForConditionalGeneration", config), tmp_path, inputs)


@pytest.mark.parametrize("name", ["PaddleOCRVL", "Cosmos3Edge"])
def test_patches_merged_between_the_towers(name: str, tmp_path: Path) -> None:
    rope = {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [2, 1, 1]}
    vision = {**VISION, "num_hidden_layers": 2, "num_patches": 9}
    made = getattr(transformers, f"{name}Config")(
        text_config={**TEXT, "head_dim": 8, "rope_parameters": rope},
        vision_config={key: value for key, value in vision.items() if key != "image_size" or name[0] == "P"},
        image_token_id=PLACE,
        video_token_id=PLACE + 1,
        **({"projector_hidden_size": 20} if name == "Cosmos3Edge" else {}),
    )
    inputs = packed_inputs(channels=3)
    if name == "PaddleOCRVL":
        made.text_config.use_bias = True
    else:
        inputs["video"] = packed_frames(inputs["all ones"], PLACE + 1)
    for values in inputs.values():
        for key in ("pixel_values", "pixel_values_videos"):
            if key in values and name == "PaddleOCRVL":
                values[key] = values[key].unflatten(1, (3, 8, 8))
    check(reference(f"{name}ForConditionalGeneration", made), tmp_path, inputs)


@pytest.mark.parametrize("name", ["Gemma4ForConditionalGeneration", "EmbeddingGemma2Model"])
def test_a_model_of_several_towers_with_the_text_alone(name: str, tmp_path: Path) -> None:
    text = {
        **TEXT, "head_dim": 8, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 99, "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention"],
    }  # fmt: skip
    text |= {"embedding_dim": 24} if name == "EmbeddingGemma2Model" else {}
    kind = name.removesuffix("Model").removesuffix("ForConditionalGeneration")
    config = getattr(transformers, f"{kind}Config")(text_config=text, vision_config=None, audio_config=None)
    inputs = text_inputs(99, padding=1, positions=False)
    check(reference(name, config), tmp_path, inputs)


@pytest.mark.parametrize("kind", ["relative", "metric"])
def test_depth_anything(kind: str, tmp_path: Path) -> None:
    backbone = transformers.Dinov2Config(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
        mlp_ratio=2,
        out_indices=[1, 2, 3, 4] if kind == "metric" else [0, 1, 3, 4],
        reshape_hidden_states=False,
    )
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone,
        patch_size=8,
        reassemble_hidden_size=32,
        neck_hidden_sizes=[8, 12, 16, 20],
        fusion_hidden_size=12,
        head_hidden_size=6,
        depth_estimation_type=kind,
        max_depth=20 if kind == "metric" else 1,
    )
    check(reference("DepthAnythingForDepthEstimation", config), tmp_path, image_inputs((48, 40), (37, 50)))


@pytest.mark.parametrize("side", [32, 40])  # of an even and of an odd number of patches
def test_dpt_whose_maps_are_doubled(side: int, tmp_path: Path) -> None:
    config = transformers.DPTConfig(
        hidden_size=32,
        num_hidden_layers=5,
        num_attention_heads=4,
        intermediate_size=44,
        image_size=side,
        patch_size=8,
        backbone_out_indices=[0, 1, 3, 4],
        neck_hidden_sizes=[8, 12, 16, 20],
        fusion_hidden_size=12,
        hidden_act="relu",
    )
    model = reference("DPTForDepthEstimation", config)
    model.head.head[4].bias.data += 3.0  # what is below zero would not be seen
    check(model, tmp_path, {"two": {"pixel_values": torch.randn(2, 3, side, side)}})


@pytest.mark.parametrize("tied", [True, False])
def test_kimi_k25_whose_places_are_blank(tied: bool, tmp_path: Path) -> None:
    text = {
        **TEXT, "model_type": "deepseek_v3", "q_lora_rank": 16, "kv_lora_rank": 12, "qk_nope_head_dim": 8, "n_group": 2,
        "qk_rope_head_dim": 8, "v_head_dim": 12, "moe_intermediate_size": 16, "n_routed_experts": 4, "topk_group": 1,
        "num_experts_per_tok": 2, "first_k_dense_replace": 1, "num_key_value_heads": 4,
    }  # fmt: skip
    vision = {**VISION, "num_hidden_layers": 2, "pos_emb_height": 6, "pos_emb_width": 6}
    made = transformers.Kimi_K25Config(
        text_config=text,
        vision_config={key: value for key, value in vision.items() if key != "image_size"},
        projection_hidden_size=24,
        image_token_id=PLACE,
        video_token_id=PLACE + 1,
        tie_word_embeddings=tied,
    )
    inputs = packed_inputs(channels=3)
    video = packed_frames(inputs["all ones"], PLACE + 1)
    video["video_grid_thw"] = torch.tensor([[1, 4, 4]] * 3)  # the reference fails with more frames
    for values in (*inputs.values(), video):
        values.pop("mm_token_type_ids", None)
        for key in ("pixel_values", "pixel_values_videos"):
            if key in values:
                values[key] = values[key].unflatten(1, (3, 8, 8))
    inputs["places alone"] = {"input_ids": video["input_ids"]}
    check(reference("Kimi_K25ForConditionalGeneration", made), tmp_path, {**inputs, "video": video})


def test_glm5_next_whose_videos_stand_between_marks(tmp_path: Path) -> None:
    text = {
        **TEXT, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 12, "qk_nope_head_dim": 8, "v_head_dim": 12,
        "moe_intermediate_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "mlp_layer_types": ["dense", "sparse"],
        "layer_types": ["linear_attention", "indexed_attention"], "indexer_types": ["full"] * 2, "index_topk": 4,
        "index_kpool": 2, "index_head_dim": 16, "index_n_heads": 2, "linear_head_dim": 8, "linear_num_heads": 2, "hc_mult": 2,
    }  # fmt: skip
    vision = {
        "depth": 2, "num_heads": 2, "patch_size": 8, "image_size": 32, "hidden_size": 24, "out_hidden_size": 32,
        "intermediate_size": 40, "projection_intermediate_size": 28,
    }  # fmt: skip
    made = transformers.Glm5NextConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=PLACE,
        video_token_id=PLACE + 1,
        video_start_token_id=PLACE + 2,
        video_end_token_id=PLACE + 3,
    )
    inputs = packed_inputs()
    video = packed_frames(inputs["all ones"])
    ids, types = video["input_ids"], video["mm_token_type_ids"]
    ids[0, [1, 7]], ids[0, [6, 12]], ids[1, 2], ids[1, 7] = PLACE + 2, PLACE + 3, PLACE + 2, PLACE + 3
    inputs |= {"video": video, "video without kinds": {k: v for k, v in video.items() if v is not types}}
    model = reference("Glm5NextForConditionalGeneration", made)
    check(model, tmp_path, inputs, tolerance=5e-5)  # streams are mixed again and again
