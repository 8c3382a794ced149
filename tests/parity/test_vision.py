"""Image models and models of images and texts against the reference library: other sizes, batch 1, masked patches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.parity.harness import check, image_inputs, reference, text_inputs, transformers

PATCHES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}
RESIZE = "interpolate_pos_encoding"
OTHER_SIZES = ((40, 64), (27, 35))


@pytest.mark.parametrize("name", ["ViTModel", "ViTForImageClassification"])
def test_vit(name: str, tmp_path: Path) -> None:
    config = transformers.ViTConfig(**PATCHES, intermediate_size=44, num_labels=5)
    check(reference(name, config), tmp_path, image_inputs(*OTHER_SIZES, resize=RESIZE))


@pytest.mark.parametrize(
    "name", ["DeiTModel", "DeiTForImageClassification", "DeiTForImageClassificationWithTeacher"]
)
def test_deit(name: str, tmp_path: Path) -> None:
    config = transformers.DeiTConfig(
        **PATCHES, intermediate_size=44, num_labels=5, qkv_bias=name == "DeiTModel"
    )
    check(reference(name, config), tmp_path, image_inputs(*OTHER_SIZES, resize=RESIZE))


@pytest.mark.parametrize("name", ["ViTMSNModel", "ViTMSNForImageClassification"])
def test_vit_msn(name: str, tmp_path: Path) -> None:
    config = transformers.ViTMSNConfig(
        **PATCHES, intermediate_size=44, num_labels=5, qkv_bias=name == "ViTMSNModel"
    )
    check(reference(name, config), tmp_path, image_inputs(*OTHER_SIZES, resize=RESIZE))


def test_vit_of_unusual_options(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        **{**PATCHES, "patch_size": [8, 8], "image_size": [32, 32]},
        intermediate_size=44,
        qkv_bias=False,
        hidden_act="relu",
        pooler_act="gelu",
        pooler_output_size=20,
        layer_norm_eps=1e-3,
        num_channels=3,
    )
    check(reference("ViTModel", config), tmp_path, image_inputs())


@pytest.mark.parametrize("name", ["Dinov2Model", "Dinov2ForImageClassification"])
@pytest.mark.parametrize("gated", [False, True])
def test_dinov2(name: str, gated: bool, tmp_path: Path) -> None:
    config = transformers.Dinov2Config(**PATCHES, mlp_ratio=2, use_swiglu_ffn=gated, num_labels=5)
    inputs = image_inputs(*OTHER_SIZES, patch=8 if name == "Dinov2Model" else 0)
    check(reference(name, config), tmp_path, inputs)


def test_dinov2_without_mask_token(tmp_path: Path) -> None:
    config = transformers.Dinov2Config(**PATCHES, mlp_ratio=2, use_mask_token=False, qkv_bias=False)
    check(reference("Dinov2Model", config), tmp_path, image_inputs(*OTHER_SIZES))


@pytest.mark.parametrize("name", ["Dinov2WithRegistersModel", "Dinov2WithRegistersForImageClassification"])
def test_dinov2_with_registers(name: str, tmp_path: Path) -> None:
    gated = name == "Dinov2WithRegistersModel"
    config = transformers.Dinov2WithRegistersConfig(
        **PATCHES, mlp_ratio=2, use_swiglu_ffn=gated, num_register_tokens=2, num_labels=5
    )
    check(reference(name, config), tmp_path, image_inputs(*OTHER_SIZES))


@pytest.mark.parametrize("gated", [False, True])
def test_dinov3_vit(gated: bool, tmp_path: Path) -> None:
    biases = {"key_bias": gated, "query_bias": not gated, "value_bias": not gated, "proj_bias": not gated}
    config = transformers.DINOv3ViTConfig(
        **PATCHES,
        intermediate_size=44,
        use_gated_mlp=gated,
        mlp_bias=not gated,
        num_register_tokens=2,
        **biases,
    )
    check(reference("DINOv3ViTModel", config), tmp_path, image_inputs(*OTHER_SIZES, patch=8))


def test_mlcd(tmp_path: Path) -> None:
    config = transformers.MLCDVisionConfig(**PATCHES, intermediate_size=44)
    check(reference("MLCDVisionModel", config), tmp_path, image_inputs(*OTHER_SIZES))


def test_a_backbone_is_not_vouched_for(tmp_path: Path) -> None:
    config = transformers.Dinov2Config(**PATCHES, mlp_ratio=2)
    base = reference("Dinov2Model", config)

    def edit(data: dict[str, Any]) -> None:
        data["architectures"] = ["Dinov2Backbone"]

    check(base, tmp_path, image_inputs(), edit=edit, reading="unverified")


@pytest.mark.parametrize("name", ["SwinModel", "SwinForImageClassification"])
@pytest.mark.parametrize("window", [2, 3])
def test_swin(name: str, window: int, tmp_path: Path) -> None:
    config = transformers.SwinConfig(
        image_size=32, patch_size=2, embed_dim=8, depths=[2, 3], num_heads=[2, 4], window_size=window, num_labels=5
    )  # fmt: skip
    check(reference(name, config), tmp_path, image_inputs((32, 46), (29, 31)))


@pytest.mark.parametrize("name", ["DonutSwinModel", "DonutSwinForImageClassification"])
def test_donut_swin(name: str, tmp_path: Path) -> None:
    config = transformers.DonutSwinConfig(
        image_size=32, patch_size=2, embed_dim=8, depths=[2, 3], num_heads=[2, 4], window_size=3, num_labels=5,
        qkv_bias=name.endswith("n"),
    )  # fmt: skip
    check(reference(name, config), tmp_path, image_inputs((32, 46), (29, 31)))


def test_swin_of_unusual_options(tmp_path: Path) -> None:
    config = transformers.SwinConfig(
        image_size=32, patch_size=2, embed_dim=8, depths=[2, 2, 1], num_heads=[1, 2, 2], window_size=4, qkv_bias=False,
        use_absolute_embeddings=True, layer_norm_eps=1e-3, hidden_act="relu", mlp_ratio=2.0,
    )  # fmt: skip
    check(reference("SwinModel", config), tmp_path, image_inputs((40, 64), resize=RESIZE))


@pytest.mark.parametrize("name", ["ResNetModel", "ResNetForImageClassification"])
@pytest.mark.parametrize("kind", ["bottleneck", "basic"])
def test_resnet(name: str, kind: str, tmp_path: Path) -> None:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 24], depths=[2, 1, 3], layer_type=kind, num_labels=5
    )
    check(reference(name, config), tmp_path, image_inputs((50, 71), own=(64, 64)))


@pytest.mark.parametrize(
    "options",
    [
        {"downsample_in_first_stage": True},
        {"downsample_in_first_stage": True, "layer_type": "basic"},
        {"downsample_in_bottleneck": True, "hidden_sizes": [16, 16]},
        {"hidden_act": "gelu", "hidden_sizes": [16, 24]},
    ],
)
def test_resnet_of_unusual_options(options: dict[str, Any], tmp_path: Path) -> None:
    config = transformers.ResNetConfig(
        **{"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2], **options}
    )
    check(reference("ResNetModel", config), tmp_path, image_inputs((50, 71), own=(64, 64)))


@pytest.mark.parametrize("name", ["ConvNextModel", "ConvNextForImageClassification"])
def test_convnext(name: str, tmp_path: Path) -> None:
    config = transformers.ConvNextConfig(hidden_sizes=[8, 12, 16, 24], depths=[2, 1, 3, 1], num_labels=5)
    check(reference(name, config), tmp_path, image_inputs((66, 79), own=(64, 64)))


def test_convnext_of_unusual_options(tmp_path: Path) -> None:
    config = transformers.ConvNextConfig(
        hidden_sizes=[8, 12], depths=[1, 2], num_stages=2, patch_size=2, layer_scale_init_value=0.0, hidden_act="relu",
        layer_norm_eps=1e-3,
    )  # fmt: skip
    check(reference("ConvNextModel", config), tmp_path, image_inputs((31, 20)))


VISION = {**PATCHES, "intermediate_size": 44}
TEXT = {
    "vocab_size": 99,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 20,
    "bos_token_id": 97,
    "eos_token_id": 98,
    "pad_token_id": 1,
}


def ended(inputs: dict[str, dict[str, Any]], end: int = 98) -> dict[str, dict[str, Any]]:
    """Texts that end where their mask does: the end token is the last real one, and the only one."""
    for values in inputs.values():
        ids = values["input_ids"] = values["input_ids"].clamp(max=end - 1).clone()
        mask = values.get("attention_mask", torch.ones_like(ids))
        last = (mask * torch.arange(ids.shape[1])).argmax(dim=1)
        ids[torch.arange(len(ids)), last] = end
    return inputs


def with_images(inputs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The same texts beside images, not one for each."""
    images = image_inputs()["own size"]
    return {name: {**values, **images} for name, values in inputs.items()}


