"""Models that find things in images against the reference library: other sizes, batch 1, images with borders."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import mapper
from tests.parity.harness import check, image_inputs, output, outputs, record_line, reference, transformers

BACKBONE = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "out_features": ["stage2"]}
SIZES = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 44,
    "decoder_ffn_dim": 48,
    "num_queries": 5,
    "num_labels": 3,
}


def inputs() -> dict[str, dict[str, Any]]:
    cases = image_inputs((48, 80), own=(64, 64))
    mask = torch.ones(3, 64, 64, dtype=torch.long)
    mask[1, :, 40:] = 0
    mask[2, 35:] = 0
    cases["borders"] = {**cases["own size"], "pixel_mask": mask}
    return cases


def detector(prefix: str, name: str, tmp_path: Path, layer_type: str = "basic", **more: Any) -> None:
    backbone = transformers.ResNetConfig(**BACKBONE, layer_type=layer_type)
    config = getattr(transformers, f"{prefix}Config")(
        backbone_config=backbone,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        **{**SIZES, **more},
    )
    check(reference(f"{prefix}{name}", config), tmp_path, inputs())


@pytest.mark.parametrize("name", ["Model", "ForObjectDetection"])
@pytest.mark.parametrize("prefix", ["TableTransformer", "Detr"])
def test_detr(prefix: str, name: str, tmp_path: Path) -> None:
    detector(prefix, name, tmp_path, "basic" if name == "Model" else "bottleneck")


@pytest.mark.parametrize("act", ["gelu"])
@pytest.mark.parametrize("prefix", ["TableTransformer", "Detr"])
def test_detr_of_another_activation(prefix: str, act: str, tmp_path: Path) -> None:
    detector(prefix, "ForObjectDetection", tmp_path, activation_function=act)


@pytest.mark.parametrize("name", ["Model", "ForObjectDetection"])
def test_conditional_detr(name: str, tmp_path: Path) -> None:
    detector("ConditionalDetr", name, tmp_path)


TIMM_NAMES = (
    (r"embedder\.embedder\.convolution", "conv1"),
    (r"embedder\.embedder\.normalization", "bn1"),
    (r"shortcut\.convolution", "downsample.0"),
    (r"shortcut\.normalization", "downsample.1"),
    (r"layer\.(\d)\.convolution", lambda found: f"conv{int(found[1]) + 1}"),
    (r"layer\.(\d)\.normalization", lambda found: f"bn{int(found[1]) + 1}"),
    (r"encoder\.stages\.(\d)\.layers", lambda found: f"layer{int(found[1]) + 1}"),
)


@pytest.mark.parametrize(("layer_type", "backbone"), [("basic", "resnet18"), ("bottleneck", "resnet50")])
@pytest.mark.parametrize("prefix", ["TableTransformer", "ConditionalDetr"])
def test_detr_with_a_backbone_in_timms_names(
    prefix: str, layer_type: str, backbone: str, tmp_path: Path
) -> None:
    def rename(config: dict[str, Any]) -> None:
        del config["backbone_config"]
        config |= {"use_timm_backbone": True, "backbone": backbone}
        tensors = load_file(tmp_path / "model.safetensors")
        for name in [name for name in tensors if "conv_encoder" in name]:
            new = name
            for old, word in TIMM_NAMES:
                new = re.sub(old, word, new)
            tensors[new] = tensors.pop(name)
        save_file(tensors, tmp_path / "model.safetensors")

    config = getattr(transformers, f"{prefix}Config")(
        backbone_config=transformers.ResNetConfig(**BACKBONE, layer_type=layer_type), **SIZES
    )
    check(reference(f"{prefix}ForObjectDetection", config), tmp_path, inputs(), edit=rename)


@pytest.mark.parametrize(("name", "between"), [("Model", False), ("ForObjectDetection", True)])
def test_yolos(name: str, between: bool, tmp_path: Path) -> None:
    config = transformers.YolosConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=44,
        image_size=[32, 48],
        patch_size=8,
        num_detection_tokens=5,
        num_labels=3,
        use_mid_position_embeddings=between,
        qkv_bias=between,
    )
    check(reference(f"Yolos{name}", config), tmp_path, image_inputs((40, 24), (37, 50), own=(32, 48)))


@pytest.mark.parametrize("act", ["prelu", "gelu"])
@pytest.mark.parametrize("kept", [True, False])
def test_dab_detr(kept: bool, act: str, tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "activation_function": act, "keep_query_pos": kept, "temperature_height": 20}
    detector("DabDetr", "ForObjectDetection", tmp_path, normalize_before=kept, **sizes)


@pytest.mark.parametrize("name", ["Model", "ForObjectDetection"])
def test_deformable_detr(name: str, tmp_path: Path) -> None:
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 24], depths=[1, 1, 1], out_features=["stage2", "stage3"]
    )
    levels = 4 if name == "Model" else 3
    points = {"encoder_n_points": 2, "decoder_n_points": 3}
    config = transformers.DeformableDetrConfig(
        backbone_config=backbone, num_feature_levels=levels, **{**SIZES, **points, "d_model": 64}
    )
    check(reference(f"DeformableDetr{name}", config), tmp_path, inputs())


def test_deformable_detr_with_a_backbone_in_timms_names_and_heads_for_each_layer(tmp_path: Path) -> None:
    def rename(config: dict[str, Any]) -> None:
        del config["backbone_config"]
        config |= {"use_timm_backbone": True, "backbone": "resnet50"}
        tensors = load_file(tmp_path / "model.safetensors")
        for name in [name for name in tensors if "conv_encoder" in name]:
            new = name
            for old, word in TIMM_NAMES:
                new = re.sub(old, word, new)
            tensors[new] = tensors.pop(name)
        for name in [name for name in tensors if name.startswith(("bbox_embed.0", "class_embed.0"))]:
            tensors[name.replace("embed.0", "embed.1")] = tensors[
                name
            ].clone()  # as published, for each layer
        save_file(tensors, tmp_path / "model.safetensors")

    backbone = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        layer_type="bottleneck",
        out_features=["stage2", "stage3", "stage4"],
    )
    config = transformers.DeformableDetrConfig(
        backbone_config=backbone, num_feature_levels=4, **{**SIZES, "d_model": 64}
    )
    check(reference("DeformableDetrForObjectDetection", config), tmp_path, inputs(), edit=rename)


@pytest.mark.parametrize("deep", [True, False])
@pytest.mark.parametrize("prefix", ["RTDetr", "RTDetrV2"])
def test_rt_detr(prefix: str, deep: bool, tmp_path: Path) -> None:
    depths = [2, 1, 1, 1] if deep else [1, 2, 1, 1]
    kind = "basic" if deep else "bottleneck"
    backbone = transformers.RTDetrResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 24, 32, 48],
        depths=depths,
        layer_type=kind,
        out_features=["stage2", "stage3", "stage4"],
    )
    config = getattr(transformers, f"{prefix}Config")(
        backbone_config=backbone,
        encoder_hidden_dim=32,
        encoder_in_channels=[24, 32, 48],
        decoder_in_channels=[32, 32, 32],
        encoder_layers=2 if deep else 1,
        hidden_expansion=0.5 if deep else 1.0,
        num_feature_levels=4 if deep and prefix == "RTDetr" else 3,
        decoder_n_points=3,
        **{key: size for key, size in SIZES.items() if key != "encoder_layers"},
    )
    cases = image_inputs((96, 64), own=(64, 64))
    check(reference(f"{prefix}ForObjectDetection", config), tmp_path, cases)


@pytest.mark.parametrize("projected", [True, False])
def test_d_fine(projected: bool, tmp_path: Path) -> None:
    stages = {"stage_in_channels": [8, 16, 24, 32], "stage_mid_channels": [8, 8, 8, 8]}
    backbone = transformers.HGNetV2Config(
        stem_channels=[3, 8, 8],
        hidden_sizes=[16, 24, 32, 48],
        stage_out_channels=[16, 24, 32, 48],
        stage_num_blocks=[1, 1, 2, 1],
        stage_numb_of_layers=[2, 2, 2, 2],
        use_learnable_affine_block=projected,
        out_features=["stage2", "stage3", "stage4"],
        **stages,
    )
    config = transformers.DFineConfig(
        backbone_config=backbone,
        encoder_hidden_dim=24 if projected else 32,
        encoder_in_channels=[24, 32, 48],
        decoder_in_channels=[24, 24, 24] if projected else [32, 32, 32],
        encoder_layers=1,
        depth_mult=0.67 if projected else 1.0,
        hidden_expansion=0.5 if projected else 1.0,
        decoder_n_points=3 if projected else [3, 6, 3],
        decoder_offset_scale=0.3,
        activation_function="relu" if projected else "silu",
        max_num_bins=16,
        lqe_hidden_dim=20,
        top_prob_values=3,
        batch_norm_eps=1e-3,
        layer_norm_eps=1e-3,
        **{key: size for key, size in SIZES.items() if key not in ("encoder_layers", "decoder_layers")},
        decoder_layers=3,
    )
    check(reference("DFineForObjectDetection", config), tmp_path, image_inputs((96, 64), own=(64, 64)))


@pytest.mark.parametrize("masked", ["hidden", "added"])
@pytest.mark.parametrize(
    ("prefix", "name"), [("GroundingDino", "Model"), ("MMGroundingDino", "ForObjectDetection")]
)
def test_grounding_dino(prefix: str, name: str, masked: str, tmp_path: Path) -> None:
    """The reference hides other phrases from its text tower, and adds this mask to scores where attention is eager."""
    backbone = transformers.SwinConfig(
        embed_dim=8,
        depths=[1, 1, 2, 1],
        num_heads=[2, 2, 4, 4],
        window_size=4,
        out_features=["stage2", "stage3", "stage4"],
    )
    text = transformers.BertConfig(
        vocab_size=105,
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=20,
    )
    config = getattr(transformers, f"{prefix}Config")(
        backbone_config=backbone,
        text_config=text,
        max_text_len=9,
        num_feature_levels=4,
        decoder_bbox_embed_share=masked == "added",
        **{**SIZES, "d_model": 32, "encoder_ffn_dim": 44},
    )
    reference(f"{prefix}{name}", config).save_pretrained(tmp_path)
    chosen = {"attn_implementation": "eager"} if masked == "added" else {}
    model = getattr(transformers, f"{prefix}{name}").from_pretrained(tmp_path, **chosen).eval()
    built = mapper.build(tmp_path, hints={"phrases.masked": masked})
    words = torch.randint(0, 100, (2, 9))
    words[:, 4], words[0, 6], words[1, 8] = 102, 101, 102
    mask = torch.ones_like(words)
    mask[1, 6:] = 0
    pixels = torch.ones(2, 160, 96, dtype=torch.long)  # the coarsest map has 3 x 2 places for its group norms
    pixels[0, 100:] = 0
    given = {
        "input_ids": words,
        "attention_mask": mask,
        "pixel_values": torch.randn(2, 3, 160, 96),
        "pixel_mask": pixels,
    }
    with torch.no_grad():
        wanted, got = model(**given), built(**given)
    worst = 0.0
    for key, value in outputs(wanted):
        largest = value[value.isfinite()].abs().max().clamp(min=1)
        torch.testing.assert_close(output(got, key) / largest, value / largest, atol=1e-5, rtol=0)
        apart = (output(got, key) - value)[value.isfinite()] / largest
        worst = max(worst, float(apart.abs().max()))
    print("WORST", worst)
    record_line("grounding_dino", config.model_type, type(model).__name__, worst)


@pytest.mark.parametrize("added", [True, False])
def test_deimv2(added: bool, tmp_path: Path) -> None:
    backbone = transformers.HGNetV2Config(
        stem_channels=[3, 8, 8],
        hidden_sizes=[16, 24, 32, 48],
        stage_in_channels=[8, 16, 24, 32],
        stage_mid_channels=[8, 8, 8, 8],
        stage_out_channels=[16, 24, 32, 48],
        stage_num_blocks=[1, 1, 2, 1],
        stage_numb_of_layers=[2, 2, 2, 2],
        embedding_size=8,
        depths=[1, 1, 2, 1],
        use_learnable_affine_block=not added,
        out_features=["stage2", "stage3", "stage4"],
    )
    config = transformers.Deimv2Config(
        backbone_config=backbone,
        encoder_hidden_dim=32,
        encoder_in_channels=[24, 32, 48],
        decoder_in_channels=[32, 32, 32],
        depth_mult=0.34,
        max_num_bins=8,
        top_prob_values=2,
        lqe_hidden_dim=12,
        encoder_activation_function="gelu" if added else "relu",
        activation_function="silu" if added else "relu",
        encoder_has_trailing_conv=added,
        num_denoising=4,
        num_feature_levels=3,
        **{key: size for key, size in SIZES.items() if key != "encoder_layers"},
    )
    check(reference("Deimv2ForObjectDetection", config), tmp_path, image_inputs((96, 64), own=(64, 64)))
