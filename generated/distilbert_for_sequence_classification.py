"""distilbert/distilbert-base-uncased-finetuned-sst-2-english: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family distilbert).
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

    hidden_size: int = 768  # shape: pre_classifier.weight [768, 768]
    heads: int = 12  # config: n_heads
    # shape and config: distilbert.transformer.layer.{0..5}.attention.q_lin.weight [768, 768] = heads * ...
    head_dim: int = 64
    vocab_size: int = 30522  # shape: distilbert.embeddings.word_embeddings.weight [30522, 768]
    positions: int = 512  # shape: distilbert.embeddings.position_embeddings.weight [512, 768]
    # rule: families/distilbert.yaml (a constant of the published code; not in config.json)
    norm_eps: float = 1e-12
    intermediate_size: int = 3072  # shape: distilbert.transformer.layer.{0..5}.ffn.lin1.weight [3072, 768]
    layers: int = 6  # name: distilbert.transformer.layer.*
    labels: int = 2  # shape: classifier.weight [2, 768]


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


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Attention(nn.Module):
    """distilbert.transformer.layer.*.attention: self-attention with an attention mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.q_lin = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.k_lin = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.v_lin = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.out_lin = nn.Linear(config.heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_lin(x), self.head_dim)
        k = split_heads(self.k_lin(x), self.head_dim)
        v = split_heads(self.v_lin(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out_lin(merge_heads(y))


class Embeddings(nn.Module):
    """distilbert.embeddings: token embeddings with learned position embeddings and a norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.positions, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, input_ids: Tensor, position_ids: Tensor | None) -> Tensor:
        x = self.word_embeddings(input_ids)
        x = x + self.position_embeddings(position_indices(input_ids, position_ids))
        return self.LayerNorm(x)


class FeedForward(nn.Module):
    """distilbert.transformer.layer.*.ffn: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.lin1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.lin2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin2(F.gelu(self.lin1(x)))


class Layer(nn.Module):
    """distilbert.transformer.layer.*: a layer with attention, post-norm and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention = Attention(config)
        self.sa_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.ffn = FeedForward(config)
        self.output_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.sa_layer_norm(x + self.attention(x, mask))
        return self.output_layer_norm(x + self.ffn(x))


class Encoder(nn.Module):
    """distilbert: a stack of layers with a padding mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.transformer: Any = nn.ModuleDict(
            {"layer": nn.ModuleList(Layer(config) for _ in range(config.layers))}
        )

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.embeddings(input_ids, position_ids)
        mask = padding_mask(attention_mask)
        for layer in self.transformer.layer:
            x = layer(x, mask)
        return x


class Model(nn.Module):
    """The model with a classification head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.distilbert = Encoder(config)
        self.pre_classifier = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, config.labels)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), position_ids (batch, length)"""
        x = self.distilbert(input_ids, attention_mask, position_ids)
        pooled = x[:, 0]
        logits = self.classifier_forward(pooled)
        return Output(logits=logits, last_hidden_state=x)

    def classifier_forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.relu(self.pre_classifier(x)))


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
# {"config": {"activation": "gelu", "architectures": ["DistilBertForSequenceClassification"], "dim": 768,
# "hidden_dim": 3072, "max_position_embeddings": 512, "model_type": "distilbert", "n_heads": 12, "n_layers":
# 6, "vocab_size": 30522}, "notes": ["header from the bundled catalogue (reconstructed with transformers
# 5.23.0 from config), not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: 9af10126c749659c
