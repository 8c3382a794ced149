"""Texts whose layers read the patches of an image, and towers that meet in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import mapper
from tests.parity.harness import Inputs, check, image_inputs, reference, text_inputs, transformers

TEXT = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 40,
}  # fmt: skip
VISION = {
    "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16,
    "patch_size": 8,
}  # fmt: skip


def with_images(texts: dict[str, dict[str, Any]], *, resize: str = "") -> dict[str, Inputs]:
    """Each text beside as many images, and with images of another size where a keyword of the reference allows it."""
    generator = torch.Generator().manual_seed(2)
    cases = {
        name: {**text, "pixel_values": torch.randn(len(text["input_ids"]), 3, 16, 16, generator=generator)}
        for name, text in texts.items()
    }
    if resize:
        larger = torch.randn(len(texts["right"]["input_ids"]), 3, 24, 32, generator=generator)
        cases["another size"] = {**texts["right"], "pixel_values": larger, resize: True}
    return cases


BLIP = with_images(text_inputs(vocab_size=99, positions=False), resize="interpolate_pos_encoding")


def blip(text: dict[str, Any] | None = None, **more: Any) -> Any:
    return transformers.BlipConfig(text_config={**TEXT, **(text or {})}, vision_config=VISION, **more)


@pytest.mark.parametrize("tied", [True, False])
def test_blip_writes_about_an_image(tied: bool, tmp_path: Path) -> None:
    config = blip({"tie_word_embeddings": tied, "hidden_act": "relu"}, tie_word_embeddings=tied)
    check(reference("BlipForConditionalGeneration", config), tmp_path, BLIP)


@pytest.mark.parametrize("name", ["BlipModel", "BlipForImageTextRetrieval"])
def test_blip_compares(name: str, tmp_path: Path) -> None:
    check(reference(name, blip(projection_dim=20)), tmp_path, BLIP)


def test_blip_vision_model(tmp_path: Path) -> None:
    images = image_inputs((24, 32), own=(16, 16), resize="interpolate_pos_encoding")
    check(reference("BlipVisionModel", transformers.BlipVisionConfig(**VISION)), tmp_path, images)


def test_blip_text_model(tmp_path: Path) -> None:
    model = reference("BlipTextModel", transformers.BlipTextConfig(**TEXT, encoder_hidden_size=24))
    check(model, tmp_path, text_inputs(vocab_size=99))


@pytest.mark.parametrize("token", [True, False])
def test_flava(token: bool, tmp_path: Path) -> None:
    layers = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.FlavaConfig(
        text_config={**TEXT, "hidden_act": "relu"},
        image_config={**VISION, "vocab_size": 99, "qkv_bias": token},
        multimodal_config={**layers, "use_cls_token": token, "qkv_bias": token},
        hidden_size=32,
        projection_dim=20,
    )
    check(reference("FlavaModel", config), tmp_path, with_images(text_inputs(vocab_size=99, segments=2)))


@pytest.mark.parametrize("scaled", [True, False])
def test_kosmos_2(scaled: bool, tmp_path: Path) -> None:
    sizes = {"embed_dim": 32, "layers": 2, "ffn_dim": 48, "attention_heads": 4, "vocab_size": 99}
    config = transformers.Kosmos2Config(
        text_config={**sizes, "max_position_embeddings": 40, "scale_embedding": scaled, "pad_token_id": 1},
        vision_config=VISION,
        latent_query_num=3,
    )
    texts = text_inputs(vocab_size=99, positions=False, padding=1)
    for text in texts.values():
        text["image_embeds_position_mask"] = torch.zeros_like(text["input_ids"])
        text["image_embeds_position_mask"][:, 1:4] = 1
    check(reference("Kosmos2ForConditionalGeneration", config), tmp_path, with_images(texts))


@pytest.mark.parametrize("scaled", [True, False])
def test_kosmos_2_5(scaled: bool, tmp_path: Path) -> None:
    sizes = {"embed_dim": 32, "layers": 2, "ffn_dim": 48, "attention_heads": 4, "vocab_size": 99}
    tower = {
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "head_dim": 8,
        "intermediate_size": 44,
    }
    config = transformers.Kosmos2_5Config(
        text_config={**sizes, "max_position_embeddings": 40, "scale_embedding": scaled, "pad_token_id": 1},
        vision_config={**tower, "max_num_patches": 12, "patch_embed_hidden_size": 20},
        latent_query_num=3,
    )
    texts = text_inputs(vocab_size=99, positions=False, padding=1)
    patches = torch.randn(3, 8, 22, generator=torch.Generator().manual_seed(5))
    patches[..., 0], patches[..., 1] = 1 + torch.arange(8) // 3, 1 + torch.arange(8) % 3
    patches[1, 5:] = 0
    for name, text in texts.items():
        if name != "all ones":
            text["flattened_patches"] = patches[: len(text["input_ids"])]
            text["image_embeds_position_mask"] = torch.zeros_like(text["input_ids"])
            text["image_embeds_position_mask"][:, 1:4] = 1
    check(reference("Kosmos2_5ForConditionalGeneration", config), tmp_path, texts)


@pytest.mark.parametrize("text", ["opt", "llama"])
def test_instructblip(text: str, tmp_path: Path) -> None:
    sizes = {"opt": {"ffn_dim": 48, "word_embed_proj_dim": 32}, "llama": {"num_key_value_heads": 2}}[text]
    words = {name: size for name, size in TEXT.items() if text != "opt" or name != "intermediate_size"}
    config = transformers.InstructBlipConfig(
        text_config={**words, "model_type": text, "pad_token_id": 1, **sizes},
        vision_config={**VISION, "qkv_bias": text == "opt"},
        qformer_config={**TEXT, "hidden_size": 40, "num_hidden_layers": 3},
        num_query_tokens=3,
        image_token_index=98,
    )
    asked = text_inputs(vocab_size=98, positions=False, length=6)
    texts = text_inputs(vocab_size=98, positions=False, padding=1)
    for name, given in texts.items():
        given["input_ids"][:, 1:4] = 98  # places for what the queries find
        mask = asked[name].get("attention_mask")
        given["qformer_input_ids"] = asked[name]["input_ids"]
        given.update({} if mask is None else {"qformer_attention_mask": mask})
    cases = with_images(texts, resize="interpolate_pos_encoding")
    check(reference("InstructBlipForConditionalGeneration", config), tmp_path, cases)


@pytest.mark.parametrize("biased", [True, False])
def test_blip_2(biased: bool, tmp_path: Path) -> None:
    words = {name: size for name, size in TEXT.items() if name != "intermediate_size"}
    config = transformers.Blip2Config(
        text_config={
            **words,
            "model_type": "opt",
            "pad_token_id": 1,
            "ffn_dim": 48,
            "word_embed_proj_dim": 32,
        },
        vision_config={**VISION, "qkv_bias": biased},
        qformer_config={**TEXT, "hidden_size": 40, "num_hidden_layers": 3},
        num_query_tokens=3,
        image_token_index=98,
    )
    texts = text_inputs(vocab_size=98, positions=False, padding=1)
    for given in texts.values():
        given["input_ids"][:, 1:4] = 98  # places for what the queries find
    cases = with_images(texts, resize="interpolate_pos_encoding")
    check(reference("Blip2ForConditionalGeneration", config), tmp_path, cases)


def test_blip_2_with_an_encoder_and_a_decoder_of_words(tmp_path: Path) -> None:
    config = transformers.Blip2Config(
        text_config={
            "model_type": "t5", "vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 1,
            "num_heads": 4, "feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu", "tie_word_embeddings": False,
        },
        vision_config={**VISION, "qkv_bias": True},
        qformer_config={**TEXT, "hidden_size": 40, "num_hidden_layers": 2},
        num_query_tokens=3,
        image_token_index=98,
        use_decoder_only_language_model=False,
    )  # fmt: skip
    texts = text_inputs(vocab_size=98, positions=False, padding=1)
    for given in texts.values():
        given["input_ids"][:, 1:4] = 98  # places for what the queries find
        given["decoder_input_ids"] = given["input_ids"][:, 4:7]
    cases = with_images(texts, resize="interpolate_pos_encoding")
    check(reference("Blip2ForConditionalGeneration", config), tmp_path, cases)


@pytest.mark.parametrize("bridges", [2, 3])
def test_bridgetower(bridges: int, tmp_path: Path) -> None:
    config = transformers.BridgeTowerConfig(
        text_config={
            **TEXT,
            "hidden_size": 64,
            "num_hidden_layers": 4,
            "pad_token_id": 1,
            "hidden_act": "relu",
        },
        vision_config={"hidden_size": 128, "num_hidden_layers": 4, "image_size": 16, "patch_size": 8},
        hidden_size=64,
        num_hidden_layers=bridges,
        num_attention_heads=4,
    )
    texts = text_inputs(vocab_size=99, positions=False, padding=1)
    check(
        reference("BridgeTowerModel", config), tmp_path, with_images(texts, resize="interpolate_pos_encoding")
    )


def tiled_images() -> dict[str, Inputs]:
    """Texts whose tokens read tiles of up to two images, padded on either side; an image of no tile; a text alone."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 90, (2, 9), generator=generator)
    right = torch.ones_like(ids)
    right[0, -3:] = 0
    images = {
        "pixel_values": torch.randn(2, 2, 2, 3, 16, 16, generator=generator),
        "aspect_ratio_ids": torch.tensor([[1, 2], [3, 0]]),
        "aspect_ratio_mask": torch.tensor([[[1, 0], [1, 1]], [[1, 1], [1, 0]]]),
    }
    reads = torch.zeros(2, 9, 2, 2, dtype=torch.int64)
    reads[0, 2:, 0, 0] = reads[0, 5:, 1] = reads[1, 3:, 0] = 1
    empty = torch.tensor([[[1, 0], [1, 1]], [[1, 1], [0, 0]]])
    return {
        "right": {**images, "input_ids": ids, "attention_mask": right, "cross_attention_mask": reads},
        "left": {
            **images,
            "input_ids": ids,
            "attention_mask": right.flip(1),
            "cross_attention_mask": reads.flip(1),
        },
        "all": {**images, "input_ids": ids},
        "no tile": {**images, "input_ids": ids, "aspect_ratio_mask": empty},
        "words": {"input_ids": ids, "attention_mask": right},
    }


