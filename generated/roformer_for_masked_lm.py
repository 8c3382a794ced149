"""junnyu/roformer_chinese_base: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family roformer).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
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

    vocab_size: int = 50000  # shape: cls.predictions.bias [50000]
    hidden_size: int = 768  # shape: cls.predictions.transform.dense.weight [768, 768]
    segments: int = 2  # shape: roformer.embeddings.token_type_embeddings.weight [2, 768]
    norm_eps: float = 1e-12  # config: layer_norm_eps
    heads: int = 12  # config: num_attention_heads
    head_dim: int = 64  # shape: roformer.encoder.embed_positions.weight [1536, 64]
    # shape: roformer.encoder.layer.{0..11}.intermediate.dense.weight [3072, 768]
    intermediate_size: int = 3072
    positions: int = 1536  # shape: roformer.encoder.embed_positions.weight [1536, 64]
    layers: int = 12  # name: roformer.encoder.layer.*


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def apply_rotary_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channel 2 i with channel 2 i + 1. x (B, H, T, D), cos and sin (B, 1, T, D / 2)"""
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def positions_in_order(x: Tensor) -> Tensor:
    """0, 1, 2, ... for every position of x. x (B, T, ...) -> (1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None]


def segment_ids(input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
    """The caller's segments, or the first segment everywhere. (B, T)"""
    return torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Embeddings(nn.Module):
    """roformer.embeddings: token embeddings with token types and a norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.segments, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        x = self.word_embeddings(input_ids)
        x = x + self.token_type_embeddings(segment_ids(input_ids, token_type_ids))
        return self.LayerNorm(x)


class Attention(nn.Module):
    """roformer.encoder.layer.*.attention: self-attention with interleaved rotary embeddings and an
    attention mask.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.self: Any = nn.ModuleDict(
            {
                "query": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "key": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "value": nn.Linear(config.hidden_size, config.heads * config.head_dim),
            }
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.heads * config.head_dim, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.self.query(x), self.head_dim)
        k = split_heads(self.self.key(x), self.head_dim)
        v = split_heads(self.self.value(x), self.head_dim)
        q = apply_rotary_interleaved(q, cos, sin)
        k = apply_rotary_interleaved(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output.dense(merge_heads(y))


class LmHead(nn.Module):
    """cls.predictions: language modeling head with a linear layer, an activation and a norm and the tied
    token embeddings and a bias.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.transform: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.hidden_size, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x: Tensor, embedding_weight: Tensor) -> Tensor:
        x = self.transform.LayerNorm(F.gelu(self.transform.dense(x)))
        return F.linear(x, embedding_weight, self.bias)


class Layer(nn.Module):
    """roformer.encoder.layer.*: a layer with attention, post-norm and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention = Attention(config)
        self.intermediate: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.hidden_size, config.intermediate_size)}
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.intermediate_size, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = self.attention.output.LayerNorm(x + self.attention(x, cos, sin, mask))
        return self.output.LayerNorm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class Encoder(nn.Module):
    """roformer: a stack of layers with a padding mask and rotary embeddings whose sines and cosines are
    stored.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {
                "embed_positions": nn.Embedding(config.positions, config.head_dim),
                "layer": nn.ModuleList(Layer(config) for _ in range(config.layers)),
            }
        )

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None
    ) -> Tensor:
        x = self.embeddings(input_ids, token_type_ids)
        mask = padding_mask(attention_mask)
        sin, cos = self.encoder.embed_positions(positions_in_order(x))[:, None].chunk(2, dim=-1)
        for layer in self.encoder.layer:
            x = layer(x, cos, sin, mask)
        return x


class Model(nn.Module):
    """The model with a masked language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.roformer = Encoder(config)
        self.cls: Any = nn.ModuleDict({"predictions": LmHead(config)})

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), token_type_ids (batch, length)"""
        x = self.roformer(input_ids, attention_mask, token_type_ids)
        embedding_weight = self.roformer.embeddings.word_embeddings.weight
        logits = self.cls.predictions(x, embedding_weight)
        return Output(logits=logits, last_hidden_state=x)


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
# {"config": {"architectures": ["RoFormerForMaskedLM"], "hidden_act": "gelu", "hidden_size": 768,
# "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 1536, "model_type":
# "roformer", "num_attention_heads": 12, "num_hidden_layers": 12, "type_vocab_size": 2, "vocab_size": 50000},
# "notes": ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from
# the hub", "evidence for its config: recalled"]}
# sha256 of all above: 6d6532553f264946
