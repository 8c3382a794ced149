"""facebook/dinov3-vits16-pretrain-lvd1689m: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family dinov3_vit).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: transformers-default
No dropout is written: training mode computes the same; `mapper generate --train` writes it.

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    channels: int = 3  # shape: embeddings.patch_embeddings.weight [384, 3, 16, 16]
    hidden_size: int = 384  # shape: norm.weight [384]
    patch_size: int = 16  # shape: embeddings.patch_embeddings.weight [384, 3, 16, 16]
    registers: int = 0  # shape: embeddings.register_tokens [1, 0, 384]
    heads: int = 6  # config: num_attention_heads
    # shape and config: layer.{0..11}.attention.q_proj.weight [384, 384] = heads * head_dim
    head_dim: int = 64
    intermediate_size: int = 1536  # shape: layer.{0..11}.mlp.up_proj.weight [1536, 384]
    norm_eps: float = 1e-5  # config: layer_norm_eps
    layers: int = 12  # name: layer.*
    rotary_base: float = 100.0  # config: rope_theta


@dataclass
class Output:
    """What the model returns."""

    last_hidden_state: Tensor
    pooler_output: Tensor


torch.export.register_dataclass(Output)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channel i with channel i + D / 2. x (B, H, T, D), cos and sin (B, 1, T, D / 2)"""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def flatten_patches(x: Tensor) -> Tensor:
    """Patches as a sequence, row by row. x (B, C, Y, X) -> (B, Y * X, C)"""
    return x.flatten(2).transpose(1, 2)


def image_coordinates(pixels: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Row and column of every patch of size x size pixels, row by row. pixels (B, C, Y, X) -> two (T,)"""
    rows = torch.arange(pixels.shape[2] // size, device=pixels.device)
    columns = torch.arange(pixels.shape[3] // size, device=pixels.device)
    return rows.repeat_interleave(len(columns)), columns.repeat(len(rows))


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


def rotary_frequencies(positions: Tensor, rotary_dim: int, base: float) -> Tensor:
    """Angle per position of each pair of channels. -> (R / 2,) on the device of positions"""
    index = torch.arange(0, rotary_dim, 2, device=positions.device)
    return 1.0 / base ** (index.float() / rotary_dim)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Embeddings(nn.Module):
    """embeddings: an image embedding with a mask token, a class token and register tokens."""

    def __init__(self, config: Config):
        super().__init__()
        self.patch_embeddings = nn.Conv2d(
            config.channels, config.hidden_size, kernel_size=config.patch_size, stride=config.patch_size
        )
        self.mask_token = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        self.register_tokens = nn.Parameter(torch.zeros(1, config.registers, config.hidden_size))

    def forward(self, pixel_values: Tensor, bool_masked_pos: Tensor | None) -> Tensor:
        patches = self.patch_embeddings(pixel_values.type_as(self.patch_embeddings.weight))
        x = mask_patches(flatten_patches(patches), self.mask_token, bool_masked_pos)
        x = prepend_token(self.cls_token, x)
        registers = self.register_tokens.expand(x.shape[0], -1, -1)
        return torch.cat((x[:, :1], registers, x[:, 1:]), dim=1)


class Attention(nn.Module):
    """layer.*.attention: self-attention with rotary embeddings."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary(q, cos, sin)
        k = apply_rotary(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.o_proj(merge_heads(y))


class FeedForward(nn.Module):
    """layer.*.mlp: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.up_proj(x)))


class Layer(nn.Module):
    """layer.*: a layer with pre-norm, attention, layer scale and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.attention = Attention(config)
        self.layer_scale1: Any = nn.ParameterDict({"lambda1": nn.Parameter(torch.zeros(config.hidden_size))})
        self.norm2 = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = FeedForward(config)
        self.layer_scale2: Any = nn.ParameterDict({"lambda1": nn.Parameter(torch.zeros(config.hidden_size))})

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin) * self.layer_scale1.lambda1
        return x + self.mlp(self.norm2(x)) * self.layer_scale2.lambda1


class Model(nn.Module):
    """The model with pooling and no head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.patch_size = config.patch_size
        self.rotary_dim = config.head_dim
        self.rotary_base = config.rotary_base
        self.embeddings = Embeddings(config)
        self.layer = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, pixel_values: Tensor, bool_masked_pos: Tensor | None = None) -> Output:
        """pixel_values (batch, channels, height, width), bool_masked_pos (batch, patches)"""
        x, pooled = self.tower(pixel_values, bool_masked_pos)
        return Output(last_hidden_state=x, pooler_output=pooled)

    def tower(self, pixel_values: Tensor, bool_masked_pos: Tensor | None) -> tuple[Tensor, Tensor]:
        x = self.embeddings(pixel_values, bool_masked_pos)
        rows, columns = image_coordinates(pixel_values, self.patch_size)
        height, width = pixel_values.shape[2] // self.patch_size, pixel_values.shape[3] // self.patch_size
        rows = 2 * torch.pi * ((2 * rows + 1) / height - 1)
        columns = 2 * torch.pi * ((2 * columns + 1) / width - 1)
        frequencies = rotary_frequencies(rows, self.rotary_dim // 2, self.rotary_base)
        angles = torch.cat((rows[:, None] * frequencies, columns[:, None] * frequencies), dim=-1)[None, None]
        cos, sin = angles.cos().type_as(x), angles.sin().type_as(x)
        cos = F.pad(cos, (0, 0, x.shape[1] - cos.shape[2], 0), value=1.0)
        sin = F.pad(sin, (0, 0, x.shape[1] - sin.shape[2], 0))
        for layer in self.layer:
            x = layer(x, cos, sin)
        x = self.norm(x)
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
# {"config": {"architectures": ["DINOv3ViTModel"], "hidden_act": "gelu", "hidden_size": 384,
# "intermediate_size": 1536, "key_bias": false, "layer_norm_eps": 1e-05, "mlp_bias": true, "model_type":
# "dinov3_vit", "num_attention_heads": 6, "num_channels": 3, "num_hidden_layers": 12, "patch_size": 16,
# "proj_bias": true, "query_bias": true, "rope_theta": 100.0, "use_gated_mlp": false, "value_bias": true},
# "notes": ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from
# the hub", "evidence for its config: transformers-default"]}
# sha256 of all above: b95bdfbcfa5a0796
