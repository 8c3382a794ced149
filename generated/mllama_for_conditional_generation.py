"""meta-llama/Llama-3.2-11B-Vision-Instruct: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family mllama).
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

    text_hidden_size: int = 4096  # shape: language_model.lm_head.weight [128256, 4096]
    text_heads: int = 32  # config: text_config.num_attention_heads
    # shape and config: language_model.model.layers.{0..2,4..7,..}.self_attn.q_proj.weight [4096, 4096] = ...
    text_head_dim: int = 128
    # shape and config: language_model.model.layers.{0..2,4..7,..}.self_attn.k_proj.weight [1024, 4096] = ...
    kv_heads: int = 8
    text_norm_eps: float = 1e-5  # config: text_config.rms_norm_eps
    vision_hidden_size: int = 1280  # shape: vision_model.layernorm_pre.weight [1280]
    vision_heads: int = 16  # config: vision_config.attention_heads
    # shape and config: vision_model.global_transformer.layers.{0..7}.self_attn.q_proj.weight [1280, ...
    vision_head_dim: int = 80
    tile_shapes: int = 9  # shape: vision_model.post_tile_positional_embedding.embedding.weight [9, 5120]
    tiles: int = 4  # shape: vision_model.post_tile_positional_embedding.embedding.weight [9, 5120]
    positions: int = 1601  # shape: vision_model.gated_positional_embedding.embedding [1601, 1280]
    # shape: language_model.model.layers.{0..2,4..7,..}.mlp.gate_proj.weight [14336, 4096]
    text_intermediate_size: int = 14336
    # shape: vision_model.global_transformer.layers.{0..7}.mlp.fc1.weight [5120, 1280]
    vision_intermediate_size: int = 5120
    vision_norm_eps: float = 1e-5  # config: vision_config.norm_eps
    channels: int = 3  # shape: vision_model.patch_embedding.weight [1280, 3, 14, 14]
    patch_size: int = 14  # shape: vision_model.patch_embedding.weight [1280, 3, 14, 14]
    vision_layers: int = 32  # name: vision_model.transformer.layers.*
    states_layers: tuple[int, ...] = (3, 7, 15, 23, 30)  # config: vision_config.intermediate_layers_indices
    vocab_size: int = 128256  # shape: language_model.lm_head.weight [128256, 4096]
    # shape and config: language_model.model.embed_tokens.weight [128264, 4096] = vocab_size + ...
    spare: int = 8
    # rule: families/mllama_text.yaml: True where cross_attention.layers says
    reads_images: tuple[bool, ...] = ((False,) * 3 + (True,) + (False,)) * 8
    rotary_base: float = 500000.0  # config: text_config.rope_theta
    rotary_factor: float = 8.0  # config: text_config.rope_scaling.factor
    rotary_low_factor: float = 1.0  # config: text_config.rope_scaling.low_freq_factor
    rotary_high_factor: float = 4.0  # config: text_config.rope_scaling.high_freq_factor
    rotary_original_positions: int = 8192  # config: text_config.rope_scaling.original_max_position_embeddings
    input_size: int = 7680  # shape: multi_modal_projector.weight [4096, 7680]


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


def flatten_patches(x: Tensor) -> Tensor:
    """Patches as a sequence, row by row. x (B, C, Y, X) -> (B, Y * X, C)"""
    return x.flatten(2).transpose(1, 2)


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


def some_states(states: list[Tensor], layers: tuple[int, ...]) -> list[Tensor]:
    """The outputs of several layers."""
    return [states[layer] for layer in layers]


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def states_read(x: Tensor, states: Tensor | None, reads_images: bool) -> Tensor | None:
    """What a layer reads: the states of images, which may be none, or its own input."""
    return states if reads_images else x


def tile_mask(x: Tensor, mask: Tensor, places: int) -> Tensor:
    """What is added to scores over all tiles of an image: padding alone is hidden, and from padding alone.

    x (N, tiles, T, W), of which `places` of T are real, mask (..., tiles) of N images
    -> (N, 1, tiles * T, tiles * T)
    """
    real = (mask != 0).reshape(x.shape[0], -1, 1) & (torch.arange(x.shape[2], device=x.device) < places)
    padding = ~real.flatten(1)
    hidden = padding[:, :, None] & padding[:, None]
    return (hidden * torch.finfo(x.dtype).min)[:, None].to(x.dtype)


class CrossAttention(nn.Module):
    """language_model.model.layers.*.cross_attn: cross-attention with normalised queries and keys and an
    attention mask over the source.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.text_head_dim
        self.q_proj = nn.Linear(config.text_hidden_size, config.text_heads * config.text_head_dim, bias=False)
        self.k_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim, bias=False)
        self.v_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim, bias=False)
        self.q_norm = nn.RMSNorm(config.text_head_dim, eps=config.text_norm_eps)
        self.k_norm = nn.RMSNorm(config.text_head_dim, eps=config.text_norm_eps)
        self.o_proj = nn.Linear(config.text_heads * config.text_head_dim, config.text_hidden_size, bias=False)

    def forward(
        self, x: Tensor, encoder_hidden_states: Tensor | None, cross_attention_mask: Tensor | None
    ) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(encoder_hidden_states), self.head_dim)
        v = split_heads(self.v_proj(encoder_hidden_states), self.head_dim)
        q, k = self.q_norm(q), self.k_norm(k)
        y = attend(q, k, v, cross_attention_mask)
        return self.o_proj(merge_heads(y))


