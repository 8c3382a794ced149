"""Encoders of image patches beside ViT itself, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.parity.harness import check, image_inputs, reference, transformers

PATCHES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 44, "image_size": 32, "patch_size": 8,
}  # fmt: skip
RESIZE = "interpolate_pos_encoding"
OTHER_SIZES = ((40, 64), (27, 35))


@pytest.mark.parametrize("name", ["Beit", "Data2VecVision"])
@pytest.mark.parametrize("head", ["Model", "ForImageClassification"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_relative_position_bias": True},
        {"use_absolute_position_embeddings": True, "use_mean_pooling": False, "use_mask_token": True},
    ],
)
def test_beit(name: str, head: str, options: dict[str, Any], tmp_path: Path) -> None:
    config = getattr(transformers, f"{name}Config")(**PATCHES, **options, num_labels=5)
    check(reference(f"{name}{head}", config), tmp_path, image_inputs(*OTHER_SIZES))


def test_qianfan_ocr_vision(tmp_path: Path) -> None:
    sizes = {"image_size": [32, 32], "patch_size": [8, 8]}
    config = transformers.QianfanOCRVisionConfig(**{**PATCHES, **sizes}, use_mask_token=True)
    check(reference("QianfanOCRVisionModel", config), tmp_path, image_inputs(*OTHER_SIZES, patch=8))


@pytest.mark.parametrize("head", ["Model", "ForImageClassification"])
def test_ijepa(head: str, tmp_path: Path) -> None:
    config = transformers.IJepaConfig(**PATCHES, num_labels=5)
    check(reference(f"IJepa{head}", config), tmp_path, image_inputs(*OTHER_SIZES, resize=RESIZE))


@pytest.mark.parametrize("tokens", [1, 4])
def test_pixio(tokens: int, tmp_path: Path) -> None:
    sizes = {key: value for key, value in PATCHES.items() if key != "intermediate_size"}
    config = transformers.PixioConfig(**sizes, mlp_ratio=2, n_cls_tokens=tokens)
    check(reference("PixioModel", config), tmp_path, image_inputs(*OTHER_SIZES))
