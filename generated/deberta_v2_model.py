"""microsoft/deberta-v3-base: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family deberta_v2).
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

    hidden_size: int = 768  # shape: deberta.encoder.rel_embeddings.weight [512, 768]
    norm_eps: float = 1e-7  # config: layer_norm_eps
    vocab_size: int = 128100  # shape: deberta.embeddings.word_embeddings.weight [128100, 768]
    heads: int = 12  # config: num_attention_heads
    # shape and config: deberta.encoder.layer.{0..11}.attention.self.query_proj.weight [768, 768] = heads ...
    head_dim: int = 64
    # rule: families/deberta_v2.yaml: (attention.terms * attention.head_dim) ** -0.5
    attention_scale: float = 0.07216878364870322
    # shape: deberta.encoder.layer.{0..11}.intermediate.dense.weight [3072, 768]
    intermediate_size: int = 3072
    relative_span: int = 256  # shape: deberta.encoder.rel_embeddings.weight [512, 768]
    layers: int = 12  # name: deberta.encoder.layer.*
    buckets: int = 256  # config: position_buckets
    max_distance: int = 512  # config: max_position_embeddings


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


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


def log_buckets(distances: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Signed distances, exact up to buckets / 2, then logarithmic (DeBERTa v2, 2006.03654).

    Any shape -> int64
    """
    middle = buckets // 2
    length = distances.abs().clamp(min=middle)
    # float32 on both sides of the division, as the ceiling decides at exact multiples
    whole = torch.log(torch.tensor((max_distance - 1) / middle, device=distances.device))
    steps = torch.ceil(torch.log(length / middle) / whole * (middle - 1)) + middle
    return torch.where(distances.abs() <= middle, distances, (steps * distances.sign()).long())


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


def relative_scores(x: Tensor, table: Tensor, rows: Tensor) -> Tensor:
    """Scores of vectors against the row of a table that each is to be compared with.

    x (B, H, T, D), table (1, H, N, D), rows (T, S) -> (B, H, T, S)
    """
    scores = x @ table.transpose(-1, -2)
    return scores.gather(-1, rows.expand(*scores.shape[:-1], rows.shape[-1]))


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class LmHead(nn.Module):
    """lm_predictions.lm_head: language modeling head with a linear layer, an activation and a norm and the
    tied token embeddings and a bias.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x: Tensor, embedding_weight: Tensor) -> Tensor:
        x = self.LayerNorm(F.gelu(self.dense(x)))
        return F.linear(x, embedding_weight, self.bias)


class Embeddings(nn.Module):
    """deberta.embeddings: token embeddings with a norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.LayerNorm(self.word_embeddings(input_ids))


class Attention(nn.Module):
    """deberta.encoder.layer.*.attention: self-attention with disentangled scores, relative position
    embeddings with the projections of the contents (DeBERTa v2).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.scale = config.attention_scale
        self.self: Any = nn.ModuleDict(
            {
                "query_proj": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "key_proj": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "value_proj": nn.Linear(config.hidden_size, config.heads * config.head_dim),
            }
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.heads * config.head_dim, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )

    def forward(self, x: Tensor, table: Tensor, rows: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.self.query_proj(x), self.head_dim)
        k = split_heads(self.self.key_proj(x), self.head_dim)
        v = split_heads(self.self.value_proj(x), self.head_dim)
        bias = relative_scores(q, split_heads(self.self.key_proj(table), self.head_dim), rows)
        bias = bias + relative_scores(k, split_heads(self.self.query_proj(table), self.head_dim), rows.t()).mT
        y = attend_biased(q, k, v, bias * self.scale, mask, self.scale)
        return self.output.dense(merge_heads(y))


class Layer(nn.Module):
    """deberta.encoder.layer.*: a layer with attention, post-norm and a feed-forward network."""

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

    def forward(self, x: Tensor, table: Tensor, rows: Tensor, mask: Tensor | None) -> Tensor:
        x = self.attention.output.LayerNorm(x + self.attention(x, table, rows, mask))
        return self.output.LayerNorm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class Encoder(nn.Module):
    """deberta: a stack of layers with a padding mask and relative position embeddings for disentangled
    attention.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.buckets = config.buckets
        self.max_distance = config.max_distance
        self.relative_span = config.relative_span
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {
                "rel_embeddings": nn.Embedding(2 * config.relative_span, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
                "layer": nn.ModuleList(Layer(config) for _ in range(config.layers)),
            }
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        x = self.embeddings(input_ids)
        mask = padding_mask(attention_mask)
        table = self.encoder.rel_embeddings.weight[None]
        table = self.encoder.LayerNorm(table)
        distances = log_buckets(relative_distances(x), self.buckets, self.max_distance)
        rows = (self.relative_span - distances).clamp(0, 2 * self.relative_span - 1)
        for layer in self.encoder.layer:
            x = layer(x, table, rows, mask)
        return x


class Model(nn.Module):
    """The model with a masked language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.deberta = Encoder(config)
        self.lm_predictions: Any = nn.ModuleDict({"lm_head": LmHead(config)})
        # unused: a head of its pretraining that no published forward runs
        self.mask_predictions = nn.ModuleDict(
            {
                "LayerNorm": nn.LayerNorm(config.hidden_size),
                "classifier": nn.Linear(768, 1),
                "dense": nn.Linear(config.hidden_size, config.hidden_size),
            }
        )
        self.to(torch.float16)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Output:
        """input_ids (batch, length), attention_mask (batch, length)"""
        x = self.deberta(input_ids, attention_mask)
        embedding_weight = self.deberta.embeddings.word_embeddings.weight
        logits = self.lm_predictions.lm_head(x, embedding_weight)
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
# {"config": {"hidden_act": "gelu", "hidden_size": 768, "intermediate_size": 3072, "layer_norm_eps": 1e-07,
# "max_position_embeddings": 512, "max_relative_positions": -1, "model_type": "deberta-v2", "norm_rel_ebd":
# "layer_norm", "num_attention_heads": 12, "num_hidden_layers": 12, "pos_att_type": "p2c|c2p",
# "position_biased_input": false, "position_buckets": 256, "relative_attention": true, "share_att_key": true,
# "type_vocab_size": 0, "vocab_size": 128100}, "notes": ["header from the bundled catalogue (reconstructed
# with transformers 5.23.0 from config), not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: 66cbcaab6814f549