@pytest.mark.parametrize(  # of one tile the embeddings are those of all; without other layers no word reads another
    ("tiles", "readers"), [(2, [0, 2]), (1, [0, 2]), (2, [0, 1, 2])]
)
def test_layers_that_read_tiles_of_images(tiles: int, readers: list[int], tmp_path: Path) -> None:
    text = {
        "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 48, "cross_attention_layers": readers, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3,
    }  # fmt: skip
    vision = {
        "hidden_size": 16, "num_hidden_layers": 3, "num_global_layers": 2, "attention_heads": 2, "intermediate_size": 24,
        "image_size": 16, "patch_size": 4, "max_num_tiles": tiles, "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]],
        "intermediate_layers_indices": [0, 2], "vision_output_dim": 48,
    }  # fmt: skip
    config = transformers.MllamaConfig(text_config=text, vision_config=vision)
    check(reference("MllamaForConditionalGeneration", config), tmp_path, tiled_images())


@pytest.mark.parametrize("name", ["Florence2Model", "Florence2ForConditionalGeneration"])
def test_an_encoder_that_reads_what_windows_and_channels_find(name: str, tmp_path: Path) -> None:
    is_whole = name.startswith("Florence2For")
    texts = text_inputs(vocab_size=97, positions=False, padding=1)
    for at, given in enumerate(texts.values()):
        given["input_ids"][:, :5] = 98  # places for the mean and four patches of a map
        given["decoder_input_ids"] = given["input_ids"].flip(1)[:, : 4 + at % 3]
    cases = with_images(texts)
    cases["no image"] = {key: value for key, value in cases["right"].items() if key != "pixel_values"}
    check(reference(name, florence(is_whole)), tmp_path, cases)


