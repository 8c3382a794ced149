"""Encoder-decoders of texts beside BART and T5 against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mapper
from tests.parity.harness import check, reference, text_inputs, transformers
from tests.parity.test_encoder_decoders import BART, T5, answers, untie


@pytest.mark.parametrize("name", ["PegasusModel", "PegasusForConditionalGeneration"])
def test_pegasus(name: str, tmp_path: Path) -> None:
    config = transformers.PegasusConfig(**BART, scale_embedding=name == "PegasusModel")
    check(reference(name, config), tmp_path, answers(99))


def marian(name: str, **more: Any) -> nn.Module:
    """A model whose positions are the waves that it starts with: a file of it leaves them out."""
    model = reference(
        name, transformers.MarianConfig(**BART, pad_token_id=2, decoder_start_token_id=2, **more)
    )
    for part in model.modules():
        if hasattr(part, "create_weight"):
            part.weight.data = part.create_weight()
    return model


@pytest.mark.parametrize("name", ["MarianModel", "MarianMTModel"])
def test_marian(name: str, tmp_path: Path) -> None:
    check(marian(name, scale_embedding=True, activation_function="swish"), tmp_path, answers(99))


def test_marian_with_words_of_two_languages(tmp_path: Path) -> None:
    model = marian("MarianMTModel", share_encoder_decoder_embeddings=False, decoder_vocab_size=90)
    check(model, tmp_path, answers(90))


def test_marian_with_stored_positions_and_a_config_of_before(tmp_path: Path) -> None:
    model = marian("MarianMTModel")
    model._keys_to_ignore_on_save = None
    untie(model, "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")

    def as_before(fields: dict[str, Any]) -> None:
        fields |= {"normalize_before": False, "static_position_embeddings": True, "num_hidden_layers": 3}
        fields.pop("share_encoder_decoder_embeddings")

    check(model, tmp_path, answers(99), edit=as_before)


@pytest.mark.parametrize("name", ["M2M100Model", "M2M100ForConditionalGeneration"])
def test_m2m_100(name: str, tmp_path: Path) -> None:
    config = transformers.M2M100Config(**BART, scale_embedding=name == "M2M100Model")
    inputs = answers(99)
    padded = text_inputs(99, positions=False, padding=1)  # the words decide what is counted
    for key in ("right", "left"):
        inputs[key]["input_ids"] = padded[key]["input_ids"]
    check(reference(name, config), tmp_path, inputs)


@pytest.mark.parametrize("is_stored", [True, False])
def test_fsmt(is_stored: bool, tmp_path: Path) -> None:
    config = transformers.FSMTConfig(
        **{key: size for key, size in BART.items() if key != "vocab_size"},
        src_vocab_size=99,
        tgt_vocab_size=90,
        scale_embedding=is_stored,
        use_cache=False,  # with it the published code has no causal mask
    )
    model = reference("FSMTForConditionalGeneration", config)
    if not is_stored:  # positions are the waves that it starts with
        model._keys_to_ignore_on_save = [
            "model.encoder.embed_positions.weight",
            "model.decoder.embed_positions.weight",
        ]
        for part in (model.model.encoder.embed_positions, model.model.decoder.embed_positions):
            part.weight.data = part.get_embedding(*part.weight.shape, part.padding_idx)
    inputs = answers(90)
    padded = text_inputs(99, positions=False, padding=1)  # the words decide what is counted
    for key in ("right", "left"):
        inputs[key]["input_ids"] = padded[key]["input_ids"]
    inputs["no mask"]["decoder_input_ids"][:, 3:5] = 1  # and what the decoder reads
    check(model, tmp_path, inputs)


@pytest.mark.parametrize("scaled", [True, False])
def test_the_texts_of_seamless_m4t_v2(scaled: bool, tmp_path: Path) -> None:
    sizes = {key: value for key, value in BART.items() if key != "d_model"}
    config = transformers.SeamlessM4Tv2Config(
        **sizes, hidden_size=32, scale_embedding=scaled, activation_function="relu" if scaled else "gelu"
    )
    model = reference("SeamlessM4Tv2ForTextToText", config)
    inputs = answers(99)
    padded = text_inputs(99, positions=False, padding=0)  # the words decide what is counted
    for key in ("right", "left"):
        inputs[key]["input_ids"] = padded[key]["input_ids"]
    check(model, tmp_path, inputs)


@pytest.mark.parametrize("name", ["BlenderbotModel", "BlenderbotForConditionalGeneration"])
def test_blenderbot(name: str, tmp_path: Path) -> None:
    config = transformers.BlenderbotConfig(**BART, scale_embedding=name == "BlenderbotModel")
    check(reference(name, config), tmp_path, answers(99))


T5GEMMA = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 44,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "query_pre_attn_scalar": 24,
    "sliding_window": 3,
    "layer_types": ["sliding_attention", "full_attention"],
    "pad_token_id": 0,
}


@pytest.mark.parametrize("name", ["T5GemmaModel", "T5GemmaForConditionalGeneration"])
def test_t5gemma(name: str, tmp_path: Path) -> None:
    encoder = transformers.T5GemmaModuleConfig(**T5GEMMA)
    decoder = transformers.T5GemmaModuleConfig(
        **{**T5GEMMA, "num_attention_heads": 2, "num_key_value_heads": 1}, attn_logit_softcapping=20.0
    )
    config = transformers.T5GemmaConfig(encoder=encoder, decoder=decoder, vocab_size=99)
    check(reference(name, config), tmp_path, answers(99))


@pytest.mark.parametrize("name", ["BigBirdPegasusModel", "BigBirdPegasusForConditionalGeneration"])
def test_bigbird_pegasus(name: str, tmp_path: Path) -> None:
    config = transformers.BigBirdPegasusConfig(
        **BART, block_size=4, num_random_blocks=1, use_bias=name.endswith("l")
    )
    made = check(reference(name, config), tmp_path, answers(99))
    ids = torch.zeros(1, 29, dtype=torch.long)
    with pytest.raises(ValueError, match="beyond 28, attention is sparse"):
        made.built(input_ids=ids, decoder_input_ids=ids[:, :3])


@pytest.mark.parametrize("name", ["LongT5Model", "LongT5ForConditionalGeneration"])
def test_longt5(name: str, tmp_path: Path) -> None:
    config = transformers.LongT5Config(**T5, local_radius=3, feed_forward_proj="gated-gelu")
    check(reference(name, config), tmp_path, answers(99))


@pytest.mark.parametrize(
    ("name", "capacity"),
    [
        ("SwitchTransformersModel", 2),
        ("SwitchTransformersForConditionalGeneration", 1),
        ("SwitchTransformersForConditionalGeneration", 64),
    ],
)
def test_switch_transformers(name: str, capacity: int, tmp_path: Path) -> None:
    config = transformers.SwitchTransformersConfig(
        **T5,
        num_experts=12,
        expert_capacity=capacity,
        num_sparse_encoder_layers=1 if capacity == 1 else 3,
        num_sparse_decoder_layers=1,
        dense_act_fn="gelu" if capacity == 1 else "relu",
        tie_word_embeddings=capacity != 1,
    )
    check(reference(name, config), tmp_path, answers(99))


def test_switch_transformers_encoder(tmp_path: Path) -> None:
    config = transformers.SwitchTransformersConfig(**T5, num_experts=3, expert_capacity=3)
    check(reference("SwitchTransformersEncoderModel", config), tmp_path, text_inputs(99, positions=False))


@pytest.mark.parametrize("name", ["MBartModel", "MBartForConditionalGeneration"])
def test_mbart(name: str, tmp_path: Path) -> None:
    config = transformers.MBartConfig(**BART, scale_embedding=name == "MBartModel")
    check(reference(name, config), tmp_path, answers(99))


DIA = {
    "hidden_size": 32,
    "intermediate_size": 44,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 8,
    "norm_eps": 1e-3,
}


def spoken(codes: int, channels: int) -> dict[str, dict[str, Any]]:
    """Texts without codes, with those of several moments, and with those of one in a row."""
    given = torch.randint(0, codes, (3, 5, channels), generator=torch.Generator().manual_seed(2))
    inputs: dict[str, dict[str, Any]] = text_inputs(99, positions=False)
    mask = torch.ones(3, 5, dtype=torch.long)
    mask[1, -2:] = 0  # behind what is read, so that all may be compared but for these
    for key, decoder in {
        "all ones": {"decoder_input_ids": given},
        "right": {"decoder_input_ids": given, "decoder_position_ids": torch.arange(5).expand(3, -1) + 2},
        "left": {"decoder_input_ids": given, "decoder_attention_mask": mask},
        "odd": {"decoder_input_ids": given[:, :1].flatten()[:, None]},
    }.items():
        inputs[key] |= decoder
    return inputs


@pytest.mark.parametrize("name", ["DiaModel", "DiaForConditionalGeneration"])
def test_dia(name: str, tmp_path: Path) -> None:
    decoder = {
        "vocab_size": 21,
        "hidden_size": 24,
        "num_key_value_heads": 2,
        "cross_num_attention_heads": 4,
        "cross_num_key_value_heads": 2,
        "cross_head_dim": 6,
        "cross_hidden_size": 32,
        "num_channels": 3,
        "bos_token_id": 20,
    }
    config = transformers.DiaConfig(
        encoder_config={**DIA, "vocab_size": 99, "num_key_value_heads": 2},
        decoder_config={**DIA, **decoder},
        delay_pattern=[0, 1, 2],
    )
    check(reference(name, config), tmp_path, spoken(20, 3))


def page(words: int) -> dict[str, dict[str, Any]]:
    """Texts with boxes, some of them nowhere, two in one place, and the image of their page."""
    inputs: dict[str, dict[str, Any]] = answers(words)
    generator = torch.Generator().manual_seed(3)
    for values in inputs.values():
        corner = torch.rand(*values["input_ids"].shape, 2, generator=generator) * 0.8
        boxes = torch.cat((corner, corner + 0.2 * torch.rand(corner.shape, generator=generator)), dim=-1)
        boxes[:, 0], boxes[:, 1], boxes[:, 2] = 0.0, 1.0, boxes[:, 3]
        values["bbox"] = boxes
        values["pixel_values"] = torch.randn(len(corner), 3, 16, 16, generator=generator)
    return inputs


@pytest.mark.parametrize("name", ["UdopModel", "UdopForConditionalGeneration"])
def test_udop(name: str, tmp_path: Path) -> None:
    config = transformers.UdopConfig(
        **T5 | {"relative_attention_num_buckets": 32},
        feed_forward_proj="gated-gelu" if name == "UdopModel" else "relu",
        max_2d_position_embeddings=50,
        image_size=16,
        patch_size=4,
    )
    check(reference(name, config), tmp_path, page(99))


PROPHETNET = {
    "vocab_size": 99,
    "hidden_size": 32,
    "encoder_ffn_dim": 44,
    "decoder_ffn_dim": 40,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "num_encoder_attention_heads": 4,
    "num_decoder_attention_heads": 2,
    "max_position_embeddings": 30,
    "num_buckets": 6,
    "relative_max_distance": 7,
    "pad_token_id": 1,
    "activation_function": "relu",
}


@pytest.mark.parametrize(
    ("name", "streams"),
    [
        ("ProphetNetModel", 3),
        ("ProphetNetForConditionalGeneration", 2),
        ("ProphetNetForConditionalGeneration", 1),
    ],
)
def test_prophetnet(name: str, streams: int, tmp_path: Path) -> None:
    config = transformers.ProphetNetConfig(**PROPHETNET, ngram=streams)
    inputs = answers(99)
    for case in ("right", "left"):  # no output of a stream has the places of a mask
        inputs[case].pop("decoder_attention_mask") if streams != 2 else None
    check(reference(name, config), tmp_path, inputs)


def test_prophetnet_whose_towers_have_words_of_their_own_is_refused(tmp_path: Path) -> None:
    model = reference(
        "ProphetNetModel", transformers.ProphetNetConfig(**PROPHETNET, tie_word_embeddings=False)
    )
    model.save_pretrained(tmp_path)
    assert mapper.inspect(tmp_path).architecture.reading == "skeleton"
