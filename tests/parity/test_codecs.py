"""Codecs of sound and what makes sound of features, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mapper
from tests.parity.harness import check, quiet, reference, text_inputs, transformers

MIMI = {
    "hidden_size": 32,
    "num_filters": 2,
    "upsampling_ratios": [4, 3],
    "codebook_size": 16,
    "codebook_dim": 12,
    "vector_quantization_hidden_dimension": 12,
    "num_quantizers": 5,
    "num_semantic_quantizers": 2,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 44,
    "upsample_groups": 32,
    "sliding_window": 5,
}


def sound(samples: int = 581) -> torch.Tensor:
    return torch.randn(3, 1, samples, generator=torch.Generator().manual_seed(1))


def books(model: nn.Module) -> nn.Module:
    """The model with other codes in every book: the buffers of a new one are zeros."""
    generator = torch.Generator().manual_seed(2)
    for name, buffer in model.named_buffers():
        if name.endswith("embed_sum"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator) * 4)
        elif name.endswith("cluster_usage"):
            buffer.copy_(torch.rand(buffer.shape, generator=generator) * 3 + 0.5)
    return model


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"vector_quantization_hidden_dimension": 32, "codebook_dim": 32, "upsample_groups": 8},
        {"use_causal_conv": False},
    ],
)
def test_a_codec_of_words_and_sound(more: dict[str, Any], tmp_path: Path) -> None:
    model = books(reference("MimiModel", transformers.MimiConfig(**{**MIMI, **more})))
    values = sound()
    made = check(model, tmp_path, {"three": {"input_values": values}, "one": {"input_values": values[:1]}})
    with torch.no_grad(), quiet():
        wanted = model.encode(values).audio_codes
    codes = made.built(input_values=values).audio_codes
    assert torch.equal(codes, wanted)
    assert codes.shape[1] == 5 and len(codes.unique()) > 3


@pytest.mark.parametrize("is_causal", [True, False])
def test_the_halves_of_a_codec(is_causal: bool, tmp_path: Path) -> None:
    values = sound()
    said = {**MIMI, "use_causal_conv": is_causal}
    encoder = reference("MimiEncoderModel", transformers.MimiEncoderConfig(**said))
    cases = {"three": {"input_values": values}, "one": {"input_values": values[:1, :, :96]}}
    check(encoder, tmp_path / "encoder", cases)
    states = torch.randn(3, 32, 7, generator=torch.Generator().manual_seed(1))
    decoder = reference("MimiDecoderModel", transformers.MimiDecoderConfig(**said))
    check(decoder, tmp_path / "decoder", {"three": {"latents": states}, "one": {"latents": states[:1]}})


def test_a_codec_of_plain_convolutions(tmp_path: Path) -> None:
    config = transformers.DacConfig(
        encoder_hidden_size=4,
        decoder_hidden_size=32,
        downsampling_ratios=[2, 3],
        upsampling_ratios=[3, 2],
        hidden_size=24,
        n_codebooks=3,
        codebook_size=16,
        codebook_dim=6,
    )
    values = sound(480)
    model = reference("DacModel", config)
    made = check(model, tmp_path, {"three": {"input_values": values}, "one": {"input_values": values[:1]}})
    with torch.no_grad(), quiet():
        wanted = model(values).audio_codes
    assert torch.equal(made.built(input_values=values).audio_codes, wanted)


def test_a_waveform_of_noise_and_a_spectrogram(tmp_path: Path) -> None:
    config = transformers.UnivNetConfig(
        model_in_channels=6,
        model_hidden_channels=4,
        num_mel_bins=10,
        resblock_kernel_sizes=[3, 5],
        resblock_stride_sizes=[4, 3],
        resblock_dilation_sizes=[[1, 3], [1, 2, 4]],
        kernel_predictor_num_blocks=2,
        kernel_predictor_hidden_channels=6,
        leaky_relu_slope=0.3,
    )
    draw = torch.Generator().manual_seed(1)
    inputs = {
        "input_features": torch.randn(2, 9, 10, generator=draw),
        "noise_sequence": torch.randn(2, 9, 6, generator=draw),
    }
    one = {name: value[:1] for name, value in inputs.items()}
    check(reference("UnivNetModel", config), tmp_path, {"two": inputs, "one": one})


@pytest.mark.parametrize(
    ("shortcut", "padding", "causal", "norm"),
    [
        (False, "constant", True, "weight_norm"),
        (True, "reflect", True, "weight_norm"),
        (True, "constant", False, "weight_norm"),
        (False, "reflect", False, "time_group_norm"),
    ],
)
def test_a_codec_of_recurrent_networks(
    shortcut: bool, padding: str, causal: bool, norm: str, tmp_path: Path
) -> None:
    config = transformers.EncodecConfig(
        hidden_size=16,
        codebook_dim=16,
        codebook_size=32,
        num_filters=4,
        upsampling_ratios=[4, 2] if causal else [4, 3],
        sampling_rate=4000,
        target_bandwidths=[5.1, 10.0],
        num_lstm_layers=1 + shortcut,
        use_conv_shortcut=shortcut,
        pad_mode=padding,
        use_causal_conv=causal,
        norm_type=norm,
        residual_kernel_size=5,
    )
    model = reference("EncodecModel", config)
    generator = torch.Generator().manual_seed(2)
    for name, buffer in model.named_buffers():
        if name.endswith("embed"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.1)
    values = sound() * 5
    mask = torch.ones_like(values, dtype=torch.long)
    mask[1, :, 400:] = 0
    made = check(
        model,
        tmp_path,
        {
            "three": {"input_values": values},
            "padded": {"input_values": values, "padding_mask": mask},
            "short": {"input_values": values[:1, :, :3]},
        },
    )
    with torch.no_grad(), quiet():
        wanted = model.encode(values).audio_codes
    codes = made.built(input_values=values).audio_codes
    assert torch.equal(codes, wanted)
    assert codes.shape[2] == (2 if causal else 3) and len(codes.unique()) > 3


SPEECH = {
    "vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 20, "flow_size": 12,
    "window_size": 2, "spectrogram_bins": 9, "use_stochastic_duration_prediction": False, "upsample_initial_channel": 8,
    "duration_predictor_filter_channels": 8, "prior_encoder_num_flows": 2, "prior_encoder_num_wavenet_layers": 2,
    "posterior_encoder_num_wavenet_layers": 2, "wavenet_kernel_size": 3, "num_speakers": 1,
}  # fmt: skip
PLAIN = {
    "upsample_rates": [4, 2], "upsample_kernel_sizes": [8, 4], "resblock_kernel_sizes": [3, 5],
    "resblock_dilation_sizes": [[1, 3], [2, 1]], "noise_scale": 0.0, "speaking_rate": 0.7,
}  # fmt: skip
NOISY = {
    "upsample_rates": [3], "upsample_kernel_sizes": [5], "resblock_kernel_sizes": [3], "use_bias": False,
    "resblock_dilation_sizes": [[1, 2, 4]], "noise_scale": 0.5, "ffn_kernel_size": 4, "hidden_act": "gelu",
    "use_stochastic_duration_prediction": True, "noise_scale_duration": 0.6, "duration_predictor_tail_bound": 0.7,
    "duration_predictor_num_flows": 3, "duration_predictor_flow_bins": 4, "depth_separable_num_layers": 2,
}  # fmt: skip


@pytest.mark.parametrize("rate", [1, 2])
def test_speech_from_text_at_once(rate: int, tmp_path: Path) -> None:
    config = transformers.VitsConfig(**SPEECH, **PLAIN, wavenet_dilation_rate=rate)
    model = reference("VitsModel", config)
    check(model, tmp_path, text_inputs(vocab_size=20, positions=False))


def test_speech_from_the_same_noise(tmp_path: Path) -> None:
    model = reference("VitsModel", transformers.VitsConfig(**{**SPEECH, **NOISY}))
    model.save_pretrained(tmp_path)
    built = mapper.build(tmp_path)
    text = text_inputs(vocab_size=20, positions=False)["right"]
    with torch.no_grad():
        sounds = []
        for made in (model, built, built):
            torch.manual_seed(len(sounds) // 2)
            sounds.append(made(**text).waveform)
    torch.testing.assert_close(sounds[1], sounds[0], rtol=1e-5, atol=1e-5)
    assert sounds[2].shape != sounds[0].shape  # other noise, and with it other durations
