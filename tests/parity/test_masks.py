"""Models that draw a mask for each of their queries, against the reference library: other sizes, batch 1, other backbones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.parity.harness import check, image_inputs, reference, transformers

SWIN = {
    "embed_dim": 8,
    "depths": [2, 1, 1, 1],
    "num_heads": [2, 2, 4, 4],
    "window_size": 4,
    "image_size": 64,
    "out_features": ["stage1", "stage2", "stage3", "stage4"],
}
SIZES = {
    "feature_size": 32,
    "mask_feature_size": 24,
    "hidden_dim": 32,
    "encoder_feedforward_dim": 44,
    "dim_feedforward": 52,
    "encoder_layers": 2,
    "decoder_layers": 5,
    "num_attention_heads": 4,
    "num_queries": 5,
    "num_labels": 3,
}


def pages() -> dict[str, dict[str, Any]]:
    return image_inputs((64, 96), (72, 56), own=(64, 64))


def decoder(heads: int) -> Any:
    return transformers.DetrConfig(
        d_model=32, decoder_layers=2, decoder_ffn_dim=44, decoder_attention_heads=heads, num_queries=5
    )


@pytest.mark.parametrize("backbone", ["maskformer-swin", "swin", "resnet"])
def test_maskformer(backbone: str, tmp_path: Path) -> None:
    if backbone == "resnet":
        inner = transformers.ResNetConfig(
            embedding_size=8,
            hidden_sizes=[8, 16, 24, 32],
            depths=[1, 1, 1, 1],
            layer_type="basic",
            out_features=["stage2", "stage3", "stage4"],
        )
    else:
        kind = transformers.SwinConfig if backbone == "swin" else transformers.MaskFormerSwinConfig
        inner = kind(**SWIN)
    config = transformers.MaskFormerConfig(
        backbone_config=inner,
        decoder_config=decoder(4),
        fpn_feature_size=32,
        mask_feature_size=24,
        num_labels=3,
    )
    name = "Model" if backbone == "swin" else "ForInstanceSegmentation"
    check(reference(f"MaskFormer{name}", config), tmp_path, pages())


@pytest.mark.parametrize("name", ["Model", "ForUniversalSegmentation"])
def test_mask2former(name: str, tmp_path: Path) -> None:
    whole = name == "Model"
    config = transformers.Mask2FormerConfig(
        backbone_config=transformers.SwinConfig(**SWIN),
        pre_norm=whole,
        enforce_input_projection=whole,
        **SIZES,
    )
    check(reference(f"Mask2Former{name}", config), tmp_path, pages())


@pytest.mark.parametrize("name", ["Model", "ForUniversalSegmentation"])
def test_oneformer(name: str, tmp_path: Path) -> None:
    whole = name == "Model"
    sizes = {key: size for key, size in SIZES.items() if not key.endswith("feature_size")}
    config = transformers.OneFormerConfig(
        backbone_config=transformers.SwinConfig(**SWIN),
        conv_dim=32,
        mask_dim=32,
        task_seq_len=7,
        query_dec_layers=2,
        pre_norm=whole,
        use_task_norm=not whole,
        layer_norm_eps=1e-3 if whole else 1e-5,
        **sizes,
    )
    task = torch.arange(21).view(3, 7)
    cases = {
        case: {**values, "task_inputs": task[: len(values["pixel_values"])]}
        for case, values in pages().items()
    }
    check(reference(f"OneFormer{name}", config), tmp_path, cases)
