"""openbmb/MiniCPM3-4B: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family minicpm3).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: transformers-default
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

    hidden_size: int = 2560  # shape: model.norm.weight [2560]
    query_lora_rank: int = 768  # shape: model.layers.{0..61}.self_attn.q_a_proj.weight [768, 2560]
    heads: int = 40  # config: num_attention_heads
    # shape and config: model.layers.{0..61}.self_attn.q_b_proj.weight [3840, 768] = heads * head_dim
    head_dim: int = 96
    kv_lora_rank: int = 256  # shape: model.layers.{0..61}.self_attn.kv_a_layernorm.weight [256]
    # shape and config: model.layers.{0..61}.self_attn.kv_b_proj.weight [5120, 256] = heads * (nope_dim + ...
    nope_dim: int = 64
    # shape and config: model.layers.{0..61}.self_attn.o_proj.weight [2560, 2560] = heads * value_dim
    value_dim: int = 64
    intermediate_size: int = 6400  # shape: model.layers.{0..61}.mlp.gate_proj.weight [6400, 2560]
    # rule: families/minicpm3.yaml: residual.depth_scale / sqrt(layers)
    residual_scale: float = 0.1778001778002667
    vocab_size: int = 73448  # shape: model.embed_tokens.weight [73448, 2560]
    layers: int = 62  # name: model.layers.*
    embedding_scale: int = 12  # config: scale_emb
    rotary_base: float = 10000.0  # config: rope_theta
    scale: float = 0.1  # rule: vocabulary/config_heads.yaml: 1 / head.divisor

    @property
    def rotary_dim(self) -> int:
        return self.head_dim - self.nope_dim  # config: qk_rope_head_dim


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


def causal_mask(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Hides later keys and padded ones. x (B, T, ...), attention_mask (B, T) or None -> (1 or B, 1, T, T)"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = (index <= index[:, None])[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


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


def scale_rounded(x: Tensor, scale: float) -> Tensor:
    """x times a constant that is rounded to the dtype of x first (Gemma's embeddings)."""
    return x * torch.tensor(scale, dtype=x.dtype, device=x.device)


def split_at(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The first `size` channels and the rest. x (..., N) -> (..., size), (..., N - size)"""
    return x[..., :size], x[..., size:]


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Attention(nn.Module):
    """model.layers.*.self_attn: self-attention with queries, keys and values from latent vectors
    (multi-head latent attention), decoupled rotary embeddings and a causal mask.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.kv_lora_rank = config.kv_lora_rank
        self.nope_dim = config.nope_dim
        self.value_dim = config.value_dim
        self.heads = config.heads
        self.q_a_proj = nn.Linear(config.hidden_size, config.query_lora_rank, bias=False)
        self.q_a_layernorm = nn.RMSNorm(config.query_lora_rank, eps=1e-6)
        self.q_b_proj = nn.Linear(config.query_lora_rank, config.heads * config.head_dim, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(
            config.hidden_size, config.kv_lora_rank + config.head_dim - config.nope_dim, bias=False
        )
        self.kv_a_layernorm = nn.RMSNorm(config.kv_lora_rank, eps=1e-6)
        self.kv_b_proj = nn.Linear(
            config.kv_lora_rank, config.heads * (config.nope_dim + config.value_dim), bias=False
        )
        self.o_proj = nn.Linear(config.heads * config.value_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q_latent = self.q_a_layernorm(self.q_a_proj(x))
        q = split_heads(self.q_b_proj(q_latent), self.head_dim)
        latent, k_rotary = split_at(self.kv_a_proj_with_mqa(x), self.kv_lora_rank)
        k_rotary = k_rotary[:, None]
        latent = self.kv_a_layernorm(latent)
        k, v = split_at(split_heads(self.kv_b_proj(latent), self.nope_dim + self.value_dim), self.nope_dim)
        q_plain, q_rotary = split_at(q, self.nope_dim)
        q = torch.cat((q_plain, apply_rotary(q_rotary, cos, sin)), dim=-1)
        k_rotary = apply_rotary(k_rotary, cos, sin)
        k = torch.cat((k, k_rotary.expand(-1, self.heads, -1, -1)), dim=-1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.o_proj(merge_heads(y))


class FeedForward(nn.Module):
    """model.layers.*.mlp: feed-forward network with a gate (GLU)."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """model.layers.*: a layer with pre-norm, attention, a residual factor and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.residual_scale = config.residual_scale
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=1e-5)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=1e-5)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask) * self.residual_scale
        return x + self.mlp(self.post_attention_layernorm(x)) * self.residual_scale


class Decoder(nn.Module):
    """model: a stack of layers with a causal mask, rotary embeddings and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.scale = config.embedding_scale
        self.rotary_dim = config.rotary_dim
        self.rotary_base = config.rotary_base
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=1e-5)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = scale_rounded(self.embed_tokens(input_ids), self.scale)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        cos, sin = self.rotary(x, position_indices(x, position_ids))
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.norm(x)

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_tables(x, positions, rotary_frequencies(positions, self.rotary_dim, self.rotary_base))


class Model(nn.Module):
    """The model with a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.scale = config.scale
        self.model = Decoder(config)
        self.to(torch.bfloat16)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), position_ids (batch, length)"""
        x = self.model(input_ids, attention_mask, position_ids)
        logits = F.linear(x, self.model.embed_tokens.weight) * self.scale
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
# {"config": {"architectures": ["MiniCPM3ForCausalLM"], "attention_bias": false, "dim_model_base": 256,
# "hidden_act": "silu", "hidden_size": 2560, "intermediate_size": 6400, "kv_lora_rank": 256, "mlp_bias":
# false, "model_type": "minicpm3", "num_attention_heads": 40, "num_hidden_layers": 62, "q_lora_rank": 768,
# "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "scale_depth":
# 1.4, "scale_emb": 12, "tie_word_embeddings": true, "v_head_dim": 64, "vocab_size": 73448}, "notes": ["header
# from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub",
# "evidence for its config: transformers-default"]}
# sha256 of all above: f79bc75f35d2c216
