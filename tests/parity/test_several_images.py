"""Texts in which several images stand, each text with a number of its own, padded with images that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.parity.harness import Inputs, check, reference, transformers
from tests.parity.test_composites import PLACE, TEXT, VISION

BERT = {key: TEXT[key] for key in ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads")}


def several_inputs(vectors: int, mask: bool = True) -> dict[str, Inputs]:
    """A text with two images, one with one, padded on either side; parts of images; a text alone."""
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randn(2, 2, 3, 32, 32, generator=generator)
    pixels[1, 1] = 0
    ids = torch.randint(3, 80, (2, 8 + 2 * vectors), generator=generator)
    ids[0, 2 : 2 + vectors] = ids[0, 5 + vectors : 5 + 2 * vectors] = ids[1, 3 : 3 + vectors] = PLACE
    right = torch.ones_like(ids)
    right[:, -2:] = 0
    seen = torch.ones(2, 2, 32, 32, dtype=torch.bool)
    seen[0, 1, 12:], seen[1, 0, :, 20:] = False, False
    words = {"input_ids": ids[:, :2], "attention_mask": right[:, :2]}
    cases: dict[str, Inputs] = {
        "right": {"input_ids": ids, "attention_mask": right, "pixel_values": pixels},
        "left": {"input_ids": ids.roll(2, 1), "attention_mask": right.flip(1), "pixel_values": pixels},
        "one": {"input_ids": ids[1:], "pixel_values": pixels[1:]},
        "words": words,
    }
    if mask:
        cases["parts"] = {**cases["right"], "pixel_attention_mask": seen}
    return cases


@pytest.mark.parametrize("tied", [False, True])
def test_modernvbert(tied: bool, tmp_path: Path) -> None:
    text = transformers.ModernBertConfig(
        **BERT, num_hidden_layers=2, pad_token_id=1, classifier_activation="silu"
    )
    config = transformers.ModernVBertConfig(
        text_config=text,
        vision_config=transformers.SiglipVisionConfig(**VISION | {"image_size": 32}),
        image_token_id=PLACE,
        pixel_shuffle_factor=2,
        tie_word_embeddings=tied,
    )
    check(reference("ModernVBertForMaskedLM", config), tmp_path, several_inputs(4, mask=False))


def test_granite_docling_whose_first_layers_see_deeper(tmp_path: Path) -> None:
    config = transformers.GraniteDoclingConfig(
        text_config={**TEXT, "logits_scaling": 3.0, "embedding_multiplier": 2.0},
        vision_config=VISION
        | {"image_size": 32, "out_hidden_size": 32, "scale_factor": 2, "deepstack_visual_indexes": [0, 2]},
        image_token_id=PLACE,
        pad_token_id=1,
    )
    inputs = {
        name: {**values, "pixel_attention_mask": (values["pixel_values"] != 0).flatten(2).any(2)}
        if "pixel_values" in values
        else values
        for name, values in several_inputs(4, mask=False).items()
    }
    check(reference("GraniteDoclingForConditionalGeneration", config), tmp_path, inputs)


def first_types(config: dict[str, Any]) -> None:
    """Towers once had the type of the whole."""
    for part in ("vision_config", "perceiver_config"):
        if part in config:
            config[part]["model_type"] = config["model_type"]


@pytest.mark.parametrize("edit", [None, first_types])
def test_idefics2_whose_patches_are_resampled(edit: Any, tmp_path: Path) -> None:
    perceiver = {
        "hidden_size": 32, "resampler_n_latents": 4, "resampler_depth": 2, "resampler_n_heads": 4,
        "resampler_head_dim": 12, "num_key_value_heads": 2,
    }  # fmt: skip
    config = transformers.Idefics2Config(
        text_config=transformers.MistralConfig(**TEXT, hidden_act="gelu"),
        vision_config=VISION | {"image_size": 40},
        perceiver_config=perceiver,
        image_token_id=PLACE,
    )
    check(reference("Idefics2ForConditionalGeneration", config), tmp_path, several_inputs(4), edit=edit)


@pytest.mark.parametrize(("name", "edit"), [("Idefics3", None), ("Idefics3", first_types), ("SmolVLM", None)])
def test_idefics3(name: str, edit: Any, tmp_path: Path) -> None:
    config = getattr(transformers, f"{name}Config")(
        text_config=transformers.LlamaConfig(**TEXT),
        vision_config=VISION | {"image_size": 40},
        image_token_id=PLACE,
    )
    check(reference(f"{name}ForConditionalGeneration", config), tmp_path, several_inputs(4), edit=edit)


@pytest.mark.parametrize("mode", ["16x", "4x"])
@pytest.mark.parametrize("name", ["MiniCPMV4_6", "MiniCPMOcr"])
def test_minicpm_whose_patches_stand_in_a_strip(name: str, mode: str, tmp_path: Path) -> None:
    linear = {f"linear_{key}": 2 for key in ("num_key_heads", "num_value_heads")}
    heads = {f"linear_{key}_head_dim": 8 for key in ("key", "value")}
    kinds = ["linear_attention", "full_attention"]
    config = getattr(transformers, f"{name}Config")(
        text_config=transformers.Qwen3_5TextConfig(**TEXT, **linear, **heads, head_dim=16, layer_types=kinds),
        vision_config=VISION | {"image_size": 32},
        insert_layer_id=0,
        image_token_id=PLACE,
        video_token_id=PLACE + 1,
        downsample_mode=mode,
        merger_times=1 + (mode == "4x"),
    )
    generator = torch.Generator().manual_seed(1)
    sizes = torch.tensor([[8, 4], [4, 4]])
    ids = torch.randint(3, 80, (2, 10), generator=generator)
    ids[0, 2:4], ids[1, 3] = PLACE, PLACE
    right = torch.ones_like(ids)
    right[:, -2:] = 0
    pixels = torch.randn(1, 3, 8, 48 * 8, generator=generator)
    images = {"pixel_values": pixels, "target_sizes": sizes}
    videos = {"pixel_values_videos": pixels, "target_sizes_videos": sizes}
    inputs = {
        "right": {"input_ids": ids, "attention_mask": right, **images},
        "left": {"input_ids": ids.roll(2, 1), "attention_mask": right.flip(1), **images},
        "video": {"input_ids": torch.where(ids == PLACE, PLACE + 1, ids), "attention_mask": right, **videos},
        "words": {"input_ids": ids[:, :2], "attention_mask": right[:, :2]},
    }
    check(reference(f"{name}ForConditionalGeneration", config), tmp_path, inputs)


def test_minicpm_without_a_place_for_images(tmp_path: Path) -> None:
    linear = {f"linear_{key}": 2 for key in ("num_key_heads", "num_value_heads")}
    config = transformers.MiniCPMV4_7Config(
        text_config=transformers.Qwen3_5TextConfig(
            **TEXT, **linear, head_dim=16, layer_types=["linear_attention", "full_attention"]
        ),
        vision_config=VISION | {"image_size": 32},
    )
    inputs = {
        name: {**values, "pixel_values": torch.randn(1, 3, 8, 8)}
        for name, values in several_inputs(4, mask=False).items()
    }
    check(reference("MiniCPMV4_7ForConditionalGeneration", config), tmp_path, inputs)


@pytest.mark.parametrize("interval", [1, 2])
def test_layers_that_read_images(interval: int, tmp_path: Path) -> None:
    text = {key: value for key, value in TEXT.items() if key != "num_key_value_heads"}
    vision = {key: value for key, value in VISION.items() if key != "hidden_size"}
    config = transformers.IdeficsConfig(
        **text | {"num_hidden_layers": 4, "pad_token_id": 0},
        vision_config={**vision, "embed_dim": 24},
        use_resampler=False,
        alpha_type="vector" if interval == 2 else "float",
        alpha_initializer="normal" if interval == 2 else "ones",
        alphas_initializer_range=1.0,
        cross_layer_interval=interval,
        tie_word_embeddings=interval == 2,
    )
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 80, (2, 9), generator=generator)
    pixels = torch.randn(2, 3, 3, 16, 16, generator=generator)
    shown = torch.ones(2, 9, 3, dtype=torch.long)
    shown[0, :4], shown[1, 3:, 1:] = 0, 0
    right = torch.ones_like(ids)
    right[1, -3:] = 0
    images = {"input_ids": ids, "pixel_values": pixels, "image_attention_mask": shown}
    cases = {
        "right": {**images, "attention_mask": right},
        "left": {**images, "attention_mask": right.flip(1)},
        "one": {key: value[:1] for key, value in images.items()},
    }
    check(reference("IdeficsForVisionText2Text", config), tmp_path, cases)
