"""Encoder-decoders and encoders of sound, with their heads, against the reference library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mapper
from tests.parity.harness import check, quiet, reference, text_inputs, transformers

T5 = {
    "vocab_size": 99,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 44,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 10,
    "decoder_start_token_id": 0,
}
BART = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 44,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 30,
}
WHISPER = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 44,
    "decoder_ffn_dim": 40,
    "num_mel_bins": 8,
    "max_source_positions": 10,
    "max_target_positions": 20,
    "classifier_proj_size": 12,
    "pad_token_id": 1,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "decoder_start_token_id": 2,
}
WAV2VEC2 = {
    "vocab_size": 30,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 44,
    "conv_dim": (16, 16, 24),
    "conv_kernel": (5, 3, 2),
    "conv_stride": (3, 2, 2),
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "classifier_proj_size": 12,
}


T5GEMMA2 = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"],
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def answers(vocab_size: int, left_out: bool = False, end: int | None = None) -> dict[str, dict[str, Tensor]]:
    """Text inputs, each with the decoder's: no mask, padding on either side, an odd length, a length of one.

    `left_out`: a case without the decoder's ids. `end`: the word that each text ends with; the decoder is then
    as long as the encoder, from which a classifier takes the place of that word.
    """
    cases = text_inputs(vocab_size, positions=False)
    ids = torch.randint(3, vocab_size, (3, 12), generator=torch.Generator().manual_seed(2))
    mask = torch.ones(3, 12, dtype=torch.long)
    mask[1, -3:] = 0
    for name, case in cases.items():
        rows, length = case["input_ids"].shape
        size = length if end is not None else {"odd": 5, "one": 1}.get(name, 8)
        case["decoder_input_ids"] = ids[:rows, :size]
        if name in ("right", "left"):
            case["decoder_attention_mask"] = (mask if name == "right" else mask.flip(1))[:rows, :size]
            case["decoder_attention_mask"] = (
                mask[:rows, -size:] if name == "right" else mask.flip(1)[:rows, :size]
            )
        if end is not None:
            case["input_ids"] = case["input_ids"].clone()
            case["input_ids"][:, length // 2] = end
    if left_out:
        cases["left out"] = {key: value for key, value in cases["right"].items() if "decoder" not in key}
    return cases


def spectrograms(decoder: bool = True) -> dict[str, dict[str, Tensor]]:
    """Features of a fixed number of frames with the decoder's ids: no mask, padding on either side, batch 1."""
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(3, 8, 20, generator=generator)
    if not decoder:
        return {"three": {"input_features": features}, "one": {"input_features": features[:1]}}
    ids = torch.randint(3, 99, (3, 7), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, -3:] = 0
    left = mask.flip(1)
    given = {"decoder_position_ids": (left.cumsum(1) - 1).clamp(min=0)}
    both = {"input_features": features, "decoder_input_ids": ids}
    return {
        "no mask": both,
        "all ones": {**both, "decoder_attention_mask": torch.ones_like(ids)},
        "right": {**both, "decoder_attention_mask": mask},
        "left": {**both, "decoder_attention_mask": left, **given},
        "one": {"input_features": features[:1], "decoder_input_ids": ids[:1, :1]},
    }


def waveforms() -> dict[str, dict[str, Tensor]]:
    """Samples without a mask, all ones, padding on the right, an odd length, batch 1."""
    samples = torch.randn(3, 400, generator=torch.Generator().manual_seed(4))
    mask = torch.ones(3, 400, dtype=torch.long)
    mask[1, -150:] = 0
    mask[2, -31:] = 0
    return {
        "no mask": {"input_values": samples},
        "all ones": {"input_values": samples, "attention_mask": torch.ones_like(mask)},
        "right": {"input_values": samples * mask, "attention_mask": mask},
        "odd": {"input_values": samples[:, :333], "attention_mask": mask[:, :333]},
        "one": {"input_values": samples[:1, :101]},
    }


def untie(model: nn.Module, *paths: str) -> None:
    """Weights of their own for modules that share theirs: files hold them under several names, and equal or not."""
    generator = torch.Generator().manual_seed(5)
    for path in paths:
        module = model.get_submodule(path)
        module.weight = nn.Parameter(torch.randn(module.weight.shape, generator=generator) * 0.2)


@pytest.mark.parametrize("name", ["T5Model", "T5ForConditionalGeneration"])
@pytest.mark.parametrize("kind", ["relu", "gated-gelu"])
def test_t5(name: str, kind: str, tmp_path: Path) -> None:
    config = transformers.T5Config(**T5, feed_forward_proj=kind)
    check(reference(name, config), tmp_path, answers(99))


