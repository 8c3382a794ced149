"""Pages with their tiles, by a tower that reads what another has seen, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import mapper
from tests.parity.harness import check, image_inputs, reference, text_inputs, transformers

MODELS = transformers.models.unlimited_ocr.modeling_unlimited_ocr
IMAGE = 97
TEXT: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 40, "moe_intermediate_size": 12, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 4, "n_routed_experts": 6, "n_shared_experts": 2, "num_experts_per_tok": 2,
    "routed_scaling_factor": 1.5, "mlp_layer_types": ["dense", "sparse", "sparse"], "sliding_window": 4, "pad_token_id": 1,
    "rms_norm_eps": 1e-4,
}  # fmt: skip
SAM: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 64, "patch_size": 8, "mlp_dim": 20,
    "output_channels": 6, "downsample_channels": [10, 24], "window_size": 3, "global_attn_indexes": [1],
}  # fmt: skip
CLIP: dict[str, Any] = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 28, "image_size": 32, "patch_size": 8,
}  # fmt: skip
GROUPS = {"topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2}


def pages(**text: Any) -> Any:
    config = transformers.UnlimitedOcrConfig(
        text_config={**TEXT, **text},
        vision_config={"sam_config": SAM, "encoder_config": CLIP},
        image_token_id=IMAGE,
    )
    return reference("UnlimitedOcrForConditionalGeneration", config)


def with_places(ids: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """The ids behind so many places for images in each row."""
    rows = [torch.cat((torch.full((count,), IMAGE), row)) for row, count in zip(ids, counts, strict=True)]
    return torch.stack([row[: min(map(len, rows))] for row in rows])


@pytest.mark.parametrize("text", [{}, GROUPS, {"layer_types": ["full_attention"] * 3}])
def test_words_beside_whole_pages(text: dict[str, Any], tmp_path: Path) -> None:
    cases: dict[str, dict[str, torch.Tensor]] = text_inputs(97, padding=1)
    pixels = torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(2))
    ids = with_places(
        cases["no mask"]["input_ids"], [7, 7, 7]
    )  # two rows of two places, each with an end; an end
    cases["pages"] = {"input_ids": ids, "pixel_values": pixels}
    check(pages(**text), tmp_path, cases)


def test_the_first_tower_alone(tmp_path: Path) -> None:
    config = transformers.UnlimitedOcrSamVisionConfig(**SAM)
    cases = image_inputs((40, 40), own=(64, 64))
    check(reference(MODELS.UnlimitedOcrSamVisionEncoder, config), tmp_path, cases)


def test_the_second_tower_alone(tmp_path: Path) -> None:
    config = transformers.UnlimitedOcrVisionEncoderConfig(**CLIP)
    maps = torch.randn(2, 24, 4, 4, generator=torch.Generator().manual_seed(2))
    cases = {"own size": {"patch_embeds": maps}, "other": {"patch_embeds": maps[:1, :, :3, :2]}}
    check(reference(MODELS.UnlimitedOcrVisionEncoder, config), tmp_path, cases)


def test_pages_with_their_tiles(tmp_path: Path) -> None:
    ids = text_inputs(97, padding=1)["no mask"]["input_ids"][:2]
    made = check(pages(), tmp_path, {"words": {"input_ids": ids}})
    generator = torch.Generator().manual_seed(2)
    pixels = torch.randn(2, 3, 64, 64, generator=generator)
    tiles = torch.randn(6, 3, 32, 32, generator=generator)
    ids = with_places(ids, [7 + 2 * 4, 7])  # the first has three columns and two rows of one place each
    with torch.no_grad():
        wanted = made.reference(
            ids, pixels, tiles, num_local_patches=[6, 0], patches_grid=[[3, 2], [1, 1]]
        ).logits
        counts = {"num_local_patches": torch.tensor([6, 0]), "patches_grid": torch.tensor([[3, 2], [1, 1]])}
        got = made.built(input_ids=ids, pixel_values=pixels, pixel_values_local=tiles, **counts).logits
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(mapper.MapperError, match="no cache"):
        mapper.build(made.folder, cache=True)  # which would have to know where the prompt ends