@pytest.mark.parametrize("end", [98, 2])
@pytest.mark.parametrize("name", ["CLIPTextModel", "CLIPTextModelWithProjection"])
def test_clip_text(name: str, end: int, tmp_path: Path) -> None:
    config = transformers.CLIPTextConfig(**{**TEXT, "eos_token_id": end}, projection_dim=20)
    check(reference(name, config), tmp_path, ended(text_inputs(99)))


@pytest.mark.parametrize("name", ["CLIPVisionModel", "CLIPVisionModelWithProjection"])
def test_clip_vision(name: str, tmp_path: Path) -> None:
    config = transformers.CLIPVisionConfig(**VISION, projection_dim=20)
    check(reference(name, config), tmp_path, image_inputs((40, 64), resize=RESIZE))


@pytest.mark.parametrize("end", [98, 2])
def test_clip(end: int, tmp_path: Path) -> None:
    config = transformers.CLIPConfig(
        text_config={**TEXT, "eos_token_id": end}, vision_config=VISION, projection_dim=20
    )
    check(reference("CLIPModel", config), tmp_path, with_images(ended(text_inputs(99))))


def test_chinese_clip_vision(tmp_path: Path) -> None:
    config = transformers.ChineseCLIPVisionConfig(**VISION)
    check(reference("ChineseCLIPVisionModel", config), tmp_path, image_inputs((40, 64), resize=RESIZE))


