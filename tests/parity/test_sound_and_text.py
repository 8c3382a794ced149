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


PLACE = 90  # the id that keeps a place for a vector of a sound
TEXT = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 1, "model_type": "qwen2",
}  # fmt: skip
SOUND = {
    "num_mel_bins": 8, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 96,
    "max_source_positions": 16,
}  # fmt: skip
WHISPER = {
    "num_mel_bins": 8, "d_model": 24, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 40,
    "max_source_positions": 16,
}  # fmt: skip
GLM_SOUND = {
    **{key: value for key, value in SOUND.items() if key[:3] != "max"},
    "model_type": "glmasr_encoder",
}
HEARERS: list[tuple[str, dict[str, Any], dict[str, Any], str, int]] = [
    ("Qwen2Audio", {"audio_token_index": PLACE}, {**WHISPER, "model_type": "qwen2_audio_encoder"}, "feature_attention_mask", 4),
    ("Voxtral", {"projector_hidden_act": "relu"}, {**SOUND, "model_type": "voxtral_encoder"}, "", 8),
    ("AudioFlamingo3", {"projector_bias": False}, {**SOUND, "model_type": "audioflamingo3_encoder"}, "input_features_mask", 4),
    ("MusicFlamingo", {"audio_frame_step": 0.05}, {**SOUND, "model_type": "audioflamingo3_encoder"}, "input_features_mask", 4),
    ("GlmAsr", {}, GLM_SOUND, "input_features_mask", 8),
    ("GlmAsr", {"tie_word_embeddings": False}, GLM_SOUND, "input_features_mask", 8),
]  # fmt: skip