class VisionAttention(nn.Module):
    """vision_model.transformer.layers.*.self_attn, vision_model.global_transformer.layers.*.self_attn:
    self-attention with an attention mask.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.vision_head_dim
        self.q_proj = nn.Linear(
            config.vision_hidden_size, config.vision_heads * config.vision_head_dim, bias=False
        )
        self.k_proj = nn.Linear(
            config.vision_hidden_size, config.vision_heads * config.vision_head_dim, bias=False
        )
        self.v_proj = nn.Linear(
            config.vision_hidden_size, config.vision_heads * config.vision_head_dim, bias=False
        )
        self.o_proj = nn.Linear(
            config.vision_heads * config.vision_head_dim, config.vision_hidden_size, bias=False
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(merge_heads(y))


class TextAttention(nn.Module):
    """language_model.model.layers.*.self_attn: self-attention with rotary embeddings and a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.text_head_dim
        self.q_proj = nn.Linear(config.text_hidden_size, config.text_heads * config.text_head_dim, bias=False)
        self.k_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim, bias=False)
        self.v_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim, bias=False)
        self.o_proj = nn.Linear(config.text_heads * config.text_head_dim, config.text_hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary(q, cos, sin)
        k = apply_rotary(k, cos, sin)
        y = attend(q, k, v, mask, is_causal=mask is None)
        return self.o_proj(merge_heads(y))


class GatedPositionalEmbedding(nn.Module):
    """vision_model.gated_positional_embedding: holds what the module around it computes with."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(1))
        self.tile_embedding = nn.Embedding(
            config.tile_shapes, config.tiles * config.positions * config.vision_hidden_size
        )
        self.embedding = nn.Parameter(torch.zeros(config.positions, config.vision_hidden_size))


class TextFeedForward(nn.Module):
    """language_model.model.layers.*.mlp: feed-forward network with a gate (GLU)."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate_proj = nn.Linear(config.text_hidden_size, config.text_intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.text_hidden_size, config.text_intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.text_intermediate_size, config.text_hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class PreTilePositionalEmbedding(nn.Module):
    """vision_model.pre_tile_positional_embedding, vision_model.post_tile_positional_embedding: holds what
    the module around it computes with.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.embedding = nn.Embedding(config.tile_shapes, config.tiles * config.vision_hidden_size)
        self.gate = nn.Parameter(torch.zeros(1))


class VisionFeedForward(nn.Module):
    """vision_model.transformer.layers.*.mlp, vision_model.global_transformer.layers.*.mlp: feed-forward
    network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.fc1 = nn.Linear(config.vision_hidden_size, config.vision_intermediate_size)
        self.fc2 = nn.Linear(config.vision_intermediate_size, config.vision_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class GatedLayers(nn.Module):
    """vision_model.global_transformer.layers.*: a layer with pre-norm, attention, gated residuals and a
    feed-forward network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)
        self.self_attn = VisionAttention(config)
        self.gate_attn = nn.Parameter(torch.zeros(1))
        self.post_attention_layernorm = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)
        self.mlp = VisionFeedForward(config)
        self.gate_ffn = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.self_attn(self.input_layernorm(x), mask)
        x = x + y * torch.tanh(self.gate_attn)
        y = self.mlp(self.post_attention_layernorm(x))
        return x + y * torch.tanh(self.gate_ffn)


class TextLayerWithCrossAttention(nn.Module):
    """language_model.model.layers.*: a layer with pre-norm, cross-attention, gated residuals, a
    feed-forward network and a mask of the tokens that read no image.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.text_hidden_size, eps=config.text_norm_eps)
        self.cross_attn = CrossAttention(config)
        self.cross_attn_attn_gate = nn.Parameter(torch.zeros(1))
        self.post_attention_layernorm = nn.RMSNorm(config.text_hidden_size, eps=config.text_norm_eps)
        self.mlp = TextFeedForward(config)
        self.cross_attn_mlp_gate = nn.Parameter(torch.zeros(1))

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None,
        encoder_hidden_states: Tensor | None,
        cross_attention_mask: Tensor | None,
        reads_some: Tensor | None,
    ) -> Tensor:
        y = self.cross_attn(self.input_layernorm(x), encoder_hidden_states, cross_attention_mask)
        x = x + y * torch.tanh(self.cross_attn_attn_gate)
        y = self.mlp(self.post_attention_layernorm(x))
        y = y if reads_some is None else y * reads_some[..., None]
        return x + y * torch.tanh(self.cross_attn_mlp_gate)