FRAMES = {
    **VISION,
    "num_frames": 3,
    "mit_hidden_size": 20,
    "mit_intermediate_size": 28,
    "mit_num_hidden_layers": 2,
    "mit_num_attention_heads": 5,
}


def test_frames_that_pass_messages(tmp_path: Path) -> None:
    config = transformers.XCLIPVisionConfig(**{**FRAMES, "layer_norm_eps": 1e-3, "hidden_act": "relu"})
    inputs = {"one video": image_inputs()["own size"]}
    inputs["two videos"] = {"pixel_values": torch.randn(6, 3, 40, 64), RESIZE: True}
    check(reference("XCLIPVisionModel", config), tmp_path, inputs)


def test_a_text_encoder_whose_end_token_has_the_highest_id(tmp_path: Path) -> None:
    check(reference("XCLIPTextModel", transformers.XCLIPTextConfig(**TEXT)), tmp_path, ended(text_inputs(99)))


def test_texts_that_a_video_changes(tmp_path: Path) -> None:
    config = transformers.XCLIPConfig(
        text_config={**TEXT, "layer_norm_eps": 1e-3, "hidden_act": "gelu"}, vision_config={**FRAMES, "layer_norm_eps": 1e-2}, projection_dim=20,
        prompt_layers=3, prompt_num_attention_heads=2, prompt_hidden_act="relu",
    )  # fmt: skip
    videos = {"pixel_values": torch.randn(2, 3, 3, 32, 32)}
    inputs = {name: {**values, **videos} for name, values in ended(text_inputs(99)).items()}
    check(reference("XCLIPModel", config), tmp_path, inputs)


def ended_by(end: int) -> dict[str, dict[str, Any]]:
    """Texts whose end token is the highest word, or a low one."""
    inputs = ended(text_inputs(99))
    for values in inputs.values():
        values["input_ids"][values["input_ids"] == 98] = end
    return inputs


@pytest.mark.parametrize("end", [98, 2])
def test_metaclip_2(end: int, tmp_path: Path) -> None:
    config = transformers.MetaClip2Config(
        text_config={**TEXT, "eos_token_id": end}, vision_config=VISION, projection_dim=20
    )
    check(reference("MetaClip2Model", config), tmp_path, with_images(ended_by(end)))


@pytest.mark.parametrize("end", [98, 2])
def test_metaclip_2_text(end: int, tmp_path: Path) -> None:
    config = transformers.MetaClip2TextConfig(**{**TEXT, "eos_token_id": end}, projection_dim=20)
    check(reference("MetaClip2TextModelWithProjection", config), tmp_path, ended_by(end))


def test_metaclip_2_vision(tmp_path: Path) -> None:
    config = transformers.MetaClip2VisionConfig(**VISION, projection_dim=20)
    check(
        reference("MetaClip2VisionModelWithProjection", config),
        tmp_path,
        image_inputs((40, 64), resize=RESIZE),
    )


def test_clip_classifies_images(tmp_path: Path) -> None:
    config = transformers.CLIPConfig(text_config=TEXT, vision_config=VISION, num_labels=5)
    check(reference("CLIPForImageClassification", config), tmp_path, image_inputs())