def test_t5_with_a_head_of_its_own_and_a_config_of_before(tmp_path: Path) -> None:
    model = reference(
        "T5ForConditionalGeneration",
        transformers.T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    )
    untie(model, "lm_head")

    def as_before(config: dict[str, Any]) -> None:
        for key in ("dense_act_fn", "is_gated_act", "scale_decoder_outputs"):
            config.pop(key)
        config |= {"tie_word_embeddings": False, "n_positions": 512, "output_past": True}

    check(model, tmp_path, answers(99), edit=as_before)


def test_t5_with_every_embedding_stored_and_an_unused_bias(tmp_path: Path) -> None:
    model = reference("T5ForConditionalGeneration", transformers.T5Config(**T5))
    untie(model, "encoder.embed_tokens", "decoder.embed_tokens", "lm_head")
    model.decoder.block[0].layer[1].EncDecAttention.relative_attention_bias = nn.Embedding(8, 4)
    check(model, tmp_path, answers(99))


@pytest.mark.parametrize("name", ["T5EncoderModel", "T5ForTokenClassification"])
def test_t5_encoder(name: str, tmp_path: Path) -> None:
    check(reference(name, transformers.T5Config(**T5)), tmp_path, text_inputs(99, positions=False))


def test_t5_encoder_with_both_embeddings_stored(tmp_path: Path) -> None:
    model = reference("T5EncoderModel", transformers.T5Config(**T5))
    untie(model, "encoder.embed_tokens")
    check(model, tmp_path, text_inputs(99, positions=False))


def test_t5_question_answering(tmp_path: Path) -> None:
    model = reference("T5ForQuestionAnswering", transformers.T5Config(**T5))
    check(model, tmp_path, answers(99, left_out=True))


def test_t5_sequence_classification(tmp_path: Path) -> None:
    model = reference("T5ForSequenceClassification", transformers.T5Config(**T5, num_labels=3))
    check(model, tmp_path, answers(99, left_out=True, end=1))


@pytest.mark.parametrize("name", ["MT5Model", "MT5ForConditionalGeneration"])
def test_mt5(name: str, tmp_path: Path) -> None:
    check(reference(name, transformers.MT5Config(**T5)), tmp_path, answers(99))


@pytest.mark.parametrize("name", ["UMT5Model", "UMT5ForConditionalGeneration"])
def test_umt5(name: str, tmp_path: Path) -> None:
    check(reference(name, transformers.UMT5Config(**T5)), tmp_path, answers(99))


def test_umt5_without_gates(tmp_path: Path) -> None:
    config = transformers.UMT5Config(**{**T5, "feed_forward_proj": "relu"})
    check(reference("UMT5ForConditionalGeneration", config), tmp_path, answers(99))


@pytest.mark.parametrize("name", ["BartModel", "BartForConditionalGeneration", "BartForQuestionAnswering"])
def test_bart(name: str, tmp_path: Path) -> None:
    check(reference(name, transformers.BartConfig(**BART)), tmp_path, answers(99, left_out=True))


def test_bart_sequence_classification(tmp_path: Path) -> None:
    model = reference("BartForSequenceClassification", transformers.BartConfig(**BART, num_labels=4))
    check(model, tmp_path, answers(99, left_out=True, end=2))


@pytest.mark.parametrize(
    "name", ["MvpModel", "MvpForConditionalGeneration", "PLBartForConditionalGeneration"]
)
def test_relatives_of_bart(name: str, tmp_path: Path) -> None:
    config = getattr(transformers, name).config_class(**BART)
    check(reference(name, config), tmp_path, answers(99, left_out=name.startswith("Mvp")))


@pytest.mark.parametrize("name", ["Mvp", "PLBart"])
def test_relatives_of_bart_classify(name: str, tmp_path: Path) -> None:
    config = getattr(transformers, f"{name}Config")(**BART, num_labels=4)
    inputs = answers(99, left_out=name == "Mvp", end=2)
    check(reference(f"{name}ForSequenceClassification", config), tmp_path, inputs)


