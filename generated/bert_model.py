"""prajjwal1/bert-tiny: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family bert).
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

    vocab_size: int = 30522  # shape: embeddings.word_embeddings.weight [30522, 128]
    hidden_size: int = 128  # shape: embeddings.word_embeddings.weight [30522, 128]
    segments: int = 2  # shape: embeddings.token_type_embeddings.weight [2, 128]
    positions: int = 512  # shape: embeddings.position_embeddings.weight [512, 128]
    norm_eps: float = 1e-12  # config: layer_norm_eps
    heads: int = 2  # config: num_attention_heads
    # shape and config: encoder.layer.{0..1}.attention.self.query.weight [128, 128] = heads * head_dim
    head_dim: int = 64
    intermediate_size: int = 512  # shape: encoder.layer.{0..1}.intermediate.dense.weight [512, 128]
    layers: int = 2  # name: encoder.layer.*


@dataclass
class Output:
    """What the model returns."""

    last_hidden_state: Tensor
    pooler_output: Tensor


torch.export.register_dataclass(Output)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def segment_ids(input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
    """The caller's segments, or the first segment everywhere. (B, T)"""
    return torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Embeddings(nn.Module):
    """embeddings: token embeddings with token types, learned position embeddings and a norm."""

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
    """encoder.layer.*.attention: self-attention with an attention mask."""

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

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.self.query(x), self.head_dim)
        k = split_heads(self.self.key(x), self.head_dim)
        v = split_heads(self.self.value(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output.dense(merge_heads(y))


class Pooler(nn.Module):
    """Pooler with a linear layer and an activation over the first token."""

    def __init__(self, config: Config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dense(x[:, 0]))


class Layer(nn.Module):
    """encoder.layer.*: a layer with attention, post-norm and a feed-forward network."""

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

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.attention.output.LayerNorm(x + self.attention(x, mask))
        return self.output.LayerNorm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class Model(nn.Module):
    """The model with a pooler and no head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layer": nn.ModuleList(Layer(config) for _ in range(config.layers))}
        )
        self.pooler = Pooler(config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), token_type_ids (batch, length),
        position_ids (batch, length)
        """
        x = self.tower(input_ids, attention_mask, token_type_ids, position_ids)
        pooler_output = self.pooler(x)
        return Output(last_hidden_state=x, pooler_output=pooler_output)

    def tower(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
    ) -> Tensor:
        x = self.embeddings(input_ids, token_type_ids, position_ids)
        mask = padding_mask(attention_mask)
        for layer in self.encoder.layer:
            x = layer(x, mask)
        return x


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
# {"config": {"architectures": ["BertModel"], "hidden_act": "gelu", "hidden_size": 128, "intermediate_size":
# 512, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert", "num_attention_heads":
# 2, "num_hidden_layers": 2, "type_vocab_size": 2, "vocab_size": 30522}, "notes": ["header from the bundled
# catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# recalled"]}
# sha256 of all above: 1fb12c32ba9eb5e5
