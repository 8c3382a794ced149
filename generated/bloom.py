"""bloom, tiny: written by mapper 0.1.0, rules 505f7d688489.

Reading: exact (family bloom).
tiny: the header is the example 'two layers, a tied head, old config fields' of families/bloom.yaml

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    hidden_size: int = 64  # shape: ln_f.weight [64]
    heads: int = 4  # config: num_attention_heads
    # config: h.{0..1}.self_attention.query_key_value.weight [192, 64] = 3 * heads * head_dim
    head_dim: int = 16
    intermediate_size: int = 256  # shape: h.{0..1}.mlp.dense_h_to_4h.weight [256, 64]
    vocab_size: int = 99  # shape: word_embeddings.weight [99, 64]
    layers: int = 2  # name: h.*


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def alibi_slopes(x: Tensor, heads: int) -> Tensor:
    """Slope of each head, geometric; heads beyond a power of two interleave (2108.12409).

    -> (heads,) float32
    """
    power = 2 ** math.floor(math.log2(heads))
    first = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    between = [2.0 ** (-4.0 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(first + between, dtype=torch.float32, device=x.device)


def alibi_bias(x: Tensor, positions: Tensor, heads: int) -> Tensor:
    """Bias that grows with the key's position; softmax sees differences only.

    positions (B, S) -> (B, H, 1, S)
    """
    return (alibi_slopes(x, heads)[:, None, None] * positions[:, None, None, :]).to(x.dtype)


def repeat_heads(x: Tensor, groups: int) -> Tensor:
    """Gives every query head its own copy of a shared head. x (B, K, T, D) -> (B, K * groups, T, D)"""
    B, K, T, D = x.shape
    return x[:, :, None].expand(B, K, groups, T, D).reshape(B, K * groups, T, D)


def attend_scaled_biased(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """Attention with scores q @ k * scale + bias. bias broadcasts to (B, H, T, S)"""
    bias = bias.to(q.dtype)
    if mask is not None:  # the lowest number rather than -inf: a row without any key stays finite
        bias = bias.masked_fill(~mask, torch.finfo(q.dtype).min)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = repeat_heads(k, groups), repeat_heads(v, groups)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def attend_biased(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled attention with a float bias added to the scores. bias broadcasts to (B, H, T, S)"""
    return attend_scaled_biased(q, k, v, bias, mask, q.shape[-1] ** -0.5)


def attend_causal_biased(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
    """attend_biased where None as a mask means causal. bias broadcasts to (B, H, T, T)"""
    if mask is None:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    return attend_biased(q, k, v, bias, mask)


def causal_mask(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Hides later keys and padded ones. x (B, T, ...), attention_mask (B, T) or None -> (1 or B, 1, T, T)"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = (index <= index[:, None])[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def causal_mask_if_padded(x: Tensor, attention_mask: Tensor | None) -> Tensor | None:
    """A causal mask, or None where nothing is padded, for attend_causal. Shapes as in causal_mask"""
    return None if attention_mask is None else causal_mask(x, attention_mask)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def positions_of_mask(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Counts real positions from 0; padding gets 0.

    x (B, T, ...), attention_mask (B, T) or None -> (B or 1, T)
    """
    if attention_mask is None:
        return torch.arange(x.shape[1], device=x.device)[None]
    real = (attention_mask != 0).long()
    return (real.cumsum(dim=1) - 1) * real


def split_qkv_per_head(x: Tensor, head_dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Splits a projection of [query | key | value] per head. x (B, T, H * 3 * D) -> three (B, H, T, D)"""
    q, k, v = x.unflatten(-1, (-1, 3, head_dim)).transpose(1, 2).unbind(3)
    return q, k, v


class Attention(nn.Module):
    """h.*.self_attention: every position sees itself and those before; query, key and value of each head
    side by side in one map.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.heads * config.head_dim)
        self.dense = nn.Linear(config.heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = split_qkv_per_head(self.query_key_value(x), self.head_dim)
        return self.dense(merge_heads(attend_causal_biased(q, k, v, bias, mask)))


class FeedForward(nn.Module):
    """h.*.mlp: two linear maps around an activation."""

    def __init__(self, config: Config):
        super().__init__()
        self.dense_h_to_4h = nn.Linear(config.hidden_size, config.intermediate_size)
        self.dense_4h_to_h = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense_4h_to_h(F.gelu(self.dense_h_to_4h(x), approximate="tanh"))


class Layer(nn.Module):
    """h.*: pre-norm, each norm stands before its sub-layer, inside the residual."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(config.hidden_size)
        self.self_attention = Attention(config)
        self.post_attention_layernorm = nn.LayerNorm(config.hidden_size)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attention(self.input_layernorm(x), bias, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    """The model: the next token at every position, read off the word embeddings."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.heads = config.heads
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.word_embeddings_layernorm = nn.LayerNorm(config.hidden_size)
        self.h = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.hidden_size)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Output:
        """input_ids (batch, length), attention_mask (batch, length)"""
        x = self.tower(input_ids, attention_mask)
        logits = F.linear(x, self.word_embeddings.weight)
        return Output(logits=logits, last_hidden_state=x)

    def tower(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        x = self.embeddings(input_ids)
        mask = causal_mask_if_padded(x, attention_mask)
        bias = self.biased(x, attention_mask)
        for layer in self.h:
            x = layer(x, bias, mask)
        return self.ln_f(x)

    def embeddings(self, input_ids: Tensor) -> Tensor:
        x = self.word_embeddings(input_ids)
        return self.word_embeddings_layernorm(x)

    def biased(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        return alibi_bias(x, positions_of_mask(x, attention_mask), self.heads)


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
