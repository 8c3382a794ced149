"""google/mobilebert-uncased: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family mobilebert).
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

    vocab_size: int = 30522  # shape: cls.predictions.bias [30522]
    embedding_size: int = 128  # shape: mobilebert.embeddings.word_embeddings.weight [30522, 128]
    neighbours: int = 1  # shape: mobilebert.embeddings.embedding_transformation.weight [512, 384]
    hidden_size: int = 512  # shape: cls.seq_relationship.weight [2, 512]
    segments: int = 2  # shape: mobilebert.embeddings.token_type_embeddings.weight [2, 512]
    positions: int = 512  # shape: mobilebert.embeddings.position_embeddings.weight [512, 512]
    norm_eps: float = 1e-12  # config: layer_norm_eps
    rest_size: int = 384  # shape: cls.predictions.dense.weight [384, 30522]
    narrow_size: int = 128  # shape: mobilebert.encoder.layer.{0..23}.bottleneck.input.dense.weight [128, 512]
    heads: int = 4  # config: num_attention_heads
    # shape and config: mobilebert.encoder.layer.{0..23}.attention.self.query.weight [128, 128] = heads * ...
    head_dim: int = 32
    inner_size: int = 512  # shape: mobilebert.encoder.layer.{0..23}.ffn.{0..2}.output.dense.weight [128, 512]
    layers: int = 24  # name: mobilebert.encoder.layer.*


@dataclass
class Output:
    """What the model returns."""

    prediction_logits: Tensor
    seq_relationship_logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


class Affine(nn.Module):
    """A scale and a shift of each channel, without a norm (paper 2004.02984). (..., W) -> (..., W)"""

    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


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
    """mobilebert.embeddings: token embeddings with a projection to the hidden size, embeddings
    concatenated with those of the words beside them, token types, learned position embeddings and a
    norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.neighbours = config.neighbours
        self.word_embeddings = nn.Embedding(config.vocab_size, config.embedding_size)
        self.embedding_transformation = nn.Linear(
            (2 * config.neighbours + 1) * config.embedding_size, config.hidden_size
        )
        self.token_type_embeddings = nn.Embedding(config.segments, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.positions, config.hidden_size)
        self.LayerNorm = Affine(config.hidden_size)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.word_embeddings(input_ids)
        count = self.neighbours
        x = F.pad(x, (0, 0, count, count)).unfold(1, 2 * count + 1, 1)
        x = x.flip(-1).transpose(-1, -2).flatten(2)
        x = self.embedding_transformation(x)
        x = x + self.token_type_embeddings(segment_ids(input_ids, token_type_ids))
        x = x + self.position_embeddings(position_indices(input_ids, position_ids))
        return self.LayerNorm(x)


