"""baidu/ERNIE-4.5-21B-A3B-PT: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family ernie4_5_moe).
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
    heads: int = 20  # config: num_attention_heads
    # shape and config: model.layers.0.self_attn.q_proj.weight [2560, 2560] = heads * head_dim
    head_dim: int = 128
    # shape and config: model.layers.0.self_attn.k_proj.weight [512, 2560] = kv_heads * head_dim
    kv_heads: int = 4
    intermediate_size: int = 12288  # shape: model.layers.0.mlp.gate_proj.weight [12288, 2560]
    # shape: model.layers.{1..27}.mlp.experts.{0..63}.gate_proj.weight [1536, 2560]
    moe_intermediate_size: int = 1536
    # shape: model.layers.{1..27}.mlp.shared_experts.gate_proj.weight [3072, 2560]
    shared_expert_intermediate_size: int = 3072
    experts: int = 64  # shape: model.layers.{1..27}.mlp.gate.weight [64, 2560]
    norm_eps: float = 1e-5  # config: rms_norm_eps
    experts_per_token: int = 6  # config: moe_k
    least_sum: float = 1e-12  # config: moe_norm_min
    vocab_size: int = 103424  # shape: model.embed_tokens.weight [103424, 2560]
    layers: int = 28  # name: model.layers.*
    rotary_base: float = 500000.0  # config: rope_theta


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def apply_rotary_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channel 2 i with channel 2 i + 1. x (B, H, T, D), cos and sin (B, 1, T, D / 2)"""
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)


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
    """model.layers.*.self_attn: self-attention with interleaved rotary embeddings and a causal mask."""

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
        q = apply_rotary_interleaved(q, cos, sin)
        k = apply_rotary_interleaved(k, cos, sin)
        y = attend(q, k, v, mask, is_causal=mask is None)
        return self.o_proj(merge_heads(y))


class FeedForward(nn.Module):
    """model.layers.0.mlp, model.layers.*.mlp.experts.*: feed-forward network with a gate (GLU)."""

    def __init__(self, config: Config, intermediate_size: int):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class SharedExpert(nn.Module):
    """model.layers.*.mlp.shared_experts: feed-forward network with a gate (GLU)."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.shared_expert_intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.shared_expert_intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.shared_expert_intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class MoeStatics(nn.Module):
    """model.layers.*.mlp.moe_statics: holds what the module around it computes with."""

    e_score_correction_bias: Tensor

    def __init__(self, config: Config):
        super().__init__()
        self.register_buffer("e_score_correction_bias", torch.zeros(1, config.experts))


class LayerWithFeedForward(nn.Module):
    """model.layers.0: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = FeedForward(config, intermediate_size=config.intermediate_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class MixtureOfExperts(nn.Module):
    """model.layers.*.mlp: mixture of experts with router scores by softmax, a correction of the router
    scores for the choice, top-k experts of each token, weights normalised by a sum with a lower bound
    and a shared expert.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.experts_per_token = config.experts_per_token
        self.least_sum = config.least_sum
        self.gate = nn.Linear(config.hidden_size, config.experts, bias=False)
        self.moe_statics = MoeStatics(config)
        self.experts = nn.ModuleList(
            FeedForward(config, intermediate_size=config.moe_intermediate_size) for _ in range(config.experts)
        )
        self.shared_experts = SharedExpert(config)

    def forward(self, x: Tensor) -> Tensor:
        logits = F.linear(x.float(), self.gate.weight.float())
        scores = logits.softmax(dim=-1, dtype=torch.float32)
        ranked = scores + self.moe_statics.e_score_correction_bias
        chosen = ranked.topk(self.experts_per_token, dim=-1).indices
        weights = scores.gather(-1, chosen)
        weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=self.least_sum)
        return mix_experts(x, weights, chosen, self.experts) + self.shared_experts(x)


class Layer(nn.Module):
    """model.layers.*: a layer with pre-norm, attention and a mixture of experts."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = MixtureOfExperts(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """model: a stack of layers with a causal mask, rotary embeddings and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.rotary_dim = config.head_dim
        self.rotary_base = config.rotary_base
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            [LayerWithFeedForward(config), *(Layer(config) for _ in range(config.layers - 1))]
        )
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)

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
# {"config": {"architectures": ["Ernie4_5_MoeForCausalLM"], "hidden_act": "silu", "hidden_size": 2560,
# "intermediate_size": 12288, "model_type": "ernie4_5_moe", "moe_intermediate_size": 1536, "moe_k": 6,
# "moe_norm_min": 1e-12, "moe_num_experts": 64, "moe_num_shared_experts": 2, "num_attention_heads": 20,
# "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
# "tie_word_embeddings": true, "use_bias": false, "vocab_size": 103424}, "notes": ["header from the bundled
# catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# transformers-default"]}
# sha256 of all above: e233fc0def0596f9
