"""Tiny checkpoints by other packages, each with inputs and outputs, for tools/foreign.py.

    PYTHONPATH=PACKAGES python tools/foreign_cases.py CASES            # all whose package is there
    PYTHONPATH=PACKAGES python tools/foreign_cases.py CASES --only lit_qwen3 swin

PACKAGES is a folder into which `pip install --no-deps --target PACKAGES` put timm, torchvision, litgpt, x-transformers,
vit-pytorch, spandrel, segmentation-models-pytorch, MONAI, diffusers, ESPnet, pretrainedmodels and what they need;
small_networks.py beside this file has what no package writes. Weights are random, norms perturbed.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import json
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from safetensors.torch import save_file
from torch import nn
from torchvision_operators import left_out

Input = (
    tuple[int, ...] | str | float | dict[str, "Input"]
)  # a shape of normal numbers, "ids" (or "few_ids", "two_ids"), the number of a step, or several by name


class Row(NamedTuple):
    """A model by the path of what makes it, with arguments, which may be such models; the shapes of its inputs."""

    made_by: str  # "package.module:name"
    arguments: dict[str, Any]
    inputs: tuple[Input, ...] | dict[str, Input] = ((1, 3, 64, 64),)  # by position, or by name
    settings: str = ""  # a file beside the weights that the package writes


LAYERS = {"dim": 64, "depth": 2, "heads": 4, "attn_dim_head": 16}
SMALL = {
    "image_size": 32,
    "patch_size": 8,
    "num_classes": 10,
    "dim": 64,
    "depth": 2,
    "heads": 4,
    "mlp_dim": 96,
}
STAGES = {"embed_dim": 24, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4, "img_size": 16}
IMAGE_32, IMAGE_16 = ((1, 3, 32, 32),), ((1, 3, 16, 16),)
TORCHVISION = [
    "alexnet",
    "convnext_tiny",
    "densenet121",
    "efficientnet_b0",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "resnet18",
    "resnext50_32x4d",
    "shufflenet_v2_x0_5",
    "squeezenet1_0",
    "swin_t",
    "swin_v2_t",
    "vgg11",
    "vgg11_bn",
]
TIMM: dict[str, dict[str, Any]] = {
    "vit_tiny_patch16_224": {"img_size": 64, "depth": 2},
    "beit_base_patch16_224": {"img_size": 64, "depth": 2, "embed_dim": 48, "num_heads": 3},
    "swin_tiny_patch4_window7_224": {"img_size": 64, "window_size": 2, "depths": [2, 2], "num_heads": [2, 4], "embed_dim": 32},
    "eva02_tiny_patch14_224": {"img_size": 64, "patch_size": 16, "depth": 2},
    "mixer_s16_224": {"img_size": 64},
    **{name: {} for name in ("convnext_atto", "densenet121", "efficientnet_b0", "mobilenetv3_small_050", "resnet26", "vgg11")},
}  # fmt: skip
LITGPT = [
    "Qwen2.5-0.5B",
    "Mistral-7B-v0.1",
    "phi-2",
    "Gemma-2-2b",
    "falcon-7b",
    "stablelm-3b-4e1t",
    "Qwen3-0.6B",
    "gemma-3-1b-it",
    "OLMo-2-1124-7B",
    "Mixtral-8x7B-v0.1",
]
UNET = {
    "sample_size": 16, "block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8, "cross_attention_dim": 24, "attention_head_dim": 4,
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
}  # fmt: skip
XL = {
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"), "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"), "attention_head_dim": (2, 4),
    "use_linear_projection": True, "transformer_layers_per_block": (1, 2), "addition_embed_type": None,
}  # fmt: skip
VAE = {
    "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2, "block_out_channels": (32, 64), "norm_num_groups": 8,
}  # fmt: skip
DENOISED: dict[str, Input] = {"sample": (1, 4, 16, 16), "timestep": 7, "encoder_hidden_states": (1, 5, 24)}
DIFFUSERS: dict[str, tuple[str, dict[str, Any], dict[str, Input]]] = {
    "unet": ("UNet2DConditionModel", UNET, DENOISED),
    "unet_xl": ("UNet2DConditionModel", {**UNET, **XL}, DENOISED),
    "unet_plain": ("UNet2DModel", {"sample_size": 16, "block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8, "down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}, {"sample": (1, 3, 16, 16), "timestep": 7}),
    "unet_xl_added": ("UNet2DConditionModel", {**UNET, **XL, "addition_embed_type": "text_time", "addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 20 + 6 * 8}, {**DENOISED, "added_cond_kwargs": {"text_embeds": (1, 20), "time_ids": (1, 6)}}),
    "vae": ("AutoencoderKL", VAE, {"sample": (1, 3, 16, 16)}),
    "vq": ("VQModel", {**VAE, "num_vq_embeddings": 32}, {"sample": (1, 3, 16, 16)}),
    "dit": ("DiTTransformer2DModel", {"num_attention_heads": 4, "attention_head_dim": 16, "in_channels": 4, "out_channels": 8, "num_layers": 2, "sample_size": 8, "norm_num_groups": 8}, {"hidden_states": (1, 4, 8, 8), "timestep": 7, "class_labels": 5}),
    "pixart": ("PixArtTransformer2DModel", {"num_attention_heads": 4, "attention_head_dim": 16, "in_channels": 4, "out_channels": 8, "num_layers": 2, "sample_size": 8, "cross_attention_dim": 64, "caption_channels": 24, "use_additional_conditions": False}, {"hidden_states": (1, 4, 8, 8), "timestep": 7, "encoder_hidden_states": (1, 5, 24)}),
    "sd3": ("SD3Transformer2DModel", {"sample_size": 8, "num_layers": 2, "attention_head_dim": 16, "num_attention_heads": 4, "joint_attention_dim": 24, "caption_projection_dim": 64, "pooled_projection_dim": 40, "in_channels": 4, "out_channels": 4, "pos_embed_max_size": 8}, {"hidden_states": (1, 4, 8, 8), "encoder_hidden_states": (1, 5, 24), "pooled_projections": (1, 40), "timestep": 7}),
    "flux": ("FluxTransformer2DModel", {"in_channels": 16, "num_layers": 1, "num_single_layers": 2, "attention_head_dim": 16, "num_attention_heads": 4, "joint_attention_dim": 24, "pooled_projection_dim": 40, "axes_dims_rope": (4, 6, 6), "guidance_embeds": False}, {"hidden_states": (1, 16, 16), "encoder_hidden_states": (1, 5, 24), "pooled_projections": (1, 40), "timestep": 0.5, "img_ids": (16, 3), "txt_ids": (5, 3)}),
    "tiny_vae": ("AutoencoderTiny", {"encoder_block_out_channels": (16, 16), "decoder_block_out_channels": (16, 16), "num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)}, {"sample": (1, 3, 16, 16)}),
    "controlnet": ("ControlNetModel", {"block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8, "cross_attention_dim": 24, "attention_head_dim": 4, "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "conditioning_embedding_out_channels": (16, 24)}, {**DENOISED, "controlnet_cond": (1, 3, 32, 32), "conditioning_scale": 1.0}),
}  # fmt: skip
DENOISER = {"sample_size": 16, "block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8}
DDPM = {**DENOISER, "down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}  # fmt: skip
PLAIN = {**DENOISER, "down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2}
NOISE: dict[str, Input] = {"sample": (1, 3, 16, 16), "timestep": 7}
DIFFUSERS |= {
    "ddpm": ("UNet2DModel", {**DDPM, "attention_head_dim": None, "flip_sin_to_cos": False, "freq_shift": 1, "downsample_padding": 0}, NOISE),
    "unet_classes": ("UNet2DModel", {**DDPM, "num_class_embeds": 10}, {**NOISE, "class_labels": 3}),
    "unet_without_attention": ("UNet2DModel", {**PLAIN, "add_attention": False}, NOISE),
    "vq_without_attention": ("VQModel", {**VAE, "num_vq_embeddings": 32, "mid_block_add_attention": False}, {"sample": (1, 3, 16, 16)}),
    "wan": ("WanTransformer3DModel", {"num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4, "out_channels": 4, "text_dim": 16, "freq_dim": 24, "ffn_dim": 32, "num_layers": 2, "rope_max_seq_len": 32}, {"hidden_states": (1, 4, 2, 8, 8), "timestep": 7, "encoder_hidden_states": (1, 5, 16)}),
    "sana": ("SanaTransformer2DModel", {"in_channels": 4, "out_channels": 4, "num_layers": 2, "num_attention_heads": 4, "attention_head_dim": 8, "num_cross_attention_heads": 2, "cross_attention_head_dim": 16, "cross_attention_dim": 32, "caption_channels": 24, "sample_size": 8}, {"hidden_states": (1, 4, 8, 8), "encoder_hidden_states": (1, 5, 24), "timestep": 7}),
    "vae_without_attention": ("AutoencoderKL", {**VAE, "mid_block_add_attention": False, "use_quant_conv": False, "use_post_quant_conv": False, "latent_channels": 16}, {"sample": (1, 3, 16, 16)}),
}  # fmt: skip
WAN, SANA, PIXART = (DIFFUSERS[name] for name in ("wan", "sana", "pixart"))
ROW: dict[str, Any] = {"in_channels": 4, "num_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2, "joint_attention_dim": 10, "axes_dims_rope": (4, 6, 6)}  # fmt: skip
DIFFUSERS |= {
    "wan_image": (WAN[0], {**WAN[1], "image_dim": 10, "added_kv_proj_dim": 24}, {**WAN[2], "encoder_hidden_states": (1, 512, 16), "encoder_hidden_states_image": (1, 7, 10)}),  # a text of 512 words
    "skyreels": ("SkyReelsV2Transformer3DModel", WAN[1], WAN[2]),
    "sana_norms": (SANA[0], {**SANA[1], "qk_norm": "rms_norm_across_heads"}, SANA[2]),
    "sana_guided": (SANA[0], {**SANA[1], "qk_norm": "rms_norm_across_heads", "guidance_embeds": True}, {**SANA[2], "guidance": (1,)}),
    "pixart_sized": (PIXART[0], {**PIXART[1], "attention_head_dim": 18, "cross_attention_dim": 72, "use_additional_conditions": True}, {**PIXART[2], "added_cond_kwargs": {"resolution": (1, 2), "aspect_ratio": (1, 1)}}),
    "longcat": ("LongCatImageTransformer2DModel", {**ROW, "num_single_layers": 1, "pooled_projection_dim": 10}, {"hidden_states": (1, 16, 4), "encoder_hidden_states": (1, 5, 10), "timestep": (1,), "img_ids": (16, 3), "txt_ids": (5, 3)}),
}  # fmt: skip
SEGMENTED = {  # decoder and encoder of segmentation-models-pytorch
    "pan": ("PAN", "resnet18"), "upernet": ("UPerNet", "resnet18"), "upernet_mit": ("UPerNet", "mit_b0"), "segformer": ("Segformer", "resnet18"), "segformer_mit": ("Segformer", "mit_b0"), "fpn_mit": ("FPN", "mit_b0"), "fpn_efficientnet": ("FPN", "efficientnet-b0"),
    **{f"unet_{name}": ("Unet", name) for name in ("vgg11", "densenet121", "se_resnet50", "mit_b0", "resnext50_32x4d", "mobilenet_v2", "timm-regnetx_002", "timm-res2net50_26w_4s", "timm-efficientnet-b0", "tu-convnext_atto", "tu-mobilenetv3_small_050")},
}  # fmt: skip
UNETS: dict[str, tuple[str, dict[str, Any], int]] = {  # of MONAI, over so many dimensions
    "unet": ("UNet", {"spatial_dims": 2, "in_channels": 1, "out_channels": 2, "channels": (8, 16, 32), "strides": (2, 2)}, 2),
    "unet_residual": ("UNet", {"spatial_dims": 3, "in_channels": 1, "out_channels": 2, "channels": (8, 16, 32), "strides": (2, 2), "num_res_units": 2, "norm": "batch"}, 3),
    "basic_unet": ("BasicUNet", {"spatial_dims": 2, "in_channels": 1, "out_channels": 2, "features": (8, 8, 16, 16, 32, 8)}, 2),
    "segresnet": ("SegResNet", {"spatial_dims": 3, "init_filters": 8, "in_channels": 1, "out_channels": 2, "blocks_down": (1, 2), "blocks_up": (1,)}, 3),
    "attention_unet": ("AttentionUnet", {"spatial_dims": 2, "in_channels": 1, "out_channels": 2, "channels": (8, 16, 32), "strides": (2, 2)}, 2),
}  # fmt: skip
SPANDREL: dict[str, tuple[str, dict[str, Any]]] = {
    "swinir_real": ("SwinIR.__arch.SwinIR:SwinIR", {**STAGES, "upsampler": "nearest+conv", "upscale": 4, "resi_connection": "1conv"}),
    "swinir_classic": ("SwinIR.__arch.SwinIR:SwinIR", {**STAGES, "upsampler": "pixelshuffle", "upscale": 2}),
    "dncnn": ("DnCNN.__arch.network_dncnn:DnCNN", {"in_nc": 1, "out_nc": 1, "nc": 16, "nb": 5, "act_mode": "R"}),
    "scunet": ("SCUNet.__arch.SCUNet:SCUNet", {"config": [1] * 7, "dim": 64}),
    "span": ("SPAN.__arch.span:SPAN", {"num_in_ch": 3, "num_out_ch": 3, "feature_channels": 16, "upscale": 2}),
    "omnisr": ("OmniSR.__arch.OmniSR:OmniSR", {"num_in_ch": 3, "num_out_ch": 3, "num_feat": 16, "res_num": 1, "block_num": 1, "up_scale": 2}),
    "drunet": ("DRUNet.__arch.network_unet:DRUNet", {"in_nc": 3, "out_nc": 3, "nc": [16, 16, 16, 16], "nb": 1}),
    "mosr_plksr": ("PLKSR.__arch.PLKSR:PLKSR", {"dim": 16, "n_blocks": 2, "upscaling_factor": 2}),
    "swin2sr_steps": ("Swin2SR.__arch.Swin2SR:Swin2SR", {**STAGES, "upsampler": "nearest+conv", "upscale": 4}),
    "swin2sr_classic": ("Swin2SR.__arch.Swin2SR:Swin2SR", {**STAGES, "upsampler": "pixelshuffle", "upscale": 2}),
    "swin2sr": ("Swin2SR.__arch.Swin2SR:Swin2SR", {**STAGES, "upsampler": "pixelshuffledirect", "upscale": 2}),
    "hat": ("HAT.__arch.HAT:HAT", {**STAGES, "upscale": 2, "squeeze_factor": 4}),
    "dat": ("DAT.__arch.DAT:DAT", {"img_size": 16, "embed_dim": 24, "split_size": [4, 4], "depth": [2], "num_heads": [2], "upscale": 2, "upsampler": "pixelshuffledirect", "expansion_factor": 2}),
}  # fmt: skip
MORE_SEGMENTED: dict[str, tuple[str, dict[str, Any]]] = {
    "lraspp": ("lraspp_mobilenet_v3_large", {}),
    "deeplab_mobile": ("deeplabv3_mobilenet_v3_large", {"aux_loss": True}),
    "deeplab_aux": ("deeplabv3_resnet50", {"aux_loss": True}),
}
MORE_TIMM: dict[str, dict[str, Any]] = {
    "swinv2_cr_tiny_224": {"img_size": 64, "window_size": 2, "depths": [2, 2], "num_heads": [2, 4], "embed_dim": 32},
    "swinv2_tiny_window8_256": {"img_size": 64, "window_size": 2, "depths": [2, 2], "num_heads": [2, 4], "embed_dim": 32},
    "deit_tiny_distilled_patch16_224": {"img_size": 64, "depth": 2},
    "deit3_small_patch16_224": {"img_size": 64, "depth": 2, "embed_dim": 48, "num_heads": 3},
    "vit_small_patch14_dinov2": {"img_size": 64, "patch_size": 16, "depth": 2, "embed_dim": 48, "num_heads": 3},
    "vit_small_patch14_reg4_dinov2": {"img_size": 64, "patch_size": 16, "depth": 2, "embed_dim": 48, "num_heads": 3},
    "vit_base_patch16_siglip_224": {"img_size": 64, "depth": 2, "embed_dim": 48, "num_heads": 3},
    "beitv2_base_patch16_224": {"img_size": 64, "depth": 2, "embed_dim": 48, "num_heads": 3},
    "cait_xxs24_224": {"img_size": 64, "depth": 2, "embed_dim": 48, "num_heads": 3},
    "xcit_nano_12_p16_224": {"img_size": 64, "depth": 2, "embed_dim": 48, "num_heads": 3},
    "samvit_base_patch16": {"img_size": 64, "depth": 3, "embed_dim": 48, "num_heads": 3, "global_attn_indexes": [1], "window_size": 3},
    "pvt_v2_b0": {}, "poolformer_s12": {}, "convmixer_768_32": {},
    "gmlp_s16_224": {"img_size": 64},
    "resmlp_12_224": {"img_size": 64},
    "levit_128s": {"img_size": 64},
    **{name: {} for name in ("resnet26d", "seresnet50", "resnetv2_50", "res2net50_26w_4s", "ecaresnet26t", "resnext26ts", "skresnet18", "convnextv2_atto", "mobilenetv2_050", "mobileone_s0", "regnety_002", "repvgg_a0", "ghostnet_100", "efficientnetv2_rw_t", "tf_efficientnet_b0", "dpn48b", "xception41", "hrnet_w18_small", "nfnet_l0", "cspdarknet53", "dla34", "vovnet39a", "edgenext_xx_small", "mobilevit_xxs", "fastvit_t8", "rexnet_100", "lcnet_050", "davit_tiny", "focalnet_tiny_srf", "caformer_s18", "mobilenetv4_conv_small", "mobilenetv1_100", "mobilevitv2_050", "resnetv2_50x1_bit", "tf_efficientnetv2_b0", "mobilenetv3_large_100", "semnasnet_100", "hardcorenas_a", "ghostnetv2_100", "darknet53", "resnest14d", "resnetaa50", "regnetz_b16", "mixnet_s", "ese_vovnet19b_dw", "cspresnext50", "gernet_s")},
}  # fmt: skip
TUNED = {
    "vocab_size": 100,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "embed_dim": 64,
    "max_seq_len": 64,
}
TUNE: dict[str, tuple[str, dict[str, Any]]] = {
    "llama3": ("llama3:llama3", {**TUNED, "intermediate_dim": 96}),
    "qwen2": ("qwen2:qwen2", {**TUNED, "intermediate_dim": 96}),
    "gemma": ("gemma:gemma", {**TUNED, "head_dim": 16, "intermediate_dim": 96}),
    "phi3": ("phi3:phi3", {**TUNED, "intermediate_dim": 96}),
    "mistral": ("mistral:mistral", {**TUNED, "intermediate_dim": 96}),
}
TORCH = {"d_model": 64, "nhead": 4, "dim_feedforward": 96, "batch_first": True}
W2V = {
    "extractor_conv_layer_config": [(16, 10, 5), (16, 3, 2), (16, 2, 2)], "encoder_embed_dim": 32, "encoder_projection_dropout": 0.0,
    "encoder_pos_conv_kernel": 8, "encoder_pos_conv_groups": 4, "encoder_num_layers": 2, "encoder_num_heads": 4, "encoder_attention_dropout": 0.0,
    "encoder_ff_interm_features": 48, "encoder_ff_interm_dropout": 0.0, "encoder_dropout": 0.0, "encoder_layer_drop": 0.0,
}  # fmt: skip
SPEECHBRAIN = "speechbrain.lobes.models"
RECURRENT = Row(f"{SPEECHBRAIN}.dual_path:SBRNNBlock", {"input_size": 16, "hidden_channels": 12, "num_layers": 1})  # fmt: skip
LAYERED = Row(f"{SPEECHBRAIN}.dual_path:SBTransformerBlock", {"num_layers": 2, "d_model": 16, "nhead": 4, "d_ffn": 32, "norm_before": True, "use_positional_encoding": True})  # fmt: skip
TWO_SOURCES = {"in_channels": 16, "out_channels": 16, "num_layers": 2, "K": 10, "num_spks": 2}
FILTERS = {"n_src": 2, "n_filters": 16, "kernel_size": 8, "stride": 4, "bn_chan": 12}
BIGVGAN = {
    "resblock": "1", "upsample_rates": [4, 2], "upsample_kernel_sizes": [8, 4], "upsample_initial_channel": 32, "resblock_kernel_sizes": [3, 5],
    "resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5]], "activation": "snakebeta", "snake_logscale": True, "num_mels": 12, "use_tanh_at_final": False,
    "use_bias_at_final": False,
}  # fmt: skip
PANNS = {"sample_rate": 32000, "window_size": 1024, "hop_size": 320, "mel_bins": 64, "fmin": 50, "fmax": 14000, "classes_num": 20}  # fmt: skip
ESPNET = {"input_size": 20, "output_size": 32, "attention_heads": 4, "linear_units": 48, "num_blocks": 2}
ESM = {"num_layers": 2, "embed_dim": 64, "attention_heads": 4}
ROWS = {
    **{f"diffusers_{name}": Row(f"diffusers:{made_by}", arguments, inputs, "diffusers") for name, (made_by, arguments, inputs) in DIFFUSERS.items()},
    **{f"smp_{name}": Row(f"segmentation_models_pytorch:{decoder}", {"encoder_name": encoder, "encoder_weights": None, "classes": 3}, ((1, 3, 128, 128),)) for name, (decoder, encoder) in SEGMENTED.items()},
    "smp_unet_labels": Row("segmentation_models_pytorch:Unet", {"encoder_name": "resnet18", "encoder_weights": None, "classes": 3, "encoder_depth": 3, "decoder_channels": [32, 24, 16], "aux_params": {"classes": 4}}),
    **{f"monai_{name}": Row(f"monai.networks.nets:{made_by}", arguments, ((1, 1, *(32,) * axes),)) for name, (made_by, arguments, axes) in UNETS.items()},
    **{name: Row(f"spandrel.architectures.{path}", arguments, ((1, arguments.get("in_nc", 3), *(2 * [64 if name == "scunet" else 16])),)) for name, (path, arguments) in SPANDREL.items()},
    **{f"timm_{name}": Row("timm:create_model", {"model_name": name, "num_classes": 10, **more}, settings="timm") for name, more in MORE_TIMM.items()},
    "timm_efficientformer_l1": Row("timm:create_model", {"model_name": "efficientformer_l1", "num_classes": 10}, ((1, 3, 224, 224),), "timm"),
    "googlenet": Row("torchvision.models:googlenet", {"weights": None, "num_classes": 10, "init_weights": False}),
    "inception": Row("torchvision.models:inception_v3", {"weights": None, "num_classes": 10, "init_weights": False}, ((1, 3, 96, 96),)),
    **{name: Row(f"torchvision.models:{name}", {"weights": None, "num_classes": 10}) for name in ("mnasnet0_5", "squeezenet1_1", "efficientnet_v2_s", "wide_resnet50_2", "regnet_x_400mf", "mobilenet_v3_large")},
    "tv_vit": Row("torchvision.models.vision_transformer:VisionTransformer", {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 4, "hidden_dim": 64, "mlp_dim": 96, "num_classes": 10}, IMAGE_32),
    "tv_fcn": Row("torchvision.models.segmentation:fcn_resnet50", {"weights": None, "weights_backbone": None, "num_classes": 5}),
    **{f"tv_{name}": Row(f"torchvision.models.segmentation:{made}", {"weights": None, "weights_backbone": None, "num_classes": 5, **more}) for name, (made, more) in MORE_SEGMENTED.items()},
    "tv_deeplab": Row("torchvision.models.segmentation:deeplabv3_resnet50", {"weights": None, "weights_backbone": None, "num_classes": 5}),
    "tv_r3d": Row("torchvision.models.video:r3d_18", {"weights": None, "num_classes": 5}, ((1, 3, 8, 32, 32),)),
    "deeplab": Row("segmentation_models_pytorch:DeepLabV3Plus", {"encoder_name": "resnet18", "encoder_weights": None, "classes": 3}),
    "fpn": Row("segmentation_models_pytorch:FPN", {"encoder_name": "resnet18", "encoder_weights": None, "classes": 3}),
    "unetpp": Row("segmentation_models_pytorch:UnetPlusPlus", {"encoder_name": "resnet18", "encoder_weights": None, "classes": 3}),
    "vit_cross": Row("vit_pytorch.cct:CCT", {"img_size": 32, "embedding_dim": 64, "n_conv_layers": 1, "num_layers": 2, "num_heads": 4, "mlp_ratio": 2.0, "num_classes": 10, "positional_embedding": "learnable"}, IMAGE_32),
    "vit_deepvit": Row("vit_pytorch.deepvit:DeepViT", {**SMALL, "dropout": 0.0}, IMAGE_32),
    "vit_cait": Row("vit_pytorch.cait:CaiT", {**SMALL, "cls_depth": 1}, IMAGE_32),
    "vit_distill": Row("vit_pytorch.vit_for_small_dataset:ViT", SMALL, IMAGE_32),
    "vit_1d": Row("vit_pytorch.vit_1d:ViT", {"seq_len": 64, "patch_size": 8, "num_classes": 10, "dim": 64, "depth": 2, "heads": 4, "mlp_dim": 96}, ((1, 3, 64),)),
    "vit_3d": Row("vit_pytorch.vit_3d:ViT", {"image_size": 32, "image_patch_size": 8, "frames": 4, "frame_patch_size": 2, "num_classes": 10, "dim": 64, "depth": 2, "heads": 4, "mlp_dim": 96}, ((1, 3, 4, 32, 32),)),
    "na_vit_simple_reg": Row("vit_pytorch.simple_vit_with_register_tokens:SimpleViT", SMALL, IMAGE_32),
    "xt_rotary": Row("x_transformers:TransformerWrapper", {"num_tokens": 100, "max_seq_len": 32, "attn_layers": {"Decoder": {**LAYERS, "rotary_pos_emb": True, "use_rmsnorm": True, "ff_glu": True, "ff_swish": True}}}, ("ids",)),
    "xt_relative": Row("x_transformers:TransformerWrapper", {"num_tokens": 100, "max_seq_len": 32, "attn_layers": {"Encoder": {**LAYERS, "rel_pos_bias": True}}}, ("ids",)),
    "xt_narrow": Row("x_transformers:TransformerWrapper", {"num_tokens": 100, "max_seq_len": 32, "emb_dim": 48, "attn_layers": {"Decoder": LAYERS}}, ("ids",)),
    "xt_unit_rows": Row("x_transformers:TransformerWrapper", {"num_tokens": 100, "max_seq_len": 32, "attn_layers": {"Decoder": {**LAYERS, "attn_qk_norm": True, "attn_qk_norm_dim_scale": True, "rotary_pos_emb": True}}}, ("ids",)),
    "xt_heads": Row("x_transformers:TransformerWrapper", {"num_tokens": 100, "max_seq_len": 32, "attn_layers": {"Decoder": {**LAYERS, "attn_qk_rmsnorm": True, "attn_head_scale": True}}}, ("ids",)),
    "xt_vectors": Row("x_transformers:ContinuousTransformerWrapper", {"dim_in": 24, "dim_out": 12, "max_seq_len": 32, "attn_layers": {"Encoder": LAYERS}}, ((1, 8, 24),)),
    "vit_memory": Row("vit_pytorch.learnable_memory_vit:ViT", SMALL, IMAGE_32),
    "vit_nd": Row("vit_pytorch.vit_nd:ViTND", {"ndim": 2, "input_shape": 32, **{name: size for name, size in SMALL.items() if name != "image_size"}}, IMAGE_32),
    "xt_vit": Row("x_transformers:ViTransformerWrapper", {"image_size": 32, "patch_size": 8, "num_classes": 10, "attn_layers": {"Encoder": LAYERS}}, IMAGE_32),
    **{f"espnet_{kind.lower()}": Row(f"espnet2.asr.encoder.{kind.lower()}_encoder:{kind}Encoder", {**ESPNET, **more}, ((1, 40, 20), 40)) for kind, more in (("Transformer", {}), ("Conformer", {"cnn_module_kernel": 7, "rel_pos_type": "latest", "macaron_style": True}))},
    "pretrained_seresnext": Row("pretrainedmodels.models.senet:se_resnext50_32x4d", {"num_classes": 10, "pretrained": None}, ((1, 3, 224, 224),)),
    "monai_densenet": Row("monai.networks.nets:DenseNet121", {"spatial_dims": 2, "in_channels": 1, "out_channels": 3}, ((1, 1, 64, 64),)),
    "whisper": Row("whisper.model:Whisper", {"dims": {"n_mels": 80, "n_audio_ctx": 20, "n_audio_state": 64, "n_audio_head": 4, "n_audio_layer": 2, "n_vocab": 100, "n_text_ctx": 16, "n_text_state": 64, "n_text_head": 4, "n_text_layer": 2}}, {"mel": (1, 80, 40), "tokens": "ids"}, "whisper"),
    "open_clip": Row("open_clip.model:CLIP", {"embed_dim": 32, "vision_cfg": {"layers": 2, "width": 64, "head_width": 16, "patch_size": 8, "image_size": 32}, "text_cfg": {"context_length": 8, "vocab_size": 100, "width": 64, "heads": 4, "layers": 2}}, {"image": (1, 3, 32, 32), "text": "ids"}, "open_clip"),
    "coca": Row("open_clip.coca_model:CoCa", {"embed_dim": 64, "vision_cfg": {"layers": 2, "width": 64, "head_width": 16, "patch_size": 8, "image_size": 32, "attentional_pool": True, "attn_pooler_heads": 4, "output_tokens": True}, "text_cfg": {"context_length": 8, "vocab_size": 100, "width": 64, "heads": 4, "layers": 2, "embed_cls": True, "output_tokens": True}, "multimodal_cfg": {"context_length": 8, "vocab_size": 100, "width": 64, "heads": 4, "layers": 2, "attn_pooler_heads": 4}}, {"image": (1, 3, 32, 32), "text": "ids"}, "open_clip"),
    "open_clip_scaled": Row("open_clip.model:CLIP", {"embed_dim": 32, "vision_cfg": {"layers": 2, "width": 64, "head_width": 16, "patch_size": 8, "image_size": 32, "ls_init_value": 0.1, "no_ln_pre": True}, "text_cfg": {"context_length": 8, "vocab_size": 100, "width": 64, "heads": 4, "layers": 2, "ls_init_value": 0.1}}, {"image": (1, 3, 32, 32), "text": "ids"}, "open_clip"),
    "open_clip_resnet": Row("open_clip.model:CLIP", {"embed_dim": 32, "vision_cfg": {"layers": [1, 1, 1, 1], "width": 16, "image_size": 64}, "text_cfg": {"context_length": 8, "vocab_size": 100, "width": 64, "heads": 4, "layers": 2}}, {"image": (1, 3, 64, 64), "text": "ids"}, "open_clip"),
    **{f"tune_{name}": Row(f"torchtune.models.{path}", arguments, ("ids",)) for name, (path, arguments) in TUNE.items()},
    "esm2": Row("esm.model.esm2:ESM2", ESM, ("few_ids",)),
    "segment_encoder": Row("segment_anything.modeling:ImageEncoderViT", {"img_size": 64, "embed_dim": 48, "depth": 2, "num_heads": 3, "out_chans": 32, "qkv_bias": True, "use_rel_pos": True, "rel_pos_zero_init": False, "window_size": 2, "global_attn_indexes": [1]}, ((1, 3, 64, 64),)),
    "encodec": Row("encodec.model:EncodecModel._get_model", {"target_bandwidths": [3.0], "sample_rate": 24000, "channels": 1}, ((1, 1, 640),)),
    "conformer": Row("conformer:Conformer", {"dim": 64, "depth": 2, "dim_head": 16, "heads": 4}, ((1, 12, 64),)),
    "ta_convtasnet": Row("torchaudio.models:ConvTasNet", {"enc_kernel_size": 8, "enc_num_feats": 16, "msk_num_feats": 12, "msk_num_hidden_feats": 20, "msk_num_layers": 3, "msk_num_stacks": 2}, ((1, 1, 200),)),
    "openunmix": Row("openunmix.model:OpenUnmix", {"nb_bins": 33, "hidden_size": 16, "nb_layers": 2, "max_bin": 20}, ((1, 2, 33, 12),)),
    "sb_ecapa": Row("speechbrain.lobes.models.ECAPA_TDNN:ECAPA_TDNN", {"input_size": 16, "lin_neurons": 12, "channels": [16, 16, 16, 16, 32], "attention_channels": 8, "se_channels": 8, "res2net_scale": 4}, ((2, 30, 16),)),
    "ta_conformer": Row("torchaudio.models:Conformer", {"input_dim": 64, "num_heads": 4, "ffn_dim": 96, "num_layers": 2, "depthwise_conv_kernel_size": 7}, ((1, 12, 64), 12)),
    "ta_wav2letter": Row("torchaudio.models:Wav2Letter", {"num_classes": 20, "input_type": "mfcc", "num_features": 13}, ((1, 13, 60),)),
    "ta_deepspeech": Row("torchaudio.models:DeepSpeech", {"n_feature": 20, "n_hidden": 32, "n_class": 12}, ((1, 1, 10, 20),)),
    "ta_tasnet": Row("torchaudio.models:ConvTasNet", {"enc_num_feats": 32, "msk_num_feats": 16, "msk_num_hidden_feats": 24, "msk_num_layers": 2, "msk_num_stacks": 1}, ((1, 1, 320),)),
    "ta_wavernn": Row("torchaudio.models:WaveRNN", {"upsample_scales": [2, 2], "n_classes": 8, "hop_length": 4, "n_res_block": 2, "n_rnn": 16, "n_fc": 16, "n_freq": 12, "n_hidden": 16, "n_output": 16}, ((1, 1, 16), (1, 1, 12, 8))),
    "ta_wav2vec2": Row("torchaudio.models:wav2vec2_model", {**W2V, "extractor_mode": "group_norm", "extractor_conv_bias": False, "encoder_layer_norm_first": False, "aux_num_out": 20}, ((1, 800),)),
    "ta_wav2vec2_large": Row("torchaudio.models:wav2vec2_model", {**W2V, "extractor_mode": "layer_norm", "extractor_conv_bias": True, "encoder_layer_norm_first": True, "aux_num_out": None}, ((1, 800),)),
    "ta_wavlm": Row("torchaudio.models:wavlm_model", {**W2V, "extractor_mode": "group_norm", "extractor_conv_bias": False, "encoder_layer_norm_first": False, "aux_num_out": None, "encoder_num_buckets": 32, "encoder_max_distance": 80}, ((1, 800),)),
    "snac": Row("snac:SNAC", {"encoder_dim": 8, "encoder_rates": [2, 4], "latent_dim": None, "decoder_dim": 32, "decoder_rates": [4, 2], "attn_window_size": None, "codebook_size": 32, "codebook_dim": 8, "vq_strides": [2, 1], "noise": False}, ((1, 1, 640),)),
    "as_convtasnet": Row("asteroid.models:ConvTasNet", {**FILTERS, "hid_chan": 20, "skip_chan": 12, "n_blocks": 2, "n_repeats": 2}, ((1, 1, 200),)),
    "as_dprnn": Row("asteroid.models:DPRNNTasNet", {**FILTERS, "hid_size": 10, "chunk_size": 10, "hop_size": 5, "n_repeats": 2}, ((1, 1, 200),)),
    "sb_dprnn": Row(f"{SPEECHBRAIN}.dual_path:Dual_Path_Model", {**TWO_SOURCES, "intra_model": RECURRENT, "inter_model": RECURRENT}, ((1, 16, 33),)),
    "sb_sepformer": Row(f"{SPEECHBRAIN}.dual_path:Dual_Path_Model", {**TWO_SOURCES, "linear_layer_after_inter_intra": False, "intra_model": LAYERED, "inter_model": LAYERED}, ((1, 16, 33),)),
    **{f"panns_{name}": Row(f"panns_inference.models:{name}", PANNS, ((1, 32000),)) for name in ("Cnn14", "Cnn14_DecisionLevelMax")},
    "denoiser": Row("denoiser.demucs:Demucs", {"hidden": 8, "depth": 3, "resample": 1}, ((1, 1, 600),)),
    "denoiser_up": Row("denoiser.demucs:Demucs", {"hidden": 8, "depth": 2, "resample": 4}, ((1, 1, 600),)),
    "sb_hifigan": Row(f"{SPEECHBRAIN}.HifiGAN:HifiganGenerator", {"in_channels": 12, "out_channels": 1, "resblock_type": "1", "resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5]], "resblock_kernel_sizes": [3, 5], "upsample_kernel_sizes": [8, 4], "upsample_initial_channel": 32, "upsample_factors": [4, 2]}, ((1, 12, 10),)),
    "sb_words": Row(f"{SPEECHBRAIN}.transformer.TransformerLM:TransformerLM", {"vocab": 100, "d_model": 32, "nhead": 4, "num_encoder_layers": 2, "num_decoder_layers": 0, "d_ffn": 48}, ("ids",)),
    "espnet_hifigan": Row("espnet2.gan_tts.hifigan:HiFiGANGenerator", {"in_channels": 20, "channels": 32, "upsample_scales": [4, 2], "upsample_kernel_sizes": [8, 4], "resblock_kernel_sizes": [3, 5], "resblock_dilations": [[1, 3], [1, 3]]}, ((1, 20, 12),)),
    "bigvgan": Row("bigvgan.bigvgan:BigVGAN", {"h": Row("bigvgan.env:AttrDict", BIGVGAN)}, ((1, 12, 10),)),
    "nn_transformer": Row("torch.nn:Transformer", {**TORCH, "num_encoder_layers": 2, "num_decoder_layers": 2}, {"src": (1, 8, 64), "tgt": (1, 6, 64)}),
    "nn_encoder": Row("torch.nn:TransformerEncoder", {"encoder_layer": {"TransformerEncoderLayer": TORCH}, "num_layers": 2}, ((1, 8, 64),)),
    "nn_encoder_first": Row("torch.nn:TransformerEncoder", {"encoder_layer": {"TransformerEncoderLayer": {**TORCH, "norm_first": True, "activation": "gelu"}}, "num_layers": 2}, ((1, 8, 64),)),
    "nn_decoder": Row("torch.nn:TransformerDecoder", {"decoder_layer": {"TransformerDecoderLayer": TORCH}, "num_layers": 2}, ((1, 6, 64), (1, 8, 64))),
    "nn_lstm": Row("torch.nn:LSTM", {"input_size": 12, "hidden_size": 16, "num_layers": 2, "bidirectional": True, "batch_first": True}, ((1, 9, 12),)),
    "nn_gru": Row("torch.nn:GRU", {"input_size": 12, "hidden_size": 16, "num_layers": 3, "batch_first": True}, ((1, 9, 12),)),
    "nanogpt": Row("small_networks:NanoGPT", {}, ("ids",)),
    "mingpt": Row("small_networks:MinGPT", {}, ("ids",)),
    "mamba": Row("small_networks:MambaLM", {}, {"input_ids": "ids"}, "mamba"),
    "crnn": Row("small_networks:Crnn", {}, ((1, 1, 16, 40),)),
    "conv_lstm": Row("small_networks:ConvLstm", {}, ((1, 6, 30),)),
    "lstm_text": Row("small_networks:LstmClassifier", {}, ("ids",)),
    "lstm_words": Row("small_networks:LstmLanguageModel", {}, ("ids",)),
    "vae_linear": Row("small_networks:Vae", {}, ((2, 48),)),
    "vae_named": Row("small_networks:NamedVae", {}, ((2, 48),)),
    "dueling": Row("small_networks:Dueling", {}, ((1, 4, 84, 84),)),
    "actor_critic": Row("small_networks:ActorCritic", {}, ((2, 8),)),
    "openai_clip": Row("open_clip.model:CLIP", {"embed_dim": 32, "quick_gelu": True, "vision_cfg": {"layers": 2, "width": 128, "patch_size": 8, "image_size": 32}, "text_cfg": {"context_length": 8, "vocab_size": 100, "width": 64, "heads": 1, "layers": 2}}, {"image": (1, 3, 32, 32), "text": "ids"}, "openai_clip"),
    "curated_falcon": Row("curated_transformers.models:FalconCausalLM", {"hidden_width": 64, "n_query_heads": 4, "n_key_value_heads": 2, "n_hidden_layers": 2, "n_pieces": 100, "rotary_embedding_base": 10000, "rotary_embedding_fraction": 1.0, "use_alibi": False, "use_bias": False, "use_parallel_attention": True, "new_decoder_architecture": True}, ("ids",), "curated"),
    "curated_falcon_old": Row("curated_transformers.models:FalconCausalLM", {"hidden_width": 64, "n_query_heads": 4, "n_key_value_heads": 1, "n_hidden_layers": 2, "n_pieces": 100, "rotary_embedding_base": 10000, "rotary_embedding_fraction": 1.0, "use_alibi": False, "use_bias": False, "use_parallel_attention": True, "new_decoder_architecture": False}, ("ids",), "curated"),
    "curated_llama": Row("curated_transformers.models:LlamaCausalLM", {"hidden_width": 64, "intermediate_width": 96, "n_query_heads": 4, "n_key_value_heads": 2, "n_hidden_layers": 2, "n_pieces": 100, "rotary_embedding_base": 10000, "rotary_embedding_fraction": 1.0}, ("ids",), "curated"),
    "curated_neox": Row("curated_transformers.models:GPTNeoXCausalLM", {"hidden_width": 64, "intermediate_width": 96, "n_attention_heads": 4, "n_hidden_layers": 2, "n_pieces": 100, "rotary_embedding_base": 10000, "rotary_embedding_fraction": 0.25}, ("ids",), "curated"),
    "curated_mpt": Row("curated_transformers.models:MPTCausalLM", {"hidden_width": 64, "intermediate_width_multiplier": 2, "n_attention_heads": 4, "n_hidden_layers": 2, "n_pieces": 100, "use_bias": False, "model_max_length": 64}, ("ids",), "curated"),
    "curated_bert": Row("curated_transformers.models:BERTEncoder", {"embedding_width": 64, "hidden_width": 64, "intermediate_width": 96, "n_attention_heads": 4, "n_hidden_layers": 2, "n_pieces": 100, "n_positions": 32, "n_types": 2}, ("ids",), "curated"),
    "crepe": Row("torchcrepe:Crepe", {"model": "tiny"}, ((1, 1024),)),
    "ddpm": Row("denoising_diffusion_pytorch:Unet", {"dim": 16, "dim_mults": [1, 2], "flash_attn": False}, ((1, 3, 16, 16), 7)),
    "facenet": Row("facenet_pytorch:InceptionResnetV1", {"pretrained": None, "num_classes": 10, "classify": True}, ((1, 3, 96, 96),)),
    "tab": Row("tab_transformer_pytorch:FTTransformer", {"categories": [10, 5], "num_continuous": 3, "dim": 32, "dim_out": 1, "depth": 2, "heads": 4, "dim_head": 8}, ("two_ids", (1, 3))),
    "gmlp_words": Row("g_mlp_pytorch:gMLP", {"num_tokens": 100, "dim": 32, "depth": 2, "seq_len": 8}, ("ids",)),
    "gmlp_image": Row("g_mlp_pytorch:gMLPVision", {"image_size": 32, "patch_size": 8, "num_classes": 10, "dim": 32, "depth": 2}, IMAGE_32),
    "siren": Row("siren_pytorch:SirenNet", {"dim_in": 2, "dim_hidden": 32, "dim_out": 3, "num_layers": 3, "w0_initial": 30.0}, ((5, 2),)),
    **{f"mtcnn_{name.lower()}": Row(f"facenet_pytorch.models.mtcnn:{name}", {"pretrained": False}, ((2, 3, side, side),)) for name, side in (("PNet", 24), ("RNet", 24), ("ONet", 48))},
    "tcn": Row("pytorch_tcn:TCN", {"num_inputs": 4, "num_channels": [8, 8, 8]}, ((1, 4, 30),)),
    "vocos": Row("vocos.models:VocosBackbone", {"input_channels": 20, "dim": 32, "intermediate_dim": 64, "num_layers": 2}, ((1, 20, 30),)),
    **{name: Row(f"torchvision.models:{name}", {"weights": None, "num_classes": 10}) for name in TORCHVISION},
    **{f"timm_{name}": Row("timm:create_model", {"model_name": name, "num_classes": 10, **more}, settings="timm") for name, more in TIMM.items()},
    **{f"litgpt_{name}": Row("litgpt.model:GPT", {"name": name}, ("ids",), "litgpt") for name in LITGPT},
    "vit_pytorch": Row("vit_pytorch:ViT", SMALL, IMAGE_32),
    "simple_vit": Row("vit_pytorch:SimpleViT", SMALL, IMAGE_32),
    "xt_decoder": Row("x_transformers:TransformerWrapper", {"num_tokens": 100, "max_seq_len": 32, "attn_layers": {"Decoder": LAYERS}}, ("ids",)),
    "xt_encoder": Row("x_transformers:TransformerWrapper", {"num_tokens": 100, "max_seq_len": 32, "attn_layers": {"Encoder": LAYERS}}, ("ids",)),
    "esrgan": Row("spandrel.architectures.ESRGAN.__arch.RRDB:RRDBNet", {"num_filters": 16, "num_blocks": 2, "scale": 4}, IMAGE_16),
    "compact": Row("spandrel.architectures.Compact.__arch.SRVGG:SRVGGNetCompact", {"num_feat": 16, "num_conv": 4, "upscale": 2}, IMAGE_16),
    "swinir": Row("spandrel.architectures.SwinIR.__arch.SwinIR:SwinIR", {**STAGES, "upsampler": "pixelshuffledirect", "upscale": 2}, IMAGE_16),
    "nafnet": Row("spandrel.architectures.NAFNet.__arch.NAFNet_arch:NAFNet", {"width": 8, "middle_blk_num": 1, "enc_blk_nums": [1, 1], "dec_blk_nums": [1, 1]}, IMAGE_16),
    "unet": Row("segmentation_models_pytorch:Unet", {"encoder_name": "resnet18", "encoder_weights": None, "classes": 3}),
}  # fmt: skip


def made(row: Row) -> tuple[nn.Module, dict[str, str]]:
    """The model, and the settings that its package has beside it, by the name of the file."""
    module, _, name = row.made_by.partition(":")
    make: Callable[..., nn.Module] = attrgetter(name)(importlib.import_module(module))
    arguments = {key: made(part)[0] if isinstance(part, Row) else part for key, part in row.arguments.items()}
    if row.settings == "whisper":
        arguments["dims"] = importlib.import_module(module).ModelDimensions(**arguments["dims"])
    if row.settings == "open_clip":
        return make(**arguments), {"open_clip_config.json": json.dumps({"model_cfg": arguments})}
    if row.settings == "openai_clip":
        model = make(**arguments)
        for name, value in (("input_resolution", 32), ("context_length", 8), ("vocab_size", 100)):
            model.__dict__.pop(name, None)
            model.register_buffer(name, torch.tensor(value))
        return model, {}
    if row.settings == "curated":
        return Called(made_by_config(make, arguments)), {}
    if row.settings == "mamba":
        return make(), {"config.json": json.dumps({"d_model": 32, "n_layer": 2, "vocab_size": 100, "ssm_cfg": {}, "rms_norm": True, "residual_in_fp32": True, "fused_add_norm": True, "pad_vocab_size_multiple": 4})}  # fmt: skip
    if row.settings == "litgpt":
        config = importlib.import_module("litgpt.config").Config.from_name(
            arguments["name"], n_layer=2, n_embd=64, n_head=4, n_query_groups=4 if "phi" in arguments["name"] else 2,
            head_size=16, intermediate_size=96, padded_vocab_size=100, vocab_size=100, block_size=64, rope_adjustments=None,
        )  # fmt: skip
        return make(config), {"model_config.yaml": yaml.dump(dataclasses.asdict(config))}
    for part in set(arguments) & {"attn_layers", "encoder_layer", "decoder_layer"}:
        ((kind, layers),) = arguments[part].items()
        arguments[part] = getattr(importlib.import_module(module), kind)(**layers)
    model = make(**arguments)
    if row.settings == "diffusers":
        return model, {"config.json": model.to_json_string()}  # type: ignore[operator]
    if row.settings == "timm":
        more = {key: value for key, value in arguments.items() if key not in ("model_name", "num_classes")}
        config = {
            "architecture": arguments["model_name"],
            "num_classes": 10,
            "num_features": model.num_features,
        }
        config |= {"global_pool": getattr(model, "global_pool", None)} if isinstance(getattr(model, "global_pool", None), str) else {}  # fmt: skip
        config |= {"model_args": more} if more else {}
        return model, {"config.json": json.dumps(config)}
    return model, {}


def made_by_config(make: Callable[..., nn.Module], arguments: dict[str, Any]) -> nn.Module:
    """A model of curated-transformers, whose configuration is a class beside it."""
    models = importlib.import_module("curated_transformers.models")
    kind = make.__name__.replace("CausalLM", "").replace("Encoder", "")
    config = getattr(models, f"{kind}Config")
    taken = {
        "attention_probs_dropout_prob": 0.0,
        "hidden_dropout_prob": 0.0,
        "dtype": torch.float32,
        **arguments,
    }
    names = inspect.signature(config.__init__).parameters
    return make(config(**{name: value for name, value in taken.items() if name in names}))


class Called(nn.Module):
    """A model of curated-transformers, called with words alone, under its own names."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.state_dict = model.state_dict  # type: ignore[method-assign]
        self.named_modules = model.named_modules  # type: ignore[method-assign]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = importlib.import_module("curated_transformers.layers").AttentionMask(
            torch.ones_like(ids, dtype=torch.bool)
        )
        made = self.model(ids, mask)
        return made.logits if hasattr(made, "logits") else made.all_outputs[-1]


