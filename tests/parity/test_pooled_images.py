"""Texts to whose places vectors are added that a small attention pools from a few patches each."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.parity.harness import Inputs, check, reference, transformers
from tests.parity.test_composites import PLACE, TEXT


def pooled_inputs() -> dict[str, Inputs]:
    """Two texts with two images, or a video, of two crops of four patches; padding on either side; a text alone."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 80, (2, 16), generator=generator)
    types = torch.zeros_like(ids)
    types[0, 2:6] = types[1, 3:5] = types[1, 8:10] = 1
    ids[types == 1] = PLACE
    pooling = torch.tensor(
        [
            [0, 1, 2, 3],
            [4, 5, -1, -1],
            [6, 7, 5, 4],
            [-1, -1, -1, -1],
            [8, 9, 10, 11],
            [12, -1, -1, -1],
            [13, 14, 15, 12],
            [1, 15, -1, -1],
            [3, 2, 1, -1],
        ]
    )
    values = {
        "input_ids": ids,
        "mm_token_type_ids": types,
        "pixel_values": torch.randn(4, 4, 3 * 8 * 8, generator=generator),
        "image_token_pooling": pooling,
        "image_grids": torch.tensor([[1, 2, 2, 1], [1, 2, 1, 2]]),
    }
    right = torch.ones_like(ids)
    right[1, -4:] = 0
    moved = {
        name: torch.stack((values[name][0], values[name][1].roll(4)))
        for name in ("input_ids", "mm_token_type_ids")
    }
    video = {key: value for key, value in values.items() if "mage" not in key and key != "pixel_values"}
    video |= {
        "pixel_values_videos": values["pixel_values"],
        "video_token_pooling": pooling,
        "video_grids": torch.tensor([[2, 2, 2]]),
    }
    return {
        "all ones": {**values, "attention_mask": torch.ones_like(ids)},
        "right": {**values, "attention_mask": right},
        "left": {**values, **moved, "attention_mask": right.flip(1)},
        "one axis more": {**values, "pixel_values": values["pixel_values"].unflatten(0, (2, 2))},
        "no kinds": {key: value for key, value in values.items() if key != "mm_token_type_ids"},
        "video": {**video, "attention_mask": right},
        "words": {"input_ids": ids.clamp(max=80), "attention_mask": right},
    }


@pytest.mark.parametrize("biases", [True, False])
def test_molmo2(biases: bool, tmp_path: Path) -> None:
    sizes = {
        "hidden_size": 24,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "attention_bias": biases,
    }
    config = transformers.Molmo2Config(
        text_config={**TEXT, "head_dim": 8, "additional_vocab_size": 7},
        vision_config={**sizes, "num_hidden_layers": 3, "intermediate_size": 40, "image_size": [16, 16], "patch_size": 8},
        adapter_config={**sizes, "intermediate_size": 20, "text_hidden_size": 32, "vision_feature_layer": [2, 0]},
        image_patch_id=PLACE,
    )  # fmt: skip
    check(reference("Molmo2ForConditionalGeneration", config), tmp_path, pooled_inputs())


def test_molmo2_vision(tmp_path: Path) -> None:
    sizes = {"hidden_size": 24, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 12}
    config = transformers.Molmo2VisionConfig(
        **sizes, num_hidden_layers=2, intermediate_size=40, image_size=[16, 16], patch_size=8
    )
    pixels = torch.randn(3, 4, 3 * 8 * 8, generator=torch.Generator().manual_seed(1))
    inputs = {"three": {"pixel_values": pixels}, "one": {"pixel_values": pixels[:1]}}
    check(reference("Molmo2VisionModel", config), tmp_path, inputs)
