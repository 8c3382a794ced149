"""facebook/xlm-roberta-xl: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family bert_pre_norm).
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

    vocab_size: int = 250880  # shape: lm_head.bias [250880]
    hidden_size: int = 2560  # shape: lm_head.dense.weight [2560, 2560]
    segments: int = 1  # shape: roberta.embeddings.token_type_embeddings.weight [1, 2560]
    positions: int = 514  # shape: roberta.embeddings.position_embeddings.weight [514, 2560]
    padding_index: int = 1  # config: pad_token_id
    norm_eps: float = 1e-5  # config: layer_norm_eps
    heads: int = 32  # config: num_attention_heads
    # shape and config: roberta.encoder.layer.{0..35}.attention.self.query.weight [2560, 2560] = heads * ...
    head_dim: int = 80
    # shape: roberta.encoder.layer.{0..35}.intermediate.dense.weight [10240, 2560]
    intermediate_size: int = 10240
    layers: int = 36  # name: roberta.encoder.layer.*


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


def positions_of_ids(input_ids: Tensor, padding_id: int) -> Tensor:
    """Counts real tokens from padding_id + 1; padding gets padding_id (RoBERTa).

    input_ids (B, T) -> (B, T)
    """
    real = (input_ids != padding_id).long()
    return real.cumsum(dim=1) * real + padding_id


def segment_ids(input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
    """The caller's segments, or the first segment everywhere. (B, T)"""
    return torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Embeddings(nn.Module):
    """roberta.embeddings: token embeddings with token types and learned position embeddings that skip
    padding.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.padding_index = config.padding_index
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.segments, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.positions, config.hidden_size)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.word_embeddings(input_ids)
        x = x + self.token_type_embeddings(segment_ids(input_ids, token_type_ids))
        if position_ids is None:
            position_ids = positions_of_ids(input_ids, self.padding_index)
        return x + self.position_embeddings(position_ids)


class Attention(nn.Module):
    """roberta.encoder.layer.*.attention: self-attention with an attention mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.self: Any = nn.ModuleDict(
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
        q = split_heads(self.self.query(x), self.head_dim)
        k = split_heads(self.self.key(x), self.head_dim)
        v = split_heads(self.self.value(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output.dense(merge_heads(y))


class LmHead(nn.Module):
    """lm_head: language modeling head with a linear layer, an activation and a norm and the tied token
    embeddings and a bias.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x: Tensor, embedding_weight: Tensor) -> Tensor:
        x = self.layer_norm(F.gelu(self.dense(x)))
        return F.linear(x, embedding_weight, self.bias)


class Layer(nn.Module):
    """roberta.encoder.layer.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention = Attention(config)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.intermediate: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.hidden_size, config.intermediate_size)}
        )
        self.output: Any = nn.ModuleDict({"dense": nn.Linear(config.intermediate_size, config.hidden_size)})

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.attention.self_attn_layer_norm(x), mask)
        return x + self.feed_forward(self.LayerNorm(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class Encoder(nn.Module):
    """roberta: a stack of layers with a padding mask and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {
                "layer": nn.ModuleList(Layer(config) for _ in range(config.layers)),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
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
        return self.encoder.LayerNorm(x)


class Model(nn.Module):
    """The model with a masked language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.roberta = Encoder(config)
        self.lm_head = LmHead(config)

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
        x = self.roberta(input_ids, attention_mask, token_type_ids, position_ids)
        embedding_weight = self.roberta.embeddings.word_embeddings.weight
        logits = self.lm_head(x, embedding_weight)
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
# {"config": {"architectures": ["XLMRobertaXLForMaskedLM"], "hidden_act": "gelu", "hidden_size": 2560,
# "intermediate_size": 10240, "is_decoder": false, "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
# "model_type": "xlm-roberta-xl", "num_attention_heads": 32, "num_hidden_layers": 36, "pad_token_id": 1,
# "tie_word_embeddings": true, "type_vocab_size": 1, "vocab_size": 250880}, "notes": ["header from the bundled
# catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# transformers-default"]}
# sha256 of all above: 4b6481c6a7ed3e27
