"""facebook/w2v-bert-2.0: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family wav2vec2_bert).
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

    hidden_size: int = 1024  # shape: feature_projection.projection.weight [1024, 160]
    heads: int = 16  # shape: encoder.layers.{0..23}.self_attn.linear_q.weight [1024, 1024]
    head_dim: int = 64  # shape: encoder.layers.{0..23}.self_attn.distance_embedding.weight [73, 64]
    left_positions: int = 64  # default: left_max_position_embeddings, left out: the default of wav2vec2-bert
    # shape and default: encoder.layers.{0..23}.self_attn.distance_embedding.weight [73, 64] = ...
    right_positions: int = 8
    # shape: encoder.layers.{0..23}.conv_module.pointwise_conv1.weight [2048, 1024, 1]
    inner_channels: int = 1024
    kernel_size: int = 31  # shape: encoder.layers.{0..23}.conv_module.depthwise_conv.weight [1024, 1, 31]
    norm_eps: float = 1e-5  # default: layer_norm_eps, left out: the default of wav2vec2-bert
    intermediate_size: int = 4096  # shape: encoder.layers.{0..23}.ffn1.intermediate_dense.weight [4096, 1024]
    feature_size: int = 160  # shape: feature_projection.layer_norm.weight [160]
    layers: int = 24  # name: encoder.layers.*

    @property
    def scale(self) -> float:
        return self.head_dim**-0.5  # rule: vocabulary/config_attention.yaml: attention.head_dim ** -0.5


@dataclass
class Output:
    """What the model returns."""

    last_hidden_state: Tensor
    extract_features: Tensor


torch.export.register_dataclass(Output)


class LayerNormChannelsFirst(nn.Module):
    """LayerNorm over the channels of an image. (B, C, Y, X) -> (B, C, Y, X)"""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        x = F.layer_norm(x.movedim(1, -1), self.weight.shape, self.weight, self.bias, self.eps)
        return x.movedim(-1, 1)


def attend_biased(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    scale: float | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Attention with a bias added to the scores; the scale is 1 / sqrt(D) if None.

    q (B, H, T, D), k, v (B, K, S, D), bias broadcasts to (B, H, T, S) -> (B, H, T, D)
    """
    if is_causal:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    bias = bias.to(q.dtype)
    if mask is not None:  # the lowest number rather than -inf: a row without any key stays finite
        bias = bias.masked_fill(~mask, torch.finfo(q.dtype).min)
    if k.shape[1] != q.shape[1]:
        k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def relative_distances(x: Tensor) -> Tensor:
    """Key position minus query position. x (B, T, ...) -> (T, T) int64, queries down, keys across"""
    index = torch.arange(x.shape[1], device=x.device)
    return index - index[:, None]


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def zero_padding(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Sets padded positions to zero. x (B, T, C), attention_mask (B, T) or None -> (B, T, C)"""
    return x if attention_mask is None else x * (attention_mask != 0).unsqueeze(-1).to(x.dtype)


class Attention(nn.Module):
    """encoder.layers.*.self_attn: self-attention with relative position embeddings for keys (Shaw)."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.left_positions = config.left_positions
        self.right_positions = config.right_positions
        self.scale = config.scale
        self.linear_q = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.linear_k = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.linear_v = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.distance_embedding = nn.Embedding(
            config.left_positions + config.right_positions + 1, config.head_dim
        )
        self.linear_out = nn.Linear(config.heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.linear_q(x), self.head_dim)
        k = split_heads(self.linear_k(x), self.head_dim)
        v = split_heads(self.linear_v(x), self.head_dim)
        distances = (
            relative_distances(x).clamp(-self.left_positions, self.right_positions) + self.left_positions
        )
        bias = torch.einsum("bhtd,tsd->bhts", q, self.distance_embedding(distances)) * self.scale
        y = attend_biased(q, k, v, bias, mask, self.scale)
        return self.linear_out(merge_heads(y))


class Convolution(nn.Module):
    """encoder.layers.*.conv_module: the conformer's convolution module with a causal depthwise
    convolution.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.kernel_size = config.kernel_size
        self.layer_norm = nn.LayerNorm(config.hidden_size)
        self.pointwise_conv1 = nn.Conv1d(
            config.hidden_size, 2 * config.inner_channels, kernel_size=1, bias=False
        )
        self.depthwise_conv = nn.Conv1d(
            config.inner_channels,
            config.inner_channels,
            kernel_size=config.kernel_size,
            groups=config.inner_channels,
            bias=False,
        )
        self.depthwise_layer_norm = LayerNormChannelsFirst(config.inner_channels, config.norm_eps)
        self.pointwise_conv2 = nn.Conv1d(config.inner_channels, config.hidden_size, kernel_size=1, bias=False)

    def forward(self, x: Tensor, frames: Tensor | None) -> Tensor:
        x = self.layer_norm(x)
        x = F.glu(self.pointwise_conv1(x.transpose(1, 2)), dim=1)
        x = zero_padding(x.transpose(1, 2), frames).transpose(1, 2)
        x = self.depthwise_layer_norm(self.depthwise_conv(F.pad(x, (self.kernel_size - 1, 0))))
        x = self.pointwise_conv2(F.silu(x))
        return x.transpose(1, 2)


class FeedForward(nn.Module):
    """encoder.layers.*.ffn1, encoder.layers.*.ffn2: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.intermediate_dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output_dense = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.output_dense(F.silu(self.intermediate_dense(x)))


class Layer(nn.Module):
    """encoder.layers.*: a conformer layer."""

    def __init__(self, config: Config):
        super().__init__()
        self.ffn1_layer_norm = nn.LayerNorm(config.hidden_size)
        self.ffn1 = FeedForward(config)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.self_attn = Attention(config)
        self.conv_module = Convolution(config)
        self.ffn2_layer_norm = nn.LayerNorm(config.hidden_size)
        self.ffn2 = FeedForward(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None, frames: Tensor | None) -> Tensor:
        x = x + 0.5 * self.ffn1(self.ffn1_layer_norm(x))
        x = x + self.self_attn(self.self_attn_layer_norm(x), mask)
        x = x + self.conv_module(x, frames)
        x = x + 0.5 * self.ffn2(self.ffn2_layer_norm(x))
        return self.final_layer_norm(x)


class Model(nn.Module):
    """The model with the features before their projection and no head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.feature_projection: Any = nn.ModuleDict(
            {
                "layer_norm": nn.LayerNorm(config.feature_size),
                "projection": nn.Linear(config.feature_size, config.hidden_size),
            }
        )
        self.encoder: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(Layer(config) for _ in range(config.layers))}
        )
        # unused: stands for frames that training hides
        self.masked_spec_embed = nn.Parameter(torch.zeros(config.hidden_size))

    def forward(self, input_features: Tensor, attention_mask: Tensor | None = None) -> Output:
        """input_features (batch, length, 160), attention_mask (batch, length)"""
        x, features = self.tower(input_features, attention_mask)
        return Output(last_hidden_state=x, extract_features=features)

    def tower(self, input_features: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        features = self.feature_projection.layer_norm(input_features)
        frames = attention_mask
        x = zero_padding(self.feature_projection.projection(features), frames)
        mask = padding_mask(frames)
        for layer in self.encoder.layers:
            x = layer(x, mask, frames)
        return x, features


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
# {"config": {"architectures": ["Wav2Vec2BertModel"], "model_type": "wav2vec2-bert"}, "notes": ["header from
# the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for
# its config: transformers-default"]}
# sha256 of all above: 98d974bba3df8a83