def perturb(model: nn.Module) -> nn.Module:
    """The model with no vector at its neutral value, and statistics of their own."""
    generator = torch.Generator().manual_seed(7)
    for parameter in model.parameters():
        if not parameter.numel():
            continue
        if not parameter.isfinite().all() or parameter.abs().max() > 100:  # never initialised
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.05)
        elif parameter.dim() < 2 or not parameter.abs().max():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.1)
        if name.endswith("running_var"):
            buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
    return model.eval()


def drawn(one: Input) -> Any:
    """An input of a case."""
    if isinstance(one, dict):
        return {name: drawn(part) for name, part in one.items()}
    if isinstance(one, tuple):
        return torch.randn(one)
    if isinstance(one, str):
        bound, length = {"ids": (90, 8), "few_ids": (30, 8), "two_ids": (5, 2)}[one]
        return torch.randint(
            4 if one == "few_ids" else 1, bound, (1, length)
        )  # a protein has no padding within
    return torch.tensor([one])


def tensors(value: Any) -> list[torch.Tensor]:
    """Every tensor of what a model gives."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [one for part in parts for one in tensors(part)]


def write(name: str, row: Row, folder: Path) -> None:
    """One case: its folder, and what the package gives beside it."""
    torch.manual_seed(0)
    model, settings = made(row)
    perturb(model)
    by_name = isinstance(row.inputs, dict)
    asked = row.inputs.items() if isinstance(row.inputs, dict) else ((f"x{at}", one) for at, one in enumerate(row.inputs))  # fmt: skip
    inputs = {key: drawn(one) for key, one in asked}
    outputs = tensors(model(**inputs) if by_name else model(*inputs.values()))
    (folder / name).mkdir(parents=True, exist_ok=True)
    state = {key: value.contiguous().clone() for key, value in model.state_dict().items()}
    if row.settings == "whisper":
        torch.save({"dims": row.arguments["dims"], "model_state_dict": state}, folder / name / "model.pt")
    else:
        save_file(state, folder / name / "model.safetensors")
    for file, text in settings.items():
        (folder / name / file).write_text(text)
    kinds = {path: type(module).__name__ for path, module in model.named_modules()}
    torch.save({"inputs": inputs, "outputs": outputs, "kinds": kinds}, folder / f"{name}.io")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("cases", type=Path, help="where to put them")
    parser.add_argument("--only", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="CASE", help="these cases")  # fmt: skip
    arguments = parser.parse_args()
    for name in arguments.only:
        try:
            with torch.no_grad(), left_out():
                write(name, ROWS[name], arguments.cases)
        except Exception as error:  # another package may fail in any way: the others are made all the same
            print(f"{name}: not made: {type(error).__name__}: {error}")
        else:
            print(f"{name}: made", flush=True)


if __name__ == "__main__":
    main()
