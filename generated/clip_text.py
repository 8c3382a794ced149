"""clip_text, tiny: written by mapper 0.1.0, rules 505f7d688489.

Reading: exact (family clip_text).
tiny: the header is the example 'two layers, an end token of its own' of families/clip_text.yaml

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

    hidden_size: int = 32  # shape: text_model.final_layer_norm.weight [32]
    heads: int = 4  # config: num_attention_heads
    # config: text_model.encoder.layers.{0..1}.self_attn.q_proj.weight [32, 32] = heads * head_dim
    head_dim: int = 8
    # config: text_model.encoder.layers.{0..1}.self_attn.k_proj.weight [32, 32] = kv_heads * head_dim
    kv_heads: int = 4
    vocab_size: int = 103  # shape: text_model.embeddings.token_embedding.weight [103, 32]
    positions: int = 64  # shape: text_model.embeddings.position_embedding.weight [64, 32]
    intermediate_size: int = 44  # shape: text_model.encoder.layers.{0..1}.mlp.fc1.weight [44, 32]
    layers: int = 2  # name: text_model.encoder.layers.*
    pool_end_id: int = 61  # config: eos_token_id


@dataclass
class Output:
    """What the model returns."""

    last_hidden_state: Tensor
    pooler_output: Tensor


torch.export.register_dataclass(Output)


def repeat_heads(x: Tensor, groups: int) -> Tensor:
    """Gives every query head its own copy of a shared head. x (B, K, T, D) -> (B, K * groups, T, D)"""
    B, K, T, D = x.shape
    return x[:, :, None].expand(B, K, groups, T, D).reshape(B, K * groups, T, D)


def attend_scaled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Dot-product attention with a scale of its own. q (B, H, T, D), k, v (B, K, S, D) -> (B, H, T, D)"""
    groups = q.shape[1] // k.shape[1]
    if groups > 1 and mask is not None and q.is_cuda:  # its fast kernels share heads only without a mask
        k, v = repeat_heads(k, groups), repeat_heads(v, groups)
    shared = k.shape[1] != q.shape[1]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=shared)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention, scale 1 / sqrt(D). q (B, H, T, D), k, v (B, K, S, D) -> (B, H, T, D)"""
    return attend_scaled(q, k, v, mask, q.shape[-1] ** -0.5)


def attend_causal(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention where None as a mask means causal. q (B, H, T, D), k, v (B, K, T, D)"""
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
    return attend(q, k, v, mask)


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


def pool_at(x: Tensor, index: Tensor) -> Tensor:
    """The position of each sequence that index names. x (B, T, W), index (B,) -> (B, W)"""
    return x[torch.arange(x.shape[0], device=x.device), index]


def pool_first_id(x: Tensor, input_ids: Tensor, token_id: int) -> Tensor:
    """The first position that holds token_id; the first of all where none does. x (B, T, W) -> (B, W)"""
    return pool_at(x, (input_ids == token_id).long().argmax(dim=-1))


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Attention(nn.Module):
    """text_model.encoder.layers.*.self_attn: every position sees itself and those before; queries may
    share keys and values.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.kv_heads * config.head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.kv_heads * config.head_dim)
        self.out_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        return self.out_proj(merge_heads(attend_causal(q, k, v, mask)))


class Embeddings(nn.Module):
    """text_model.embeddings: word embeddings, with learned positions and segments where they are stored,
    then the norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embedding = nn.Embedding(config.positions, config.hidden_size)

    def forward(self, input_ids: Tensor, position_ids: Tensor | None) -> Tensor:
        x = self.token_embedding(input_ids)
        return x + self.position_embedding(position_indices(input_ids, position_ids))


class FeedForward(nn.Module):
    """text_model.encoder.layers.*.mlp: two linear maps around an activation."""

    def __init__(self, config: Config):
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Layer(nn.Module):
    """text_model.encoder.layers.*: pre-norm, each norm stands before its sub-layer, inside the residual."""

    def __init__(self, config: Config):
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.hidden_size)
        self.self_attn = Attention(config)
        self.layer_norm2 = nn.LayerNorm(config.hidden_size)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x), mask)
        return x + self.mlp(self.layer_norm2(x))


class TextEncoder(nn.Module):
    """text_model: embeddings, layers, the final norm, and one vector of all positions."""

    def __init__(self, config: Config):
        super().__init__()
        self.pool_end_id = config.pool_end_id
        self.embeddings = Embeddings(config)
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList(Layer(config) for _ in range(config.layers))})
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(
        self, input_ids: Tensor, position_ids: Tensor | None, attention_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        x = self.embeddings(input_ids, position_ids)
        mask = causal_mask_if_padded(x, attention_mask)
        for layer in self.encoder.layers:
            x = layer(x, mask)
        x = self.final_layer_norm(x)
        return x, pool_first_id(x, input_ids, self.pool_end_id)


class Model(nn.Module):
    """The model: hidden states and one vector of them, no head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.text_model = TextEncoder(config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), position_ids (batch, length)"""
        x, pooled = self.text_model(input_ids, position_ids, attention_mask)
        return Output(last_hidden_state=x, pooler_output=pooled)


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
