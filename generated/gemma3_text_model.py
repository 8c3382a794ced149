"""google/embeddinggemma-300m: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family gemma3_text).
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

    hidden_size: int = 768  # shape: norm.weight [768]
    heads: int = 3  # shape: layers.{0..23}.self_attn.q_proj.weight [768, 768]
    head_dim: int = 256  # shape: layers.{0..23}.self_attn.q_norm.weight [256]
    kv_heads: int = 1  # shape: layers.{0..23}.self_attn.k_proj.weight [256, 768]
    norm_eps: float = 1e-6  # config: rms_norm_eps
    attention_scale: float = 0.0625  # rule: families/gemma2.yaml: attention.query_scale ** -0.5
    intermediate_size: int = 1152  # shape: layers.{0..23}.mlp.gate_proj.weight [1152, 768]
    vocab_size: int = 262144  # shape: embed_tokens.weight [262144, 768]
    # rule: vocabulary/config_attention.yaml: (index + 1) % attention.window_period for each of layers
    layer_types: tuple[str, ...] = (("sliding_attention",) * 5 + ("full_attention",)) * 4
    one_sided_window: int = 256  # rule: vocabulary/config_attention.yaml: floor(attention.window / 2)
    rotary_base: float = 1000000.0  # config: rope_theta
    rotary_local_base: float = 10000.0  # config: rope_local_base_freq

    @property
    def scale(self) -> float:
        return self.hidden_size**0.5  # rule: families/gemma2.yaml: hidden_size ** 0.5


@dataclass
class Output:
    """What the model returns."""

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


def scale_rounded(x: Tensor, scale: float) -> Tensor:
    """x times a constant that is rounded to the dtype of x first (Gemma's embeddings)."""
    return x * torch.tensor(scale, dtype=x.dtype, device=x.device)


def sliding_mask(x: Tensor, attention_mask: Tensor | None, window: int, after: int = 0) -> Tensor:
    """Shows each query itself, the window - 1 keys before it and `after` behind. Shapes as in causal_mask"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = ((index <= index[:, None] + after) & (index > index[:, None] - window))[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Attention(nn.Module):
    """layers.*.self_attn: self-attention with normalised queries and keys, rotary embeddings and an
    attention mask.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.scale = config.attention_scale
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, config.kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.kv_heads * config.head_dim, bias=False)
        self.q_norm = RMSNormOffset(config.head_dim, config.norm_eps)
        self.k_norm = RMSNormOffset(config.head_dim, config.norm_eps)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary(self.q_norm(q), cos, sin)
        k = apply_rotary(self.k_norm(k), cos, sin)
        y = attend(q, k, v, mask, scale=self.scale)
        return self.o_proj(merge_heads(y))


class FeedForward(nn.Module):
    """layers.*.mlp: feed-forward network with a gate (GLU)."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))


class Layer(nn.Module):
    """layers.*: a layer with pre-norm, attention, a norm after each sub-layer and a feed-forward network."""

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


class Model(nn.Module):
    """The model with no head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.scale = config.scale
        self.one_sided_window = config.one_sided_window
        self.layer_types = config.layer_types
        self.rotary_dim = config.head_dim
        self.rotary_base = config.rotary_base
        self.rotary_local_base = config.rotary_local_base
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(len(config.layer_types)))
        self.norm = RMSNormOffset(config.hidden_size, config.norm_eps)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), position_ids (batch, length)"""
        x = self.tower(input_ids, attention_mask, position_ids)
        return Output(last_hidden_state=x)

    def tower(self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None) -> Tensor:
        x = scale_rounded(self.embed_tokens(input_ids), self.scale)
        full = padding_mask(attention_mask)
        window = self.one_sided_window + 1
        near = sliding_mask(x, attention_mask, window, self.one_sided_window)
        masks = {"full_attention": full, "sliding_attention": near}
        positions = position_indices(x, position_ids)
        angles = {
            "full_attention": self.rotary(x, positions),
            "sliding_attention": self.local_rotary(x, positions),
        }
        for layer, kind in zip(self.layers, self.layer_types, strict=True):
            cos, sin = angles[kind]
            x = layer(x, cos, sin, masks[kind])
        return self.norm(x)

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_tables(x, positions, rotary_frequencies(positions, self.rotary_dim, self.rotary_base))

    def local_rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_tables(
            x, positions, rotary_frequencies(positions, self.rotary_dim, self.rotary_local_base)
        )


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
# {"config": {"_sliding_window_pattern": 6, "architectures": ["Gemma3TextModel"], "attention_bias": false,
# "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 768, "intermediate_size": 1152,
# "model_type": "gemma3_text", "num_attention_heads": 3, "num_hidden_layers": 24, "num_key_value_heads": 1,
# "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0, "rope_theta":
# 1000000.0, "sliding_window": 512, "use_bidirectional_attention": true, "vocab_size": 262144}, "notes":
# ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub",
# "evidence for its config: recalled"]}
# sha256 of all above: b7d81faa55fd8fc8
