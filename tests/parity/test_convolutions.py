"""Image models of convolutions, or of stages of attention, against the reference library: other sizes, batch 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.parity.harness import check, image_inputs, reference, transformers

OTHER_SIZES = ((40, 64), (33, 47))
STAGES = {"depths": [1, 2], "hidden_sizes": [8, 16]}


def made(name: str, config: str, tmp_path: Path, *sizes: tuple[int, int], **fields: Any) -> None:
    made_config = getattr(transformers, f"{config}Config")(**fields)
    check(reference(f"{config}{name}", made_config), tmp_path, image_inputs(*sizes, own=(64, 64)))


@pytest.mark.parametrize("name", ["Model", "ForImageClassification"])
@pytest.mark.parametrize("act", ["gelu", "relu"])
def test_convnextv2(name: str, act: str, tmp_path: Path) -> None:
    made(name, "ConvNextV2", tmp_path, *OTHER_SIZES, **STAGES, num_stages=2, hidden_act=act)


@pytest.mark.parametrize("eps", [1e-6, 1e-3])
def test_dinov3_convnext(eps: float, tmp_path: Path) -> None:
    made("Model", "DINOv3ConvNext", tmp_path, *OTHER_SIZES, **STAGES, layer_norm_eps=eps)


SEGMENTS = {
    **STAGES,
    "num_encoder_blocks": 2,
    "strides": [4, 2],
    "num_attention_heads": [1, 2],
    "sr_ratios": [4, 1],
}


@pytest.mark.parametrize("name", ["Model", "ForImageClassification", "ForSemanticSegmentation"])
@pytest.mark.parametrize("act", ["gelu", "relu"])
def test_segformer(name: str, act: str, tmp_path: Path) -> None:
    fields = {**SEGMENTS, "patch_sizes": [7, 3], "mlp_ratios": [2, 4], "hidden_act": act}
    made(name, "Segformer", tmp_path, *OTHER_SIZES, **fields)


@pytest.mark.parametrize("name", ["Model", "ForDepthEstimation"])
@pytest.mark.parametrize("width", [12, 8])
def test_glpn(name: str, width: int, tmp_path: Path) -> None:
    fields = {**SEGMENTS, "patch_sizes": [7, 3], "mlp_ratios": [2, 4], "decoder_hidden_size": width}
    made(name, "GLPN", tmp_path, (40, 64), (32, 48), **fields, max_depth=3, layer_norm_eps=1e-3)


RUNS = {
    "width_coefficient": 0.25, "hidden_dim": 320, "in_channels": [32, 16, 40], "out_channels": [32, 40, 64],
    "kernel_sizes": [3, 5, 3], "strides": [1, 2, 2], "num_block_repeats": [1, 2, 1], "expand_ratios": [1, 6, 2],
    "batch_norm_eps": 1e-2,
}  # fmt: skip


@pytest.mark.parametrize("name", ["Model", "ForImageClassification"])
@pytest.mark.parametrize("deeper", [1.0, 1.4])
def test_efficientnet(name: str, deeper: float, tmp_path: Path) -> None:
    fields = {"depth_coefficient": deeper, "depthwise_padding": [int(2 * deeper)], "hidden_act": "relu"}
    made(name, "EfficientNet", tmp_path, *OTHER_SIZES, **RUNS, **fields)


def test_the_vision_tower_of_align(tmp_path: Path) -> None:
    made("Model", "AlignVision", tmp_path, *OTHER_SIZES, **RUNS, depth_coefficient=1.2)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("name", ["Model", "ForImageClassification"])
def test_pvt_v2(name: str, linear: bool, tmp_path: Path) -> None:
    fields = {**SEGMENTS, "patch_sizes": [7, 3], "mlp_ratios": [2, 4], "linear_attention": linear}
    made(name, "PvtV2", tmp_path, *OTHER_SIZES, **fields, qkv_bias=not linear, layer_norm_eps=1e-4)


@pytest.mark.parametrize("name", ["Model", "ForImageClassification"])
@pytest.mark.parametrize("scaled", [False, True])
def test_poolformer(name: str, scaled: bool, tmp_path: Path) -> None:
    fields = {**STAGES, "num_encoder_blocks": 2, "strides": [4, 2], "padding": [2, 1], "patch_sizes": [7, 3]}
    made(name, "PoolFormer", tmp_path, *OTHER_SIZES, **fields, pool_size=5, use_layer_scale=scaled)


@pytest.mark.parametrize("name", ["Model", "ForImageClassification"])
@pytest.mark.parametrize("padding", ["SAME", None])
def test_bit(name: str, padding: str | None, tmp_path: Path) -> None:
    fields = {
        **STAGES,
        "hidden_sizes": [16, 32],
        "embedding_size": 8,
        "num_groups": 4,
        "global_padding": padding,
    }
    made(name, "Bit", tmp_path, *OTHER_SIZES, **fields, embedding_dynamic_padding=padding is not None)


@pytest.mark.parametrize(("name", "biases"), [("Model", False), ("ForImageClassification", True)])
def test_pvt(name: str, biases: bool, tmp_path: Path) -> None:
    fields = {key: value for key, value in SEGMENTS.items() if key != "sr_ratios"}
    fields |= {
        "sequence_reduction_ratios": [4, 1],
        "patch_sizes": [4, 2],
        "mlp_ratios": [2, 4],
        "image_size": 64,
    }
    made(name, "Pvt", tmp_path, **fields, qkv_bias=biases, layer_norm_eps=1e-4)


@pytest.mark.parametrize(("name", "kind"), [("Model", "x"), ("ForImageClassification", "y")])
def test_regnet(name: str, kind: str, tmp_path: Path) -> None:
    fields = {**STAGES, "embedding_size": 8, "groups_width": 4, "layer_type": kind}
    gated = kind == "y"
    act = "relu" if gated else "gelu"
    made(name, "RegNet", tmp_path, *OTHER_SIZES, **fields, hidden_act=act, downsample_in_first_stage=gated)


HGNET = {
    "embedding_size": 8,
    "depths": [1, 1],
    "hidden_sizes": [16, 24],
    "stem_channels": [3, 8, 8],
    "stage_in_channels": [8, 16],
    "stage_mid_channels": [8, 12],
    "stage_out_channels": [16, 24],
    "stage_num_blocks": [1, 2],
    "stage_numb_of_layers": [2, 1],
    "stage_downsample": [False, True],
    "stage_downsample_strides": [2, 2],
    "stage_kernel_size": [3, 5],
}


@pytest.mark.parametrize(("act", "light"), [("relu", [False, True]), ("gelu", [True, False])])
def test_hgnet_v2(act: str, light: list[bool], tmp_path: Path) -> None:
    fields = {**HGNET, "hidden_act": act, "stage_light_block": light}
    fields["use_learnable_affine_block"] = act == "gelu"
    made("ForImageClassification", "HGNetV2", tmp_path, *OTHER_SIZES, **fields)


@pytest.mark.parametrize(("name", "act"), [("Model", "relu"), ("ForImageClassification", "silu")])
def test_mobilevitv2(name: str, act: str, tmp_path: Path) -> None:
    fields = {"width_multiplier": 0.25, "base_attn_unit_dims": [64, 64, 96], "n_attn_blocks": [1, 2, 1]}
    made(name, "MobileViTV2", tmp_path, (96, 64), **fields, hidden_act=act)


@pytest.mark.parametrize(("name", "border"), [("Model", False), ("ForImageClassification", True)])
def test_mobilenet_v2(name: str, border: bool, tmp_path: Path) -> None:
    fields = {"depth_multiplier": 0.15, "tf_padding": border, "first_layer_is_expansion": border}
    made(name, "MobileNetV2", tmp_path, *OTHER_SIZES, **fields, finegrained_output=border)


@pytest.mark.parametrize("name", ["Model", "ForImageClassification"])
@pytest.mark.parametrize("border", [False, True])
def test_mobilenet_v1(name: str, border: bool, tmp_path: Path) -> None:
    made(name, "MobileNetV1", tmp_path, *OTHER_SIZES, depth_multiplier=0.25, tf_padding=border)


@pytest.mark.parametrize(("name", "act"), [("Model", "relu"), ("ForImageClassification", "silu")])
def test_mobilevit(name: str, act: str, tmp_path: Path) -> None:
    fields = {"hidden_sizes": [24, 32, 40], "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 48], "patch_size": 2}
    more = {"expand_ratio": 2.0, "hidden_act": act, "layer_norm_eps": 1e-3, "qkv_bias": act == "silu"}
    made(name, "MobileViT", tmp_path, (96, 64), (96, 96), **fields, **more)


@pytest.mark.parametrize("name", ["Model", "ForImageClassification"])
def test_textnet(name: str, tmp_path: Path) -> None:
    kernels = [[[3, 3], [3, 3], [5, 3]], [[3, 3], [1, 3], [3, 1], [1, 1]]]
    fields = {"conv_layer_kernel_sizes": kernels, "conv_layer_strides": [[1, 2, 1], [2, 1, 1, 1]]}
    more = {
        "hidden_sizes": [8, 8, 16],
        "stem_out_channels": 8,
        "stem_act_func": "silu",
        "batch_norm_eps": 1e-3,
    }
    made(name, "TextNet", tmp_path, *OTHER_SIZES, **fields, **more, depths=[3, 4])


@pytest.mark.parametrize(("name", "behind"), [("Model", True), ("ForImageClassification", False)])
def test_focalnet(name: str, behind: bool, tmp_path: Path) -> None:
    fields = {
        "embed_dim": 8,
        "depths": [1, 2],
        "focal_levels": [2, 3],
        "focal_windows": [3, 5],
        "mlp_ratio": 2.0,
    }
    options = ("use_conv_embed", "use_layerscale", "use_post_layernorm", "use_post_layernorm_in_modulation")
    more = {"hidden_act": "relu" if behind else "gelu", "normalize_modulator": behind, "layer_norm_eps": 1e-4}
    made(name, "FocalNet", tmp_path, (44, 60), (33, 47), **fields, **more, **dict.fromkeys(options, behind))


@pytest.mark.parametrize("name", ["Model", "ForImageClassification"])
def test_cvt(name: str, tmp_path: Path) -> None:
    sizes = {
        "embed_dim": [8, 16],
        "depth": [1, 2],
        "num_heads": [1, 2],
        "mlp_ratio": [2.0, 3.0],
        "cls_token": [False, True],
    }
    cut = {"patch_sizes": [7, 3], "patch_stride": [4, 2], "patch_padding": [2, 1], "kernel_qkv": [3, 5]}
    steps = {"stride_q": [1, 1], "stride_kv": [2, 1], "padding_q": [1, 2], "padding_kv": [1, 2]}
    rates = {key: [0.0, 0.0] for key in ("drop_rate", "attention_drop_rate", "drop_path_rate")}
    more = {"qkv_bias": [True, True], "qkv_projection_method": ["dw_bn", "dw_bn"]}
    made(name, "Cvt", tmp_path, *OTHER_SIZES, **sizes, **cut, **steps, **rates, **more)


@pytest.mark.parametrize(
    ("name", "size", "more"),
    [
        ("ForImageClassification", 48, {}),
        ("ForImageClassificationWithTeacher", 48, {"attention_ratio": [2, 3, 2]}),
        ("Model", 5, {"mlp_ratio": [2, 0, 3], "stride": 1, "kernel_size": 5, "padding": 2, "patch_size": 1}),
    ],
)
def test_levit(name: str, size: int, more: dict[str, Any], tmp_path: Path) -> None:
    fields = {
        "hidden_sizes": [16, 32, 48], "num_attention_heads": [2, 3, 4], "key_dim": [8, 8, 8], "depths": [1, 2, 1],
        "attention_ratio": [2, 2, 2], "mlp_ratio": [2, 2, 2], "patch_size": 16,
    }  # fmt: skip
    config = transformers.LevitConfig(**{**fields, "image_size": size, **more})
    check(reference(f"Levit{name}", config), tmp_path, image_inputs(own=(size, size)))


@pytest.mark.parametrize(("name", "scaled"), [("Model", False), ("ForImageClassification", True)])
def test_swiftformer(name: str, scaled: bool, tmp_path: Path) -> None:
    fields = {
        "embed_dims": [8, 16, 16],
        "depths": [2, 1, 2],
        "downsamples": [True, False, True],
        "mlp_ratio": 2,
    }
    more = {"use_layer_scale": scaled, "hidden_act": "relu", "batch_norm_eps": 1e-3, "drop_path_rate": 0.0}
    made(name, "SwiftFormer", tmp_path, *OTHER_SIZES, **fields, **more)


@pytest.mark.parametrize("name", ["Model", "ForImageClassification"])
def test_hiera(name: str, tmp_path: Path) -> None:
    config = transformers.HieraConfig(
        embed_dim=8, image_size=[64, 64], depths=[2, 1, 2, 1], num_heads=[1, 2, 2, 4], mlp_ratio=2.0, hidden_act="relu",
        embed_dim_multiplier=2.0, layer_norm_eps=1e-4,
    )  # fmt: skip
    cases = image_inputs((96, 128), own=(64, 64))
    cases["96 x 128"]["interpolate_pos_encoding"] = True
    check(reference(f"Hiera{name}", config), tmp_path, cases)
