"""facebook/deit-base-distilled-patch16-224: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family deit).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: transformers-default
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

    channels: int = 3  # shape: deit.embeddings.patch_embeddings.projection.weight [768, 3, 16, 16]
    hidden_size: int = 768  # shape: deit.layernorm.weight [768]
    patch_size: int = 16  # shape: deit.embeddings.patch_embeddings.projection.weight [768, 3, 16, 16]
    positions: int = 198  # shape: deit.embeddings.position_embeddings [1, 198, 768]
    heads: int = 12  # config: num_attention_heads
    # shape and config: deit.encoder.layer.{0..11}.attention.attention.query.weight [768, 768] = heads * ...
    head_dim: int = 64
    norm_eps: float = 1e-12  # config: layer_norm_eps
    intermediate_size: int = 3072  # shape: deit.encoder.layer.{0..11}.intermediate.dense.weight [3072, 768]
    layers: int = 12  # name: deit.encoder.layer.*
    labels: int = 1000  # shape: cls_classifier.weight [1000, 768]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    cls_logits: Tensor
    distillation_logits: Tensor
    last_hidden_state: Tensor


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
    """deit.embeddings: an image embedding with a class token and a distillation token and learned position
    embeddings.
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
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        self.distillation_token = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        self.position_embeddings = nn.Parameter(torch.zeros(1, config.positions, config.hidden_size))

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.patch_embeddings.projection(
            pixel_values.type_as(self.patch_embeddings.projection.weight)
        )
        x = flatten_patches(patches)
        x = prepend_token(self.cls_token, prepend_token(self.distillation_token, x))
        return x + resize_positions(self.position_embeddings, 2, patches.shape[2], patches.shape[3])


class Attention(nn.Module):
    """deit.encoder.layer.*.attention: self-attention."""

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


class Layer(nn.Module):
    """deit.encoder.layer.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.layernorm_before = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.attention = Attention(config)
        self.layernorm_after = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.intermediate: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.hidden_size, config.intermediate_size)}
        )
        self.output: Any = nn.ModuleDict({"dense": nn.Linear(config.intermediate_size, config.hidden_size)})

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.layernorm_before(x))
        return x + self.feed_forward(self.layernorm_after(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class Encoder(nn.Module):
    """deit: a stack of layers with a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layer": nn.ModuleList(Layer(config) for _ in range(config.layers))}
        )
        self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.embeddings(pixel_values)
        for layer in self.encoder.layer:
            x = layer(x)
        return self.layernorm(x)


class Model(nn.Module):
    """The model with an image classification head beside a distilled one."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.deit = Encoder(config)
        self.cls_classifier = nn.Linear(config.hidden_size, config.labels)
        self.distillation_classifier = nn.Linear(config.hidden_size, config.labels)

    def forward(self, pixel_values: Tensor) -> Output:
        """pixel_values (batch, channels, height, width)"""
        x = self.deit(pixel_values)
        pooled = x[:, 0]
        of_class = self.cls_classifier(pooled)
        of_distillation = self.distillation_classifier(x[:, 1])
        logits = (of_class + of_distillation) / 2
        return Output(
            logits=logits, cls_logits=of_class, distillation_logits=of_distillation, last_hidden_state=x
        )


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
# {"config": {"architectures": ["DeiTForImageClassificationWithTeacher"], "hidden_act": "gelu", "hidden_size":
# 768, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "model_type": "deit", "num_attention_heads": 12,
# "num_channels": 3, "num_hidden_layers": 12, "patch_size": 16, "qkv_bias": true}, "notes": ["header from the
# bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its
# config: transformers-default"]}
# sha256 of all above: 78df7db25a0bb6e3
