"""Texts in which sounds, images and videos stand, and the towers that read them alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tests.parity.harness import Inputs, check, reference, text_inputs, transformers
from tests.parity.test_composites import PLACE, TEXT, packed_inputs
from tests.parity.test_packed_vision import packed_inputs as patches

ROPE = {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [2, 1, 1]}
SOUND: dict[str, Any] = {
    "d_model": 24, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 40, "num_mel_bins": 12, "n_window": 4,
    "max_source_positions": 20,
}  # fmt: skip
VISION: dict[str, Any] = {
    "depth": 2, "hidden_size": 24, "num_heads": 2, "patch_size": 8, "intermediate_size": 40, "out_hidden_size": 32,
    "window_size": 32, "fullatt_block_indexes": [1],
}  # fmt: skip
VISION_START, SOUND_START = 85, 86


def inputs_of_all() -> dict[str, Inputs]:
    """Texts with images, videos and sounds, each behind its mark; padding on either side; no mask at all."""
    cases: dict[str, Inputs] = {}
    for name, values in packed_inputs(video=True).items():
        values = {key: value for key, value in values.items() if key != "mm_token_type_ids"}
        if "second_per_grid_ts" in values:
            values["video_second_per_grid"] = values.pop("second_per_grid_ts")
        if "video_grid_thw" in values and "attention_mask" in values:
            values["video_second_per_grid"] = torch.tensor([0.5, 1.0, 2.0])
        ids = values["input_ids"]
        seen = (ids >= PLACE).int()
        starts = torch.nn.functional.pad(seen.diff(dim=1) == 1, (0, 1))
        cases[name] = {**values, "input_ids": torch.where(starts, VISION_START, ids)}
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(3, 80, (2, 18), generator=generator)
    ids[0, 1], ids[0, 2:7], ids[1, 4], ids[1, 5:7] = SOUND_START, PLACE + 2, SOUND_START, PLACE + 2
    frames = (torch.arange(24) < torch.tensor([[21], [9]])).long()
    sounds = {
        "input_features": torch.randn(2, 12, 24, generator=generator), "feature_attention_mask": frames, "input_ids": ids,
    }  # fmt: skip
    right = torch.ones_like(ids)
    right[1, -4:] = 0
    cases["sounds"] = {**sounds, "attention_mask": right}
    images = cases["all ones"]
    both = ids.clone()
    both[0, 8:13] = images["input_ids"][0, 1:6]
    grid, pixels = images["image_grid_thw"][:1], images["pixel_values"][:16]
    cases["sounds and an image"] = {
        **sounds, "input_ids": both, "image_grid_thw": grid, "pixel_values": pixels, "attention_mask": right,
    }  # fmt: skip
    cases["no mask"] = {key: value for key, value in images.items() if key != "attention_mask"}
    return cases


def test_qwen2_5_omni_thinker(tmp_path: Path) -> None:
    config = transformers.Qwen2_5OmniThinkerConfig(
        text_config={**TEXT, "rope_parameters": ROPE},
        vision_config=VISION,
        audio_config={**SOUND, "output_dim": 32},
        image_token_index=PLACE,
        video_token_index=PLACE + 1,
        audio_token_index=PLACE + 2,
        vision_start_token_id=VISION_START,
        audio_start_token_id=SOUND_START,
    )
    check(reference("Qwen2_5OmniThinkerForConditionalGeneration", config), tmp_path, inputs_of_all())


def test_its_text_alone(tmp_path: Path) -> None:
    config = transformers.Qwen2_5OmniTextConfig(**TEXT, rope_parameters=ROPE)
    check(reference("Qwen2_5OmniThinkerTextModel", config), tmp_path, text_inputs(99, padding=1))


def test_its_images_alone(tmp_path: Path) -> None:
    from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniVisionEncoder

    config = transformers.models.qwen2_5_omni.Qwen2_5OmniVisionEncoderConfig(**{**VISION, "patch_size": 4})
    check(reference(Qwen2_5OmniVisionEncoder, config), tmp_path, patches(3 * 2 * 4 * 4))


def test_its_sounds_alone(tmp_path: Path) -> None:
    from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniAudioEncoder

    config = transformers.models.qwen2_5_omni.Qwen2_5OmniAudioEncoderConfig(**SOUND, output_dim=32)
    generator = torch.Generator().manual_seed(1)
    inputs = {
        str(lengths): {
            "input_features": torch.randn(12, sum(lengths), generator=generator),
            "feature_lens": torch.tensor(lengths),
        }
        for lengths in ([16], [21, 9, 8], [3, 40])
    }
    check(reference(Qwen2_5OmniAudioEncoder, config), tmp_path, inputs)