def test_bart_with_scaled_embeddings_all_stored_and_a_config_of_before(tmp_path: Path) -> None:
    config = transformers.BartConfig(**BART, scale_embedding=True, activation_function="relu")
    model = reference("BartForConditionalGeneration", config)
    untie(model, "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")

    def as_before(config: dict[str, Any]) -> None:
        config |= {"num_hidden_layers": 3, "normalize_before": False, "add_final_layer_norm": False}
        config |= {"classif_dropout": 0.0, "num_beams": 4, "early_stopping": True, "_num_labels": 3}

    check(model, tmp_path, answers(99, left_out=True), edit=as_before)


@pytest.mark.parametrize("name", ["WhisperModel", "WhisperForConditionalGeneration"])
def test_whisper(name: str, tmp_path: Path) -> None:
    check(reference(name, transformers.WhisperConfig(**WHISPER)), tmp_path, spectrograms())


def test_whisper_with_a_head_of_its_own(tmp_path: Path) -> None:
    model = reference("WhisperForConditionalGeneration", transformers.WhisperConfig(**WHISPER))
    untie(model, "proj_out")
    check(model, tmp_path, spectrograms())


def test_whisper_audio_classification(tmp_path: Path) -> None:
    model = reference("WhisperForAudioClassification", transformers.WhisperConfig(**WHISPER, num_labels=3))
    check(model, tmp_path, spectrograms(decoder=False))


@pytest.mark.parametrize("name", ["Wav2Vec2Model", "Wav2Vec2ForCTC"])
@pytest.mark.parametrize("is_stable", [False, True])
def test_wav2vec2(name: str, is_stable: bool, tmp_path: Path) -> None:
    config = transformers.Wav2Vec2Config(
        **WAV2VEC2,
        do_stable_layer_norm=is_stable,
        feat_extract_norm="layer" if is_stable else "group",
        conv_bias=is_stable,
        layer_norm_eps=1e-3,
    )
    check(reference(name, config), tmp_path, waveforms())


@pytest.mark.parametrize("name", ["Wav2Vec2ForSequenceClassification", "Wav2Vec2ForAudioFrameClassification"])
def test_wav2vec2_classification(name: str, tmp_path: Path) -> None:
    check(reference(name, transformers.Wav2Vec2Config(**WAV2VEC2, num_labels=3)), tmp_path, waveforms())


@pytest.mark.parametrize(
    "name",
    [
        "HubertModel",
        "HubertForCTC",
        "HubertForSequenceClassification",
        "UniSpeechModel",
        "UniSpeechForCTC",
        "UniSpeechSatModel",
        "UniSpeechSatForCTC",
        "UniSpeechSatForAudioFrameClassification",
        "WavLMModel",
        "WavLMForCTC",
        "WavLMForSequenceClassification",
    ],
)
def test_relatives_of_wav2vec2(name: str, tmp_path: Path) -> None:
    made = getattr(transformers, name).config_class
    config = made(**WAV2VEC2, num_labels=3, do_stable_layer_norm=name.endswith("Model"))
    check(reference(name, config), tmp_path, waveforms())


@pytest.mark.parametrize("name", ["Model", "ForCTC", "ForSequenceClassification"])
def test_data2vec_audio(name: str, tmp_path: Path) -> None:
    fields = {**WAV2VEC2, "conv_pos_kernel_size": 5 if name == "Model" else 4, "num_conv_pos_embeddings": 3}
    config = transformers.Data2VecAudioConfig(**fields, num_labels=3, conv_bias=name == "Model")
    check(reference(f"Data2VecAudio{name}", config), tmp_path, waveforms())


def test_wav2vec2_with_adapters_in_its_layers(tmp_path: Path) -> None:
    config = transformers.Wav2Vec2Config(
        **WAV2VEC2, do_stable_layer_norm=True, adapter_attn_dim=6, layer_norm_eps=1e-3
    )
    check(reference("Wav2Vec2ForCTC", config), tmp_path, waveforms())


def test_wav2vec2_pretraining(tmp_path: Path) -> None:
    config = transformers.Wav2Vec2Config(
        **WAV2VEC2, codevector_dim=12, proj_codevector_dim=10, num_codevectors_per_group=7
    )
    check(reference("Wav2Vec2ForPreTraining", config), tmp_path, waveforms())


