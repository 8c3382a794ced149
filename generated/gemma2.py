"""gemma2, tiny: written by mapper 0.1.0, rules 505f7d688489.

Reading: exact (family gemma2).
tiny: the header is the example 'a window in every other layer, bounded scores and logits, old config fields'
of families/gemma2.yaml

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

    hidden_size: int = 64  # shape: model.norm.weight [64]
    heads: int = 4  # config: num_attention_heads
    head_dim: int = 32  # config: model.layers.{0..1}.self_attn.q_proj.weight [128, 64] = heads * head_dim
    kv_heads: int = 2  # config: model.layers.{0..1}.self_attn.k_proj.weight [64, 64] = kv_heads * head_dim
    attention_scale: float = 0.125  # rule: families/gemma2.yaml: attention.query_scale ** -0.5
    attention_softcap: float = 50.0  # config: attn_logit_softcapping
    intermediate_size: int = 96  # shape: model.layers.{0..1}.mlp.gate_proj.weight [96, 64]
    norm_eps: float = 1e-6  # default: families/llama.yaml
    vocab_size: int = 99  # shape: model.embed_tokens.weight [99, 64]
    layers: int = 2  # name: model.layers.*
    # rule: vocabulary/config.yaml: (index + 1) % attention.window_period for each of layers
    layer_types: tuple[str, ...] = ("sliding_attention", "full_attention")
    scale: float = 8.0  # rule: families/gemma2.yaml: hidden_size ** 0.5
    window: int = 5  # config: sliding_window
    rotary_dim: int = 32  # rule: vocabulary/config.yaml: floor(attention.head_dim * rotary.fraction)
    rotary_base: float = 10000.0  # config: rope_theta
    softcap: float = 30.0  # config: final_logit_softcapping


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


class RMSNormOffset(nn.Module):
    """RMSNorm that scales by 1 + weight, all of it in float32 (Gemma). (..., W) -> (..., W)"""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        y = F.rms_norm(x.float(), self.weight.shape, 1.0 + self.weight.float(), self.eps)
        return y.to(x.dtype)


def repeat_heads(x: Tensor, groups: int) -> Tensor:
    """Gives every query head its own copy of a shared head. x (B, K, T, D) -> (B, K * groups, T, D)"""
    B, K, T, D = x.shape
    return x[:, :, None].expand(B, K, groups, T, D).reshape(B, K * groups, T, D)


def softmax_masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Attention weights from scores, in float32 and cast back. scores (B, H, T, S) -> (B, H, T, S)"""
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1, dtype=torch.float32).to(scores.dtype)


def attend_softcap(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, cap: float) -> Tensor:
    """Attention with scores softly limited to (-cap, cap) before the mask (Gemma 2, paper 2408.00118)."""
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = repeat_heads(k, groups), repeat_heads(v, groups)
    scores = torch.tanh(q @ k.transpose(-1, -2) * scale / cap) * cap
    return softmax_masked(scores, mask) @ v


def attend_causal_softcap(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, cap: float
) -> Tensor:
    """attend_softcap where None as a mask means causal. q (B, H, T, D), k, v (B, K, T, D) -> (B, H, T, D)"""
    if mask is None:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    return attend_softcap(q, k, v, mask, scale, cap)


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


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channel i with channel i + D / 2. x (B, H, T, D), cos and sin (B, 1, T, D / 2)"""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def scale_rounded(x: Tensor, scale: float) -> Tensor:
    """x times a constant that is rounded to the dtype of x first (Gemma's embeddings)."""
    return x * torch.tensor(scale, dtype=x.dtype, device=x.device)


def sliding_mask(x: Tensor, attention_mask: Tensor | None, window: int) -> Tensor:
    """Shows each query itself and the window - 1 keys before it. Shapes as in causal_mask"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = ((index <= index[:, None]) & (index > index[:, None] - window))[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def softcap(x: Tensor, cap: float) -> Tensor:
    """Limits softly to (-cap, cap): cap * tanh(x / cap) (Gemma 2's logits, paper 2408.00118)."""
    return torch.tanh(x / cap) * cap


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Attention(nn.Module):
    """model.layers.*.self_attn: every position sees itself and those before; queries may share keys and
    values.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.scale = config.attention_scale
        self.softcap = config.attention_softcap
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, config.kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.kv_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = rotate(q, cos, sin)
        k = rotate(k, cos, sin)
        return self.o_proj(merge_heads(attend_causal_softcap(q, k, v, mask, self.scale, self.softcap)))


class FeedForward(nn.Module):
    """model.layers.*.mlp: the activation of one linear map gates another."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))


class Layer(nn.Module):
    """model.layers.*: each sub-layer between two norms, inside the residual."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = RMSNormOffset(config.hidden_size, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNormOffset(config.hidden_size, config.norm_eps)
        self.pre_feedforward_layernorm = RMSNormOffset(config.hidden_size, config.norm_eps)
        self.mlp = FeedForward(config)
        self.post_feedforward_layernorm = RMSNormOffset(config.hidden_size, config.norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.post_attention_layernorm(self.self_attn(self.input_layernorm(x), cos, sin, mask))
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))


class Decoder(nn.Module):
    """model: embeddings, then layers in which a position sees those before it, in some of them within a
    window only.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.layer_types = config.layer_types
        self.scale = config.scale
        self.window = config.window
        self.rotary_dim = config.rotary_dim
        self.rotary_base = config.rotary_base
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNormOffset(config.hidden_size, config.norm_eps)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.embeddings(input_ids)
        masks = self.visible(x, attention_mask)
        cos, sin = self.rotary(x, position_indices(x, position_ids))
        for layer, kind in zip(self.layers, self.layer_types, strict=True):
            x = layer(x, cos, sin, masks[kind])
        return self.norm(x)

    def embeddings(self, input_ids: Tensor) -> Tensor:
        x = self.embed_tokens(input_ids)
        return scale_rounded(x, self.scale)

    def visible(self, x: Tensor, attention_mask: Tensor | None) -> dict[str, Tensor | None]:
        full = causal_mask_if_padded(x, attention_mask)
        near = sliding_mask(x, attention_mask, self.window)
        return {"full_attention": full, "sliding_attention": near}

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_tables(x, positions, rotary_frequencies(positions, self.rotary_dim, self.rotary_base))


class Model(nn.Module):
    """The model: the next token at every position, read off the word embeddings."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.softcap = config.softcap
        self.model = Decoder(config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), position_ids (batch, length)"""
        x = self.model(input_ids, attention_mask, position_ids)
        logits = F.linear(x, self.model.embed_tokens.weight)
        logits = softcap(logits, self.softcap)
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
