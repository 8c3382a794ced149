"""albert, tiny: written by mapper 0.1.0, rules 505f7d688489.

Reading: exact (family albert).
tiny: the header is the example 'one group of one layer, run over four times; words narrower than layers' of
families/albert.yaml

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    hidden_size: int = 64  # shape: albert.encoder.embedding_hidden_mapping_in.weight [64, 24]
    heads: int = 4  # config: num_attention_heads
    # config: albert.encoder.albert_layer_groups.0.albert_layers.0.attention.query.weight [64, 64] = heads...
    head_dim: int = 16
    norm_eps: float = 1e-12  # default: families/albert.yaml
    head_hidden_size: int = 24  # shape: predictions.dense.weight [24, 64]
    vocab_size: int = 40  # shape: albert.embeddings.word_embeddings.weight [40, 24]
    # shape: albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight [96, 64]
    intermediate_size: int = 96
    layers: int = 1  # name: albert.encoder.albert_layer_groups.0.albert_layers.*
    embedding_size: int = 24  # shape: albert.embeddings.word_embeddings.weight [40, 24]
    segments: int = 40  # shape: albert.embeddings.token_type_embeddings.weight [40, 24]
    positions: int = 40  # shape: albert.embeddings.position_embeddings.weight [40, 24]
    stages: int = 1  # name: albert.encoder.albert_layer_groups.*
    repetitions: int = 4  # rule: families/albert.yaml: passes / stages


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


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


class Attention(nn.Module):
    """albert.encoder.albert_layer_groups.0.albert_layers.0.attention: every position sees every other that
    is not padding.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.query = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.key = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.value = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.dense = nn.Linear(config.heads * config.head_dim, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.query(x), self.head_dim)
        k = split_heads(self.key(x), self.head_dim)
        v = split_heads(self.value(x), self.head_dim)
        return self.dense(merge_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)))


class LmHead(nn.Module):
    """predictions: a score for each word, by the word embeddings."""

    def __init__(self, config: Config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.head_hidden_size)
        self.LayerNorm = nn.LayerNorm(config.head_hidden_size, eps=config.norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        x = self.LayerNorm(F.gelu(self.dense(x), approximate="tanh"))
        return F.linear(x, words, self.bias)


class Layer(nn.Module):
    """albert.encoder.albert_layer_groups.0.albert_layers.0: post-norm, each norm follows its residual sum."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention = Attention(config)
        self.ffn = nn.Linear(config.hidden_size, config.intermediate_size)
        self.ffn_output = nn.Linear(config.intermediate_size, config.hidden_size)
        self.full_layer_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.attention.LayerNorm(x + self.attention(x, mask))
        return self.full_layer_layer_norm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.ffn_output(F.gelu(self.ffn(x), approximate="tanh"))


class Stage(nn.Module):
    """albert.encoder.albert_layer_groups.0: layers one after the other."""

    def __init__(self, config: Config):
        super().__init__()
        self.albert_layers = nn.ModuleList(Layer(config) for _ in range(config.layers))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        for layer in self.albert_layers:
            x = layer(x, mask)
        return x


class Encoder(nn.Module):
    """albert: embeddings, then groups of layers, each run over several times, in which every position sees
    every other.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.repetitions = config.repetitions
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(config.vocab_size, config.embedding_size),
                "token_type_embeddings": nn.Embedding(config.segments, config.embedding_size),
                "position_embeddings": nn.Embedding(config.positions, config.embedding_size),
                "LayerNorm": nn.LayerNorm(config.embedding_size, eps=config.norm_eps),
            },
        )
        self.encoder = nn.ModuleDict(
            {
                "embedding_hidden_mapping_in": nn.Linear(config.embedding_size, config.hidden_size),
                "albert_layer_groups": nn.ModuleList(Stage(config) for _ in range(config.stages)),
            },
        )

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
        attention_mask: Tensor | None,
    ) -> Tensor:
        x = self.embeddings_forward(input_ids, token_type_ids, position_ids)
        mask = padding_mask(attention_mask)
        for stage in self.encoder.albert_layer_groups:
            for _ in range(self.repetitions):
                x = stage(x, mask)
        return x

    def embeddings_forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.embeddings.word_embeddings(input_ids)
        x = x + self.embeddings.token_type_embeddings(segment_ids(input_ids, token_type_ids))
        x = x + self.embeddings.position_embeddings(position_indices(input_ids, position_ids))
        return self.encoder.embedding_hidden_mapping_in(self.embeddings.LayerNorm(x))


class Model(nn.Module):
    """The model: the hidden token at every position."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.albert = Encoder(config)
        self.predictions = LmHead(config)

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
        x = self.albert(input_ids, token_type_ids, position_ids, attention_mask)
        words = self.albert.embeddings.word_embeddings.weight
        logits = self.predictions(x, words)
        return Output(logits=logits, last_hidden_state=x)


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