def heard(mask: str, joined: int, bands: int = 8) -> dict[str, Inputs]:
    """Texts with sounds, the first of which is read in two rows, padded on either side, and texts alone."""
    generator = torch.Generator().manual_seed(1)
    frames = torch.randn(3, bands, 32, generator=generator)
    lengths = torch.tensor([32, 21, 17]) if mask else torch.full((3,), 32)
    counts = ((lengths - 1) // 2 + 1) // (joined // 2)
    ids = torch.randint(3, PLACE, (2, 30), generator=generator)
    ids[0, 5 : 5 + int(counts[:2].sum())] = PLACE
    ids[1, 6 : 6 + int(counts[2])] = PLACE
    real = torch.ones_like(ids)
    real[1, -7:] = 0
    sounds = {"input_features": frames}
    if mask:
        sounds[mask] = (torch.arange(32) < lengths[:, None]).long()
    left = {"input_ids": ids.roll(7, 1), "attention_mask": real.flip(1)}
    left["input_ids"][0] = ids[0]
    words = torch.randint(3, PLACE, (2, 7), generator=generator)
    return {
        "right": {"input_ids": ids, "attention_mask": real, **sounds},
        "left": {**left, **sounds},
        "one": {"input_ids": ids[1:], "attention_mask": real[:1], **{key: value[2:] for key, value in sounds.items()}},
        "no sound": {"input_ids": words, "attention_mask": torch.ones_like(words)},
    }  # fmt: skip


@pytest.mark.parametrize(("name", "more", "audio", "mask", "joined"), HEARERS)
def test_sounds_among_words(
    name: str, more: dict[str, Any], audio: dict[str, Any], mask: str, joined: int, tmp_path: Path
) -> None:
    text = {**TEXT, "model_type": "llama" if name in ("Voxtral", "GlmAsr") else "qwen2"}
    config = getattr(transformers, f"{name}Config")
    config = config(
        text_config=text,
        audio_config=audio,
        **{"audio_token_id": PLACE, **more} if name != "Qwen2Audio" else more,
    )
    check(reference(f"{name}ForConditionalGeneration", config), tmp_path, heard(mask, joined))


@pytest.mark.parametrize("stretch", [100, 200])
def test_qwen3_asr_reads_sounds_in_pieces(stretch: int, tmp_path: Path) -> None:
    audio = {
        **{key: value for key, value in WHISPER.items() if key[:3] != "max"}, "model_type": "qwen3_asr_encoder", "downsample_hidden_size": 6, "max_position_embeddings": 13,
        "output_dim": 32, "n_window_infer": stretch, "num_mel_bins": 9, "activation_function": "relu",
    }  # fmt: skip
    config = transformers.Qwen3ASRConfig(
        text_config={**TEXT, "model_type": "qwen3", "head_dim": 8}, audio_config=audio, audio_token_id=PLACE
    )
    generator = torch.Generator().manual_seed(1)
    lengths = torch.tensor([300, 140])
    counts = (39, 18)
    ids = torch.randint(3, PLACE, (2, 50), generator=generator)
    for row, count in enumerate(counts):
        ids[row, 5 : 5 + count] = PLACE
    real = torch.ones_like(ids)
    real[1, -7:] = 0
    sounds = {
        "input_features": torch.randn(2, 9, 300, generator=generator),
        "input_features_mask": (torch.arange(300) < lengths[:, None]).long(),
    }
    cases = {
        "right": {"input_ids": ids, "attention_mask": real, **sounds},
        "one": {"input_ids": ids[1:], **{key: value[1:] for key, value in sounds.items()}},
        "no sound": {"input_ids": ids[:, :5]},
    }
    check(reference("Qwen3ASRForConditionalGeneration", config), tmp_path, cases)


def test_higgs_audio_hears_codes(tmp_path: Path) -> None:
    config = transformers.HiggsAudioV2Config(
        **{**TEXT, "model_type": "higgs_audio_v2"}, head_dim=8, num_codebooks=3, codebook_size=10,
        audio_token_id=PLACE, audio_delay_token_id=PLACE + 1, attention_bias=True,
    )  # fmt: skip
    cases: dict[str, Inputs] = {}
    for name, case in text_inputs(vocab_size=PLACE).items():
        ids = case["input_ids"].clone()
        ids[:, 2], ids[:, 4] = PLACE, PLACE + 1
        codes = torch.arange(len(ids) * 3 * 3).view(-1, 3, 3) % 10
        real = torch.tensor([True, False, True]).expand(len(ids), -1)
        cases[name] = {**case, "input_ids": ids, "audio_input_ids": codes, "audio_input_ids_mask": real}
    cases["words alone"] = text_inputs(vocab_size=PLACE)["right"]
    check(reference("HiggsAudioV2ForConditionalGeneration", config), tmp_path, cases)


@pytest.mark.parametrize("name", ["GraniteSpeech", "GraniteSpeechPlus"])
@pytest.mark.parametrize("tied", [False, True])
def test_granite_speech_asks_about_stretches(name: str, tied: bool, tmp_path: Path) -> None:
    encoder = {
        "input_dim": 10, "hidden_dim": 24, "num_layers": 3, "num_heads": 2, "dim_head": 8, "context_size": 9,
        "max_pos_emb": 12, "output_dim": 7, "conv_kernel_size": 5, "feedforward_mult": 2,
    }  # fmt: skip
    queries = {
        "model_type": "blip_2_qformer", "hidden_size": 20, "num_hidden_layers": 3, "num_attention_heads": 2,
        "intermediate_size": 28, "encoder_hidden_size": 24,
    }  # fmt: skip
    config = getattr(transformers, f"{name}Config")(
        text_config={**TEXT, "model_type": "granite", "embedding_multiplier": 3.0, "logits_scaling": 2.0, "attention_multiplier": 0.3},
        encoder_config=encoder, projector_config=queries, window_size=6, downsample_rate=3, audio_token_index=PLACE,
        tie_word_embeddings=tied,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, PLACE, (2, 14), generator=generator)
    ids[0, 2:8], ids[1, 3:7] = (
        PLACE,
        PLACE,
    )  # 16 frames are three stretches of two queries; of the second two are heard
    real = torch.ones_like(ids)
    real[1, -3:] = 0
    sounds = {
        "input_features": torch.randn(2, 16, 10, generator=generator),
        "input_features_mask": torch.tensor([[True] * 6, [True] * 4 + [False] * 2]),
    }
    cases = {
        "right": {"input_ids": ids, "attention_mask": real, **sounds},
        "one": {"input_ids": ids[:1], "input_features": sounds["input_features"][:1]},
        "no sound": {"input_ids": ids, "attention_mask": real},
    }
    check(reference(f"{name}ForConditionalGeneration", config), tmp_path, cases)


def test_phonon_tts_says_when_a_speech_ends(tmp_path: Path) -> None:
    from transformers.models.gradium_phonon_tts import GradiumPhononTTSConfig

    config = GradiumPhononTTSConfig(
        **{key: value for key, value in TEXT.items() if key not in ("model_type", "num_key_value_heads")},
        latent_dim=5, audio_prompt_dim=6, num_speakers=2, num_speakers_vocab_size=4, num_speakers_embedding_dim=3,
        duration_delta=0.2, duration_delta_embedding_dim=8, layer_norm_eps=1e-4, hidden_act="gelu",
        flow_head_config={"latent_dim": 5, "condition_dim": 32, "hidden_size": 16, "frequency_embedding_size": 8},
    )  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(7, 99, (2, 14), generator=generator)
    ids[:, 1:4], ids[:, 6], ids[:, 7:10] = 5, 4, 6  # a voice, the beginning, what has been said
    ids[1, 3] = 9
    real = torch.ones_like(ids)
    real[1, -3:] = 0
    voice = {
        "audio_prompt_latents": torch.randn(2, 3, 6, generator=generator),
        "audio_prompt_latents_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
    }
    said = torch.randn(2, 3, 5, generator=generator)
    cases = {
        "all": {"input_ids": ids, "attention_mask": real, "audio_latents": said, **voice},
        "left": {"input_ids": ids, "attention_mask": real.flip(1), "audio_latents": said, **voice},
        "own places": {"input_ids": ids, "audio_latents": torch.randn(2, 14, 5, generator=generator)},
        "words": {"input_ids": ids[:1, 10:]},
    }
    check(reference("GradiumPhononTTSForConditionalGeneration", config), tmp_path, cases)
