"""meta-llama/Llama-4-Scout-17B-16E-Instruct: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family llama4).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
No dropout is written: training mode computes the same; `mapper generate --train` writes it.

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    vision_hidden_size: int = 1408  # shape: vision_model.layernorm_pre.weight [1408]
    vision_heads: int = 16  # config: vision_config.num_attention_heads
    # shape and config: vision_model.model.layers.{0..33}.self_attn.q_proj.weight [1408, 1408] = heads * ...
    vision_head_dim: int = 88
    text_hidden_size: int = 5120  # shape: language_model.lm_head.weight [202048, 5120]
    text_heads: int = 40  # config: text_config.num_attention_heads
    # shape and config: language_model.model.layers.{0..2,4..6,..}.self_attn.q_proj.weight [5120, 5120] = ...
    text_head_dim: int = 128
    # shape and config: language_model.model.layers.{0..2,4..6,..}.self_attn.k_proj.weight [1024, 5120] = ...
    kv_heads: int = 8
    norm_eps: float = 1e-5  # config: text_config.rms_norm_eps
    # shape: language_model.model.layers.{0..2,4..6,..}.feed_forward.shared_expert.gate_proj.weight ...
    shared_expert_intermediate_size: int = 8192
    # shape: vision_model.model.layers.{0..33}.mlp.fc1.weight [5632, 1408]
    feed_forward_intermediate_size: int = 5632
    vision_input_size: int = 5632  # shape: vision_model.vision_adapter.mlp.fc1.weight [4096, 5632]
    projector_size: int = 4096  # shape: vision_model.vision_adapter.mlp.fc1.weight [4096, 5632]
    vision_output_size: int = 4096  # shape: vision_model.vision_adapter.mlp.fc2.weight [4096, 4096]
    factor: int = 2  # rule: families/llama4_vision.yaml: floor(1 / projector.ratio)
    # shape: language_model.model.layers.{0..2,4..6,..}.feed_forward.router.weight [16, 5120]
    experts: int = 16
    # shape: language_model.model.layers.{0..2,4..6,..}.feed_forward.experts.gate_up_proj [16, 5120, 16384]
    intermediate_size: int = 8192
    experts_per_token: int = 1  # config: text_config.num_experts_per_tok
    channels: int = 3  # config: vision_config.num_channels
    # shape and config: vision_model.patch_embedding.linear.weight [1408, 588] = channels * patch_size ** 2
    patch_size: int = 14
    positions: int = 577  # shape: vision_model.positional_embedding_vlm [577, 1408]
    vision_layers: int = 34  # name: vision_model.model.layers.*
    vision_rotary_base: int = 10000  # config: vision_config.rope_theta
    vocab_size: int = 202048  # shape: language_model.lm_head.weight [202048, 5120]
    # default: families/llama4_text.yaml: floor(((index + 1) % rotary.period + rotary.period - 1) / ...
    layer_types: tuple[str, ...] = (("chunked_attention",) * 3 + ("full_attention",)) * 12
    features_image_id: int = 200092  # config: image_token_index
    temperature_length: int = 8192  # default: text_config.floor_scale, left out: the default of llama4_text
    temperature: float = 0.1  # default: text_config.attn_scale, left out: the default of llama4_text
    chunk: int = 8192  # config: text_config.attention_chunk_size
    text_rotary_base: float = 500000.0  # config: text_config.rope_theta
    rotary_factor: float = 16.0  # config: text_config.rope_scaling.factor
    rotary_low_factor: float = 1.0  # config: text_config.rope_scaling.low_freq_factor
    rotary_high_factor: float = 1.0  # config: text_config.rope_scaling.high_freq_factor
    rotary_original_positions: int = 8192  # config: text_config.rope_scaling.original_max_position_embeddings

    @property
    def attention_scale(self) -> float:
        return self.text_head_dim**-0.5  # rule: vocabulary/config_attention.yaml: attention.head_dim ** -0.5


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor
    image_hidden_states: Tensor | None


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


def causal_mask_at(cache_position: Tensor, length: int, attention_mask: Tensor | None) -> Tensor:
    """A causal mask over a cache of `length` keys for queries that stand at `cache_position` (T,).

    attention_mask (B, S) covers the first S <= length keys. -> (1 or B, 1, T, length)
    """
    index = torch.arange(length, device=cache_position.device)
    mask = (index <= cache_position[:, None])[None, None]
    if attention_mask is None:
        return mask
    seen = F.pad(attention_mask != 0, (0, length - attention_mask.shape[1]), value=True)
    return mask & seen[:, None, None, :]


def chunked_mask_at(cache_position: Tensor, length: int, attention_mask: Tensor | None, size: int) -> Tensor:
    """A chunked mask over a cache of `length` keys for queries that stand at `cache_position` (T,)."""
    index = torch.arange(length, device=cache_position.device)
    mask = causal_mask_at(cache_position, length, attention_mask)
    if attention_mask is None:
        return mask & (cache_position[:, None] // size == index // size)
    first = (attention_mask.cumsum(dim=-1) == 0).sum(dim=-1)[:, None]  # keys of padding before it
    chunk = (cache_position - first).div(size, rounding_mode="floor")
    return mask & (chunk[:, :, None] == (index - first).div(size, rounding_mode="floor")[:, None])[:, None]


def combine_experts(x: Tensor, y: Tensor, weights: Tensor, order: Tensor) -> Tensor:
    """Weighs sorted outputs and adds them up per position.

    y (N * count, W), weights (..., count) -> like x
    """
    y = (y * weights.flatten()[order, None]).to(x.dtype)
    flat = torch.zeros_like(x).flatten(0, -2)
    return flat.index_add(0, order // weights.shape[-1], y).view_as(x)


def expert_linear(rows: Tensor, weight: Tensor, sizes: list[int], bias: Tensor | None = None) -> Tensor:
    """Each block of rows through its expert's linear layer.

    rows (N, I), weight (E, O, I), bias (E, O) -> (N, O)
    """
    biases = [None] * len(sizes) if bias is None else bias.unbind()
    parts = zip(rows.split(sizes), weight.unbind(), biases, strict=True)
    return torch.cat([F.linear(part, matrix, offset) for part, matrix, offset in parts])


def flatten_patches(x: Tensor) -> Tensor:
    """Patches as a sequence, row by row. x (B, C, Y, X) -> (B, Y * X, C)"""
    return x.flatten(2).transpose(1, 2)


def image_coordinates(pixels: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Row and column of every patch of size x size pixels, row by row. pixels (B, C, Y, X) -> two (T,)"""
    rows = torch.arange(pixels.shape[2] // size, device=pixels.device)
    columns = torch.arange(pixels.shape[3] // size, device=pixels.device)
    return rows.repeat_interleave(len(columns)), columns.repeat(len(rows))


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def positions_in_order(x: Tensor) -> Tensor:
    """0, 1, 2, ... for every position of x. x (B, T, ...) -> (1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None]


def rms_norm_plain(x: Tensor, eps: float) -> Tensor:
    """A norm without weights, in float32. (..., W) -> (..., W)"""
    return F.rms_norm(x.float(), x.shape[-1:], eps=eps).to(x.dtype)


def rotary_frequencies(positions: Tensor, rotary_dim: int, base: float) -> Tensor:
    """Angle per position of each pair of channels. -> (R / 2,) on the device of positions"""
    index = torch.arange(0, rotary_dim, 2, device=positions.device)
    return 1.0 / base ** (index.float() / rotary_dim)


def rotary_frequencies_llama3(
    positions: Tensor,
    rotary_dim: int,
    base: float,
    factor: float,
    low_factor: float,
    high_factor: float,
    original_positions: int,
) -> Tensor:
    """Frequencies with long waves slowed by `factor` and a ramp between (rope type llama3). -> (R / 2,)"""
    fast = rotary_frequencies(positions, rotary_dim, base)
    turns = original_positions * fast / (2 * math.pi)  # of each wave over the original context
    if high_factor <= low_factor:  # no ramp
        return torch.where(turns < low_factor, fast / factor, fast)
    ramp = ((turns - low_factor) / (high_factor - low_factor)).clamp(0, 1)
    return (1 - ramp) * fast / factor + ramp * fast


def rotary_tables(x: Tensor, positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle, in the dtype of x. positions (B, T) -> two (B, 1, T, R / 2)"""
    angles = positions[:, None, :, None].float() * frequencies
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def scatter_features(x: Tensor, features: Tensor | None, input_ids: Tensor, place_id: int) -> Tensor:
    """Embeddings x (B, T, W) with features (..., W) where input_ids (B, T) are place_id, in order.

    Without features, or places, the embeddings stay. ValueError if there is not one vector (W,) a place.
    """
    if features is None:
        return x
    places = input_ids == place_id
    if not torch.compiler.is_compiling():  # a graph has no branches
        count, width = int(places.sum()), x.shape[-1]
        if count and count * width != features.numel():
            raise ValueError(f"{count} places of width {width} for features {tuple(features.shape)}")
    return x.masked_scatter(places.unsqueeze(-1), features.to(x.dtype))


def shuffle_patches(x: Tensor, factor: int) -> Tensor:
    """Squares of factor x factor patches, one vector. (B, S * S, W) -> (B, (S / factor)^2, W * factor^2)"""
    side = math.isqrt(x.shape[1])
    squares = x.unflatten(1, (side // factor, factor, side // factor, factor))
    return squares.permute(0, 1, 3, 2, 4, 5).flatten(3).flatten(1, 2)


def sort_by_expert(x: Tensor, chosen: Tensor, experts: int) -> tuple[Tensor, Tensor, list[int]]:
    """Positions once per chosen expert, sorted by expert.

    x (..., W), chosen (..., count) -> rows (N * count, W), their order, how many each expert has
    """
    expert = chosen.flatten()
    order = expert.argsort(stable=True)
    sizes = F.one_hot(expert, experts).sum(dim=0).tolist()
    return x.flatten(0, -2)[order // chosen.shape[-1]], order, sizes


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class VisionAttention(nn.Module):
    """vision_model.model.layers.*.self_attn: self-attention with interleaved rotary embeddings."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.vision_head_dim
        self.q_proj = nn.Linear(config.vision_hidden_size, config.vision_heads * config.vision_head_dim)
        self.k_proj = nn.Linear(config.vision_hidden_size, config.vision_heads * config.vision_head_dim)
        self.v_proj = nn.Linear(config.vision_hidden_size, config.vision_heads * config.vision_head_dim)
        self.o_proj = nn.Linear(config.vision_heads * config.vision_head_dim, config.vision_hidden_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary_interleaved(q, cos, sin)
        k = apply_rotary_interleaved(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.o_proj(merge_heads(y))


class TextAttention(nn.Module):
    """language_model.model.layers.*.self_attn: self-attention with interleaved rotary embeddings, queries
    and keys normalised after the rotary embeddings, without weights and a causal mask.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.text_head_dim
        self.norm_eps = config.norm_eps
        self.q_proj = nn.Linear(config.text_hidden_size, config.text_heads * config.text_head_dim, bias=False)
        self.k_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim, bias=False)
        self.v_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim, bias=False)
        self.o_proj = nn.Linear(config.text_heads * config.text_head_dim, config.text_hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = rms_norm_plain(apply_rotary_interleaved(q, cos, sin), self.norm_eps)
        k = rms_norm_plain(apply_rotary_interleaved(k, cos, sin), self.norm_eps)
        y = attend(q, k, v, mask, is_causal=mask is None)
        return self.o_proj(merge_heads(y))


class TextAttentionWithCausalTemperature(nn.Module):
    """language_model.model.layers.*.self_attn: self-attention with a causal mask and a temperature that
    grows with the position.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.text_head_dim
        self.scale = config.attention_scale
        self.q_proj = nn.Linear(config.text_hidden_size, config.text_heads * config.text_head_dim, bias=False)
        self.k_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim, bias=False)
        self.v_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim, bias=False)
        self.o_proj = nn.Linear(config.text_heads * config.text_head_dim, config.text_hidden_size, bias=False)

    def forward(self, x: Tensor, temperature: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = attend(q * temperature, k, v, mask, scale=self.scale, is_causal=mask is None)
        return self.o_proj(merge_heads(y))


class SharedExpert(nn.Module):
    """language_model.model.layers.*.feed_forward.shared_expert: feed-forward network with a gate (GLU)."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate_proj = nn.Linear(
            config.text_hidden_size, config.shared_expert_intermediate_size, bias=False
        )
        self.up_proj = nn.Linear(config.text_hidden_size, config.shared_expert_intermediate_size, bias=False)
        self.down_proj = nn.Linear(
            config.shared_expert_intermediate_size, config.text_hidden_size, bias=False
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class FeedForward(nn.Module):
    """vision_model.model.layers.*.mlp: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.fc1 = nn.Linear(config.vision_hidden_size, config.feed_forward_intermediate_size)
        self.fc2 = nn.Linear(config.feed_forward_intermediate_size, config.vision_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class VisionProjector(nn.Module):
    """vision_model.vision_adapter.mlp: projector with pixel shuffle and two linear layers, each with an
    activation.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.projector_factor = config.factor
        self.fc1 = nn.Linear(config.vision_input_size, config.projector_size, bias=False)
        self.fc2 = nn.Linear(config.projector_size, config.vision_output_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = shuffle_patches(x, self.projector_factor)
        return F.gelu(self.fc2(F.gelu(self.fc1(x))))


class Projector(nn.Module):
    """multi_modal_projector: projector with a linear layer."""

    def __init__(self, config: Config):
        super().__init__()
        self.linear_1 = nn.Linear(config.vision_output_size, config.text_hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_1(x)


class VisionLayer(nn.Module):
    """vision_model.model.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(config.vision_hidden_size)
        self.self_attn = VisionAttention(config)
        self.post_attention_layernorm = nn.LayerNorm(config.vision_hidden_size)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class MixtureOfExperts(nn.Module):
    """language_model.model.layers.*.feed_forward: mixture of experts with router scores by sigmoid, top-k
    experts of each token, a shared expert and experts stored [in, out].
    """

    def __init__(self, config: Config):
        super().__init__()
        self.experts_per_token = config.experts_per_token
        self.moe_experts = config.experts
        self.router = nn.Linear(config.text_hidden_size, config.experts, bias=False)
        self.experts: Any = nn.ParameterDict(
            {
                "gate_up_proj": nn.Parameter(
                    torch.zeros(config.experts, config.text_hidden_size, 2 * config.intermediate_size)
                ),
                "down_proj": nn.Parameter(
                    torch.zeros(config.experts, config.intermediate_size, config.text_hidden_size)
                ),
            }
        )
        self.shared_expert = SharedExpert(config)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.router(x)
        scores = logits.sigmoid()
        chosen = logits.topk(self.experts_per_token, dim=-1).indices
        weights = scores.gather(-1, chosen)
        rows, order, sizes = sort_by_expert(x, chosen, self.moe_experts)
        rows = rows * weights.flatten()[order, None]
        weights = torch.ones_like(weights)
        rows = expert_linear(rows, self.experts.gate_up_proj.mT, sizes)
        gate, up = rows.chunk(2, dim=-1)
        rows = F.silu(gate) * up
        y = combine_experts(x, expert_linear(rows, self.experts.down_proj.mT, sizes), weights, order)
        return y + self.shared_expert(x)


class Encoder(nn.Module):
    """vision_model: a stack of layers with a norm before the layers, rotary embeddings of the patches'
    rows and columns, which the class token after them has none of, a final norm and a projector of the
    patches without the class token after them.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.patch_size = config.patch_size
        self.rotary_dim = config.vision_head_dim
        self.rotary_base = config.vision_rotary_base
        self.patch_embedding: Any = nn.ModuleDict(
            {
                "linear": nn.Linear(
                    config.channels * config.patch_size**2, config.vision_hidden_size, bias=False
                )
            }
        )
        self.class_embedding = nn.Parameter(torch.zeros(config.vision_hidden_size))
        self.positional_embedding_vlm = nn.Parameter(torch.zeros(config.positions, config.vision_hidden_size))
        self.layernorm_pre = nn.LayerNorm(config.vision_hidden_size)
        self.model: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(VisionLayer(config) for _ in range(config.vision_layers))}
        )
        self.layernorm_post = nn.LayerNorm(config.vision_hidden_size)
        self.vision_adapter: Any = nn.ModuleDict({"mlp": VisionProjector(config)})

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.layernorm_pre(self.embeddings(pixel_values))
        rows, columns = image_coordinates(pixel_values, self.patch_size)
        rows, columns = rows + 1, columns + 1
        rows, columns = columns, rows
        frequencies = rotary_frequencies(rows, self.rotary_dim // 2, self.rotary_base)
        angles = torch.cat((rows[:, None] * frequencies, columns[:, None] * frequencies), dim=-1)[None, None]
        cos, sin = angles.cos().type_as(x), angles.sin().type_as(x)
        cos = F.pad(cos, (0, 0, 0, x.shape[1] - cos.shape[2]), value=1.0)
        sin = F.pad(sin, (0, 0, 0, x.shape[1] - sin.shape[2]))
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        x = self.layernorm_post(x)
        return self.vision_adapter.mlp(x[:, :-1])

    def embeddings(self, pixel_values: Tensor) -> Tensor:
        size = -1, self.patch_size
        pixels = (
            pixel_values.type_as(self.patch_embedding.linear.weight).unflatten(3, size).unflatten(2, size)
        )
        pixels = pixels.permute(0, 2, 4, 1, 3, 5).flatten(3)
        patches = self.patch_embedding.linear(pixels).permute(0, 3, 1, 2)
        x = flatten_patches(patches)
        x = torch.cat((x, self.class_embedding.expand(x.shape[0], 1, -1)), dim=1)
        return x + self.positional_embedding_vlm


class TextLayer(nn.Module):
    """language_model.model.layers.*: a layer with pre-norm, attention and a mixture of experts."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.text_hidden_size, eps=config.norm_eps)
        self.self_attn = TextAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.text_hidden_size, eps=config.norm_eps)
        self.feed_forward = MixtureOfExperts(config)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, temperature: Tensor
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.feed_forward(self.post_attention_layernorm(x))


class TextLayerWithCausalTemperature(nn.Module):
    """language_model.model.layers.*: a layer with pre-norm, attention and a mixture of experts."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.text_hidden_size, eps=config.norm_eps)
        self.self_attn = TextAttentionWithCausalTemperature(config)
        self.post_attention_layernorm = nn.RMSNorm(config.text_hidden_size, eps=config.norm_eps)
        self.feed_forward = MixtureOfExperts(config)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, temperature: Tensor
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), temperature, mask)
        return x + self.feed_forward(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """language_model.model: a stack of layers with a causal mask for each type of layer, full attention or
    chunks, rotary embeddings, a temperature that grows with the position and a final norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.features_image_id = config.features_image_id
        self.temperature_length = config.temperature_length
        self.temperature = config.temperature
        self.layer_types = config.layer_types
        self.chunk = config.chunk
        self.rotary_dim = config.text_head_dim
        self.rotary_base = config.text_rotary_base
        self.rotary_factor = config.rotary_factor
        self.rotary_low_factor = config.rotary_low_factor
        self.rotary_high_factor = config.rotary_high_factor
        self.rotary_original_positions = config.rotary_original_positions
        self.embed_tokens = nn.Embedding(config.vocab_size, config.text_hidden_size)
        self.layers = nn.ModuleList(
            TextLayerWithCausalTemperature(config) if kind == "full_attention" else TextLayer(config)
            for kind in config.layer_types
        )
        self.norm = nn.RMSNorm(config.text_hidden_size, eps=config.norm_eps)

    def forward(
        self,
        input_ids: Tensor,
        image_features: Tensor | None,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
    ) -> Tensor:
        x = scatter_features(self.embed_tokens(input_ids), image_features, input_ids, self.features_image_id)
        masks = self.decoder_mask(x, attention_mask)
        cos, sin = self.rotary(x, position_indices(x, position_ids))
        places = positions_in_order(x) + 1
        growth = (places // self.temperature_length).float().log1p()
        temperature = (1 + self.temperature * growth)[:, None, :, None].to(x.dtype)
        for layer, kind in zip(self.layers, self.layer_types, strict=True):
            x = layer(x, cos, sin, masks[kind], temperature)
        return self.norm(x)

    def decoder_mask(self, x: Tensor, attention_mask: Tensor | None) -> dict[str, Tensor | None]:
        full = None if attention_mask is None else causal_mask(x, attention_mask)
        near = chunked_mask_at(positions_in_order(x)[0], x.shape[1], attention_mask, self.chunk)
        return {"full_attention": full, "chunked_attention": near}

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        frequencies = rotary_frequencies_llama3(
            positions,
            self.rotary_dim,
            self.rotary_base,
            self.rotary_factor,
            self.rotary_low_factor,
            self.rotary_high_factor,
            self.rotary_original_positions,
        )
        return rotary_tables(x, positions, frequencies)


class Model(nn.Module):
    """The model with image features among the word embeddings, features of the tower as an output and a
    language modeling head.
    """

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.vision_model = Encoder(config)
        self.multi_modal_projector = Projector(config)
        self.language_model: Any = nn.ModuleDict(
            {
                "model": Decoder(config),
                "lm_head": nn.Linear(config.text_hidden_size, config.vocab_size, bias=False),
            }
        )
        self.to(torch.bfloat16)

    def forward(
        self,
        input_ids: Tensor,
        pixel_values: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), pixel_values (batch, channels, height, width), attention_mask (batch,
        length), position_ids (batch, length)
        """
        found = None
        if pixel_values is not None:
            found = self.vision_model(pixel_values)
        image_features = None
        if found is not None:
            image_features = self.multi_modal_projector(found)
        x = self.language_model.model(input_ids, image_features, attention_mask, position_ids)
        logits = self.language_model.lm_head(x)
        return Output(logits=logits, last_hidden_state=x, image_hidden_states=found)


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
# {"config": {"architectures": ["Llama4ForConditionalGeneration"], "image_token_index": 200092, "model_type":
# "llama4", "text_config": {"attention_bias": false, "attention_chunk_size": 8192, "head_dim": 128,
# "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
# "max_position_embeddings": 10485760, "model_type": "llama4_text", "no_rope_layers": [],
# "num_attention_heads": 40, "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_key_value_heads": 8,
# "num_local_experts": 16, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 16.0, "high_freq_factor": 1.0,
# "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta":
# 500000.0, "use_qk_norm": true, "vocab_size": 202048}, "vision_config": {"hidden_act": "gelu", "hidden_size":
# 1408, "intermediate_size": 5632, "model_type": "llama4_vision_model", "num_attention_heads": 16,
# "num_channels": 3, "num_hidden_layers": 34, "patch_size": 14, "pixel_shuffle_ratio": 0.5, "rope_theta":
# 10000}}, "notes": ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config),
# not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: 9563afe09f80ae81
