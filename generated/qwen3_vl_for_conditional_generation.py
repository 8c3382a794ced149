"""Qwen/Qwen3-VL-2B-Instruct: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family qwen3_vl).
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

    text_hidden_size: int = 2048  # shape: model.language_model.norm.weight [2048]
    heads: int = 16  # shape: model.language_model.layers.{0..27}.self_attn.q_proj.weight [2048, 2048]
    text_head_dim: int = 128  # shape: model.language_model.layers.{0..27}.self_attn.q_norm.weight [128]
    kv_heads: int = 8  # shape: model.language_model.layers.{0..27}.self_attn.k_proj.weight [1024, 2048]
    norm_eps: float = 1e-6  # config: text_config.rms_norm_eps
    merge_size: int = 2  # config: vision_config.spatial_merge_size
    vision_hidden_size: int = 1024  # shape: model.visual.pos_embed.weight [2304, 1024]
    merged_size: int = 2048  # shape: model.visual.deepstack_merger_list.{0..2}.linear_fc2.weight [2048, 4096]
    # shape: model.language_model.layers.{0..27}.mlp.gate_proj.weight [6144, 2048]
    text_intermediate_size: int = 6144
    # shape and config: model.visual.blocks.{0..23}.attn.proj.weight [1024, 1024] = heads * head_dim
    vision_head_dim: int = 64
    # shape: model.visual.blocks.{0..23}.mlp.linear_fc1.weight [4096, 1024]
    vision_intermediate_size: int = 4096
    channels: int = 3  # shape: model.visual.patch_embed.proj.weight [1024, 3, 2, 16, 16]
    frames_per_patch: int = 2  # shape: model.visual.patch_embed.proj.weight [1024, 3, 2, 16, 16]
    patch_size: int = 16  # shape: model.visual.patch_embed.proj.weight [1024, 3, 2, 16, 16]
    position_side: int = 48  # shape: model.visual.pos_embed.weight [2304, 1024]
    vision_layers: int = 24  # name: model.visual.blocks.*
    merger_layers: tuple[int, ...] = (5, 11, 17)  # config: vision_config.deepstack_visual_indexes
    # default: vision_config.rope_parameters.rope_theta, left out: the default of qwen3_vl_vision
    vision_rotary_base: float = 10000.0
    vocab_size: int = 151936  # shape: model.language_model.embed_tokens.weight [151936, 2048]
    text_layers: int = 28  # name: model.language_model.layers.*
    features_image_id: int = 151655  # config: image_token_id
    features_video_id: int = 151656  # config: video_token_id
    text_rotary_base: int = 5000000  # config: text_config.rope_theta
    rotary_sections: tuple[int, ...] = (24, 20, 20)  # config: text_config.rope_scaling.mrope_section
    features_merge_size: int = 2  # config: vision_config.spatial_merge_size


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def add_features(x: Tensor, features: Tensor | None, input_ids: Tensor, place_id: int, index: int) -> Tensor:
    """x (B, T, W) plus features[index] (N, W) where input_ids (B, T) are place_id; later layers get none."""
    if features is None or index >= len(features):
        return x
    places = (input_ids == place_id).unsqueeze(-1)
    return x + torch.zeros_like(x).masked_scatter(places, features[index].to(x.dtype))


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


def entry(values: tuple[Tensor, ...] | None, index: int) -> Tensor | None:
    """One of several values, or None where there are none."""
    return None if values is None else values[index]


def grid_positions(
    token_types: Tensor | None,
    attention_mask: Tensor | None,
    image_grids: Tensor | None,
    video_grids: Tensor | None,
    intervals: list[float] | None,
    merge_size: int,
    past_times: bool = False,
) -> Tensor | None:
    """Frame, row, column of each position of a text with images; words count all three up (paper 2409.12191).

    token_types (B, T) is 0 for words, 1 for images, 2 for videos; grids (images, 3) are frames, rows and
    columns of patches; the frames of a video stand `intervals` apart. -> (3, B, T), or None without an image.
    """
    grids = {1: image_grids, 2: video_grids}
    if token_types is None or (image_grids is None and video_grids is None):
        return None
    left = {kind: [] if grid is None else grid.tolist() for kind, grid in grids.items()}
    steps = [] if intervals is None else list(intervals)
    positions = token_types.new_zeros(3, *token_types.shape)
    for row, types in enumerate(token_types):
        real = torch.ones_like(types).bool() if attention_mask is None else attention_mask[row].bool()
        start, found = 0, []
        for kind, count in zip(*torch.unique_consecutive(types[real], return_counts=True), strict=True):
            if kind == 0:
                found.append(torch.arange(count, device=types.device).expand(3, -1) + start)
                start += int(count)
                continue
            frames, rows, columns = left[int(kind)].pop(0)
            step = steps.pop(0) if kind == 2 and steps else 1
            times = (torch.arange(frames, device=types.device) * step).long()
            sides = [torch.arange(side // merge_size, device=types.device) for side in (rows, columns)]
            found.append(start + torch.cartesian_prod(times, *sides).T)
            start = int(found[-1].max()) + 1 if past_times else start + max(rows, columns) // merge_size
        positions[:, row, real] = torch.cat(found, dim=1)
    return positions


def interleaved_axes(sections: tuple[int, ...]) -> list[int]:
    """Which axis each angle takes: in turn as long as an axis has angles left, the first axis behind that."""
    turns = enumerate(index % len(sections) for index in range(sum(sections)))
    return [axis if index < len(sections) * sections[axis] else 0 for index, axis in turns]


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def patch_images(x: Tensor, grid: Tensor) -> tuple[Tensor, Tensor]:
    """The image of every patch, and the patch's number in it. -> two (T,)"""
    counts = grid.prod(dim=-1)
    image = torch.repeat_interleave(
        torch.arange(grid.shape[0], device=x.device), counts, output_size=x.shape[1]
    )
    return image, torch.arange(x.shape[1], device=x.device) - (counts.cumsum(0) - counts)[image]