class LmHead(nn.Module):
    """cls.predictions: language modeling head with a linear layer, an activation and a norm and the narrow
    token embeddings and further columns (MobileBERT).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.transform: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.hidden_size, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )
        self.dense = nn.Linear(config.vocab_size, config.rest_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x: Tensor, embedding_weight: Tensor) -> Tensor:
        x = self.transform.LayerNorm(F.relu(self.transform.dense(x)))
        return F.linear(x, torch.cat((embedding_weight, self.dense.weight.t()), dim=1), self.bias)


class Attention(nn.Module):
    """mobilebert.encoder.layer.*.attention: attention whose queries, keys and values come from three
    different inputs.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.self: Any = nn.ModuleDict(
            {
                "query": nn.Linear(config.narrow_size, config.heads * config.head_dim),
                "key": nn.Linear(config.narrow_size, config.heads * config.head_dim),
                "value": nn.Linear(config.hidden_size, config.heads * config.head_dim),
            }
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.heads * config.head_dim, config.narrow_size),
                "LayerNorm": Affine(config.narrow_size),
            }
        )

    def forward(self, x: Tensor, seen: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.self.query(x), self.head_dim)
        k = split_heads(self.self.key(seen), self.head_dim)
        v = split_heads(self.self.value(values), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output.dense(merge_heads(y))


class FeedForward(nn.Module):
    """mobilebert.encoder.layer.*.ffn.*: feed-forward network of another width than the layers': over
    tokens (MLP-Mixer), of a second stream, of a bottleneck, or an adapter, with its residual and a norm
    after it (MobileBERT).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.intermediate: Any = nn.ModuleDict({"dense": nn.Linear(config.narrow_size, config.inner_size)})
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.inner_size, config.narrow_size),
                "LayerNorm": Affine(config.narrow_size),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.output.LayerNorm(x + self.output.dense(F.relu(self.intermediate.dense(x))))


class Layer(nn.Module):
    """mobilebert.encoder.layer.*: attention and several feed-forwards inside of a bottleneck, between maps
    with affine norms (MobileBERT).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.bottleneck: Any = nn.ModuleDict(
            {
                "attention": nn.ModuleDict(
                    {
                        "dense": nn.Linear(config.hidden_size, config.narrow_size),
                        "LayerNorm": Affine(config.narrow_size),
                    }
                ),
                "input": nn.ModuleDict(
                    {
                        "dense": nn.Linear(config.hidden_size, config.narrow_size),
                        "LayerNorm": Affine(config.narrow_size),
                    }
                ),
            }
        )
        self.attention = Attention(config)
        self.ffn = nn.ModuleList(FeedForward(config) for _ in range(3))
        self.intermediate: Any = nn.ModuleDict({"dense": nn.Linear(config.narrow_size, config.inner_size)})
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.inner_size, config.narrow_size),
                "LayerNorm": Affine(config.narrow_size),
                "bottleneck": nn.ModuleDict(
                    {
                        "dense": nn.Linear(config.narrow_size, config.hidden_size),
                        "LayerNorm": Affine(config.hidden_size),
                    }
                ),
            }
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        asked = self.bottleneck.attention.LayerNorm(self.bottleneck.attention.dense(x))
        y = self.attention.output.LayerNorm(
            self.bottleneck.input.LayerNorm(self.bottleneck.input.dense(x))
            + self.attention(asked, asked, x, mask)
        )
        for inner in self.ffn:
            y = inner(y)
        return self.output.bottleneck.LayerNorm(self.output.bottleneck.dense(self.last_feed_forward(y)) + x)

    def last_feed_forward(self, x: Tensor) -> Tensor:
        return self.output.LayerNorm(x + self.output.dense(F.relu(self.intermediate.dense(x))))


class Encoder(nn.Module):
    """mobilebert: a stack of layers with a padding mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layer": nn.ModuleList(Layer(config) for _ in range(config.layers))}
        )

    def forward(
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


class Model(nn.Module):
    """The model with a masked language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.mobilebert = Encoder(config)
        self.cls: Any = nn.ModuleDict(
            {"seq_relationship": nn.Linear(config.hidden_size, 2), "predictions": LmHead(config)}
        )

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
        x = self.mobilebert(input_ids, attention_mask, token_type_ids, position_ids)
        relation = self.cls.seq_relationship(x[:, 0])
        embedding_weight = self.mobilebert.embeddings.word_embeddings.weight
        return Output(
            prediction_logits=self.cls.predictions(x, embedding_weight),
            seq_relationship_logits=relation,
            last_hidden_state=x,
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
# {"config": {"architectures": ["MobileBertForPreTraining"], "classifier_activation": false, "embedding_size":
# 128, "hidden_act": "relu", "hidden_size": 512, "intermediate_size": 512, "layer_norm_eps": 1e-12,
# "max_position_embeddings": 512, "model_type": "mobilebert", "num_attention_heads": 4, "num_hidden_layers":
# 24, "trigram_input": true, "type_vocab_size": 2, "vocab_size": 30522}, "notes": ["header from the bundled
# catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# transformers-default"]}
# sha256 of all above: 52964aacee9fd0b0
