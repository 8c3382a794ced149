"""nomic-ai/nomic-embed-text-v1.5: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family nomic_bert).
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

    hidden_size: int = 768  # shape: embeddings.word_embeddings.weight [30528, 768]
    intermediate_size: int = 3072  # shape: encoder.layers.{0..11}.mlp.fc12.weight [3072, 768]
    heads: int = 12  # config: n_head
    # shape and config: encoder.layers.{0..11}.attn.out_proj.weight [768, 768] = heads * head_dim
    head_dim: int = 64
    norm_eps: float = 1e-12  # config: layer_norm_epsilon
    vocab_size: int = 30528  # shape: embeddings.word_embeddings.weight [30528, 768]
    segments: int = 2  # shape: embeddings.token_type_embeddings.weight [2, 768]
    layers: int = 12  # name: encoder.layers.*
    rotary_base: int = 1000  # config: rotary_emb_base


@dataclass
class Output:
    """What the model returns."""

    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channel i with channel i + D / 2. x (B, H, T, D), cos and sin (B, 1, T, D / 2)"""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def rotary_frequencies(positions: Tensor, rotary_dim: int, base: float) -> Tensor:
    """Angle per position of each pair of channels. -> (R / 2,) on the device of positions"""
    index = torch.arange(0, rotary_dim, 2, device=positions.device)
    return 1.0 / base ** (index.float() / rotary_dim)


def rotary_tables(x: Tensor, positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle, in the dtype of x. positions (B, T) -> two (B, 1, T, R / 2)"""
    angles = positions[:, None, :, None].float() * frequencies
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def segment_ids(input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
    """The caller's segments, or the first segment everywhere. (B, T)"""
    return torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class FeedForward(nn.Module):
    """encoder.layers.*.mlp: feed-forward network with a gate (GLU)."""

    def __init__(self, config: Config):
        super().__init__()
        self.fc12 = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.fc11 = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.silu(self.fc12(x)) * self.fc11(x))


class Attention(nn.Module):
    """encoder.layers.*.attn: self-attention with rotary embeddings and an attention mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.Wqkv = nn.Linear(config.hidden_size, 3 * config.heads * config.head_dim, bias=False)
        self.out_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.Wqkv(x).chunk(3, dim=-1)
        v = split_heads(v, self.head_dim)
        q = apply_rotary(split_heads(q, self.head_dim), cos, sin)
        k = apply_rotary(split_heads(k, self.head_dim), cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out_proj(merge_heads(y))


class Layer(nn.Module):
    """encoder.layers.*: a layer with attention, post-norm and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.attn = Attention(config)
        self.norm1 = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = FeedForward(config)
        self.norm2 = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = self.norm1(x + self.attn(x, cos, sin, mask))
        return self.norm2(x + self.mlp(x))


class Model(nn.Module):
    """The model with no head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.rotary_dim = config.head_dim
        self.rotary_base = config.rotary_base
        self.embeddings: Any = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(config.vocab_size, config.hidden_size),
                "token_type_embeddings": nn.Embedding(config.segments, config.hidden_size),
            }
        )
        self.emb_ln = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.encoder: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(Layer(config) for _ in range(config.layers))}
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
        x = self.tower(input_ids, attention_mask, token_type_ids, position_ids)
        return Output(last_hidden_state=x)

    def tower(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
    ) -> Tensor:
        x = self.embeddings_forward(input_ids, token_type_ids)
        mask = padding_mask(attention_mask)
        cos, sin = self.rotary(x, position_indices(x, position_ids))
        for layer in self.encoder.layers:
            x = layer(x, cos, sin, mask)
        return x

    def embeddings_forward(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        x = self.embeddings.word_embeddings(input_ids)
        x = x + self.embeddings.token_type_embeddings(segment_ids(input_ids, token_type_ids))
        return self.emb_ln(x)

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_tables(x, positions, rotary_frequencies(positions, self.rotary_dim, self.rotary_base))


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
# {"config": {"activation_function": "swiglu", "architectures": ["NomicBertModel"], "layer_norm_epsilon":
# 1e-12, "model_type": "nomic_bert", "n_head": 12, "prenorm": false, "rotary_emb_base": 1000,
# "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": false, "type_vocab_size": 2, "vocab_size": 30528},
# "notes": ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from
# the hub", "evidence for its config: transformers-default"]}
# sha256 of all above: 4880486566c2283e