def patch_coordinates(x: Tensor, grid: Tensor, merge: int) -> tuple[Tensor, Tensor]:
    """Row and column of every patch in its frame. -> two (T,)"""
    image, index = patch_images(x, grid)
    height, width = grid[image, 1], grid[image, 2]
    index = index % (height * width)
    block, inner = index // (merge * merge), index % (merge * merge)
    row = block // (width // merge) * merge + inner // merge
    return row, block % (width // merge) * merge + inner % merge


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def sample_table(table: Tensor, points: Tensor, mode: str, corners: bool) -> Tensor:
    """A square table read between its rows.

    table (N * N, C), points (T, 2): x and y in [-1, 1] -> (1, T, C)
    """
    side = math.isqrt(table.shape[0])
    image = table.float().unflatten(0, (side, side)).permute(2, 0, 1)[None]
    found = F.grid_sample(image, points[None, None].float(), mode, "border", corners)
    return found[0, :, 0].t()[None]


def positions_at_corners(table: Tensor, x: Tensor, grid: Tensor, merge: int) -> Tensor:
    """A square table stretched over each image so that their corners meet, linear between its rows.

    table (N * N, C) -> (1, T, C)
    """
    row, column = patch_coordinates(x, grid, merge)
    image, _ = patch_images(x, grid)
    last = (grid[image, 1:] - 1).clamp(min=1)
    points = torch.stack((column / last[:, 1], row / last[:, 0]), dim=-1) * 2 - 1
    return sample_table(table, points, "bilinear", corners=True).to(x.dtype)


def rotary_frequencies(positions: Tensor, rotary_dim: int, base: float) -> Tensor:
    """Angle per position of each pair of channels. -> (R / 2,) on the device of positions"""
    index = torch.arange(0, rotary_dim, 2, device=positions.device)
    return 1.0 / base ** (index.float() / rotary_dim)


def rotary_tables(x: Tensor, positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle, in the dtype of x. positions (B, T) -> two (B, 1, T, R / 2)"""
    angles = positions[:, None, :, None].float() * frequencies
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def rotary_tables_axes(
    x: Tensor, positions: Tensor, frequencies: Tensor, axes: list[int]
) -> tuple[Tensor, Tensor]:
    """rotary_tables of positions with three axes, by the axis of each angle.

    positions (3, B, T), or (B, T) where all axes are alike -> two (B, 1, T, R / 2)
    """
    if positions.ndim == 2:
        return rotary_tables(x, positions, frequencies)
    index = torch.tensor(axes, device=x.device)
    angles = positions[index].permute(1, 2, 0)[:, None].float() * frequencies
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def same_frame_mask(x: Tensor, grid: Tensor) -> Tensor:
    """Shows every patch those of its own frame of its own image. -> (1, 1, T, T)"""
    image, index = patch_images(x, grid)
    frame = index // (grid[:, 1] * grid[:, 2])[image]
    return ((image == image[:, None]) & (frame == frame[:, None]))[None, None]


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


def single_frames(video_grids: Tensor | None) -> Tensor | None:
    """Each frame of a video as a grid of its own: (videos, 3) -> (frames, 3)."""
    if video_grids is None:
        return None
    grids = video_grids.repeat_interleave(video_grids[:, 0], dim=0)
    return torch.cat([torch.ones_like(grids[:, :1]), grids[:, 1:]], dim=1)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class TextAttention(nn.Module):
    """model.language_model.layers.*.self_attn: self-attention with normalised queries and keys, rotary
    embeddings and a causal mask.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.text_head_dim
        self.q_proj = nn.Linear(config.text_hidden_size, config.heads * config.text_head_dim, bias=False)
        self.k_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim, bias=False)
        self.v_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim, bias=False)
        self.q_norm = nn.RMSNorm(config.text_head_dim, eps=config.norm_eps)
        self.k_norm = nn.RMSNorm(config.text_head_dim, eps=config.norm_eps)
        self.o_proj = nn.Linear(config.heads * config.text_head_dim, config.text_hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary(self.q_norm(q), cos, sin)
        k = apply_rotary(self.k_norm(k), cos, sin)
        y = attend(q, k, v, mask, is_causal=mask is None)
        return self.o_proj(merge_heads(y))


class Mergers(nn.Module):
    """model.visual.deepstack_merger_list.*: patch merging: blocks of patches concatenated, then norm and
    feed-forward.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.merge_size = config.merge_size
        self.norm = nn.LayerNorm(config.merge_size**2 * config.vision_hidden_size, eps=config.norm_eps)
        self.linear_fc1 = nn.Linear(
            config.merge_size**2 * config.vision_hidden_size, config.merge_size**2 * config.vision_hidden_size
        )
        self.linear_fc2 = nn.Linear(config.merge_size**2 * config.vision_hidden_size, config.merged_size)

    def forward(self, x: Tensor) -> Tensor:
        blocks = x.reshape(-1, self.merge_size**2 * x.shape[-1])
        return self.linear_fc2(F.gelu(self.linear_fc1(self.norm(blocks))))


class Merger(nn.Module):
    """model.visual.merger: patch merging: norm, then blocks of patches concatenated and a feed-forward."""

    def __init__(self, config: Config):
        super().__init__()
        self.merge_size = config.merge_size
        self.norm = nn.LayerNorm(config.vision_hidden_size, eps=config.norm_eps)
        self.linear_fc1 = nn.Linear(
            config.merge_size**2 * config.vision_hidden_size, config.merge_size**2 * config.vision_hidden_size
        )
        self.linear_fc2 = nn.Linear(config.merge_size**2 * config.vision_hidden_size, config.merged_size)

    def forward(self, x: Tensor) -> Tensor:
        blocks = self.norm(x).reshape(-1, self.merge_size**2 * x.shape[-1])
        return self.linear_fc2(F.gelu(self.linear_fc1(blocks)))


class TextFeedForward(nn.Module):
    """model.language_model.layers.*.mlp: feed-forward network with a gate (GLU)."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate_proj = nn.Linear(config.text_hidden_size, config.text_intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.text_hidden_size, config.text_intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.text_intermediate_size, config.text_hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class VisionAttention(nn.Module):
    """model.visual.blocks.*.attn: self-attention with rotary embeddings and an attention mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.vision_head_dim
        self.qkv = nn.Linear(config.vision_hidden_size, 3 * config.heads * config.vision_head_dim)
        self.proj = nn.Linear(config.heads * config.vision_head_dim, config.vision_hidden_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        v = split_heads(v, self.head_dim)
        q = apply_rotary(split_heads(q, self.head_dim), cos, sin)
        k = apply_rotary(split_heads(k, self.head_dim), cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(merge_heads(y))


class VisionFeedForward(nn.Module):
    """model.visual.blocks.*.mlp: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.linear_fc1 = nn.Linear(config.vision_hidden_size, config.vision_intermediate_size)
        self.linear_fc2 = nn.Linear(config.vision_intermediate_size, config.vision_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_fc2(F.gelu(self.linear_fc1(x), approximate="tanh"))


class Embeddings(nn.Module):
    """model.visual.patch_embed: packed patch embeddings."""

    def __init__(self, config: Config):
        super().__init__()
        self.channels = config.channels
        self.frames_per_patch = config.frames_per_patch
        self.patch_size = config.patch_size
        self.proj = nn.Conv3d(
            config.channels, config.vision_hidden_size, kernel_size=(2, 16, 16), stride=(2, 16, 16)
        )

    def forward(self, hidden_states: Tensor) -> Tensor:
        pixels = hidden_states.type_as(self.proj.weight)
        pixels = pixels.unflatten(
            -1, (self.channels, self.frames_per_patch, self.patch_size, self.patch_size)
        )
        return self.proj(pixels).flatten(1)[None]


class VisionLayer(nn.Module):
    """model.visual.blocks.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.vision_hidden_size, eps=config.norm_eps)
        self.attn = VisionAttention(config)
        self.norm2 = nn.LayerNorm(config.vision_hidden_size, eps=config.norm_eps)
        self.mlp = VisionFeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x), cos, sin, mask)
        return x + self.mlp(self.norm2(x))


class TextLayer(nn.Module):
    """model.language_model.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.text_hidden_size, eps=config.norm_eps)
        self.self_attn = TextAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.text_hidden_size, eps=config.norm_eps)
        self.mlp = TextFeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class PackedEncoder(nn.Module):
    """model.visual: patches of several images in one row with position embeddings stretched over each
    image, rotary embeddings of rows and columns, a mask of each patch's own frame and patch merging at
    several depths.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.merge_size = config.merge_size
        self.merger_layers = config.merger_layers
        self.rotary_dim = config.vision_head_dim
        self.rotary_base = config.vision_rotary_base
        self.patch_embed = Embeddings(config)
        self.pos_embed = nn.Embedding(config.position_side**2, config.vision_hidden_size)
        self.blocks = nn.ModuleList(VisionLayer(config) for _ in range(config.vision_layers))
        self.deepstack_merger_list = nn.ModuleList(Mergers(config) for _ in range(len(config.merger_layers)))
        self.merger = Merger(config)

    def forward(self, hidden_states: Tensor, grid_thw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.patch_embed(hidden_states)
        x = x + positions_at_corners(self.pos_embed.weight, x, grid_thw, self.merge_size)
        cos, sin = self.grid_rotary(x, grid_thw)
        mask = same_frame_mask(x, grid_thw)
        states = []
        for layer in self.blocks:
            x = layer(x, cos, sin, mask)
            states.append(x)
        features = []
        for index, deep_merger in zip(self.merger_layers, self.deepstack_merger_list, strict=True):
            features.append(deep_merger(states[index]))
        return x[0], self.merger(x), torch.stack(features)

    def grid_rotary(self, x: Tensor, grid_thw: Tensor) -> tuple[Tensor, Tensor]:
        rows, columns = patch_coordinates(x, grid_thw, self.merge_size)
        frequencies = rotary_frequencies(rows, self.rotary_dim // 2, self.rotary_base)
        angles = torch.cat((rows[:, None] * frequencies, columns[:, None] * frequencies), dim=-1)[None, None]
        return angles.cos().type_as(x), angles.sin().type_as(x)


class Decoder(nn.Module):
    """model.language_model: a stack of layers with a causal mask, rotary embeddings, image features of
    several depths, added after the first layers (DeepStack) and a final norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.features_image_id = config.features_image_id
        self.features_video_id = config.features_video_id
        self.rotary_dim = config.text_head_dim
        self.rotary_base = config.text_rotary_base
        self.rotary_sections = config.rotary_sections
        self.embed_tokens = nn.Embedding(config.vocab_size, config.text_hidden_size)
        self.layers = nn.ModuleList(TextLayer(config) for _ in range(config.text_layers))
        self.norm = nn.RMSNorm(config.text_hidden_size, eps=config.norm_eps)

    def forward(
        self,
        input_ids: Tensor,
        image_features: Tensor | None,
        video_features: Tensor | None,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        deep_image_features: Tensor | None,
        deep_video_features: Tensor | None,
    ) -> Tensor:
        x = self.embeddings(input_ids, image_features, video_features)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        cos, sin = self.rotary(x, position_indices(x, position_ids))
        for index, layer in enumerate(self.layers):
            x = layer(x, cos, sin, mask)
            x = add_features(x, deep_image_features, input_ids, self.features_image_id, index)
            x = add_features(x, deep_video_features, input_ids, self.features_video_id, index)
        return self.norm(x)

    def embeddings(
        self, input_ids: Tensor, image_features: Tensor | None, video_features: Tensor | None
    ) -> Tensor:
        x = self.embed_tokens(input_ids)
        return scatter_features(
            scatter_features(x, image_features, input_ids, self.features_image_id),
            video_features,
            input_ids,
            self.features_video_id,
        )

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        frequencies = rotary_frequencies(positions, self.rotary_dim, self.rotary_base)
        return rotary_tables_axes(x, positions, frequencies, interleaved_axes(self.rotary_sections))


