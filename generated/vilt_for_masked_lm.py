"""dandelin/vilt-b32-mlm: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family vilt).
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

    vocab_size: int = 30522  # shape: mlm_score.decoder.bias [30522]
    hidden_size: int = 768  # shape: mlm_score.transform.dense.weight [768, 768]
    segments: int = 2  # shape: vilt.embeddings.text_embeddings.token_type_embeddings.weight [2, 768]
    positions: int = 40  # shape: vilt.embeddings.text_embeddings.position_embeddings.weight [40, 768]
    norm_eps: float = 1e-12  # config: layer_norm_eps
    heads: int = 12  # config: num_attention_heads
    # shape and config: vilt.encoder.layer.{0..11}.attention.attention.query.weight [768, 768] = heads * ...
    head_dim: int = 64
    channels: int = 3  # shape: vilt.embeddings.patch_embeddings.projection.weight [768, 3, 32, 32]
    patch_size: int = 32  # shape: vilt.embeddings.patch_embeddings.projection.weight [768, 3, 32, 32]
    intermediate_size: int = 3072  # shape: vilt.encoder.layer.{0..11}.intermediate.dense.weight [3072, 768]
    layers: int = 12  # name: vilt.encoder.layer.*


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor
    pooler_output: Tensor


torch.export.register_dataclass(Output)


def flatten_patches(x: Tensor) -> Tensor:
    """Patches as a sequence, row by row. x (B, C, Y, X) -> (B, Y * X, C)"""
    return x.flatten(2).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def prepend_token(token: Tensor, x: Tensor) -> Tensor:
    """One learned vector before each sequence. token (..., W), x (B, T, W) -> (B, 1 + T, W)"""
    return torch.cat((token.expand(x.shape[0], 1, -1), x), dim=1)


def segment_ids(input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
    """The caller's segments, or the first segment everywhere. (B, T)"""
    return torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def stretch_positions(table: Tensor, kept: int, height: int, width: int) -> Tensor:
    """Fits a square table of patch positions to a grid by bilinear interpolation, corner on corner.

    table (..., kept + N * N, W), the first `kept` rows stay -> (1, kept + height * width, W)
    """
    table = table.reshape(-1, table.shape[-1])
    side = math.isqrt(table.shape[0] - kept)
    grid = table[kept:].unflatten(0, (side, side)).permute(2, 0, 1)[None]
    grid = F.interpolate(grid, (height, width), mode="bilinear", align_corners=True)
    return torch.cat((table[:kept], grid[0].flatten(1).t()))[None]


class Embeddings(nn.Module):
    """vilt.embeddings.text_embeddings: token embeddings with token types, learned position embeddings and
    a norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.segments, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.positions, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.word_embeddings(input_ids)
        x = x + self.token_type_embeddings(segment_ids(input_ids, token_type_ids))
        x = x + self.position_embeddings(position_indices(input_ids, position_ids))
        return self.LayerNorm(x)


class Attention(nn.Module):
    """vilt.encoder.layer.*.attention: self-attention with an attention mask."""

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

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.attention.query(x), self.head_dim)
        k = split_heads(self.attention.key(x), self.head_dim)
        v = split_heads(self.attention.value(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output.dense(merge_heads(y))


class LmHead(nn.Module):
    """mlm_score: language modeling head with a linear layer, an activation and a norm and the tied token
    embeddings and a bias.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.transform: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.hidden_size, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )
        self.decoder: Any = nn.ParameterDict({"bias": nn.Parameter(torch.zeros(config.vocab_size))})

    def forward(self, x: Tensor, embedding_weight: Tensor) -> Tensor:
        x = self.transform.LayerNorm(F.gelu(self.transform.dense(x)))
        return F.linear(x, embedding_weight, self.decoder.bias)


class Pooler(nn.Module):
    """vilt.pooler: pooler with a linear layer and an activation over the first token."""

    def __init__(self, config: Config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dense(x[:, 0]))


class ImageEmbeddings(nn.Module):
    """vilt.embeddings: an image embedding with a class token and learned position embeddings, by bilinear
    interpolation.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.text_embeddings = Embeddings(config)
        self.token_type_embeddings = nn.Embedding(2, config.hidden_size)
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
        self.position_embeddings = nn.Parameter(torch.zeros(1, 145, config.hidden_size))

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.patch_embeddings.projection(
            pixel_values.type_as(self.patch_embeddings.projection.weight)
        )
        x = flatten_patches(patches)
        x = prepend_token(self.cls_token, x)
        return x + stretch_positions(self.position_embeddings, 1, patches.shape[2], patches.shape[3])


class Layer(nn.Module):
    """vilt.encoder.layer.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.layernorm_before = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.attention = Attention(config)
        self.layernorm_after = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.intermediate: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.hidden_size, config.intermediate_size)}
        )
        self.output: Any = nn.ModuleDict({"dense": nn.Linear(config.intermediate_size, config.hidden_size)})

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.layernorm_before(x), mask)
        return x + self.feed_forward(self.layernorm_after(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class Encoder(nn.Module):
    """vilt: a stack of layers with words, then the patches of an image, a padding mask, a final norm and
    the hidden states of the words.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = ImageEmbeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layer": nn.ModuleList(Layer(config) for _ in range(config.layers))}
        )
        self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.pooler = Pooler(config)

    def forward(
        self,
        input_ids: Tensor,
        pixel_values: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
    ) -> Tensor:
        words = (
            self.embeddings.text_embeddings(input_ids, token_type_ids, position_ids)
            + self.embeddings.token_type_embeddings.weight[:1]
        )
        image = self.embeddings(pixel_values) + self.embeddings.token_type_embeddings.weight[1:2]
        x = torch.cat((words, image), dim=1)
        real = None
        if attention_mask is not None:
            real = F.pad(attention_mask, (0, x.shape[1] - attention_mask.shape[1]), value=1)
        mask = padding_mask(real)
        for layer in self.encoder.layer:
            x = layer(x, mask)
        x = self.layernorm(x)
        return x[:, : input_ids.shape[1]]


class Model(nn.Module):
    """The model with a pooler and a masked language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.vilt = Encoder(config)
        self.mlm_score = LmHead(config)

    def forward(
        self,
        input_ids: Tensor,
        pixel_values: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), pixel_values (batch, channels, height, width), attention_mask (batch,
        length), token_type_ids (batch, length), position_ids (batch, length)
        """
        x = self.vilt(input_ids, pixel_values, attention_mask, token_type_ids, position_ids)
        pooler_output = self.vilt.pooler(x)
        embedding_weight = self.vilt.embeddings.text_embeddings.word_embeddings.weight
        logits = self.mlm_score(x, embedding_weight)
        return Output(logits=logits, last_hidden_state=x, pooler_output=pooler_output)


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
# {"config": {"architectures": ["ViltForMaskedLM"], "hidden_act": "gelu", "hidden_size": 768,
# "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 40, "model_type": "vilt",
# "num_attention_heads": 12, "num_channels": 3, "num_hidden_layers": 12, "patch_size": 32, "qkv_bias": true,
# "tie_word_embeddings": true, "type_vocab_size": 2, "vocab_size": 30522}, "notes": ["header from the bundled
# catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# transformers-default"]}
# sha256 of all above: ca30115a210af050
