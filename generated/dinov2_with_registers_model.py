"""facebook/dinov2-with-registers-base: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family dinov2_registers).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
No dropout is written: training mode computes the same; `mapper generate --train` writes it.

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    channels: int = 3  # shape: embeddings.patch_embeddings.projection.weight [768, 3, 16, 16]
    hidden_size: int = 768  # shape: layernorm.weight [768]
    patch_size: int = 16  # shape: embeddings.patch_embeddings.projection.weight [768, 3, 16, 16]
    positions: int = 1025  # shape: embeddings.position_embeddings [1, 1025, 768]
    registers: int = 4  # shape: embeddings.register_tokens [1, 4, 768]
    heads: int = 12  # config: num_attention_heads
    # shape and config: encoder.layer.{0..11}.attention.attention.query.weight [768, 768] = heads * head_dim
    head_dim: int = 64
    intermediate_size: int = 3072  # shape: encoder.layer.{0..11}.mlp.fc1.weight [3072, 768]
    norm_eps: float = 1e-6  # config: layer_norm_eps
    layers: int = 12  # name: encoder.layer.*


@dataclass
class Output:
    """What the model returns."""

    last_hidden_state: Tensor
    pooler_output: Tensor


torch.export.register_dataclass(Output)


def flatten_patches(x: Tensor) -> Tensor:
    """Patches as a sequence, row by row. x (B, C, Y, X) -> (B, Y * X, C)"""
    return x.flatten(2).transpose(1, 2)


def mask_patches(x: Tensor, token: Tensor, masked: Tensor | None) -> Tensor:
    """Puts the token where `masked` is true; None masks nothing.

    x (B, T, W) or (B, Y, X, W), token (..., W), masked (B, T) with T = Y * X -> like x
    """
    return x if masked is None else torch.where(masked.bool().reshape(x.shape[:-1])[..., None], token, x)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def prepend_token(token: Tensor, x: Tensor) -> Tensor:
    """One learned vector before each sequence. token (..., W), x (B, T, W) -> (B, 1 + T, W)"""
    return torch.cat((token.expand(x.shape[0], 1, -1), x), dim=1)


def resize_positions(table: Tensor, kept: int, height: int, width: int, antialias: bool = False) -> Tensor:
    """Fits a square table of patch positions to a grid of height x width by bicubic interpolation.

    table (..., kept + N * N, W), the first `kept` rows (class token) stay -> (1, kept + height * width, W).
    Where the size is the same the values are, too: the branch that would skip it stops a dynamic export.
    A table of another number of rows belongs to the one image size it was trained on, and stays as it is.
    """
    table = table.reshape(-1, table.shape[-1])
    side = math.isqrt(table.shape[0] - kept)
    if side * side != table.shape[0] - kept:
        return table[None]
    grid = table[kept:].unflatten(0, (side, side)).permute(2, 0, 1)[None].float()
    grid = F.interpolate(grid, (height, width), mode="bicubic", align_corners=False, antialias=antialias)
    return torch.cat((table[:kept], grid[0].to(table.dtype).flatten(1).t()))[None]


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Embeddings(nn.Module):
    """embeddings: an image embedding with a mask token, a class token, learned position embeddings,
    antialiased where the image is smaller and register tokens.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.patch_embeddings: Any = nn.ModuleDict(
            {
                "projection": nn.Conv2d(
                    config.channels,
                    config.hidden_size,
                    kernel_size=config.patch_size,
                    stride=config.patch_size,
                )
            }
        )
        self.mask_token = nn.Parameter(torch.zeros(1, config.hidden_size))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        self.position_embeddings = nn.Parameter(torch.zeros(1, config.positions, config.hidden_size))
        self.register_tokens = nn.Parameter(torch.zeros(1, config.registers, config.hidden_size))

    def forward(self, pixel_values: Tensor, bool_masked_pos: Tensor | None) -> Tensor:
        patches = self.patch_embeddings.projection(
            pixel_values.type_as(self.patch_embeddings.projection.weight)
        )
        x = mask_patches(flatten_patches(patches), self.mask_token, bool_masked_pos)
        x = prepend_token(self.cls_token, x)
        x = x + resize_positions(self.position_embeddings, 1, patches.shape[2], patches.shape[3], True)
        registers = self.register_tokens.expand(x.shape[0], -1, -1)
        return torch.cat((x[:, :1], registers, x[:, 1:]), dim=1)


class Attention(nn.Module):
    """encoder.layer.*.attention: self-attention."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.attention: Any = nn.ModuleDict(
            {
                "query": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "key": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "value": nn.Linear(config.hidden_size, config.heads * config.head_dim),
            }
        )
        self.output: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.heads * config.head_dim, config.hidden_size)}
        )

    def forward(self, x: Tensor) -> Tensor:
        q = split_heads(self.attention.query(x), self.head_dim)
        k = split_heads(self.attention.key(x), self.head_dim)
        v = split_heads(self.attention.value(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.output.dense(merge_heads(y))


class FeedForward(nn.Module):
    """encoder.layer.*.mlp: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Layer(nn.Module):
    """encoder.layer.*: a layer with pre-norm, attention, layer scale and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.attention = Attention(config)
        self.layer_scale1: Any = nn.ParameterDict({"lambda1": nn.Parameter(torch.zeros(config.hidden_size))})
        self.norm2 = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = FeedForward(config)
        self.layer_scale2: Any = nn.ParameterDict({"lambda1": nn.Parameter(torch.zeros(config.hidden_size))})

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x)) * self.layer_scale1.lambda1
        return x + self.mlp(self.norm2(x)) * self.layer_scale2.lambda1


class Model(nn.Module):
    """The model with pooling and no head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layer": nn.ModuleList(Layer(config) for _ in range(config.layers))}
        )
        self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, pixel_values: Tensor, bool_masked_pos: Tensor | None = None) -> Output:
        """pixel_values (batch, channels, height, width), bool_masked_pos (batch, patches)"""
        x, pooled = self.tower(pixel_values, bool_masked_pos)
        return Output(last_hidden_state=x, pooler_output=pooled)

    def tower(self, pixel_values: Tensor, bool_masked_pos: Tensor | None) -> tuple[Tensor, Tensor]:
        x = self.embeddings(pixel_values, bool_masked_pos)
        for layer in self.encoder.layer:
            x = layer(x)
        x = self.layernorm(x)
        return x, x[:, 0]


def load(path: str | Path, config: Config = Config()) -> Model:
    """The model with the weights of a .safetensors file or of a directory of them, ready to evaluate."""
    from safetensors.torch import load_file

    files = [Path(path)] if Path(path).is_file() else sorted(Path(path).glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"no .safetensors file in {path}")
    tensors = {
        name: tensor
        for file in files
        for name, tensor in load_file(file).items()
        if not name.startswith("__aux__.")  # what is saved beside a model, for training to go on
    }
    with torch.device("meta"):
        model = Model(config)
    model.load_state_dict(tensors, strict=True, assign=True)
    return model.eval()


# What this was read from besides the weights. While the file is as it was written, `mapper.save` stores the
# architecture of its models by it; once you have edited it, their weights alone.
# {"config": {"architectures": ["Dinov2WithRegistersModel"], "hidden_act": "gelu", "hidden_size": 768,
# "layer_norm_eps": 1e-06, "model_type": "dinov2_with_registers", "num_attention_heads": 12, "num_channels":
# 3, "num_hidden_layers": 12, "patch_size": 16, "qkv_bias": true}, "notes": ["header from the bundled
# catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# recalled"]}
# sha256 of all above: 31b3f7b186e8721c
