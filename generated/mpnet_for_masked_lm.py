"""sentence-transformers/all-mpnet-base-v2: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family mpnet).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: repository
(EvoNexusX/Graph-Retrieval-Augmented-Trustworthiness-Reasoning:all-mpnet-base-v2/config.json)
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

    vocab_size: int = 30527  # shape: embeddings.word_embeddings.weight [30527, 768]
    hidden_size: int = 768  # shape: embeddings.word_embeddings.weight [30527, 768]
    positions: int = 514  # shape: embeddings.position_embeddings.weight [514, 768]
    norm_eps: float = 1e-5  # config: layer_norm_eps
    # rule: families/mpnet.yaml (a constant of the published code, whatever its config says)
    padding_index: int = 1
    heads: int = 12  # shape: encoder.relative_attention_bias.weight [32, 12]
    head_dim: int = 64  # shape: encoder.layer.{0..11}.attention.attn.q.weight [768, 768]
    intermediate_size: int = 3072  # shape: encoder.layer.{0..11}.intermediate.dense.weight [3072, 768]
    layers: int = 12  # name: encoder.layer.*
    # rule: families/mpnet.yaml (a constant of the published code, whatever its config says)
    buckets: int = 32
    max_distance: int = 128  # rule: families/mpnet.yaml (a constant of the published code)


@dataclass
class Output:
    """What the model returns."""

    last_hidden_state: Tensor
    pooler_output: Tensor


torch.export.register_dataclass(Output)


def masked_bias(bias: Tensor, mask: Tensor | None) -> Tensor:
    """A bias with the lowest number where the mask hides a key, once for all layers.

    bias (1, H, T, S), mask (1 or B, 1, 1 or T, S) or None -> (1 or B, H, T, S)
    """
    return bias if mask is None else torch.where(mask, bias, torch.finfo(bias.dtype).min)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def positions_of_ids(input_ids: Tensor, padding_id: int) -> Tensor:
    """Counts real tokens from padding_id + 1; padding gets padding_id (RoBERTa).

    input_ids (B, T) -> (B, T)
    """
    real = (input_ids != padding_id).long()
    return real.cumsum(dim=1) * real + padding_id


def bucket_logarithmic(lengths: Tensor, buckets: int, max_distance: int) -> Tensor:
    """One bucket per length for the lower half, then logarithmic up to max_distance.

    lengths >= 0, any shape
    """
    exact = buckets // 2
    steps = (
        torch.log(lengths.clamp(min=1).float() / exact) / math.log(max_distance / exact) * (buckets - exact)
    )
    return torch.where(lengths < exact, lengths, (exact + steps.long()).clamp(max=buckets - 1))


def relative_buckets(distances: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Buckets of both directions: later keys take the upper half (T5 encoder, MPNet; 1910.10683).

    Any shape
    """
    half = buckets // 2
    return torch.where(distances > 0, half, 0) + bucket_logarithmic(distances.abs(), half, max_distance)


def relative_distances(x: Tensor) -> Tensor:
    """Key position minus query position. x (B, T, ...) -> (T, T) int64, queries down, keys across"""
    index = torch.arange(x.shape[1], device=x.device)
    return index - index[:, None]


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Embeddings(nn.Module):
    """embeddings: token embeddings with learned position embeddings that skip padding and a norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.padding_index = config.padding_index
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.positions, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        # unused: the positions 0, 1, 2 and so on, counted by the forward itself
        self.register_buffer("position_ids", torch.zeros(1, config.positions, dtype=torch.int64))

    def forward(self, input_ids: Tensor, position_ids: Tensor | None) -> Tensor:
        x = self.word_embeddings(input_ids)
        if position_ids is None:
            position_ids = positions_of_ids(input_ids, self.padding_index)
        return self.LayerNorm(x + self.position_embeddings(position_ids))


class Attention(nn.Module):
    """encoder.layer.*.attention.attn: self-attention with an attention mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.q = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.k = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.v = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.o = nn.Linear(config.heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q = split_heads(self.q(x), self.head_dim)
        k = split_heads(self.k(x), self.head_dim)
        v = split_heads(self.v(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o(merge_heads(y))


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
        self.attention: Any = nn.ModuleDict(
            {"attn": Attention(config), "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps)}
        )
        self.intermediate: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.hidden_size, config.intermediate_size)}
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.intermediate_size, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention.LayerNorm(x + self.attention.attn(x, mask))
        return self.output.LayerNorm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class Model(nn.Module):
    """The model with a pooler and no head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.buckets = config.buckets
        self.max_distance = config.max_distance
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {
                "relative_attention_bias": nn.Embedding(32, config.heads),
                "layer": nn.ModuleList(Layer(config) for _ in range(config.layers)),
            }
        )
        self.pooler = Pooler(config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), position_ids (batch, length)"""
        x = self.tower(input_ids, attention_mask, position_ids)
        pooler_output = self.pooler(x)
        return Output(last_hidden_state=x, pooler_output=pooler_output)

    def tower(self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None) -> Tensor:
        x = self.embeddings(input_ids, position_ids)
        mask = padding_mask(attention_mask)
        buckets = relative_buckets(relative_distances(x), self.buckets, self.max_distance)
        bias = self.encoder.relative_attention_bias(buckets).permute(2, 0, 1)[None]
        mask = masked_bias(bias, mask)
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
# {"config": {"architectures": ["MPNetForMaskedLM"], "hidden_act": "gelu", "hidden_size": 768,
# "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 514, "model_type": "mpnet",
# "num_attention_heads": 12, "num_hidden_layers": 12, "vocab_size": 30527}, "notes": ["header from the bundled
# catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# repository (EvoNexusX/Graph-Retrieval-Augmented-Trustworthiness-Reasoning:all-mpnet-base-v2/config.json)"]}
# sha256 of all above: b7c975723b5fbf19
