"""Encoders of sound, alone and before a decoder, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.parity.harness import check, reference, transformers

TOWER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 44,
    "num_mel_bins": 8,
}


def features(
    length: int, bands: int = 8, name: str = "input_features", mask: str = "", last: bool = False
) -> dict[str, dict[str, Tensor]]:
    """A spectrogram of three sounds and one of them alone; with `mask`, also padded. `last`: bands behind frames."""
    values = torch.randn(3, bands, length, generator=torch.Generator().manual_seed(3))
    values = values.transpose(1, 2) if last else values
    cases = {"three": {name: values}, "one": {name: values[:1]}}
    if mask:
        real = torch.ones(3, length, dtype=torch.long)
        real[1, -5:] = 0
        real[2, -2:] = 0
        cases["padded"] = {name: values, mask: real}
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