def test_siglip_text(tmp_path: Path) -> None:
    config = transformers.SiglipTextConfig(**TEXT, projection_size=20)
    check(reference("SiglipTextModel", config), tmp_path, text_inputs(99))


@pytest.mark.parametrize("pools", [True, False])
def test_siglip_vision(pools: bool, tmp_path: Path) -> None:
    config = transformers.SiglipVisionConfig(**VISION, vision_use_head=pools)
    check(reference("SiglipVisionModel", config), tmp_path, image_inputs((40, 64), resize=RESIZE))


def test_siglip(tmp_path: Path) -> None:
    config = transformers.SiglipConfig(text_config={**TEXT, "projection_size": 32}, vision_config=VISION)
    check(reference("SiglipModel", config), tmp_path, with_images(text_inputs(99)))


def test_siglip_with_a_config_that_leaves_defaults_out(tmp_path: Path) -> None:
    text = {**TEXT, "num_attention_heads": 12, "num_hidden_layers": 12, "projection_size": 32}
    config = transformers.SiglipConfig(text_config=text, vision_config=VISION)

    def edit(data: dict[str, Any]) -> None:
        data["text_config"] = {"model_type": "siglip_text_model"}

    check(reference("SiglipModel", config), tmp_path, with_images(text_inputs(99)), edit=edit)


def test_siglip_classifies_images(tmp_path: Path) -> None:
    config = transformers.SiglipConfig(text_config=TEXT, vision_config=VISION, num_labels=5)
    check(reference("SiglipForImageClassification", config), tmp_path, image_inputs((40, 64), resize=RESIZE))


@pytest.mark.parametrize("name", ["Model", "ForSceneTextRecognition"])
def test_mgp_str(name: str, tmp_path: Path) -> None:
    config = transformers.MgpstrConfig(
        image_size=[16, 64], patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, mlp_ratio=2.0,
        max_token_length=6, num_character_labels=11, num_bpe_labels=13, num_wordpiece_labels=17, qkv_bias=name == "Model",
        layer_norm_eps=1e-4,
    )  # fmt: skip
    check(reference(f"Mgpstr{name}", config), tmp_path, image_inputs(own=(16, 64)))


@pytest.mark.parametrize(
    ("upsampler", "scale"),
    [("pixelshuffle", 3), ("pixelshuffle", 4), ("pixelshuffledirect", 2), ("nearest+conv", 4)],
)
def test_swin2sr(upsampler: str, scale: int, tmp_path: Path) -> None:
    config = transformers.Swin2SRConfig(
        image_size=12, patch_size=1, embed_dim=16, depths=[2, 1], num_heads=[2, 4], window_size=4, mlp_ratio=2.0,
        img_range=2.0, upscale=scale, upsampler=upsampler, qkv_bias=scale == 4, hidden_act="relu", layer_norm_eps=1e-4,
    )  # fmt: skip
    model = reference("Swin2SRForImageSuperResolution", config)
    check(model, tmp_path, image_inputs((8, 16), own=(12, 12)))


def test_swin2sr_without_a_head(tmp_path: Path) -> None:
    config = transformers.Swin2SRConfig(image_size=4, embed_dim=16, depths=[2], num_heads=[2], window_size=8)
    check(reference("Swin2SRModel", config), tmp_path, image_inputs(own=(8, 8)))


