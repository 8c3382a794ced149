"""phi3, tiny: written by mapper 0.1.0, rules 505f7d688489.

Reading: exact (family phi3).
tiny: the header is the example 'fused maps, factors for long sequences under their old name, part of each
head turned' of families/phi3.yaml

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

    hidden_size: int = 64  # shape: lm_head.weight [99, 64]
    heads: int = 4  # config: num_attention_heads
    # config: model.layers.{0..1}.self_attn.qkv_proj.weight [128, 64] = (heads + 2 * kv_heads) * head_dim
    kv_heads: int = 2
    head_dim: int = 16  # config: model.layers.{0..1}.self_attn.o_proj.weight [64, 64] = heads * head_dim
    intermediate_size: int = 96  # shape: model.layers.{0..1}.mlp.gate_up_proj.weight [192, 64]
    norm_eps: float = 1e-5  # config: rms_norm_eps
    vocab_size: int = 99  # shape: lm_head.weight [99, 64]
    layers: int = 2  # name: model.layers.*
    window: int = 40  # config: sliding_window
    rotary_dim: int = 4  # rule: vocabulary/config.yaml: floor(attention.head_dim * rotary.fraction)
    rotary_base: float = 10000.0  # config: rope_theta
    rotary_short_factors: tuple[float, ...] = (1.0, 1.5)  # config: rope_scaling.short_factor
    rotary_long_factors: tuple[float, ...] = (2.0, 4.0)  # config: rope_scaling.long_factor
    rotary_original_positions: int = 64  # config: original_max_position_embeddings
    # rule: vocabulary/config.yaml: sqrt(1 + log(rotary.factor) / log(rotary.original_positions))
    rotary_attention_factor: float = 1.1547005383792517


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


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


def rotary_frequencies_longrope(
    positions: Tensor,
    rotary_dim: int,
    base: float,
    short_factors: tuple[float, ...],
    long_factors: tuple[float, ...],
    original_positions: int,
) -> Tensor:
    """Frequencies divided by short_factors up to original_positions, by long_factors beyond (2402.13753)."""
    short = torch.tensor(short_factors, dtype=torch.float32, device=positions.device)
    long = torch.tensor(long_factors, dtype=torch.float32, device=positions.device)
    factors = torch.where(positions.max() + 1 > original_positions, long, short)
    return rotary_frequencies(positions, rotary_dim, base) / factors


def rotary_tables_scaled(
    x: Tensor, positions: Tensor, frequencies: Tensor, factor: float
) -> tuple[Tensor, Tensor]:
    """rotary_tables times an attention factor (yarn, longrope). positions (B, T) -> two (B, 1, T, R / 2)"""
    angles = positions[:, None, :, None].float() * frequencies
    return (angles.cos() * factor).to(x.dtype), (angles.sin() * factor).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channel i with channel i + D / 2. x (B, H, T, D), cos and sin (B, 1, T, D / 2)"""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def rotate_partial(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the first R channels, halves paired, and keeps the rest. cos and sin (B, 1, T, R / 2)"""
    size = 2 * cos.shape[-1]
    return torch.cat((rotate(x[..., :size], cos, sin), x[..., size:]), dim=-1)


def sliding_mask(x: Tensor, attention_mask: Tensor | None, window: int) -> Tensor:
    """Shows each query itself and the window - 1 keys before it. Shapes as in causal_mask"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = ((index <= index[:, None]) & (index > index[:, None] - window))[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def split_halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Cuts a fused [first | second] projection (gate and up). x (..., 2 * N) -> two (..., N)"""
    first, second = x.chunk(2, dim=-1)
    return first, second


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def split_sizes(x: Tensor, first: int, second: int, third: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cuts a fused projection in three of these sizes. x (..., first + second + third)"""
    a, b, c = x.split([first, second, third], dim=-1)
    return a, b, c


class Attention(nn.Module):
    """model.layers.*.self_attn: every position sees itself and those before; query, key and value in one
    map, one after the other.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.heads = config.heads
        self.head_dim = config.head_dim
        self.kv_heads = config.kv_heads
        self.qkv_proj = nn.Linear(
            config.hidden_size, (config.heads + 2 * config.kv_heads) * config.head_dim, bias=False
        )
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        q, k, v = split_sizes(
            self.qkv_proj(x),
            self.heads * self.head_dim,
            self.kv_heads * self.head_dim,
            self.kv_heads * self.head_dim,
        )
        q = split_heads(q, self.head_dim)
        k = split_heads(k, self.head_dim)
        v = split_heads(v, self.head_dim)
        q = rotate_partial(q, cos, sin)
        k = rotate_partial(k, cos, sin)
        return self.o_proj(merge_heads(attend_causal(q, k, v, mask)))


class FeedForward(nn.Module):
    """model.layers.*.mlp: one linear map gives a gate and what it gates, one behind the other."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate_up_proj = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = split_halves(self.gate_up_proj(x))
        return self.down_proj(F.silu(gate) * up)


class Layer(nn.Module):
    """model.layers.*: pre-norm, each norm stands before its sub-layer, inside the residual."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """model: embeddings, then layers in which a position sees itself and those before."""

    def __init__(self, config: Config):
        super().__init__()
        self.window = config.window
        self.rotary_dim = config.rotary_dim
        self.rotary_base = config.rotary_base
        self.rotary_short_factors = config.rotary_short_factors
        self.rotary_long_factors = config.rotary_long_factors
        self.rotary_original_positions = config.rotary_original_positions
        self.rotary_attention_factor = config.rotary_attention_factor
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.embed_tokens(input_ids)
        mask = sliding_mask(x, attention_mask, self.window)
        cos, sin = self.rotary(x, position_indices(x, position_ids))
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.norm(x)

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        frequencies = rotary_frequencies_longrope(
            positions,
            self.rotary_dim,
            self.rotary_base,
            self.rotary_short_factors,
            self.rotary_long_factors,
            self.rotary_original_positions,
        )
        return rotary_tables_scaled(x, positions, frequencies, self.rotary_attention_factor)


class Model(nn.Module):
    """The model: the next token at every position."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), position_ids (batch, length)"""
        x = self.model(input_ids, attention_mask, position_ids)
        logits = self.lm_head(x)
        return Output(logits=logits, last_hidden_state=x)


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
