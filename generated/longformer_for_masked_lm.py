"""allenai/longformer-base-4096: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family longformer).
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

    vocab_size: int = 50265  # shape: lm_head.bias [50265]
    hidden_size: int = 768  # shape: lm_head.dense.weight [768, 768]
    segments: int = 1  # shape: longformer.embeddings.token_type_embeddings.weight [1, 768]
    positions: int = 4098  # shape: longformer.embeddings.position_embeddings.weight [4098, 768]
    norm_eps: float = 1e-5  # config: layer_norm_eps
    padding_index: int = 1  # config: pad_token_id
    heads: int = 12  # config: num_attention_heads
    # shape and config: longformer.encoder.layer.{0..11}.attention.self.query.weight [768, 768] = heads * ...
    head_dim: int = 64
    one_sided_window: int = 256  # rule: vocabulary/config_attention.yaml: floor(attention.window / 2)
    # shape: longformer.encoder.layer.{0..11}.intermediate.dense.weight [3072, 768]
    intermediate_size: int = 3072
    layers: int = 12  # name: longformer.encoder.layer.*


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


def sliding_mask(x: Tensor, attention_mask: Tensor | None, window: int, after: int = 0) -> Tensor:
    """Shows each query itself, the window - 1 keys before it and `after` behind. Shapes as in causal_mask"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = ((index <= index[:, None] + after) & (index > index[:, None] - window))[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Embeddings(nn.Module):
    """longformer.embeddings: token embeddings with token types, learned position embeddings that skip
    padding and a norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.padding_index = config.padding_index
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.segments, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.positions, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.word_embeddings(input_ids)
        x = x + self.token_type_embeddings(segment_ids(input_ids, token_type_ids))
        if position_ids is None:
            position_ids = positions_of_ids(input_ids, self.padding_index)
        return self.LayerNorm(x + self.position_embeddings(position_ids))


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


class Attention(nn.Module):
    """longformer.encoder.layer.*.attention: self-attention with a sliding window to both sides, and global
    attention of some positions (Longformer).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.one_sided_window = config.one_sided_window
        self.self: Any = nn.ModuleDict(
            {
                "query": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "key": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "value": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "query_global": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "key_global": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "value_global": nn.Linear(config.hidden_size, config.heads * config.head_dim),
            }
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.heads * config.head_dim, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )

    def forward(
        self, x: Tensor, attention_mask: Tensor | None, wide: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        q = split_heads(self.self.query(x), self.head_dim)
        k = split_heads(self.self.key(x), self.head_dim)
        v = split_heads(self.self.value(x), self.head_dim)
        side = self.one_sided_window
        near = sliding_mask(x, attention_mask, side + 1, side)
        near = near if wide is None else near | wide[:, None, None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=near)
        q = split_heads(self.self.query_global(x), self.head_dim)
        k = split_heads(self.self.key_global(x), self.head_dim)
        v = split_heads(self.self.value_global(x), self.head_dim)
        far = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        y = y if wide is None else torch.where(wide[:, None, :, None], far, y)
        y = y if mask is None else y.masked_fill(~mask.transpose(2, 3), 0.0)
        return self.output.dense(merge_heads(y))


class Layer(nn.Module):
    """longformer.encoder.layer.*: a layer with attention, post-norm and a feed-forward network."""

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

    def forward(
        self, x: Tensor, attention_mask: Tensor | None, wide: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        x = self.attention.output.LayerNorm(x + self.attention(x, attention_mask, wide, mask))
        return self.output.LayerNorm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class Encoder(nn.Module):
    """longformer: a stack of layers with a padding mask, and which positions have global attention."""

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
        global_attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
    ) -> Tensor:
        x = self.embeddings(input_ids, token_type_ids, position_ids)
        mask = padding_mask(attention_mask)
        wide = None
        if global_attention_mask is not None:
            chosen = global_attention_mask != 0
            wide = chosen if attention_mask is None else chosen & (attention_mask != 0)
        for layer in self.encoder.layer:
            x = layer(x, attention_mask, wide, mask)
        return x


class Model(nn.Module):
    """The model with a masked language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.longformer = Encoder(config)
        self.lm_head = LmHead(config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), global_attention_mask (batch,
        length), token_type_ids (batch, length), position_ids (batch, length)
        """
        x = self.longformer(input_ids, attention_mask, global_attention_mask, token_type_ids, position_ids)
        embedding_weight = self.longformer.embeddings.word_embeddings.weight
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
# {"config": {"architectures": ["LongformerForMaskedLM"], "attention_window": [512, 512, 512, 512, 512, 512,
# 512, 512, 512, 512, 512, 512], "hidden_act": "gelu", "hidden_size": 768, "intermediate_size": 3072,
# "layer_norm_eps": 1e-05, "max_position_embeddings": 4098, "model_type": "longformer", "num_attention_heads":
# 12, "num_hidden_layers": 12, "pad_token_id": 1, "type_vocab_size": 1, "vocab_size": 50265}, "notes":
# ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub",
# "evidence for its config: recalled"]}
# sha256 of all above: 62541eb07bdf0ec8
