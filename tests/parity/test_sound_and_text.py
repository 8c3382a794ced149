"""Models that read sounds and texts: each tower as its own family reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.parity.harness import Inputs, check, reference, text_inputs, transformers

CLAP_TEXT = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 40,
}  # fmt: skip
CLAP_AUDIO = {
    "window_size": 2, "num_mel_bins": 8, "spec_size": 32, "hidden_size": 32, "depths": [2, 1], "num_hidden_layers": 2,
    "num_attention_heads": [2, 4], "patch_embeds_hidden_size": 16,
}  # fmt: skip


def clap(**more: Any) -> Any:
    return transformers.ClapConfig(
        text_config={**CLAP_TEXT, "model_type": "clap_text_model"},
        audio_config={**CLAP_AUDIO, "model_type": "clap_audio_model", **more},
        projection_dim=24,
    )


def spectrograms(parts: int, frames: int, longer: list[bool]) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(2)
    return {
        "input_features": torch.randn(len(longer), parts, frames, 8, generator=generator),
        "is_longer": torch.tensor(longer)[:, None],
    }


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        ({}, 1),
        (
            {
                "patch_stride": [2, 2],
                "qkv_bias": False,
                "enable_patch_layer_norm": False,
                "hidden_act": "relu",
            },
            1,
        ),
        ({"enable_fusion": True, "fusion_type": "aff_2d"}, 4),
    ],
)
def test_clap(more: dict[str, Any], parts: int, tmp_path: Path) -> None:
    model = reference("ClapModel", clap(**more))
    cases: dict[str, Inputs] = {
        name: {**text, **spectrograms(parts, frames, [True, False, True][: len(text["input_ids"])])}
        for (name, text), frames in zip(
            text_inputs(vocab_size=99, padding=1, positions=False).items(),
            (128, 100, 128, 128, 128, 128),
            strict=True,
        )
    }
    check(model, tmp_path, {name: cases[name] for name in ("right", "left", "all ones", "one")})


def test_clap_audio_alone(tmp_path: Path) -> None:
    config = transformers.ClapAudioConfig(**CLAP_AUDIO, enable_fusion=True)
    cases = {"both": spectrograms(4, 128, [True, False]), "short": spectrograms(4, 90, [False])}
    check(reference("ClapAudioModel", config), tmp_path, cases)


def test_clap_text_alone(tmp_path: Path) -> None:
    check(
        reference("ClapTextModel", transformers.ClapTextConfig(**CLAP_TEXT)),
        tmp_path,
        text_inputs(vocab_size=99, padding=1),
    )
