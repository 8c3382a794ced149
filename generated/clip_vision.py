"""clip_vision, tiny: written by mapper 0.1.0, rules 505f7d688489.

Reading: exact (family clip_vision).
tiny: the header is the example 'two layers, the norm behind the class token' of families/clip_vision.yaml

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    hidden_size: int = 32  # shape: vision_model.pre_layrnorm.weight [32]
    heads: int = 4  # config: num_attention_heads
    # config: vision_model.encoder.layers.{0..1}.self_attn.q_proj.weight [32, 32] = heads * head_dim
    head_dim: int = 8
    channels: int = 3  # shape: vision_model.embeddings.patch_embedding.weight [32, 3, 8, 8]
    patch_size: int = 8  # shape: vision_model.embeddings.patch_embedding.weight [32, 3, 8, 8]
    positions: int = 17  # shape: vision_model.embeddings.position_embedding.weight [17, 32]
    intermediate_size: int = 44  # shape: vision_model.encoder.layers.{0..1}.mlp.fc1.weight [44, 32]
    layers: int = 2  # name: vision_model.encoder.layers.*


@dataclass
class Output:
    """What the model returns."""

    last_hidden_state: Tensor
    pooler_output: Tensor


torch.export.register_dataclass(Output)


def flatten_patches(x: Tensor) -> Tensor:
    """Patches as a sequence, row by row. x (B, C, Y, X) -> (B, Y * X, C)"""
    return x.flatten(2).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def prepend_token(token: Tensor, x: Tensor) -> Tensor:
    """One learned vector before each sequence. token (..., W), x (B, T, W) -> (B, 1 + T, W)"""
    return torch.cat((token.expand(x.shape[0], 1, -1), x), dim=1)


def quick_gelu(x: Tensor) -> Tensor:
    """GELU by a sigmoid: x * sigmoid(1.702 x) (CLIP)."""
    return x * torch.sigmoid(1.702 * x)


def resize_positions(table: Tensor, kept: int, height: int, width: int) -> Tensor:
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
    grid = F.interpolate(grid, size=(height, width), mode="bicubic", align_corners=False).to(table.dtype)
    return torch.cat((table[:kept], grid[0].flatten(1).t()))[None]


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Attention(nn.Module):
    """vision_model.encoder.layers.*.self_attn: every position sees every other."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.out_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        return self.out_proj(merge_heads(F.scaled_dot_product_attention(q, k, v)))


class Embeddings(nn.Module):
    """vision_model.embeddings: the patches of an image in a row, with learned positions."""

    def __init__(self, config: Config):
        super().__init__()
        self.patch_embedding = nn.Conv2d(
            config.channels,
            config.hidden_size,
            kernel_size=config.patch_size,
            stride=config.patch_size,
            bias=False,
        )
        self.class_embedding = nn.Parameter(torch.zeros(config.hidden_size))
        self.position_embedding = nn.Embedding(config.positions, config.hidden_size)

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.patch_embedding(pixel_values.type_as(self.patch_embedding.weight))
        x = flatten_patches(patches)
        return prepend_token(self.class_embedding, x) + resize_positions(
            self.position_embedding.weight, 1, patches.shape[2], patches.shape[3]
        )


class FeedForward(nn.Module):
    """vision_model.encoder.layers.*.mlp: two linear maps around an activation."""

    def __init__(self, config: Config):
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(quick_gelu(self.fc1(x)))


class Layer(nn.Module):
    """vision_model.encoder.layers.*: pre-norm, each norm stands before its sub-layer, inside the residual."""

    def __init__(self, config: Config):
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.hidden_size)
        self.self_attn = Attention(config)
        self.layer_norm2 = nn.LayerNorm(config.hidden_size)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class VisionEncoder(nn.Module):
    """vision_model: the patches of an image, layers in which every patch sees every other, and one vector
    of them all.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.pre_layrnorm = nn.LayerNorm(config.hidden_size)
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList(Layer(config) for _ in range(config.layers))})
        self.post_layernorm = nn.LayerNorm(config.hidden_size)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embeddings(pixel_values)
        x = self.pre_layrnorm(x)
        for layer in self.encoder.layers:
            x = layer(x)
        return x, self.post_layernorm(x[:, 0])


class Model(nn.Module):
    """The model: hidden states and one vector of them, no head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.vision_model = VisionEncoder(config)

    def forward(self, pixel_values: Tensor) -> Output:
        """pixel_values (batch, channels, height, width)"""
        x, pooled = self.vision_model(pixel_values)
        return Output(last_hidden_state=x, pooler_output=pooled)


def load(path: str | Path, config: Config = Config()) -> Model:
    """The model with the weights of a .safetensors file or of a directory of them, ready to evaluate."""
    from safetensors.torch import load_file

    files = [Path(path)] if Path(path).is_file() else sorted(Path(path).glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"no .safetensors file in {path}")
    tensors = {name: tensor for file in files for name, tensor in load_file(file).items()}
    with torch.device("meta"):
        model = Model(config)
    model.load_state_dict(tensors, strict=True, assign=True)
    return model.eval()
