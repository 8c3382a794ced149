"""Small diffusion pipelines as they are published: a folder of models, and single files that hold all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

Shapes = Mapping[str, tuple[int, ...]]
WIDTH, INNER, WORDS = 16, 32, 49
TEXT_CONFIG = {
    "model_type": "clip_text_model", "architectures": ["CLIPTextModel"], "hidden_size": WIDTH, "intermediate_size": INNER,
    "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": WORDS, "max_position_embeddings": 12, "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1,
}  # fmt: skip
INDEX = {
    "_class_name": "StableDiffusionPipeline", "feature_extractor": [None, None], "scheduler": ["diffusers", "PNDMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"], "tokenizer": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"], "requires_safety_checker": True,
}  # fmt: skip


def tensors(shapes: Shapes, prefix: str = "") -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {prefix + name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def _with_biases(weights: Shapes) -> dict[str, tuple[int, ...]]:
    return {
        f"{name}.{last}": shape if last == "weight" else shape[:1]
        for name, shape in weights.items()
        for last in ("weight", "bias")
    }


def text_encoder() -> Shapes:
    """A CLIP text model."""
    shapes = {
        "embeddings.token_embedding.weight": (WORDS, WIDTH),
        "embeddings.position_embedding.weight": (12, WIDTH),
    }
    for layer in range(2):
        at = f"encoder.layers.{layer}"
        maps = {f"{at}.self_attn.{name}_proj": (WIDTH, WIDTH) for name in ("q", "k", "v", "out")}
        maps |= {f"{at}.layer_norm1": (WIDTH,), f"{at}.layer_norm2": (WIDTH,)}
        shapes |= _with_biases({**maps, f"{at}.mlp.fc1": (INNER, WIDTH), f"{at}.mlp.fc2": (WIDTH, INNER)})
    return {
        f"text_model.{name}": shape
        for name, shape in {**shapes, **_with_biases({"final_layer_norm": (WIDTH,)})}.items()
    }


def unet() -> Shapes:
    """A U-Net under the names of diffusers."""
    weights: dict[str, tuple[int, ...]] = {"conv_in": (8, 4, 3, 3), "time_embedding.linear_1": (32, 8)}
    for block in ("down_blocks.0", "mid_block", "up_blocks.0"):
        at = f"{block}.resnets.0"
        weights |= {f"{at}.conv1": (8, 8, 3, 3), f"{at}.norm1": (8,), f"{at}.time_emb_proj": (8, 32)}
    return _with_biases({**weights, "conv_out": (4, 8, 3, 3)})


def latent_unet() -> Shapes:
    """A U-Net under the names of single files."""
    weights: dict[str, tuple[int, ...]] = {
        "time_embed.0": (32, 8),
        "input_blocks.0.0": (8, 4, 3, 3),
        "out.2": (4, 8, 3, 3),
    }
    for block in ("input_blocks.1.0", "middle_block.0", "output_blocks.0.0"):
        weights |= {f"{block}.in_layers.2": (8, 8, 3, 3), f"{block}.emb_layers.1": (8, 32)}
    return _with_biases(weights)


def vae(middle: str = "mid_block.resnets.0.conv1") -> Shapes:
    weights: dict[str, tuple[int, ...]] = {"quant_conv": (8, 8, 1, 1), "post_quant_conv": (4, 4, 1, 1)}
    for side in ("encoder", "decoder"):
        weights |= {f"{side}.conv_in": (8, 3, 3, 3), f"{side}.{middle}": (8, 8, 3, 3)}
    return _with_biases(weights)


def latent_vae() -> Shapes:
    return vae("mid.block_1.conv1")


def folder(place: Path) -> Path:
    """The pipeline as a folder of folders."""
    weights = {
        "unet": ("diffusion_pytorch_model", unet()),
        "vae": ("diffusion_pytorch_model", vae()),
        "text_encoder": ("model", text_encoder()),
    }
    configs = {
        "unet": {"_class_name": "UNet2DConditionModel"},
        "vae": {"_class_name": "AutoencoderKL"},
        "text_encoder": TEXT_CONFIG,
    }
    for part, (name, shapes) in weights.items():
        (place / part).mkdir(parents=True)
        save_file(tensors(shapes), place / part / f"{name}.safetensors")
        (place / part / "config.json").write_text(json.dumps(configs[part]))
    for other, name in (("scheduler", "scheduler_config.json"), ("tokenizer", "vocab.json")):
        (place / other).mkdir()
        (place / other / name).write_text("{}")
    (place / "model_index.json").write_text(json.dumps(INDEX))
    return place


def single() -> dict[str, torch.Tensor]:
    """The pipeline in one file, as it was trained."""
    return {
        **tensors(latent_unet(), "model.diffusion_model."),
        **tensors(latent_vae(), "first_stage_model."),
        **tensors(text_encoder(), "cond_stage_model.transformer."),
        "betas": torch.zeros(5),
    }


def files(place: Path) -> dict[str, bytes]:
    """The files of a folder, as a hub has them."""
    return {
        path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()
    }