class Model(nn.Module):
    """The model with features of packed images and videos among the word embeddings, and DeepStack
    features in the first layers and a language modeling head.
    """

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.features_merge_size = config.features_merge_size
        self.model: Any = nn.ModuleDict({"visual": PackedEncoder(config), "language_model": Decoder(config)})
        self.to(torch.bfloat16)

    def forward(
        self,
        input_ids: Tensor,
        pixel_values: Tensor | None = None,
        pixel_values_videos: Tensor | None = None,
        mm_token_type_ids: Tensor | None = None,
        image_grid_thw: Tensor | None = None,
        video_grid_thw: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), pixel_values (batch, channels, height, width), pixel_values_videos
        (packed, pixels), mm_token_type_ids (batch, length), image_grid_thw (images, 3), video_grid_thw
        (videos, 3), attention_mask (batch, length), position_ids (batch, length)
        """
        images = None
        if pixel_values is not None:
            assert image_grid_thw is not None
            images = self.model.visual(pixel_values, image_grid_thw)
        videos = None
        if pixel_values_videos is not None:
            assert video_grid_thw is not None
            videos = self.model.visual(pixel_values_videos, video_grid_thw)
        image_features, deep_image_features = entry(images, 1), entry(images, 2)
        video_features, deep_video_features = entry(videos, 1), entry(videos, 2)
        frames = single_frames(video_grid_thw)
        if position_ids is None:
            position_ids = grid_positions(
                mm_token_type_ids, attention_mask, image_grid_thw, frames, None, self.features_merge_size
            )
        x = self.model.language_model(
            input_ids,
            image_features,
            video_features,
            attention_mask,
            position_ids,
            deep_image_features,
            deep_video_features,
        )
        logits = F.linear(x, self.model.language_model.embed_tokens.weight)
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
# {"config": {"architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": 151655, "model_type":
# "qwen3_vl", "text_config": {"attention_bias": false, "head_dim": 128, "hidden_act": "silu", "hidden_size":
# 2048, "intermediate_size": 6144, "model_type": "qwen3_vl_text", "num_attention_heads": 16,
# "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling":
# {"mrope_interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default"}, "rope_theta": 5000000,
# "vocab_size": 151936}, "tie_word_embeddings": true, "video_token_id": 151656, "vision_config":
# {"deepstack_visual_indexes": [5, 11, 17], "depth": 24, "hidden_act": "gelu_pytorch_tanh", "hidden_size":
# 1024, "in_channels": 3, "intermediate_size": 4096, "model_type": "qwen3_vl", "num_heads": 16,
# "out_hidden_size": 2048, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2}}, "notes":
# ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub",
# "evidence for its config: recalled"]}
# sha256 of all above: 5964706414128de9
