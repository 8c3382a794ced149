"""LiquidAI/LFM2-1.2B: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family lfm2).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
No dropout is written: training mode computes the same; `mapper generate --train` writes it.

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

    hidden_size: int = 2048  # shape: model.embedding_norm.weight [2048]
    heads: int = 32  # shape: model.layers.{2,5,8,10,12,14}.self_attn.q_proj.weight [2048, 2048]
    head_dim: int = 64  # shape: model.layers.{2,5,8,10,12,14}.self_attn.q_layernorm.weight [64]
    kv_heads: int = 8  # shape: model.layers.{2,5,8,10,12,14}.self_attn.k_proj.weight [512, 2048]
    norm_eps: float = 1e-5  # config: norm_eps
    # shape: model.layers.{0,1,3,4,6,7,9,11,13,15}.feed_forward.w1.weight [8192, 2048]
    intermediate_size: int = 8192
    vocab_size: int = 65536  # shape: model.embed_tokens.weight [65536, 2048]
    attention_layers: tuple[int, ...] = (2, 5, 8, 10, 12, 14)  # name: model.layers.{2,5,8,10,12,14}
    layers: int = 16  # name: model.layers.*
    rotary_base: float = 1000000.0  # config: rope_theta


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channel i with channel i + D / 2. x (B, H, T, D), cos and sin (B, 1, T, D / 2)"""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None = None, is_causal: bool = False
) -> Tensor:
    """Scaled dot-product attention of grouped queries; the scale is 1 / sqrt(D) if None.

    q (B, H, T, D), k, v (B, K, S, D) -> (B, H, T, D)
    """
    if mask is not None and q.is_cuda:  # its fast kernels share heads only without a mask
        k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
    shared = k.shape[1] != q.shape[1]
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=is_causal, scale=scale, enable_gqa=shared
    )


def causal_mask(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Hides later keys and padded ones. x (B, T, ...), attention_mask (B, T) or None -> (1 or B, 1, T, T)"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = (index <= index[:, None])[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def conv_causal(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Depthwise convolution that sees no later position. x (B, T, C), weight (C, 1, kernel) -> (B, T, C)"""
    x = F.pad(x.transpose(1, 2), (weight.shape[-1] - 1, 0))
    return F.conv1d(x, weight, bias, groups=weight.shape[0]).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


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


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def zero_padding(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Sets padded positions to zero. x (B, T, C), attention_mask (B, T) or None -> (B, T, C)"""
    return x if attention_mask is None else x * (attention_mask != 0).unsqueeze(-1).to(x.dtype)


class AttentionWithKey(nn.Module):
    """model.layers.*.self_attn: self-attention with normalised queries and keys, rotary embeddings and a
    causal mask.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, config.kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.kv_heads * config.head_dim, bias=False)
        self.q_layernorm = nn.RMSNorm(config.head_dim, eps=config.norm_eps)
        self.k_layernorm = nn.RMSNorm(config.head_dim, eps=config.norm_eps)
        self.out_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary(self.q_layernorm(q), cos, sin)
        k = apply_rotary(self.k_layernorm(k), cos, sin)
        y = attend(q, k, v, mask, is_causal=mask is None)
        return self.out_proj(merge_heads(y))


class Attention(nn.Module):
    """model.layers.*.conv: a short causal convolution between two gates, in place of attention."""

    def __init__(self, config: Config):
        super().__init__()
        self.in_proj = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.conv = nn.Conv1d(
            config.hidden_size, config.hidden_size, kernel_size=3, groups=config.hidden_size, bias=False
        )
        self.out_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        before, after, x = self.in_proj(zero_padding(x, attention_mask)).chunk(3, dim=-1)
        return self.out_proj(after * conv_causal(before * x, self.conv.weight, self.conv.bias))


class FeedForward(nn.Module):
    """model.layers.*.feed_forward: feed-forward network with a gate (GLU)."""

    def __init__(self, config: Config):
        super().__init__()
        self.w1 = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.w3 = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.w2 = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    """model.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.operator_norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.conv = Attention(config)
        self.ffn_norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.feed_forward = FeedForward(config)

    def forward(
        self, x: Tensor, attention_mask: Tensor | None, cos: Tensor, sin: Tensor, mask: Tensor | None
    ) -> Tensor:
        x = x + self.conv(self.operator_norm(x), attention_mask)
        return x + self.feed_forward(self.ffn_norm(x))


class LayerWithAttention(nn.Module):
    """model.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.operator_norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = AttentionWithKey(config)
        self.ffn_norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.feed_forward = FeedForward(config)

    def forward(
        self, x: Tensor, attention_mask: Tensor | None, cos: Tensor, sin: Tensor, mask: Tensor | None
    ) -> Tensor:
        x = x + self.self_attn(self.operator_norm(x), cos, sin, mask)
        return x + self.feed_forward(self.ffn_norm(x))


class Decoder(nn.Module):
    """model: a stack of layers with a causal mask, rotary embeddings and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.rotary_dim = config.head_dim
        self.rotary_base = config.rotary_base
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            LayerWithAttention(config) if index in config.attention_layers else Layer(config)
            for index in range(config.layers)
        )
        self.embedding_norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.embed_tokens(input_ids)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        cos, sin = self.rotary(x, position_indices(x, position_ids))
        for layer in self.layers:
            x = layer(x, attention_mask, cos, sin, mask)
        return self.embedding_norm(x)

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_tables(x, positions, rotary_frequencies(positions, self.rotary_dim, self.rotary_base))


class Model(nn.Module):
    """The model with a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.model = Decoder(config)
        self.to(torch.bfloat16)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), position_ids (batch, length)"""
        x = self.model(input_ids, attention_mask, position_ids)
        logits = F.linear(x, self.model.embed_tokens.weight)
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
# {"config": {"architectures": ["Lfm2ForCausalLM"], "conv_bias": false, "full_attn_idxs": [2, 5, 8, 10, 12,
# 14], "hidden_size": 2048, "model_type": "lfm2", "norm_eps": 1e-05, "num_attention_heads": 32,
# "num_hidden_layers": 16, "num_key_value_heads": 8, "rope_theta": 1000000.0, "vocab_size": 65536}, "notes":
# ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub",
# "evidence for its config: recalled"]}
# sha256 of all above: 60aedc3787f89ee5
