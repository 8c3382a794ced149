"""microsoft/Phi-3.5-MoE-instruct: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family phimoe).
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

    hidden_size: int = 4096  # shape: lm_head.weight [32064, 4096]
    heads: int = 32  # config: num_attention_heads
    # shape and config: model.layers.{0..31}.self_attn.q_proj.weight [4096, 4096] = heads * head_dim
    head_dim: int = 128
    # shape and config: model.layers.{0..31}.self_attn.k_proj.weight [1024, 4096] = kv_heads * head_dim
    kv_heads: int = 8
    # shape: model.layers.{0..31}.block_sparse_moe.experts.{0..15}.w1.weight [6400, 4096]
    intermediate_size: int = 6400
    experts: int = 16  # shape: model.layers.{0..31}.block_sparse_moe.gate.weight [16, 4096]
    sharing_distance: float = 0.01  # config: router_jitter_noise
    norm_eps: float = 1e-5  # config: rms_norm_eps
    vocab_size: int = 32064  # shape: lm_head.weight [32064, 4096]
    layers: int = 32  # name: model.layers.*
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


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def sort_by_expert(x: Tensor, chosen: Tensor, experts: int) -> tuple[Tensor, Tensor, list[int]]:
    """Positions once per chosen expert, sorted by expert.

    x (..., W), chosen (..., count) -> rows (N * count, W), their order, how many each expert has
    """
    expert = chosen.flatten()
    order = expert.argsort(stable=True)
    sizes = F.one_hot(expert, experts).sum(dim=0).tolist()
    return x.flatten(0, -2)[order // chosen.shape[-1]], order, sizes


def combine_experts(x: Tensor, y: Tensor, weights: Tensor, order: Tensor) -> Tensor:
    """Weighs sorted outputs and adds them up per position.

    y (N * count, W), weights (..., count) -> like x
    """
    y = (y * weights.flatten()[order, None]).to(x.dtype)
    flat = torch.zeros_like(x).flatten(0, -2)
    return flat.index_add(0, order // weights.shape[-1], y).view_as(x)


def mix_experts(x: Tensor, weights: Tensor, chosen: Tensor, experts: nn.ModuleList) -> Tensor:
    """Sum of the chosen experts' outputs, weighted.

    x (..., W), weights and chosen (..., count) -> (..., W)
    """
    rows, order, sizes = sort_by_expert(x, chosen, len(experts))
    pairs = zip(experts, rows.split(sizes), strict=True)
    every = torch.compiler.is_compiling() or torch.is_grad_enabled()  # a graph has no branches; all learn
    parts = [expert(part) for expert, part in pairs if every or len(part)]
    return combine_experts(x, torch.cat(parts) if parts else rows, weights, order)


def mix_sparsely(logits: Tensor, distance: float) -> tuple[Tensor, Tensor]:
    """Weights and indices of the two best experts; each shares with those that come near it (SparseMixer).

    logits (..., E) -> weights (..., 2), chosen (..., 2). The weight is a softmax over the experts whose
    logits are within twice the distance of the best, relative to the larger of its value and their size; the
    second expert is the best of those without the first.
    """
    weights, chosen = [], []
    rest = logits
    for _ in range(2):
        best, index = rest.max(dim=-1, keepdim=True)
        is_far = (best - logits) / logits.abs().clamp(min=best) > 2 * distance
        weights.append(rest.masked_fill(is_far, float("-inf")).softmax(dim=-1).gather(-1, index))
        chosen.append(index)
        rest = rest.scatter(-1, index, float("-inf"))
    return torch.cat(weights, dim=-1), torch.cat(chosen, dim=-1)


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


class Attention(nn.Module):
    """model.layers.*.self_attn: self-attention with rotary embeddings and a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, config.kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.kv_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary(q, cos, sin)
        k = apply_rotary(k, cos, sin)
        y = attend(q, k, v, mask, is_causal=mask is None)
        return self.o_proj(merge_heads(y))


class Expert(nn.Module):
    """model.layers.*.block_sparse_moe.experts.*: feed-forward network with a gate (GLU)."""

    def __init__(self, config: Config):
        super().__init__()
        self.w1 = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.w3 = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.w2 = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class MixtureOfExperts(nn.Module):
    """model.layers.*.block_sparse_moe: mixture of experts with two experts by a sparse mixer, each of
    which shares its weight with those that come near it.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.sharing_distance = config.sharing_distance
        self.gate = nn.Linear(config.hidden_size, config.experts, bias=False)
        self.experts = nn.ModuleList(Expert(config) for _ in range(config.experts))

    def forward(self, x: Tensor) -> Tensor:
        logits = self.gate(x)
        weights, chosen = mix_sparsely(logits, self.sharing_distance)
        return mix_experts(x, weights, chosen, self.experts)


class Layer(nn.Module):
    """model.layers.*: a layer with pre-norm, attention and a mixture of experts."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.block_sparse_moe = MixtureOfExperts(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.block_sparse_moe(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """model: a stack of layers with a causal mask, rotary embeddings and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.rotary_dim = config.head_dim
        self.rotary_base = config.rotary_base
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.embed_tokens(input_ids)
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
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.to(torch.bfloat16)

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
# {"config": {"architectures": ["PhimoeForCausalLM"], "attention_bias": false, "hidden_act": "silu",
# "hidden_size": 4096, "intermediate_size": 6400, "lm_head_bias": false, "model_type": "phimoe",
# "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 16,
# "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_jitter_noise": 0.01, "sliding_window": null,
# "tie_word_embeddings": false, "vocab_size": 32064}, "notes": ["header from the bundled catalogue
# (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# transformers-default"]}
# sha256 of all above: e56d854b2d1500e1
