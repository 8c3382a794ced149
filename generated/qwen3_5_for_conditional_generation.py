"""Qwen/Qwen3.5-0.8B: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family qwen3_5).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
about this header: without the layers that guess further words (mtp.*), which nothing here reads
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

    text_hidden_size: int = 1024  # shape: model.language_model.norm.weight [1024]
    state_key_heads: int = 16  # config: text_config.linear_num_key_heads
    # shape and config: model.language_model.layers.{0..2,4..6,..}.linear_attn.conv1d.weight [6144, 1, 4] ...
    state_key_dim: int = 128
    # shape: model.language_model.layers.{0..2,4..6,8..10,12..14,16..18,20..22}.linear_attn.A_log [16]
    state_heads: int = 16
    # shape: model.language_model.layers.{0..2,4..6,8..10,12..14,16..18,20..22}.linear_attn.norm.weight [128]
    state_value_dim: int = 128
    # shape: model.language_model.layers.{0..2,4..6,..}.linear_attn.conv1d.weight [6144, 1, 4]
    conv_kernel: int = 4
    norm_eps: float = 1e-6  # config: text_config.rms_norm_eps
    text_heads: int = 8  # shape: model.language_model.layers.{3..23..4}.self_attn.q_proj.weight [4096, 1024]
    text_head_dim: int = 256  # shape: model.language_model.layers.{3..23..4}.self_attn.q_norm.weight [256]
    kv_heads: int = 2  # shape: model.language_model.layers.{3..23..4}.self_attn.k_proj.weight [512, 1024]
    vision_hidden_size: int = 768  # shape: model.visual.pos_embed.weight [2304, 768]
    merge_size: int = 2  # shape: model.visual.merger.linear_fc1.weight [3072, 3072]
    # shape: model.language_model.layers.{0..2,4..6,..}.mlp.gate_proj.weight [3584, 1024]
    text_intermediate_size: int = 3584
    vision_heads: int = 12  # config: vision_config.num_heads
    # shape and config: model.visual.blocks.{0..11}.attn.proj.weight [768, 768] = heads * head_dim
    vision_head_dim: int = 64
    # shape: model.visual.blocks.{0..11}.mlp.linear_fc1.weight [3072, 768]
    vision_intermediate_size: int = 3072
    channels: int = 3  # shape: model.visual.patch_embed.proj.weight [768, 3, 2, 16, 16]
    frames_per_patch: int = 2  # shape: model.visual.patch_embed.proj.weight [768, 3, 2, 16, 16]
    patch_size: int = 16  # shape: model.visual.patch_embed.proj.weight [768, 3, 2, 16, 16]
    position_side: int = 48  # shape: model.visual.pos_embed.weight [2304, 768]
    vision_layers: int = 12  # name: model.visual.blocks.*
    # default: vision_config.rope_parameters.rope_theta, left out: the default of qwen3_5_vision
    vision_rotary_base: float = 10000.0
    vocab_size: int = 248320  # shape: model.language_model.embed_tokens.weight [248320, 1024]
    attention_layers: tuple[int, ...] = (3, 7, 11, 15, 19, 23)  # name: model.language_model.layers.{3..23..4}
    text_layers: int = 24  # name: model.language_model.layers.*
    features_image_id: int = 248056  # config: image_token_id
    features_video_id: int = 248057  # config: video_token_id
    rotary_dim: int = 64  # rule: vocabulary/config_rotary.yaml: floor(attention.head_dim * rotary.fraction)
    text_rotary_base: int = 10000000  # config: text_config.rope_parameters.rope_theta
    rotary_sections: tuple[int, ...] = (11, 11, 10)  # config: text_config.rope_parameters.mrope_section
    features_merge_size: int = 2  # config: vision_config.spatial_merge_size


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


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channel i with channel i + D / 2. x (B, H, T, D), cos and sin (B, 1, T, D / 2)"""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def apply_rotary_partial(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the first R channels, halves paired, and keeps the rest. cos and sin (B, 1, T, R / 2)"""
    size = 2 * cos.shape[-1]
    return torch.cat((apply_rotary(x[..., :size], cos, sin), x[..., size:]), dim=-1)


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


def l2_normalise(x: Tensor) -> Tensor:
    """Vectors of length 1, in float32; the 1e-6 of the published kernels keeps zeros zero. (..., K)"""
    x = x.float()
    return x * torch.rsqrt(x.pow(2).sum(dim=-1, keepdim=True) + 1e-6)


def delta_chunks(x: Tensor) -> Tensor:
    """Heads first, positions in chunks of 16, the last filled with zeros. (B, T, H, D) -> (B, H, n, 16, D)"""
    x = F.pad(x.float(), (0, 0, 0, 0, 0, -x.shape[1] % 16))
    return x.transpose(1, 2).unflatten(2, (-1, 16))


def delta_pairs(a: Tensor, b: Tensor, since: Tensor) -> Tensor:
    """Products of each row of a with the rows of b at and before it, times what is left of these.

    a, b (..., 16, K), since (..., 16, K or 1) sums of decays from the chunk's start -> (..., 16, 16)
    """
    between = since[..., :, None, :] - since[..., None, :, :]
    later = torch.ones(between.shape[-3:-1], dtype=torch.bool, device=a.device).triu(1)[..., None]
    between = between.masked_fill(later, -torch.inf).exp()
    if since.shape[-1] == 1:
        return (a @ b.transpose(-1, -2)) * between[..., 0]
    return torch.einsum("...ik,...jk,...ijk->...ij", a, b, between)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    """What each position reads of the memory, with queries and keys of length 1 and a scale 1 / sqrt(K).

    q, k (B, T, G, K), v (B, T, H, V) with H a multiple of G, decay (B, T, H, K or 1), beta (B, T, H)
    -> (B, T, H, V)
    """
    dtype, length, groups = v.dtype, v.shape[1], v.shape[2] // k.shape[2]
    q = l2_normalise(q).repeat_interleave(groups, dim=2) * q.shape[-1] ** -0.5
    k = l2_normalise(k).repeat_interleave(groups, dim=2)
    q, k, v, decay, beta = (delta_chunks(part) for part in (q, k, v, decay, beta[..., None]))
    since = decay.cumsum(dim=3)  # (B, H, n, 16, K or 1)
    system = delta_pairs(k * beta, k, since)
    values = torch.linalg.solve_triangular(system, v * beta, upper=False, unitriangular=True)
    reads = torch.linalg.solve_triangular(system, k * beta * since.exp(), upper=False, unitriangular=True)
    inside, outside = delta_pairs(q, k, since), q * since.exp()
    left = since[:, :, :, -1:]
    kept, total = k * (left - since).exp(), left.exp().transpose(-1, -2)
    memory = v.new_zeros(*v.shape[:2], k.shape[-1], v.shape[-1])
    outputs = []
    for n in range(v.shape[2]):
        new = values[:, :, n] - reads[:, :, n] @ memory
        outputs.append(outside[:, :, n] @ memory + inside[:, :, n] @ new)
        memory = memory * total[:, :, n] + kept[:, :, n].transpose(-1, -2) @ new
    return torch.cat(outputs, dim=2)[:, :, :length].transpose(1, 2).to(dtype)


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


def zero_padding(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Sets padded positions to zero. x (B, T, C), attention_mask (B, T) or None -> (B, T, C)"""
    return x if attention_mask is None else x * (attention_mask != 0).unsqueeze(-1).to(x.dtype)


class TextAttention(nn.Module):
    """model.language_model.layers.*.linear_attn: linear attention by the gated delta rule (Gated DeltaNet)
    with fused query, key and value after a short convolution.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.state_key_heads = config.state_key_heads
        self.state_key_dim = config.state_key_dim
        self.state_heads = config.state_heads
        self.state_value_dim = config.state_value_dim
        self.in_proj_qkv = nn.Linear(
            config.text_hidden_size,
            2 * config.state_key_heads * config.state_key_dim + config.state_heads * config.state_value_dim,
            bias=False,
        )
        self.in_proj_z = nn.Linear(
            config.text_hidden_size, config.state_heads * config.state_value_dim, bias=False
        )
        self.in_proj_b = nn.Linear(config.text_hidden_size, config.state_heads, bias=False)
        self.in_proj_a = nn.Linear(config.text_hidden_size, config.state_heads, bias=False)
        self.conv1d = nn.Conv1d(
            2 * config.state_key_heads * config.state_key_dim + config.state_heads * config.state_value_dim,
            2 * config.state_key_heads * config.state_key_dim + config.state_heads * config.state_value_dim,
            kernel_size=config.conv_kernel,
            groups=2 * config.state_key_heads * config.state_key_dim
            + config.state_heads * config.state_value_dim,
            bias=False,
        )
        self.A_log = nn.Parameter(torch.zeros(config.state_heads))
        self.dt_bias = nn.Parameter(torch.zeros(config.state_heads))
        self.norm = nn.RMSNorm(config.state_value_dim, eps=config.norm_eps)
        self.out_proj = nn.Linear(
            config.state_heads * config.state_value_dim, config.text_hidden_size, bias=False
        )

    def forward(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        x = zero_padding(x, attention_mask)
        mixed = self.in_proj_qkv(x)
        gating = self.in_proj_z(x)
        strength = self.in_proj_b(x)
        rate = self.in_proj_a(x)
        mixed = F.silu(conv_causal(mixed, self.conv1d.weight, self.conv1d.bias))
        key_size = self.state_key_heads * self.state_key_dim
        q, k, v = mixed.split([key_size, key_size, self.state_heads * self.state_value_dim], dim=-1)
        q, k = q.unflatten(-1, (-1, self.state_key_dim)), k.unflatten(-1, (-1, self.state_key_dim))
        v = v.unflatten(-1, (self.state_heads, -1))
        y = delta_rule(q, k, v, self.decay_gate(rate, self.A_log, self.dt_bias), torch.sigmoid(strength))
        return self.out_proj(self.norm(y).flatten(2) * F.silu(gating))

    def decay_gate(self, rate: Tensor, a_log: Tensor, dt_bias: Tensor) -> Tensor:
        rate = F.softplus(rate.float() + dt_bias).unflatten(-1, (self.state_heads, -1))
        return -torch.exp(a_log.float()).view(-1, 1) * rate


class TextAttentionWithKey(nn.Module):
    """model.language_model.layers.*.self_attn: self-attention with an output gate beside each query,
    normalised queries and keys, rotary embeddings of a part of each head and a causal mask.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.text_head_dim
        self.q_proj = nn.Linear(
            config.text_hidden_size, 2 * config.text_heads * config.text_head_dim, bias=False
        )
        self.k_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim, bias=False)
        self.v_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim, bias=False)
        self.q_norm = RMSNormOffset(config.text_head_dim, config.norm_eps)
        self.k_norm = RMSNormOffset(config.text_head_dim, config.norm_eps)
        self.o_proj = nn.Linear(config.text_heads * config.text_head_dim, config.text_hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q, gate_logits = self.q_proj(x).unflatten(-1, (-1, 2 * self.head_dim)).chunk(2, dim=-1)
        gate_logits = gate_logits.flatten(2)
        q = split_heads(q.flatten(2), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary_partial(self.q_norm(q), cos, sin)
        k = apply_rotary_partial(self.k_norm(k), cos, sin)
        y = merge_heads(attend(q, k, v, mask, is_causal=mask is None))
        return self.o_proj(y * torch.sigmoid(gate_logits))


class Merger(nn.Module):
    """model.visual.merger: patch merging: norm, then blocks of patches concatenated and a feed-forward."""

    def __init__(self, config: Config):
        super().__init__()
        self.merge_size = config.merge_size
        self.norm = nn.LayerNorm(config.vision_hidden_size, eps=config.norm_eps)
        self.linear_fc1 = nn.Linear(
            config.merge_size**2 * config.vision_hidden_size, config.merge_size**2 * config.vision_hidden_size
        )
        self.linear_fc2 = nn.Linear(config.merge_size**2 * config.vision_hidden_size, config.text_hidden_size)

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
        self.qkv = nn.Linear(config.vision_hidden_size, 3 * config.vision_heads * config.vision_head_dim)
        self.proj = nn.Linear(config.vision_heads * config.vision_head_dim, config.vision_hidden_size)

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
        self.input_layernorm = RMSNormOffset(config.text_hidden_size, config.norm_eps)
        self.linear_attn = TextAttention(config)
        self.post_attention_layernorm = RMSNormOffset(config.text_hidden_size, config.norm_eps)
        self.mlp = TextFeedForward(config)

    def forward(
        self, x: Tensor, attention_mask: Tensor | None, cos: Tensor, sin: Tensor, mask: Tensor | None
    ) -> Tensor:
        x = x + self.linear_attn(self.input_layernorm(x), attention_mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class TextLayerWithAttention(nn.Module):
    """model.language_model.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = RMSNormOffset(config.text_hidden_size, config.norm_eps)
        self.self_attn = TextAttentionWithKey(config)
        self.post_attention_layernorm = RMSNormOffset(config.text_hidden_size, config.norm_eps)
        self.mlp = TextFeedForward(config)

    def forward(
        self, x: Tensor, attention_mask: Tensor | None, cos: Tensor, sin: Tensor, mask: Tensor | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class PackedEncoder(nn.Module):
    """model.visual: patches of several images in one row with position embeddings stretched over each
    image, rotary embeddings of rows and columns, a mask of each patch's own frame and patch merging.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.merge_size = config.merge_size
        self.rotary_dim = config.vision_head_dim
        self.rotary_base = config.vision_rotary_base
        self.patch_embed = Embeddings(config)
        self.pos_embed = nn.Embedding(config.position_side**2, config.vision_hidden_size)
        self.blocks = nn.ModuleList(VisionLayer(config) for _ in range(config.vision_layers))
        self.merger = Merger(config)

    def forward(self, hidden_states: Tensor, grid_thw: Tensor) -> tuple[Tensor, Tensor]:
        x = self.patch_embed(hidden_states)
        x = x + positions_at_corners(self.pos_embed.weight, x, grid_thw, self.merge_size)
        cos, sin = self.grid_rotary(x, grid_thw)
        mask = same_frame_mask(x, grid_thw)
        for layer in self.blocks:
            x = layer(x, cos, sin, mask)
        return x[0], self.merger(x)

    def grid_rotary(self, x: Tensor, grid_thw: Tensor) -> tuple[Tensor, Tensor]:
        rows, columns = patch_coordinates(x, grid_thw, self.merge_size)
        frequencies = rotary_frequencies(rows, self.rotary_dim // 2, self.rotary_base)
        angles = torch.cat((rows[:, None] * frequencies, columns[:, None] * frequencies), dim=-1)[None, None]
        return angles.cos().type_as(x), angles.sin().type_as(x)


class Decoder(nn.Module):
    """model.language_model: a stack of layers with a causal mask, rotary embeddings and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.features_image_id = config.features_image_id
        self.features_video_id = config.features_video_id
        self.rotary_dim = config.rotary_dim
        self.rotary_base = config.text_rotary_base
        self.rotary_sections = config.rotary_sections
        self.embed_tokens = nn.Embedding(config.vocab_size, config.text_hidden_size)
        self.layers = nn.ModuleList(
            TextLayerWithAttention(config) if index in config.attention_layers else TextLayer(config)
            for index in range(config.text_layers)
        )
        self.norm = RMSNormOffset(config.text_hidden_size, config.norm_eps)

    def forward(
        self,
        input_ids: Tensor,
        image_features: Tensor | None,
        video_features: Tensor | None,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
    ) -> Tensor:
        x = self.embeddings(input_ids, image_features, video_features)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        cos, sin = self.rotary(x, position_indices(x, position_ids))
        for layer in self.layers:
            x = layer(x, attention_mask, cos, sin, mask)
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
    """The model with features of packed images and videos among the word embeddings and a language
    modeling head.
    """

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.features_merge_size = config.features_merge_size
        self.model: Any = nn.ModuleDict({"visual": PackedEncoder(config), "language_model": Decoder(config)})

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
        video_grid_thw = single_frames(video_grid_thw)
        image_features = None
        if pixel_values is not None:
            assert image_grid_thw is not None
            image_features = self.model.visual(pixel_values, image_grid_thw)[1]
        video_features = None
        if pixel_values_videos is not None:
            assert video_grid_thw is not None
            video_features = self.model.visual(pixel_values_videos, video_grid_thw)[1]
        if position_ids is None:
            position_ids = grid_positions(
                mm_token_type_ids,
                attention_mask,
                image_grid_thw,
                video_grid_thw,
                None,
                self.features_merge_size,
            )
        x = self.model.language_model(input_ids, image_features, video_features, attention_mask, position_ids)
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
# {"config": {"architectures": ["Qwen3_5ForConditionalGeneration"], "image_token_id": 248056, "model_type":
# "qwen3_5", "text_config": {"attention_bias": false, "head_dim": 256, "hidden_act": "silu", "hidden_size":
# 1024, "intermediate_size": 3584, "layer_types": ["linear_attention", "linear_attention", "linear_attention",
# "full_attention", "linear_attention", "linear_attention", "linear_attention", "full_attention",
# "linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention",
# "linear_attention", "linear_attention", "full_attention", "linear_attention", "linear_attention",
# "linear_attention", "full_attention", "linear_attention", "linear_attention", "linear_attention",
# "full_attention"], "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
# "linear_num_value_heads": 16, "linear_value_head_dim": 128, "model_type": "qwen3_5_text",
# "num_attention_heads": 8, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
# "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25,
# "rope_theta": 10000000, "rope_type": "default"}, "vocab_size": 248320}, "tie_word_embeddings": true,
# "video_token_id": 248057, "vision_config": {"depth": 12, "hidden_act": "gelu_pytorch_tanh", "hidden_size":
# 768, "in_channels": 3, "intermediate_size": 3072, "model_type": "qwen3_5", "num_heads": 12,
# "out_hidden_size": 1024, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2}}, "notes":
# ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub",
# "evidence for its config: recalled", "about this header: without the layers that guess further words
# (mtp.*), which nothing here reads"]}
# sha256 of all above: 0c4f31e3e78748ee