def test_wav2vec2_with_the_older_names_of_a_normed_weight(tmp_path: Path) -> None:
    model = reference("Wav2Vec2ForCTC", transformers.Wav2Vec2Config(**WAV2VEC2))
    convolution = model.wav2vec2.encoder.pos_conv_embed.conv
    length, direction = (
        convolution.parametrizations.weight.original0,
        convolution.parametrizations.weight.original1,
    )
    nn.utils.parametrize.remove_parametrizations(convolution, "weight")
    with quiet():
        nn.utils.weight_norm(convolution, dim=2)
    convolution.weight_g, convolution.weight_v = length, direction
    made = check(model, tmp_path, waveforms())
    assert "wav2vec2.encoder.pos_conv_embed.conv.weight_g" in made.loaded.state_dict()


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("T5ForConditionalGeneration", lambda: transformers.T5Config(**T5)),
        ("UMT5ForConditionalGeneration", lambda: transformers.UMT5Config(**T5)),
        (
            "SwitchTransformersForConditionalGeneration",
            lambda: transformers.SwitchTransformersConfig(**T5, num_experts=3),
        ),
        ("BartForConditionalGeneration", lambda: transformers.BartConfig(**BART)),
        ("WhisperForConditionalGeneration", lambda: transformers.WhisperConfig(**WHISPER)),
        (
            "FSMTForConditionalGeneration",
            lambda: transformers.FSMTConfig(**BART, src_vocab_size=99, tgt_vocab_size=99, use_cache=False),
        ),
        (
            "T5Gemma2ForConditionalGeneration",
            lambda: transformers.T5Gemma2Config(
                encoder={
                    "text_config": T5GEMMA2,
                    "vision_config": {
                        "model_type": "siglip_vision_model",
                        "hidden_size": 16,
                        "num_hidden_layers": 1,
                        "num_attention_heads": 2,
                        "intermediate_size": 24,
                        "image_size": 8,
                        "patch_size": 4,
                    },
                },
                decoder=T5GEMMA2,
                image_token_index=98,
            ),
        ),
    ],
)
def test_steps_with_a_cache_give_what_one_forward_gives(
    name: str, config: Callable[[], Any], tmp_path: Path
) -> None:
    model = reference(name, config())
    with quiet():
        model.save_pretrained(tmp_path)
    case = spectrograms()["no mask"] if "Whisper" in name else answers(99)["all ones"]
    ids = case.pop("decoder_input_ids")
    built = mapper.build(tmp_path, cache=True)
    past = built.new_cache(len(ids), 20)
    with torch.no_grad(), quiet():
        wanted = model(**case, decoder_input_ids=ids).logits
        first = built(**case, decoder_input_ids=ids[:, :4], past=past)
        case["encoder_last_hidden_state"] = first.encoder_last_hidden_state
        steps = [
            built(**case, decoder_input_ids=ids[:, at : at + 1], past=past, start=at)
            for at in range(4, ids.shape[1])
        ]
    logits = torch.cat([first.logits, *(step.logits for step in steps)], dim=1)
    torch.testing.assert_close(logits, wanted, rtol=1e-5, atol=1e-5)


def test_keys_and_values_of_the_source_are_made_once(tmp_path: Path) -> None:
    with quiet():
        reference("BartForConditionalGeneration", transformers.BartConfig(**BART)).save_pretrained(tmp_path)
    whole, built = mapper.build(tmp_path), mapper.build(tmp_path, cache=True)
    made: list[str] = []
    for name, part in built.named_modules():
        if name.endswith("encoder_attn.k_proj"):
            part.register_forward_hook(lambda *_, name=name: made.append(name))
    case = answers(99)["all ones"]
    other = {**case, "input_ids": case["input_ids"].flip(1)}
    ids = case["decoder_input_ids"]
    past = built.new_cache(len(ids), 20)
    with torch.no_grad():
        first = built(**{**case, "decoder_input_ids": ids[:, :4]}, past=past)
        times = len(made)
        step = {"decoder_input_ids": ids[:, 4:5], "past": past, "start": 4}
        known = {"encoder_last_hidden_state": first.encoder_last_hidden_state}
        built(**{**case, **step, **known})
        assert len(made) == times == BART["decoder_layers"]
        again = built(
            **{**other, "decoder_input_ids": ids[:, :4]}, past=past
        )  # another source, the same room
        assert len(made) == 2 * times
        torch.testing.assert_close(
            again.logits, whole(**{**other, "decoder_input_ids": ids[:, :4]}).logits, rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("head", ["Model", "ForConditionalGeneration"])
def test_blenderbot_small_whose_decoder_norms_words_before_positions(head: str, tmp_path: Path) -> None:
    fields = {"scale_embedding": True, "activation_function": "relu"} if head == "Model" else {}
    config = transformers.BlenderbotSmallConfig(**BART, pad_token_id=0, **fields)
    check(reference(f"BlenderbotSmall{head}", config), tmp_path, answers(99))
