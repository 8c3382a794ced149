"""Vision towers that read the patches of several images in one row against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel

from tests.parity.harness import check, reference, transformers

SIZES = {"depth": 2, "hidden_size": 32, "num_heads": 4, "patch_size": 4, "intermediate_size": 44}
GRIDS = {
    "two images": [[1, 4, 4], [1, 6, 4]],
    "one": [[1, 2, 8]],
    "a video and an image": [[3, 4, 6], [1, 2, 2]],
    "larger": [[1, 10, 14], [2, 8, 4]],
}


def packed_inputs(pixels: int, name: str = "hidden_states") -> dict[str, dict[str, Tensor]]:
    """Patches of `pixels` values each for every set of grids."""
    generator = torch.Generator().manual_seed(1)
    cases = {}
    for case, rows in GRIDS.items():
        grid = torch.tensor(rows)
        patches = torch.randn(int(grid.prod(dim=1).sum()), pixels, generator=generator)
        cases[case] = {name: patches, "grid_thw": grid}
    return cases


INPUTS = packed_inputs(3 * 2 * 4 * 4)


def config(name: str, **more: Any) -> Any:
    return getattr(transformers, name)(**{**SIZES, **more})


@pytest.mark.parametrize("name", ["Qwen3VL", "Qwen3VLMoe", "CohereCompass"])
def test_mergers_further_down(name: str, tmp_path: Path) -> None:
    made = config(f"{name}VisionConfig", depth=3, num_position_embeddings=25, deepstack_visual_indexes=[0, 1])
    pair = check(reference(f"{name}VisionModel", made), tmp_path, INPUTS)
    wanted = pair.reference(**INPUTS["larger"]).deepstack_features
    torch.testing.assert_close(
        pair.built(**INPUTS["larger"]).deepstack_features, torch.stack(wanted), rtol=1e-5, atol=1e-5
    )


def test_qwen4_exp_vision(tmp_path: Path) -> None:
    made = config("Qwen4ExpVisionConfig", num_position_embeddings=16, hidden_act="relu", spatial_merge_size=1)
    check(reference("Qwen4ExpVisionModel", made), tmp_path, INPUTS)


@pytest.mark.parametrize("full", [[1], [0, 1], []])
def test_qwen2_5_vl_vision(full: list[int], tmp_path: Path) -> None:
    made = config("Qwen2_5_VLVisionConfig", fullatt_block_indexes=full, window_size=16, out_hidden_size=24)
    check(reference("Qwen2_5_VisionTransformerPretrainedModel", made), tmp_path, INPUTS)


def test_qwen2_vl_vision(tmp_path: Path) -> None:
    made = transformers.Qwen2VLVisionConfig(
        depth=2, embed_dim=32, hidden_size=24, num_heads=4, patch_size=4, mlp_ratio=2
    )
    check(reference(Qwen2VisionTransformerPretrainedModel, made), tmp_path, INPUTS)