@pytest.mark.parametrize("heads", [4, 1])
def test_vjepa2(heads: int, tmp_path: Path) -> None:
    config = transformers.VJEPA2Config(
        patch_size=8, crop_size=16, frames_per_clip=4, tubelet_size=2, hidden_size=32, num_attention_heads=heads,
        num_hidden_layers=2, mlp_ratio=2.0, num_pooler_layers=1, pred_hidden_size=24, pred_num_attention_heads=2,
        pred_num_hidden_layers=1, pred_mlp_ratio=2.0, qkv_bias=heads == 4, hidden_act="gelu", layer_norm_eps=1e-4,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    shapes = {"own size": (2, 4, 3, 16, 16), "longer": (1, 6, 3, 16, 16), "one frame": (2, 1, 3, 16, 16)}
    cases = {k: {"pixel_values_videos": torch.randn(v, generator=generator)} for k, v in shapes.items()}
    check(reference("VJEPA2ForVideoClassification", config), tmp_path, cases)


@pytest.mark.parametrize(("biased", "affine"), [(False, False), (True, False), (True, True)])
def test_pp_ocrv5_server_rec(biased: bool, affine: bool, tmp_path: Path) -> None:
    backbone = transformers.HGNetV2Config(
        embedding_size=8, depths=[1, 2], hidden_sizes=[8, 16], stem_channels=[3, 8, 8], stage_in_channels=[8, 8],
        stage_mid_channels=[6, 10], stage_out_channels=[8, 16], stage_num_blocks=[2, 1], stage_downsample=[False, True],
        stage_light_block=[False, True], stage_kernel_size=[3, 5], stage_numb_of_layers=[2, 2], hidden_act="silu",
        stage_downsample_strides=[[1, 1], [2, 1]], stem_strides=[2, 1, 1, 2 if biased else 1, 1], out_features=["stage2"],
        use_learnable_affine_block=affine,
    )  # fmt: skip
    config = transformers.PPOCRV5ServerRecConfig(
        backbone_config=backbone, hidden_size=24, num_attention_heads=4, mlp_ratio=2.0, depth=2, head_out_channels=11,
        conv_kernel_size=[1, 3], qkv_bias=biased, hidden_act="gelu", layer_norm_eps=1e-4,
    )  # fmt: skip
    height = 24 if biased else 12
    cases = image_inputs((height, 80), own=(height, 48))
    check(reference("PPOCRV5ServerRecForTextRecognition", config), tmp_path, cases)


@pytest.mark.parametrize("step", [2, [2, 1]])
def test_pp_ocrv5_mobile_rec(step: Any, tmp_path: Path) -> None:
    plain = [[[3, 8, 8, 1, False]]] * 3
    stages = [
        [[3, 8, 8, 1, False], [5, 8, 8, 1, True]],
        *plain,
        [[3, 8, 16, step, True], [3, 16, 16, 1, False]],
    ]
    backbone = transformers.PPLCNetV3Config(
        block_configs=stages, scale=1.0, divisor=8, stem_channels=8, conv_symmetric_num=2, reduction=2,
        hidden_act="hardswish" if step == 2 else "relu", out_features=["stage5"],
    )  # fmt: skip
    config = transformers.PPOCRV5MobileRecConfig(
        backbone_config=backbone, hidden_size=24, num_attention_heads=4, mlp_ratio=2.0, depth=1, head_out_channels=11,
        conv_kernel_size=[1, 3], qkv_bias=step == 2, layer_norm_eps=1e-4,
    )  # fmt: skip
    cases = image_inputs((12, 80), own=(12, 48))
    check(reference("PPOCRV5MobileRecForTextRecognition", config), tmp_path, cases)


@pytest.mark.parametrize("name", ["VisionModel", "ForVideoClassification"])
def test_videoprism_vision(name: str, tmp_path: Path) -> None:
    config = transformers.VideoPrismVisionConfig(
        image_size=16, num_frames=3, tubelet_size=[1, 8, 8], hidden_size=32, num_attention_heads=4, intermediate_size=48,
        num_spatial_layers=1 if name == "VisionModel" else 2, num_temporal_layers=2, attn_logit_softcapping=5.0,
        layer_norm_eps=1e-4, hidden_act="relu",
    )  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    shapes = {"two": (2, 3, 3, 16, 16), "one": (1, 3, 3, 16, 16)}
    cases = {k: {"pixel_values_videos": torch.randn(v, generator=generator)} for k, v in shapes.items()}
    check(reference(f"VideoPrism{name}", config), tmp_path, cases)


def test_videoprism(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "layer_norm_eps": 1e-4}
    vision = transformers.VideoPrismVisionConfig(
        image_size=16, num_frames=3, tubelet_size=[1, 8, 8], num_spatial_layers=2, num_temporal_layers=1,
        num_auxiliary_layers=1, attn_logit_softcapping=5.0, **sizes,
    )  # fmt: skip
    text = transformers.VideoPrismTextConfig(
        vocab_size=99, num_hidden_layers=2, max_position_embeddings=20, attn_logit_softcapping=4.0,
        **{**sizes, "num_attention_heads": 2, "layer_norm_eps": 1e-3},
    )  # fmt: skip
    config = transformers.VideoPrismConfig(vision_config=vision.to_dict(), text_config=text.to_dict())
    videos = torch.randn(3, 3, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    cases = {
        name: {**case, "pixel_values_videos": videos[: len(case["input_ids"])]}
        for name, case in text_inputs(99, positions=False).items()
    }
    check(reference("VideoPrismClipModel", config), tmp_path, cases)
