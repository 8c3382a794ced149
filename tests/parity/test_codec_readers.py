"""Models that read sounds as a codec makes them, alone and beside texts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.parity.harness import Pair, check, reference, text_inputs, transformers

CODEC = {
    "model_type": "dac", "encoder_hidden_size": 4, "downsampling_ratios": [2, 3], "hidden_size": 12, "codebook_dim": 5,
    "hop_length": 6, "n_codebooks": 2, "codebook_size": 8, "decoder_hidden_size": 8, "upsampling_ratios": [3, 2],
}  # fmt: skip
SOUND = {
    "dac_config": CODEC, "hidden_size": 24, "intermediate_size": 28, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 64,
}  # fmt: skip
TEXT = {
    "model_type": "modernbert", "vocab_size": 99, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3,
    "num_attention_heads": 4, "pad_token_id": 0, "max_position_embeddings": 64, "cls_token_id": 1, "sep_token_id": 2,
}  # fmt: skip


def sounds(mask: bool = True) -> dict[str, Tensor]:
    values = torch.randn(3, 1, 60, generator=torch.Generator().manual_seed(3))
    real = (torch.arange(60) < torch.tensor([60, 41, 24])[:, None]).long()
    return {"input_values": values, **({"padding_mask": real} if mask else {})}


def check_frames(made: Pair, case: dict[str, Tensor], names: tuple[str, ...], frames: Tensor) -> None:
    """The outputs at real frames: what stands at the others is nobody's."""
    with torch.no_grad():
        wanted, got = made.reference(**case), made.built(**case)
    for name in names:
        difference = getattr(got, name) - getattr(wanted, name)
        kept = difference[frames] if difference.shape[:2] == frames.shape else difference
        assert kept.abs().max() < 1e-5, name


def test_pe_audio_encoder(tmp_path: Path) -> None:
    config = transformers.PeAudioEncoderConfig(**SOUND, attention_bias=True)
    made = check(reference("PeAudioEncoder", config), tmp_path, {"three": sounds(mask=False)})
    real = sounds()["padding_mask"][:, ::6].bool()
    check_frames(made, sounds(), ("last_hidden_state", "pooler_output"), real)


@pytest.mark.parametrize("name", ["PeAudioModel", "PeAudioFrameLevelModel"])
def test_pe_audio(name: str, tmp_path: Path) -> None:
    config = transformers.PeAudioConfig(
        text_config=TEXT, audio_config={**SOUND, "model_type": "pe_audio_encoder"}
    )
    words = text_inputs(vocab_size=99, positions=False)["right"]
    made = check(reference(name, config), tmp_path, {"three": {**words, **sounds(mask=False)}})
    if name == "PeAudioModel":
        everything = torch.ones(3, 1, dtype=torch.bool)
        outputs = ("logits_audio_text", "text_audio_embeds", "audio_embeds")
        check_frames(made, {**words, **sounds()}, outputs, everything)