def test_a_cache_beside_an_encoder_that_reads_images(tmp_path: Path) -> None:
    model = reference("Florence2ForConditionalGeneration", florence(True))
    model.save_pretrained(tmp_path)
    case = with_images(text_inputs(vocab_size=97, positions=False))["right"]
    case["input_ids"][:, :5] = 98
    ids = case["input_ids"][:, 5:]
    built = mapper.build(tmp_path, cache=True)
    past = built.new_cache(len(ids), 20)
    with torch.no_grad():
        wanted = model(**case, decoder_input_ids=ids).logits
        first = built(**case, decoder_input_ids=ids[:, :4], past=past)
        known = {"encoder_last_hidden_state": first.encoder_last_hidden_state, "past": past}
        rest = built(**case, decoder_input_ids=ids[:, 4:], start=4, **known)
    logits = torch.cat((first.logits, rest.logits), dim=1)
    torch.testing.assert_close(logits, wanted, rtol=1e-5, atol=1e-5)


def florence(is_whole: bool) -> Any:
    """A tower whose windows do not fill its maps, with norms on either side of its convolutions."""
    return transformers.Florence2Config(
        text_config={
            "model_type": "bart", "d_model": 32, "vocab_size": 99, "encoder_layers": 2, "decoder_layers": 1,
            "encoder_attention_heads": 2, "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 48,
            "max_position_embeddings": 40, "scale_embedding": is_whole,
        },
        vision_config={
            "depths": [1, 2], "embed_dim": [8, 12], "num_heads": [2, 3], "num_groups": [4, 2], "patch_size": [7, 3],
            "patch_stride": [4, 2], "patch_padding": [3, 1], "patch_prenorm": [not is_whole, is_whole],
            "window_size": 3, "qkv_bias": is_whole, "mlp_ratio": 2.0, "projection_dim": 32,
            "max_position_embeddings": 9, "max_temporal_embeddings": 5,
        },
        image_token_id=98,
    )  # fmt: skip
