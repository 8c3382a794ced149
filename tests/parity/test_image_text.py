"""Texts in which images stand, by ways of their own to make vectors of an image: merged, tiled, resampled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.parity.harness import Inputs, check, image_inputs, reference, text_inputs, transformers
from tests.parity.test_composites import PLACE, TEXT, VISION, image_text_inputs


def sized_inputs() -> dict[str, Inputs]:
    """Texts with one image each, of sizes that differ, padded to the largest."""
    cases: dict[str, Inputs] = {}
    sizes = torch.tensor([[32, 32], [16, 32], [32, 16]])
    for name, values in image_text_inputs(4, 3, 32, 32).items():
        cases[name] = dict(values)
        if "pixel_values" in values:
            images = len(values["pixel_values"])
            ids = values["input_ids"].clone()
            if images > 1:
                ids[1:, 6:8] = 5
            cases[name] = {**values, "input_ids": ids, "image_sizes": sizes[:images]}
    return cases


@pytest.mark.parametrize("name", ["Mistral3", "LightOnOcr"])
def test_blocks_of_patches_merged(name: str, tmp_path: Path) -> None:
    text = {"Mistral3": transformers.MistralConfig, "LightOnOcr": transformers.Qwen3Config}[name]
    config = getattr(transformers, f"{name}Config")(
        text_config=text(**TEXT, head_dim=8, tie_word_embeddings=False),
        vision_config=transformers.PixtralVisionConfig(**VISION),
        tie_word_embeddings=name == "LightOnOcr",
    )
    config.image_token_id = PLACE
    check(reference(f"{name}ForConditionalGeneration", config), tmp_path, sized_inputs())


@pytest.mark.parametrize("name", ["Mistral3", "LightOnOcr"])
def test_a_silent_config_ties_the_head_though_its_text_would_not(name: str, tmp_path: Path) -> None:
    text = {"Mistral3": transformers.MistralConfig, "LightOnOcr": transformers.Qwen3Config}[name]
    config = getattr(transformers, f"{name}Config")(
        text_config=text(**TEXT, head_dim=8, tie_word_embeddings=False),
        vision_config=transformers.PixtralVisionConfig(**VISION),
        tie_word_embeddings=True,
    )
    config.image_token_id = PLACE
    model = reference(f"{name}ForConditionalGeneration", config)
    check(model, tmp_path, sized_inputs(), edit=lambda data: data.pop("tie_word_embeddings"))


def tiled_inputs(model: Any, video: bool, **more: Any) -> dict[str, Inputs]:
    """Texts with one image each, cut into tiles, padded on either side; a video; a text alone."""
    generator = torch.Generator().manual_seed(1)
    pixels, sizes = torch.randn(2, 17, 3, 16, 16, generator=generator), torch.tensor([[15, 40], [32, 29]])
    images = {"pixel_values": pixels, "image_sizes": sizes, **more}
    with torch.no_grad():
        counts = [len(found) for found in model.model.get_image_features(**images).pooler_output]
    ids = torch.randint(3, 80, (2, max(counts) + 9), generator=generator)
    for row, count in enumerate(counts):
        ids[row, 5 : 5 + count] = PLACE
    right = torch.ones_like(ids)
    right[0, -3:] = 0
    words = {"input_ids": ids[:, :5], "attention_mask": torch.ones_like(ids[:, :5])}
    cases: dict[str, Inputs] = {
        "right": {**images, "input_ids": ids, "attention_mask": right},
        "left": {**images, "input_ids": ids.roll(3, 1), "attention_mask": right.flip(1)},
        "words": words,
    }
    if video:
        frames = torch.randn(2, 3, 3, 16, 16, generator=generator)
        with torch.no_grad():
            count = model.model.get_video_features(frames).pooler_output.shape[1]
        ids = torch.full((2, count), PLACE + 1)
        ids = torch.cat((words["input_ids"], ids), dim=1)
        cases["video"] = {
            "input_ids": ids,
            "pixel_values_videos": frames,
            "attention_mask": torch.ones_like(ids),
        }
    return cases


@pytest.mark.parametrize("name", ["LlavaNext", "LlavaNextVideo", "LlavaOnevision", "LlavaOnevision alone"])
def test_tiles_of_images(name: str, tmp_path: Path) -> None:
    name, _, alone = name.partition(" ")
    vision = transformers.SiglipVisionConfig if name == "LlavaOnevision" else transformers.CLIPVisionConfig
    config = getattr(transformers, f"{name}Config")(
        text_config=transformers.Qwen2Config(**TEXT),
        vision_config=vision(**VISION),
        image_grid_pinpoints=[[16, 32], [32, 16], [32, 32], [64, 64]],
        image_token_index=PLACE,
    )
    if name != "LlavaNext":
        config.video_token_id = PLACE + 1
    if name == "LlavaOnevision":
        config.vision_aspect_ratio = "anyres_max_4"
    model = reference(f"{name}ForConditionalGeneration", config)
    counts = {"batch_num_images": torch.tensor([2])} if alone else {}
    check(model, tmp_path, tiled_inputs(model, name != "LlavaNext", **counts))


@pytest.mark.parametrize("strategy", ["default", "full"])
def test_several_layers_in_a_text_that_scales_its_images(strategy: str, tmp_path: Path) -> None:
    config = transformers.LlavaConfig(
        text_config=transformers.GraniteConfig(**TEXT, embedding_multiplier=3.0, residual_multiplier=0.5),
        vision_config=transformers.CLIPVisionConfig(**VISION),
        vision_feature_select_strategy=strategy,
        vision_feature_layer=[-1, -3],
        image_token_index=PLACE,
    )
    vectors = 4 + (strategy == "full")
    check(reference("LlavaForConditionalGeneration", config), tmp_path, image_text_inputs(vectors, 3, 16, 16))


ADAPTED = {
    "hidden_size": 16, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16,
    "patch_size": 4, "projector_input_dim": 12, "projector_output_dim": 12, "vision_output_dim": 12,
}  # fmt: skip


def test_a_tower_that_puts_its_patches_together(tmp_path: Path) -> None:
    config = transformers.Llama4Config(
        text_config=transformers.Llama4TextConfig(
            **TEXT, intermediate_size_mlp=40, num_local_experts=2, head_dim=8, attention_chunk_size=6
        ),
        vision_config=transformers.Llama4VisionConfig(**ADAPTED),
        image_token_index=PLACE,
    )
    check(reference("Llama4ForConditionalGeneration", config), tmp_path, image_text_inputs(4, 3, 16, 16))


@pytest.mark.parametrize("ratio", [0.5, 0.25])
def test_such_a_tower_alone(ratio: float, tmp_path: Path) -> None:
    sizes = {"intermediate_size": int(16 / ratio**2), "pixel_shuffle_ratio": ratio}
    config = transformers.Llama4VisionConfig(**{**ADAPTED, **sizes})
    check(reference("Llama4VisionModel", config), tmp_path, image_inputs(own=(16, 16)))


def cohere(**more: Any) -> Any:
    return transformers.Cohere2Config(**TEXT, head_dim=8, sliding_window=5, **more)


@pytest.mark.parametrize("layer", [-1, -2])
@pytest.mark.parametrize("name", ["AyaVision", "QianfanOCR", "InternVL"])
def test_squares_of_patches(name: str, layer: int, tmp_path: Path) -> None:
    vision = {key: value for key, value in VISION.items() if key not in ("image_size", "patch_size")}
    if name == "AyaVision":
        parts = {
            "text_config": cohere(logit_scale=0.5),
            "vision_config": transformers.SiglipVisionConfig(**VISION),
        }
    else:
        own = getattr(transformers, f"{name}VisionConfig")(
            **vision, image_size=[16, 16], patch_size=[8, 8], attention_bias=True
        )
        text = transformers.Qwen2Config(**TEXT)
        if name == "QianfanOCR":
            text = transformers.Qwen3Config(**TEXT, head_dim=8)
        parts = {"text_config": text, "vision_config": own}
    config = getattr(transformers, f"{name}Config")(**parts, vision_feature_layer=layer)
    config.image_token_id = PLACE
    inputs = image_text_inputs(1, 3, 16, 16)
    inputs["one"] = {**inputs["one"], "image_sizes": torch.tensor([[16, 16]])}  # taken, and read by neither
    made = check(reference(f"{name}ForConditionalGeneration", config), tmp_path, inputs)
    assert "image_sizes is not read" in made.source.replace("\n        ", " ")


@pytest.mark.parametrize("stride", [1, 2])
def test_visual_words_between_marks(stride: int, tmp_path: Path) -> None:
    config = transformers.Ovis2Config(
        text_config=transformers.Qwen2Config(**TEXT, tie_word_embeddings=stride == 1),
        vision_config=VISION
        | {"vocab_size": 17, "hidden_stride": stride, "image_size": 16 * stride, "hidden_act": "gelu"},
        image_token_id=PLACE,
        visual_indicator_token_ids=[91, 92, 93, 94, 95],
        hidden_size=32,
        tie_word_embeddings=stride == 1,
    )
    inputs = image_text_inputs(4, 3, 16 * stride, 16 * stride)
    for values in inputs.values():
        values["input_ids"][:, 1::12] = 92
        values["input_ids"][:, 2] = 95
    check(reference("Ovis2ForConditionalGeneration", config), tmp_path, inputs)


def large(**more: Any) -> Any:
    return transformers.MistralLarge4TextConfig(
        **{**TEXT, "num_key_value_heads": 4, "num_hidden_layers": 4},
        moe_intermediate_size=20, n_routed_experts=4, num_experts_per_tok=2, kv_lora_rank=12, qk_nope_head_dim=6,
        qk_rope_head_dim=8, v_head_dim=10, index_topk=5, index_head_dim=16, index_n_heads=2, **more,
    )  # fmt: skip


def stretched(model: Any) -> Any:
    """The model with angles that are stretched as if that were learned."""
    for name, buffer in model.named_buffers():
        if name.endswith("alpha"):
            buffer.copy_(torch.linspace(-0.5, 0.5, len(buffer)))
    return model


def test_experts_beside_their_router_and_queries_that_grow(tmp_path: Path) -> None:
    model = stretched(reference("MistralLarge4TextModel", large()))
    check(model, tmp_path, text_inputs(vocab_size=99))


def test_mistral_large4(tmp_path: Path) -> None:
    config = transformers.MistralLarge4Config(
        text_config=large(no_rope_layers=[1, 0, 1, 0]),
        vision_config=transformers.PixtralVisionConfig(**VISION),
    )
    config.image_token_id = PLACE
    model = stretched(reference("MistralLarge4ForConditionalGeneration", config))
    check(model, tmp_path, sized_inputs())


@pytest.mark.parametrize("normed", [True, False])
def test_patches_without_a_tower(normed: bool, tmp_path: Path) -> None:
    words = {key: value for key, value in TEXT.items() if key != "num_key_value_heads"}
    config = transformers.FuyuConfig(
        text_config={**words, "model_type": "persimmon", "qk_layernorm": normed},
        patch_size=8,
        image_token_id=PLACE,
    )
    check(reference("FuyuForCausalLM", config), tmp_path, image_text_inputs(4, 4, 192))


@pytest.mark.parametrize("window", [0, 3])
def test_maps_of_patches_convolved(window: int, tmp_path: Path) -> None:
    own = {key: value for key, value in VISION.items() if key != "intermediate_size"}
    config = transformers.GotOcr2Config(
        text_config={**TEXT, "model_type": "qwen2"},
        vision_config={**own, "image_size": 64, "mlp_dim": 44, "output_channels": 24, "window_size": window,
                       "global_attn_indexes": [1], "qkv_bias": window > 0},
        image_token_index=PLACE,
        tie_word_embeddings=window > 0,
    )  # fmt: skip
    check(reference("GotOcr2ForConditionalGeneration", config), tmp_path, image_text_inputs(4, 3, 64, 64))


@pytest.mark.parametrize("normed", [True, False])
def test_real_patches_of_images_of_any_shape(normed: bool, tmp_path: Path) -> None:
    own = {key: value for key, value in VISION.items() if key != "image_size"}
    config = transformers.Lfm2VlConfig(
        text_config={**TEXT, "model_type": "lfm2", "full_attn_idxs": [1], "block_auto_adjust_ff_dim": False},
        vision_config={
            **own,
            "model_type": "siglip2_vision_model",
            "num_patches": 36,
            "vision_use_head": normed,
        },
        projector_hidden_size=20,
        projector_use_layernorm=normed,
        projector_bias=normed,
        downsample_factor=2,
        tie_word_embeddings=normed,
    )
    config.image_token_id = PLACE
    shapes = torch.tensor([[2, 4], [4, 4], [6, 2]])
    counts = shapes.prod(dim=1)
    cases = image_text_inputs(4, 16, 192)
    for name, given in cases.items():
        if "pixel_values" in given:
            ids = given["input_ids"].clone()
            for row, count in enumerate(counts[: len(ids)] // 4):
                ids[row, 4 + count : 8] = 5
            seen = torch.arange(16) < counts[: len(ids), None]
            more = {"pixel_attention_mask": seen.long(), "spatial_shapes": shapes[: len(ids)]}
            cases[name] = {**given, "input_ids": ids, **more}
    check(reference("Lfm2VlForConditionalGeneration", config), tmp_path, cases)


def test_learned_queries_of_patches(tmp_path: Path) -> None:
    config = transformers.AriaConfig(
        text_config={**TEXT, "num_key_value_heads": 4, "moe_num_experts": 3, "moe_topk": 2},
        vision_config=VISION | {"image_size": 32},
        projector_patch_to_query_dict={16: 3, 8: 2},
        image_token_index=PLACE,
        tie_word_embeddings=False,
    )
    cases = image_text_inputs(3, 3, 32, 32)
    mask = torch.ones(3, 32, 32, dtype=torch.long)
    mask[0, 12:], mask[2, :, 20:] = 0, 0
    cases["parts"] = {**cases["right"], "pixel_mask": mask}
    cases["smaller"] = {**image_text_inputs(2, 3, 16, 32)["left"]}
    check(reference("AriaForConditionalGeneration", config), tmp_path, cases)


@pytest.mark.parametrize("bias", [False, True])
def test_a_text_beside_a_model_that_draws(bias: bool, tmp_path: Path) -> None:
    vision = VISION | {"attention_bias": bias, "mlp_ratio": 1.5, "projection_dim": 32}
    del vision["intermediate_size"]
    drawing = {"base_channels": 32, "channel_multiplier": [1, 1], "num_res_blocks": 1, "num_embeddings": 17}
    config = transformers.JanusConfig(
        text_config=transformers.LlamaConfig(**TEXT, tie_word_embeddings=bias),
        vision_config=vision,
        vq_config={
            **drawing,
            "embed_dim": 8,
            "latent_channels": 32,
            "projection_dim": 24,
            "image_token_embed_dim": 24,
        },
        image_token_id=PLACE,
        tie_word_embeddings=bias,
    )
    cases = image_text_inputs(4, 3, 16, 16)
    check(reference("JanusForConditionalGeneration", config), tmp_path / "whole", cases)
    tower = reference("JanusVisionModel", config.vision_config)
    check(tower, tmp_path / "tower", {"images": {"pixel_values": cases["right"]["pixel_values"]}})


@pytest.mark.parametrize("window", [4, 5])
@pytest.mark.parametrize("kinds", [["sliding_attention", "full_attention"], ["sliding_attention"] * 2])
def test_an_encoder_with_images_whose_states_stand_beside_the_words(
    kinds: list[str], window: int, tmp_path: Path
) -> None:
    name = "T5Gemma2Model" if kinds[-1] == kinds[0] else "T5Gemma2ForConditionalGeneration"
    check(reference(name, merged(kinds, window)), tmp_path, image_answers())


def merged(kinds: list[str], window: int) -> Any:
    """A decoder whose attention reads its own words and the states of an encoder, which has a tower of images."""
    text = {
        **TEXT, "head_dim": 8, "layer_types": kinds, "sliding_window": window, "query_pre_attn_scalar": 16,
        "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3,
    }  # fmt: skip
    return transformers.T5Gemma2Config(
        encoder={
            "text_config": {**text, "num_attention_heads": 2, "num_key_value_heads": 1},
            "vision_config": {**VISION, "patch_size": 4, "model_type": "siglip_vision_model"},
            "mm_tokens_per_image": 4,
            "eoi_token_index": 7,
        },
        decoder={**text, "num_hidden_layers": 2, "final_logit_softcapping": 5.0},
        image_token_index=PLACE,
    )


def image_answers() -> dict[str, Inputs]:
    """Texts with images and the first words of what is answered, padded on either side."""
    cases: dict[str, Inputs] = {}
    for name, values in image_text_inputs(4, 3, 16, 16).items():
        ids = values["input_ids"].clone()
        ids[:, 3] = 7
        mask = torch.ones_like(ids[:, :6])
        mask[0, :2] = 0
        answer = {"decoder_input_ids": values["input_ids"][:, -6:]}
        if name != "one":
            answer["decoder_attention_mask"] = mask
        cases[name] = {**values, "input_ids": ids, **answer}
    return cases
