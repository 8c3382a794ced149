"""A decoder whose distances bias the scores by profiles, with short convolutions and experts that all share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.parity.harness import check, reference, text_inputs, transformers

SIZES: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "swa_num_attention_heads": 2, "swa_num_key_value_heads": 1, "swa_head_dim": 16, "intermediate_size": 40, "rel_extent": 6, "d_rel": 4,
    "moe_intermediate_size": 20, "n_routed_experts": 4, "num_experts_per_tok": 2, "sliding_window_size": 5, "pad_token_id": 1,
    "mlp_layer_types": ["dense", "sparse", "sparse"], "logits_mup_width_multiplier": 3.0, "route_scale": 2.0,
}  # fmt: skip
NEAR, FULL = "hybrid_sliding", "hybrid"


@pytest.mark.parametrize("kinds", [[NEAR, FULL, NEAR], [FULL] * 3])
def test_inkling_text(kinds: list[str], tmp_path: Path) -> None:
    config = transformers.InklingTextConfig(**SIZES, layer_types=kinds)
    check(reference("InklingForCausalLM", config), tmp_path, text_inputs(99, padding=1, positions=False))


def test_experts_that_all_share_alone(tmp_path: Path) -> None:
    made = {**SIZES, "mlp_layer_types": ["sparse"] * 3, "n_shared_experts": 1, "num_experts_per_tok": 3}
    config = transformers.InklingTextConfig(**made, layer_types=[NEAR, NEAR, FULL])
    check(reference("InklingForCausalLM", config), tmp_path, text_inputs(99, padding=1, positions=False))


SEEN = {
    "vision_config": {"patch_size": 12, "temporal_patch_size": 2, "n_layers": 3, "num_channels": 3},
    "audio_config": {"n_mel_bins": 5, "mel_vocab_size": 7},
    "image_token_id": 97,
    "audio_token_id": 98,
}


@pytest.mark.parametrize("folds", [3, 1, 4])
def test_inkling_with_images_and_sounds(folds: int, tmp_path: Path) -> None:
    text = {**SIZES, "layer_types": [NEAR, FULL, NEAR], "rms_norm_eps": 1e-4}
    vision = {**SEEN["vision_config"], "n_layers": folds}
    config = transformers.InklingConfig(text_config=text, **{**SEEN, "vision_config": vision})
    check(reference("InklingForConditionalGeneration", config), tmp_path, seen_and_heard())


def seen_and_heard() -> dict[str, dict[str, torch.Tensor]]:
    """Words, padded on either side, with two patches of images and four frames of two sounds, or without."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(2, 2, 12, 12, 3, generator=generator)
    bins = torch.randint(0, 7, (2, 3, 5), generator=generator)
    real = torch.tensor([[True, True, True], [True, False, False]])
    cases: dict[str, dict[str, torch.Tensor]] = text_inputs(97, padding=1, positions=False)
    for name in ("no mask", "right", "left", "odd"):
        ids = cases[name]["input_ids"].clone()
        places = (ids != 1).nonzero()[:6]
        ids[places[:, 0], places[:, 1]] = torch.tensor([97, 98, 98, 98, 97, 98])
        seen = {"pixel_values": images, "audio_input_ids": bins, "audio_input_ids_mask": real}
        cases[name] = {**cases[name], "input_ids": ids, **seen}
    return cases
