"""Encoders of sound, alone and before a decoder, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import mapper
from mapper.errors import MapperError
from tests.parity.harness import check, reference, transformers
from tests.parity.test_encoder_decoders import BART, answers, waveforms

TOWER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 44,
    "num_mel_bins": 8,
}


def features(
    length: int,
    bands: int = 8,
    name: str = "input_features",
    mask: str = "",
    last: bool = False,
    halvings: int = 0,
) -> dict[str, dict[str, Tensor]]:
    """A spectrogram of three sounds and one of them alone; with `mask`, also padded. `last`: bands behind frames.

    `halvings`: what comes out has so many times fewer frames, and is compared where they are real.
    """
    values = torch.randn(3, bands, length, generator=torch.Generator().manual_seed(3))
    values = values.transpose(1, 2) if last else values
    cases = {"three": {name: values}, "one": {name: values[:1]}}
    if mask:
        real = torch.ones(3, length, dtype=torch.long)
        real[1, -length // 3 :] = 0
        real[2, -2:] = 0
        cases["padded"] = {name: values, mask: real}
        lengths, frames = real.sum(dim=1), length
        for _ in range(halvings):
            lengths, frames = (lengths - 1) // 2 + 1, (frames - 1) // 2 + 1
        if halvings:
            cases["padded"]["compared"] = torch.arange(frames) < lengths[:, None]
        cases["all ones"] = {name: values, mask: torch.ones_like(real)}
    return cases


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("Qwen2AudioEncoder", {"activation_function": "relu"}),
        ("VoxtralEncoder", {}),
        ("GlmAsrEncoder", {"num_key_value_heads": 2}),
    ],
)
def test_towers_of_mel_bands(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    sizes = {**TOWER, **more}
    if name == "Qwen2AudioEncoder":
        sizes |= {"d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 44}
    config = getattr(transformers, f"{name}Config")(**sizes)
    if name != "GlmAsrEncoder":
        config.max_source_positions = 10
    check(reference(name, config), tmp_path, features(20))


def test_a_tower_with_a_mask_of_frames(tmp_path: Path) -> None:
    config = transformers.AudioFlamingo3EncoderConfig(**TOWER, max_source_positions=10)
    cases = features(20, mask="input_features_mask")
    del cases["three"], cases["one"]  # the reference asks for a mask
    check(reference("AudioFlamingo3Encoder", config), tmp_path, cases)


PARAKEET = {**TOWER, "num_mel_bins": 16, "subsampling_conv_channels": 6, "conv_kernel_size": 5}


@pytest.mark.parametrize("name", ["ParakeetEncoder", "ParakeetForCTC"])
def test_parakeet(name: str, tmp_path: Path) -> None:
    halvings = 2 if "CTC" in name else 3
    config = transformers.ParakeetEncoderConfig(**PARAKEET, subsampling_factor=2**halvings)
    if name == "ParakeetForCTC":
        config = transformers.ParakeetCTCConfig(encoder_config=config, vocab_size=30)
    cases = features(43, 16, mask="attention_mask", last=True, halvings=halvings)
    check(reference(name, config), tmp_path, cases)


@pytest.mark.parametrize("name", ["LasrEncoder", "LasrForCTC"])
def test_lasr(name: str, tmp_path: Path) -> None:
    config = transformers.LasrEncoderConfig(**PARAKEET, num_key_value_heads=2)
    if name == "LasrForCTC":
        config = transformers.LasrCTCConfig(encoder_config=config, vocab_size=30)
    check(reference(name, config), tmp_path, features(43, 16, mask="attention_mask", last=True))


TOWER_OF_WAVES = {key: value for key, value in TOWER.items() if key != "num_mel_bins"} | {"vocab_size": 30}
CONFORMER = {
    "vocab_size": 30,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 44,
    "conv_depthwise_kernel_size": 5,
}


@pytest.mark.parametrize("name", ["Wav2Vec2ConformerModel", "Wav2Vec2ConformerForCTC"])
def test_wav2vec2_conformer(name: str, tmp_path: Path) -> None:
    config = transformers.Wav2Vec2ConformerConfig(
        **CONFORMER,
        conv_dim=(16, 16, 24),
        conv_kernel=(5, 3, 2),
        conv_stride=(3, 2, 2),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
        layer_norm_eps=1e-3,
    )
    check(reference(name, config), tmp_path, waveforms())


def test_wav2vec2_conformer_in_pretraining(tmp_path: Path) -> None:
    fields = {"conv_dim": (16, 16, 24), "conv_kernel": (5, 3, 2), "conv_stride": (3, 2, 2)}
    codes = {"codevector_dim": 12, "proj_codevector_dim": 10, "num_codevectors_per_group": 7}
    positions = {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4}
    config = transformers.Wav2Vec2ConformerConfig(**CONFORMER, **fields, **codes, **positions)
    check(reference("Wav2Vec2ConformerForPreTraining", config), tmp_path, waveforms())


@pytest.mark.parametrize("name", ["Wav2Vec2BertModel", "Wav2Vec2BertForCTC"])
@pytest.mark.parametrize("positions", ["relative_key", "relative"])
def test_wav2vec2_bert(name: str, positions: str, tmp_path: Path) -> None:
    config = transformers.Wav2Vec2BertConfig(
        **CONFORMER,
        feature_projection_input_dim=12,
        position_embeddings_type=positions,
        left_max_position_embeddings=6,
        right_max_position_embeddings=3,
        layer_norm_eps=1e-3,
    )
    check(reference(name, config), tmp_path, features(20, 12, mask="attention_mask", last=True))


@pytest.mark.parametrize("name", ["ASTModel", "ASTForAudioClassification"])
def test_audio_spectrogram_transformer(name: str, tmp_path: Path) -> None:
    config = transformers.ASTConfig(
        **TOWER, patch_size=4, frequency_stride=3, time_stride=2, max_length=20, num_labels=3
    )
    check(reference(name, config), tmp_path, features(20, name="input_values", last=True))


@pytest.mark.parametrize("name", ["Nemotron3DiarizationAudioModel", "Nemotron3DiarizationModel"])
def test_stacked_frames(name: str, tmp_path: Path) -> None:
    config = transformers.Nemotron3DiarizationAudioConfig(**TOWER, subsampling_factor=8)
    cases = features(37, mask="attention_mask", last=True)
    if name == "Nemotron3DiarizationModel":
        head = {"audio_hidden_size": 32, "hidden_size": 24, "subsampling_factor": 8}
        config = transformers.Nemotron3DiarizationConfig(audio_config=config, head_config=head)
    check(reference(name, config), tmp_path, cases)


@pytest.mark.parametrize("name", ["Speech2TextModel", "Speech2TextForConditionalGeneration"])
def test_speech_to_text(name: str, tmp_path: Path) -> None:
    sizes = {key: value for key, value in BART.items() if key != "max_position_embeddings"}
    config = transformers.Speech2TextConfig(
        **sizes,
        input_feat_per_channel=8,
        conv_channels=10,
        max_source_positions=30,
        max_target_positions=30,
        decoder_start_token_id=2,
    )
    cases = features(41, mask="attention_mask", last=True, halvings=2)
    ids = answers(99)["right"]["decoder_input_ids"]
    for case in cases.values():
        case["decoder_input_ids"] = ids[: len(case["input_features"])]
    check(reference(name, config), tmp_path, cases)


@pytest.mark.parametrize("name", ["SEWModel", "SEWForCTC"])
def test_sew(name: str, tmp_path: Path) -> None:
    config = transformers.SEWConfig(
        **TOWER_OF_WAVES,
        squeeze_factor=2 if name == "SEWModel" else 3,
        conv_dim=(16, 16, 24),
        conv_kernel=(5, 3, 2),
        conv_stride=(3, 2, 2),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
    )
    check(reference(name, config), tmp_path, waveforms())


@pytest.mark.parametrize("stable", [False, True])
def test_weighted_hidden_states(stable: bool, tmp_path: Path) -> None:
    config = transformers.WavLMConfig(
        **TOWER_OF_WAVES,
        conv_dim=(16, 16, 24),
        conv_kernel=(5, 3, 2),
        conv_stride=(3, 2, 2),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
        num_buckets=20,
        classifier_proj_size=12,
        use_weighted_layer_sum=True,
        do_stable_layer_norm=stable,
    )
    model = reference("WavLMForSequenceClassification", config)
    if not stable:
        check(model, tmp_path, waveforms())
        return
    model.save_pretrained(tmp_path)
    # releases of the published code differ in whether the last states are normed
    assert mapper.inspect(tmp_path).architecture.reading == "skeleton"


@pytest.mark.parametrize(("name", "shared"), [("SEWDModel", False), ("SEWDForCTC", True)])
def test_sew_d(name: str, shared: bool, tmp_path: Path) -> None:
    config = transformers.SEWDConfig(
        **TOWER_OF_WAVES,
        squeeze_factor=2,
        conv_dim=(16, 16, 24),
        conv_kernel=(5, 3, 2),
        conv_stride=(3, 2, 2),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
        position_buckets=8 if shared else -1,
        share_att_key=shared,
        pos_att_type=("p2c", "c2p") if shared else ("c2p",),
        norm_rel_ebd="layer_norm" if shared else "none",
        feature_layer_norm_eps=1e-3,
    )
    check(reference(name, config), tmp_path, waveforms())


def test_parakeet_transducer(tmp_path: Path) -> None:
    encoder = transformers.ParakeetEncoderConfig(**PARAKEET, subsampling_factor=4)
    config = transformers.ParakeetRNNTConfig(encoder_config=encoder, vocab_size=30, decoder_hidden_size=12)
    cases = features(43, 16, last=True)
    ids = answers(30)["no mask"]["decoder_input_ids"]
    for case in cases.values():
        case["decoder_input_ids"] = ids[: len(case["input_features"])]
    check(reference("ParakeetForRNNT", config), tmp_path, cases)


@pytest.mark.parametrize("scaled", [False, True])
def test_cohere_asr(scaled: bool, tmp_path: Path) -> None:
    encoder = {**PARAKEET, "subsampling_factor": 4, "scale_input": scaled, "model_type": "parakeet_encoder"}
    encoder["attention_bias"] = scaled
    config = transformers.CohereAsrConfig(
        **{**TOWER, "hidden_size": 24, "num_attention_heads": 2, "num_mel_bins": None},
        encoder_config=encoder, vocab_size=30, max_position_embeddings=20, head_dim=12,
    )  # fmt: skip
    cases = features(43, 16, mask="attention_mask", last=True, halvings=2)
    words = answers(30)
    for name, case in cases.items():
        said = words["right" if name == "padded" else "left"]
        rows = len(case["input_features"])
        case.update({key: value[:rows] for key, value in said.items() if "decoder" in key})
    check(reference("CohereAsrForConditionalGeneration", config), tmp_path, cases)


def test_granite_speech5_halves_in_some_layers(tmp_path: Path) -> None:
    from transformers.models.granite_speech5.configuration_granite_speech5 import GraniteSpeech5EncoderConfig
    from transformers.models.granite_speech5.modeling_granite_speech5 import GraniteSpeech5Encoder

    config = GraniteSpeech5EncoderConfig(
        **{**TOWER, "num_mel_bins": 2, "num_hidden_layers": 4}, vocab_size=30, context_size=6, subsample_layers=[0, 2],
        max_position_embeddings=12, hidden_act="gelu",
    )  # fmt: skip
    cases = features(42, 8, mask="attention_mask", last=True)
    cases["padded"]["compared"] = (
        torch.arange(10) < (cases["padded"]["attention_mask"].sum(dim=1) // 4)[:, None]
    )
    made = check(reference(GraniteSpeech5Encoder, config), tmp_path, cases)
    declared = mapper.inspect(made.folder).architecture.inputs
    assert declared["attention_mask"]["shape"] == ["batch", "frames"]


def transcribing(**more: Any) -> Any:
    """The config of what hears words, and who speaks them."""
    from transformers.models.nemotron3_5_transcribe import configuration_nemotron3_5_transcribe as configs

    encoder = {**TOWER, "num_mel_bins": 16, "subsampling_factor": 4, "num_key_value_heads": 4}
    return configs.Nemotron3_5TranscribeAudioConfig(
        asr_config={**encoder, "rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 0.5, "rope_type": "default"}},
        diarization_config={
            "model_type": "nemotron3_diarization",
            "audio_config": {**encoder, "hidden_size": 24, "hidden_act": "relu", "model_type": "nemotron3_diarization_audio"},
            "head_config": {"hidden_size": 20, "num_speakers": 3, "audio_hidden_size": 24, "subsampling_factor": 4},
            "streaming_config": {"num_speakers": 3, "subsampling_factor": 4},
        },
        speaker_activity_threshold=0.45,
        **more,
    )  # fmt: skip


def test_nemotron_transcribe_hears_speakers(tmp_path: Path) -> None:
    from transformers.models.nemotron3_5_transcribe import modeling_nemotron3_5_transcribe as models

    config = transcribing()
    cases = features(40, 16, mask="input_features_mask", last=True)
    real = cases["padded"]["input_features_mask"]
    cases["padded"]["compared"] = real[:, ::4].bool()
    model = reference(models.Nemotron3_5TranscribeAudioModel, config)
    made = check(model, tmp_path, {name: case for name, case in cases.items() if name != "padded"})
    given = {key: value for key, value in cases["padded"].items() if key != "compared"}
    with torch.no_grad():
        wanted, got = made.reference(**given), made.built(**given)
    for name, kept in (
        ("last_hidden_state", real[:, ::4]),
        ("asr_last_hidden_state", real[:, ::4]),
        ("speaker_logits", real),
    ):
        difference = (getattr(got, name) - getattr(wanted, name))[kept.bool()].abs().max()
        assert difference < 1e-5, name
    with pytest.raises(ValueError, match="positions"):
        made.built(input_features=torch.zeros(1, 500 * 4 + 4, 16))


@pytest.mark.parametrize("place", [60, 99])  # a word's id, and one beyond the vocabulary
def test_nemo_speechlm_writes_what_is_said(place: int, tmp_path: Path) -> None:
    """Saved by the names of NeMo, with a part that tells when each word was said, which no forward reads."""
    text = transformers.NemotronHConfig(
        vocab_size=99, hidden_size=40, layers_block_type=["linear_attention", "moe", "full_attention"], num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, ssm_state_size=8, mamba_num_heads=4, mamba_head_dim=16, n_groups=2, chunk_size=8,
        n_routed_experts=4, n_group=1, topk_group=1, moe_intermediate_size=24, moe_shared_expert_intermediate_size=36, pad_token_id=1,
    )  # fmt: skip
    times = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "vocab_size": 9,
        "blank_token_id": 8,
    }
    config = transformers.Nemotron3_5TranscribeConfig(
        audio_config=transcribing().to_dict(), text_config=text.to_dict(), word_timestamp_config=times, audio_token_id=place
    )  # fmt: skip
    words = torch.randint(2, 60, (3, 24), generator=torch.Generator().manual_seed(4))
    alone = {"input_ids": words, "attention_mask": torch.ones_like(words)}
    cases = {"words alone": alone}
    for name, case in features(40, 16, mask="input_features_mask", last=True).items():
        if "input_features_mask" in case:  # the reference asks for it
            heard = case["input_features_mask"][:, ::4].sum(dim=1)
            places = torch.arange(24) < heard[:, None]
            real = torch.arange(24) < torch.tensor([[24], [20], [22]])
            ids = words.masked_fill(places, place).masked_fill(~real, 1)
            cases[name] = {**case, "input_ids": ids, "attention_mask": real.long(), "compared": real}
    check(reference("Nemotron3_5TranscribeForConditionalGeneration", config), tmp_path, cases)


@pytest.mark.parametrize(
    ("name", "head_dim"), [("MoonshineModel", 12), ("MoonshineForConditionalGeneration", 8)]
)
def test_moonshine(name: str, head_dim: int, tmp_path: Path) -> None:
    config = transformers.MoonshineConfig(
        vocab_size=99,
        hidden_size=4 * head_dim,
        intermediate_size=44,
        encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=1,
        encoder_num_attention_heads=2,
        decoder_num_attention_heads=4,
        attention_bias=head_dim == 12,
        encoder_hidden_act="relu" if head_dim == 12 else "gelu",
        pad_head_dim_to_multiple_of=16 if head_dim == 12 else None,
    )
    samples = torch.randn(3, 3000, generator=torch.Generator().manual_seed(4))
    mask = torch.ones(3, 3000, dtype=torch.long)
    mask[1, -1200:] = 0
    ids = answers(99)["right"]["decoder_input_ids"]
    cases = {
        "no mask": {"input_values": samples, "decoder_input_ids": ids},
        "padded": {"input_values": samples * mask, "attention_mask": mask, "decoder_input_ids": ids},
        "one": {"input_values": samples[:1, :2500], "decoder_input_ids": ids[:1]},
    }
    check(reference(name, config), tmp_path, cases)


@pytest.mark.parametrize("name", ["SpeechToText", "TextToSpeech", "SpeechToSpeech"])
@pytest.mark.parametrize("norm", ["group", "layer"])
def test_speecht5(name: str, norm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = transformers.SpeechT5Config(
        vocab_size=99,
        hidden_size=32,
        encoder_layers=2,
        encoder_attention_heads=2,
        encoder_ffn_dim=44,
        encoder_max_relative_position=4,
        decoder_layers=1,
        decoder_attention_heads=4,
        decoder_ffn_dim=40,
        scale_embedding=norm == "layer",
        feat_extract_norm=norm,
        conv_bias=norm == "layer" and name.startswith("Speech"),
        conv_dim=(16, 20, 16),
        conv_kernel=(4, 3, 2),
        conv_stride=(3, 2, 2),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=6,
        num_conv_pos_embedding_groups=4,
        num_mel_bins=10,
        speech_decoder_prenet_units=24,
        speech_decoder_postnet_units=20,
        speech_decoder_postnet_layers=3,
        speech_decoder_prenet_dropout=0.25,
        speaker_embedding_dim=12,
        reduction_factor=2 + (norm == "layer"),
    )

    def chance(x: torch.Tensor, p: float) -> torch.Tensor:
        """As torch.bernoulli, which every step of the decoder calls, but not by chance."""
        return (torch.arange(x.numel()).reshape(x.shape) % 7 > 7 * p).to(x)

    monkeypatch.setattr(torch, "bernoulli", chance)
    draw = torch.Generator().manual_seed(4)
    mask = torch.ones(2, 300 if name.startswith("Speech") else 13, dtype=torch.long)
    if name.startswith("Speech"):
        source = {"input_values": torch.randn(2, 300, generator=draw)}
        mask[1, -120:] = 0
    else:
        source = {"input_ids": torch.randint(3, 99, (2, 13), generator=draw)}
        mask[1, -5:] = 0
    if name.endswith("Text"):
        target = {"decoder_input_ids": torch.randint(3, 99, (2, 7), generator=draw)}
        more = {}
    else:
        target = {"decoder_input_values": torch.randn(2, 6, 10, generator=draw)}
        more = {"speaker_embeddings": torch.randn(2, 12, generator=draw)}
    cases = {
        "plain": {**source, **target},
        "padded": {**source, **target, **more, "attention_mask": mask},
        "one": {key: value[:1] for key, value in {**source, **target, **more}.items()},
    }
    check(reference(f"SpeechT5For{name}", config), tmp_path, cases)
    if not name.endswith("Text"):  # frames are corrected with those around them
        with pytest.raises(MapperError, match="cache"):
            mapper.build(tmp_path, cache=True)
