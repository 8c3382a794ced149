"""Words with the patches of an image behind them in one sequence, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import mapper
from tests.parity.harness import COMPARED, check, reference, text_inputs, transformers

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}


def with_image(
    cases: dict[str, dict[str, Tensor]], height: int, width: int, patches: int
) -> dict[str, dict[str, Tensor]]:
    """Each case with an image; what a mask hides of the words, and no patch, is not compared."""
    pixels = torch.randn(3, 3, height, width, generator=torch.Generator().manual_seed(4))
    for case in cases.values():
        rows = case["input_ids"].shape[0]
        case["pixel_values"] = pixels[:rows]
        seen = case.get("attention_mask", torch.ones_like(case["input_ids"]))
        if patches:
            case[COMPARED] = torch.cat((seen, torch.ones(rows, patches, dtype=seen.dtype)), dim=1)
    return cases


@pytest.mark.parametrize(
    ("head", "labels"),
    [
        ("Model", 3),
        ("ForTokenClassification", 3),
        ("ForTokenClassification", 12),
        ("ForSequenceClassification", 3),
        ("ForQuestionAnswering", 2),
    ],
)
def test_layoutlmv3(head: str, labels: int, tmp_path: Path) -> None:
    config = transformers.LayoutLMv3Config(
        **SIZES,
        pad_token_id=1,
        max_2d_position_embeddings=60,
        coordinate_size=6,
        shape_size=4,
        input_size=24,
        patch_size=8,
        rel_pos_bins=16,
        max_rel_pos=12,
        rel_2d_pos_bins=32,
        max_rel_2d_pos=40,
        num_labels=labels,
    )
    cases = with_image(
        text_inputs(99, segments=2, padding=1, positions=False), 24, 24, 10 if head == "Model" else 0
    )
    for name, case in cases.items():
        ids = case["input_ids"]
        corners = torch.stack((ids % 17, ids % 13), -1)
        if name != "odd":
            case["bbox"] = torch.cat((corners, corners + torch.stack((ids % 7, ids % 5), -1)), -1)
    check(reference(f"LayoutLMv3{head}", config), tmp_path, cases)


def vilt(name: str, tmp_path: Path, **options: Any) -> Any:
    config = transformers.ViltConfig(**SIZES, image_size=24, patch_size=8, num_labels=3, **options)
    cases = {}
    for height, width in ((24, 24), (16, 32)):
        texts = text_inputs(99, segments=2, positions=False)
        sized = with_image(texts, height, width, 0)
        cases |= {f"{case}, {height} x {width}": values for case, values in sized.items()}
    return reference(name, config), cases


@pytest.mark.parametrize("bias", [True, False])
def test_vilt_says_words(bias: bool, tmp_path: Path) -> None:
    model, cases = vilt("ViltForMaskedLM", tmp_path, qkv_bias=bias)
    check(model, tmp_path, cases)


def test_vilt_answers(tmp_path: Path) -> None:
    model, cases = vilt("ViltForQuestionAnswering", tmp_path)
    check(model, tmp_path, cases)


def test_vilt_alone_draws_the_order_of_patches_as_the_reference_does(tmp_path: Path) -> None:
    model, cases = vilt("ViltModel", tmp_path)
    model.save_pretrained(tmp_path)
    assert mapper.inspect(tmp_path).architecture.reading == "exact"
    built = mapper.build(tmp_path)
    in_rows = mapper.build(tmp_path, hints={"image.order": "rows"})
    for case in cases.values():
        with torch.no_grad():
            wanted, got, ordered = (seeded(one, case) for one in (model, built, in_rows))
        torch.testing.assert_close(got.last_hidden_state, wanted.last_hidden_state, rtol=1e-5, atol=1e-5)
        for other in (got, ordered):
            torch.testing.assert_close(other.pooler_output, wanted.pooler_output, rtol=1e-5, atol=1e-5)
        words = case["input_ids"].shape[1] + 1  # and the class token
        assert not torch.allclose(ordered.last_hidden_state[:, words:], got.last_hidden_state[:, words:])


def seeded(model: Any, case: dict[str, Any]) -> Any:
    torch.manual_seed(3)
    return model(**case)
