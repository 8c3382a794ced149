"""siglip_text, tiny: written by mapper 0.1.0, rules 505f7d688489.

Reading: exact (family siglip_text).
tiny: the header is the example 'two layers, a head of another width' of families/siglip_text.yaml

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
    vocab_size: int = 103  # shape: text_model.embeddings.token_embedding.weight [103, 32]
    positions: int = 64  # shape: text_model.embeddings.position_embedding.weight [64, 32]
    intermediate_size: int = 44  # shape: text_model.encoder.layers.{0..1}.mlp.fc1.weight [44, 32]
    norm_eps: float = 1e-6  # default: families/siglip_text.yaml
    layers: int = 2  # name: text_model.encoder.layers.*
    projection_size: int = 24  # shape: text_model.head.weight [24, 32]


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


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Attention(nn.Module):
    """text_model.encoder.layers.*.self_attn: every position sees every other that is not padding."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.out_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        return self.out_proj(merge_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)))


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
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


class Layer(nn.Module):
    """text_model.encoder.layers.*: pre-norm, each norm stands before its sub-layer, inside the residual."""

    def __init__(self, config: Config):
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = Attention(config)
        self.layer_norm2 = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x), mask)
        return x + self.mlp(self.layer_norm2(x))


class TextEncoder(nn.Module):
    """text_model: embeddings, layers, the final norm, and one vector of all positions."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList(Layer(config) for _ in range(config.layers))})
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.head = nn.Linear(config.hidden_size, config.projection_size)

    def forward(
        self, input_ids: Tensor, position_ids: Tensor | None, attention_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        x = self.embeddings(input_ids, position_ids)
        mask = padding_mask(attention_mask)
        for layer in self.encoder.layers:
            x = layer(x, mask)
        x = self.final_layer_norm(x)
        return x, self.head(x[:, -1])


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