class VisionLayer(nn.Module):
    """vision_model.transformer.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)
        self.self_attn = VisionAttention(config)
        self.post_attention_layernorm = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)
        self.mlp = VisionFeedForward(config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class TextLayer(nn.Module):
    """language_model.model.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.text_hidden_size, eps=config.text_norm_eps)
        self.self_attn = TextAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.text_hidden_size, eps=config.text_norm_eps)
        self.mlp = TextFeedForward(config)

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None,
        encoder_hidden_states: Tensor | None,
        cross_attention_mask: Tensor | None,
        reads_some: Tensor | None,
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class ImageTiles(nn.Module):
    """vision_model: tiles of images, two stacks of layers over all tiles of an image, and the states of
    some of the first beside the output.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.hidden_size = config.vision_hidden_size
        self.states_layers = config.states_layers
        self.positions = config.positions
        self.patch_embedding = nn.Conv2d(
            config.channels,
            config.vision_hidden_size,
            kernel_size=config.patch_size,
            stride=config.patch_size,
            bias=False,
        )
        self.pre_tile_positional_embedding = PreTilePositionalEmbedding(config)
        self.class_embedding = nn.Parameter(torch.zeros(config.vision_hidden_size))
        self.gated_positional_embedding = GatedPositionalEmbedding(config)
        self.layernorm_pre = nn.LayerNorm(config.vision_hidden_size)
        self.transformer: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(VisionLayer(config) for _ in range(config.vision_layers))}
        )
        self.layernorm_post = nn.LayerNorm(config.vision_hidden_size)
        self.post_tile_positional_embedding = PreTilePositionalEmbedding(config)
        self.global_transformer: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(GatedLayers(config) for _ in range(8))}
        )

    def forward(self, pixel_values: Tensor, aspect_ratio_ids: Tensor, aspect_ratio_mask: Tensor) -> Tensor:
        x = self.layernorm_pre(self.embeddings(pixel_values, aspect_ratio_ids))
        images, tiles, places = x.shape[:3]
        x = F.pad(x, (0, 0, 0, -places % 8))
        mask = tile_mask(x, aspect_ratio_mask, places)
        x = x.flatten(1, 2)
        states = []
        for layer in self.transformer.layers:
            x = layer(x, mask)
            states.append(x)
        x = self.layernorm_post(x).unflatten(1, (tiles, -1))
        x = x + self.post_tile_positional_embedding.embedding(aspect_ratio_ids.flatten()).view(
            images, -1, 1, self.hidden_size
        ) * torch.tanh(self.post_tile_positional_embedding.gate)
        x = x.flatten(1, 2)
        for layer in self.global_transformer.layers:
            x = layer(x, mask)
        kept = torch.stack(some_states(states, self.states_layers), dim=-1).flatten(2)
        x = torch.cat((x, kept), dim=-1).unflatten(1, (tiles, -1))
        return x[:, :, :places].unflatten(0, pixel_values.shape[:2])

    def embeddings(self, pixel_values: Tensor, aspect_ratio_ids: Tensor) -> Tensor:
        images = aspect_ratio_ids.flatten()
        x = flatten_patches(
            self.patch_embedding(pixel_values.flatten(0, 2).type_as(self.patch_embedding.weight))
        )
        x = x.unflatten(0, (len(images), -1))
        x = x + self.pre_tile_positional_embedding.embedding(images).view(
            len(images), -1, 1, self.hidden_size
        ) * torch.tanh(self.pre_tile_positional_embedding.gate)
        x = torch.cat((self.class_embedding.expand(x.shape[0], x.shape[1], 1, -1), x), dim=2)
        share = torch.tanh(self.gated_positional_embedding.gate)
        places = self.gated_positional_embedding.tile_embedding(images).view(
            len(images), -1, self.positions, self.hidden_size
        )
        return x + self.gated_positional_embedding.embedding * (1 - share) + places * share


class Decoder(nn.Module):
    """language_model.model: a stack of layers with a causal mask, rotary embeddings, layers of
    cross-attention to images among the others, left out where no image is and a final norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.reads_images = config.reads_images
        self.rotary_dim = config.text_head_dim
        self.rotary_base = config.rotary_base
        self.rotary_factor = config.rotary_factor
        self.rotary_low_factor = config.rotary_low_factor
        self.rotary_high_factor = config.rotary_high_factor
        self.rotary_original_positions = config.rotary_original_positions
        self.embed_tokens = nn.Embedding(config.vocab_size + config.spare, config.text_hidden_size)
        self.layers = nn.ModuleList(
            TextLayerWithCrossAttention(config) if reads_images else TextLayer(config)
            for reads_images in config.reads_images
        )
        self.norm = nn.RMSNorm(config.text_hidden_size, eps=config.text_norm_eps)

    def forward(
        self,
        input_ids: Tensor,
        cross_attention_mask: Tensor | None,
        attention_mask: Tensor | None,
        encoder_hidden_states: Tensor | None,
        position_ids: Tensor | None,
        reads_some: Tensor | None,
    ) -> Tensor:
        x = self.embed_tokens(input_ids)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        cos, sin = self.rotary(x, position_indices(x, position_ids))
        for layer, reading in zip(self.layers, self.reads_images, strict=True):
            read = states_read(x, encoder_hidden_states, reading)
            x = (
                x
                if read is None
                else layer(x, cos, sin, mask, encoder_hidden_states, cross_attention_mask, reads_some)
            )
        return self.norm(x)

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
    """The model with gated cross-attention to the patches of tiles of several images and a language
    modeling head.
    """

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.vision_model = ImageTiles(config)
        self.multi_modal_projector = nn.Linear(config.input_size, config.text_hidden_size)
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
        aspect_ratio_ids: Tensor | None = None,
        aspect_ratio_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), pixel_values (batch, images, 4, 3, height, width), aspect_ratio_ids
        (batch, images), aspect_ratio_mask (batch, images, 4), cross_attention_mask (batch, length,
        images, tiles), attention_mask (batch, length), position_ids (batch, length)
        """
        found = None
        if pixel_values is not None:
            assert aspect_ratio_ids is not None
            assert aspect_ratio_mask is not None
            found = self.multi_modal_projector(
                self.vision_model(pixel_values, aspect_ratio_ids, aspect_ratio_mask)
            )
        encoder_hidden_states = None
        if found is not None:
            encoder_hidden_states = found.flatten(1, 3)
        read_tiles = None
        if cross_attention_mask is not None:
            read_tiles = (cross_attention_mask != 0).flatten(2)
        reads_some = None
        if read_tiles is not None:
            reads_some = read_tiles.any(dim=-1)
        tiles = None
        if read_tiles is not None:
            tiles = found
        cross_attention_mask = None
        if tiles is not None:
            assert read_tiles is not None
            read_places = read_tiles.repeat_interleave(tiles.shape[3], dim=-1)
            assert reads_some is not None
            cross_attention_mask = (read_places | ~reads_some[..., None])[:, None]
        x = self.language_model.model(
            input_ids, cross_attention_mask, attention_mask, encoder_hidden_states, position_ids, reads_some
        )
        logits = self.language_model.lm_head(x)
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
# {"config": {"architectures": ["MllamaForConditionalGeneration"], "model_type": "mllama", "text_config":
# {"cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38], "hidden_act": "silu", "hidden_size": 4096,
# "intermediate_size": 14336, "max_position_embeddings": 131072, "model_type": "mllama_text_model",
# "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
# "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
# "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
# "tie_word_embeddings": false, "vocab_size": 128256}, "vision_config": {"attention_heads": 16, "hidden_act":
# "gelu", "hidden_size": 1280, "intermediate_layers_indices": [3, 7, 15, 23, 30], "intermediate_size": 5120,
# "model_type": "mllama_vision_model", "norm_eps": 1e-05, "num_channels": 3, "num_global_layers": 8,
# "num_hidden_layers": 32, "patch_size": 14}}, "notes": ["header from the bundled catalogue (reconstructed
# with transformers 5.23.0 from config), not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: 7c16b25ab2a78db7
