"""facebook/mask2former-swin-tiny-ade-semantic: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family mask2former).
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

    # shape: model.pixel_level_module.encoder.encoder.layers.0.blocks.{0..1}.layernorm_before.weight [96] ...
    backbone_hidden_sizes: tuple[int, ...] = (96, 192, 384, 768)
    # shape: model.pixel_level_module.encoder.encoder.layers.0.blocks.{0..1}.attention.self.relative_positi...
    backbone_heads: tuple[int, ...] = (3, 6, 12, 24)
    # shape and config: model.pixel_level_module.decoder.encoder.layers.{0..5}.self_attn.value_proj.weight...
    head_dim: int = 32
    # shape: model.pixel_level_module.encoder.encoder.layers.0.blocks.{0..1}.attention.self.relative_positi...
    window_size: int = 7
    hidden_size: int = 256  # shape: model.transformer_module.queries_embedder.weight [100, 256]
    pixel_decoder_heads: int = 8  # config: num_attention_heads
    # shape and config: model.pixel_level_module.decoder.encoder.layers.{0..5}.self_attn.sampling_offsets.w...
    points: int = 12
    decoder_heads: int = 8  # config: num_attention_heads
    # shape: model.pixel_level_module.encoder.embeddings.patch_embeddings.projection.weight [96, 3, 4, 4]
    channels: int = 3
    # shape: model.pixel_level_module.encoder.embeddings.patch_embeddings.projection.weight [96, 3, 4, 4]
    patch_size: int = 4
    # shape: model.transformer_module.decoder.mask_predictor.mask_embedder.0.0.weight [256, 256]
    inner_size: int = 256
    # shape: model.transformer_module.decoder.layers.{0..8}.fc1.weight [2048, 256]
    decoder_intermediate_size: int = 2048
    # shape: model.pixel_level_module.decoder.encoder.layers.{0..5}.fc1.weight [1024, 256]
    pixel_decoder_intermediate_size: int = 1024
    pixel_decoder_layers: int = 6  # name: model.pixel_level_module.decoder.encoder.layers.*
    norm_eps: float = 1e-5  # rule: families/mask2former.yaml (the published code)
    # shape: model.pixel_level_module.encoder.encoder.layers.0.blocks.{0..1}.intermediate.dense.weight ...
    backbone_expansion: int = 4
    decoder_layers: int = 9  # name: model.transformer_module.decoder.layers.*
    # name: model.pixel_level_module.encoder.encoder.layers.0.blocks.* and 3 more
    backbone_layers: tuple[int, ...] = (2, 2, 6, 2)
    states_stages: tuple[int, ...] = (1, 2, 3, 4)  # default: families/mask2former.yaml
    queries: int = 100  # shape: model.transformer_module.queries_embedder.weight [100, 256]
    labels: int = 150  # shape: class_predictor.weight [151, 256]


@dataclass
class Output:
    """What the model returns."""

    class_queries_logits: Tensor
    masks_queries_logits: Tensor
    encoder_last_hidden_state: Tensor
    pixel_decoder_last_hidden_state: Tensor
    transformer_decoder_last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def attend_biased(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    scale: float | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Attention with a bias added to the scores; the scale is 1 / sqrt(D) if None.

    q (B, H, T, D), k, v (B, K, S, D), bias broadcasts to (B, H, T, S) -> (B, H, T, D)
    """
    if is_causal:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    bias = bias.to(q.dtype)
    if mask is not None:  # the lowest number rather than -inf: a row without any key stays finite
        bias = bias.masked_fill(~mask, torch.finfo(q.dtype).min)
    if k.shape[1] != q.shape[1]:
        k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def join_levels(maps: list[Tensor]) -> Tensor:
    """The places of all maps in one row. -> (B, S, C)"""
    return torch.cat([x.flatten(2).transpose(1, 2) for x in maps], dim=1)


def join_windows(windows: Tensor, x: Tensor, size: int, shift: tuple[int, int]) -> Tensor:
    """Undoes partition_windows of x. windows (B * windows, size * size, C), x (B, Y, X, C) -> (B, Y, X, C)"""
    height, width = x.shape[1], x.shape[2]
    rows, columns = (height + size - 1) // size, (width + size - 1) // size
    y = windows.unflatten(1, (size, size)).unflatten(0, (-1, rows, columns)).transpose(2, 3)
    y = y.flatten(3, 4).flatten(1, 2)
    if any(shift):
        y = torch.roll(y, shift, dims=(1, 2))
    return y[:, :height, :width]


def level_centres(sizes: list[tuple[int, int]], shares: Tensor) -> Tensor:
    """The middle of each place, as x and y in each of the maps, of which shares (B, L, 2) are real.

    -> (B, S, L, 2)
    """
    centres = []
    for level, (rows, columns) in enumerate(sizes):
        down = (torch.arange(rows, device=shares.device) + 0.5) / rows
        across = (torch.arange(columns, device=shares.device) + 0.5) / columns
        grid = torch.stack((across.expand(rows, -1), down[:, None].expand(-1, columns)), dim=-1)
        centres.append(grid.flatten(0, 1) / shares[:, level : level + 1])
    return torch.cat(centres, dim=1)[:, :, None] * shares[:, None]


def level_rows(maps: list[Tensor], table: Tensor) -> list[Tensor]:
    """The places of each map, with the row of a table (L, C) that the map has. -> [(B, Y * X, C), ...]"""
    return [x.flatten(2).transpose(1, 2) + row for x, row in zip(maps, table, strict=True)]


def masked_sinusoids(
    x: Tensor, seen: Tensor, temperature: float, temperature_across: float | None = None
) -> Tensor:
    """Sines and cosines of where a place stands among the real rows and columns (paper 2005.12872).

    x (B, C, Y, X), seen (B, Y, X) -> (B, Y * X, C): rows first, then columns
    """
    size = x.shape[1] // 2
    down, across = seen.cumsum(1, dtype=torch.float32), seen.cumsum(2, dtype=torch.float32)
    down = down / (down[:, -1:] + 1e-6) * 2 * math.pi
    across = across / (across[:, :, -1:] + 1e-6) * 2 * math.pi
    index = torch.arange(size // 2, dtype=torch.float32, device=x.device)
    share = 2 * index / size
    temperature_across = temperature_across or temperature
    angles = torch.stack(  # (B, Y, X, 2, size / 2)
        (down[..., None] / temperature**share, across[..., None] / temperature_across**share), dim=-2
    )
    waves = torch.stack((angles.sin(), angles.cos()), dim=-1)
    return waves.flatten(3).flatten(1, 2).to(x.dtype)


def unmasked_positions(x: Tensor, pixel_mask: Tensor | None) -> Tensor:
    """Which places of a map hold pixels. x (B, C, Y, X), pixel_mask (B, rows, columns) -> (B, Y, X)"""
    if pixel_mask is None:
        return torch.ones_like(x[:, 0], dtype=torch.bool)
    return F.interpolate(pixel_mask[None].float(), size=x.shape[-2:])[0].bool()


def level_sinusoids(maps: list[Tensor], temperature: float) -> list[Tensor]:
    """Sines and cosines of where each place stands in its map. -> [(B, Y * X, C), ...]"""
    return [masked_sinusoids(x, unmasked_positions(x, None), temperature) for x in maps]


def level_sizes(maps: list[Tensor]) -> list[tuple[int, int]]:
    """Rows and columns of each map."""
    return [(x.shape[2], x.shape[3]) for x in maps]


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def merge_patches(x: Tensor) -> Tensor:
    """Joins each 2 x 2 patches into one.

    x (B, Y, X, C) -> (B, Y / 2, X / 2, 4 * C), down the first column first
    """
    x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
    return torch.cat((x[:, ::2, ::2], x[:, 1::2, ::2], x[:, ::2, 1::2], x[:, 1::2, 1::2]), dim=-1)


def pad_image(x: Tensor, size: int) -> Tensor:
    """Zeros below and to the right until both sides are multiples of size. x (B, C, Y, X)"""
    return F.pad(x, (0, -x.shape[3] % size, 0, -x.shape[2] % size))


def partition_windows(x: Tensor, size: int, shift: tuple[int, int]) -> Tensor:
    """Pads, shifts up and left, and cuts into windows. x (B, Y, X, C) -> (B * windows, size * size, C)"""
    x = F.pad(x, (0, 0, 0, -x.shape[2] % size, 0, -x.shape[1] % size))
    if any(shift):
        x = torch.roll(x, (-shift[0], -shift[1]), dims=(1, 2))
    x = x.unflatten(2, (-1, size)).unflatten(1, (-1, size)).transpose(2, 3)  # (B, n, m, size, size, C)
    return x.flatten(3, 4).flatten(0, 2)


def sample_levels(v: Tensor, sizes: list[tuple[int, int]], places: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of what is read between the places of all maps; zeros outside (paper 2010.04159).

    v (B, H, S, D), places (B, T, H, L, P, 2), weights (B, T, H, L, P) that sum to 1 -> (B, H, T, D)
    """
    read = []
    parts = v.split([rows * columns for rows, columns in sizes], dim=2)
    for level, (x, (rows, columns)) in enumerate(zip(parts, sizes, strict=True)):
        x = x.transpose(2, 3).unflatten(-1, (rows, columns)).flatten(0, 1)
        grid = 2 * places[:, :, :, level].transpose(1, 2).flatten(0, 1).to(x.dtype) - 1
        read.append(F.grid_sample(x, grid, align_corners=False))  # (B * H, D, T, P)
    shares = weights.transpose(1, 2).flatten(3).flatten(0, 1)[:, None]
    y = (torch.cat(read, dim=-1) * shares).sum(-1)
    return y.unflatten(0, (v.shape[0], -1)).transpose(2, 3)


def sampling_points(references: Tensor, offsets: Tensor, sizes: list[tuple[int, int]]) -> Tensor:
    """Where heads read: around points in places of each map, or around boxes in halves of these.

    references (B, T, L, 2) are points, (B, T, L or 1, 4) boxes;
    offsets (B, T, H, L, P, 2) -> (B, T, H, L, P, 2), as x and y between 0 and 1
    """
    middle = references[:, :, None, :, None, :2]
    if references.shape[-1] == 4:
        return middle + offsets / offsets.shape[-2] * references[:, :, None, :, None, 2:] * 0.5
    extents = [[columns, rows] for rows, columns in sizes]
    return middle + offsets / torch.tensor(extents, dtype=offsets.dtype, device=offsets.device)[:, None]


def some_states(states: list[Tensor], layers: tuple[int, ...]) -> list[Tensor]:
    """The outputs of several layers."""
    return [states[layer] for layer in layers]


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def spread_levels(table: Tensor, sizes: list[tuple[int, int]]) -> Tensor:
    """The row of a table (L, C) that each place's map has. -> (S, C)"""
    return torch.cat(
        [row.expand(rows * columns, -1) for row, (rows, columns) in zip(table, sizes, strict=True)]
    )


def window_bias(table: Tensor, size: int) -> Tensor:
    """Bias of each pair in a window by its offset.

    table ((2 * size - 1) ** 2, H) -> (1, H, S, S), S size ** 2
    """
    index = torch.arange(size * size, device=table.device)
    row, column = index // size, index % size
    down, across = row[:, None] - row + size - 1, column[:, None] - column + size - 1
    return table[down * (2 * size - 1) + across].permute(2, 0, 1)[None]


def window_parts(side: int, size: int, shift: int, device: torch.device) -> Tensor:
    """Which of three parts of a padded, shifted side each place belongs to. -> (windows, size)"""
    side = (side + size - 1) // size * size
    index = torch.arange(side, device=device)
    return ((index >= side - size).long() + (index >= side - shift).long()).unflatten(0, (-1, size))


def window_mask(x: Tensor, size: int, shift: tuple[int, int]) -> Tensor | None:
    """Keeps parts apart that only the shift brought together.

    x (B, Y, X, C) -> (B * windows, 1, S, S), S size ** 2
    """
    if not any(shift):
        return None
    rows, columns = (window_parts(x.shape[1 + at], size, shift[at], x.device) for at in (0, 1))
    parts = rows[:, None, :, None] * 3 + columns[None, :, None, :]  # (n, m, size, size)
    parts = parts.flatten(2).flatten(0, 1)
    mask = parts[:, None, :] == parts[:, :, None]
    return mask[:, None].repeat(x.shape[0], 1, 1, 1)


class AttentionSelf(nn.Module):
    """model.pixel_level_module.encoder.encoder.layers.*.blocks.*.attention.self: holds what the module
    around it computes with.
    """

    def __init__(self, config: Config, hidden_size: int, heads: int):
        super().__init__()
        self.query = nn.Linear(hidden_size, heads * config.head_dim)
        self.key = nn.Linear(hidden_size, heads * config.head_dim)
        self.value = nn.Linear(hidden_size, heads * config.head_dim)
        self.relative_position_bias_table = nn.Parameter(
            torch.zeros((2 * config.window_size - 1) ** 2, heads)
        )


class PixelDecoderAttention(nn.Module):
    """model.pixel_level_module.decoder.encoder.layers.*.self_attn: reading of a few learned points of each
    feature map around references (Deformable DETR).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.heads = config.pixel_decoder_heads
        self.value_proj = nn.Linear(config.hidden_size, config.pixel_decoder_heads * config.head_dim)
        self.sampling_offsets = nn.Linear(config.hidden_size, 2 * config.pixel_decoder_heads * config.points)
        self.attention_weights = nn.Linear(config.hidden_size, config.pixel_decoder_heads * config.points)
        self.output_proj = nn.Linear(config.pixel_decoder_heads * config.head_dim, config.hidden_size)

    def forward(
        self, x: Tensor, positions: Tensor, sizes: list[tuple[int, int]], references: Tensor
    ) -> Tensor:
        q = x + positions
        v = self.value_proj(x)
        v = split_heads(v, self.head_dim)
        offsets = self.sampling_offsets(q).unflatten(-1, (self.heads, len(sizes), -1, 2))
        weights = torch.softmax(self.attention_weights(q).unflatten(-1, (self.heads, -1)), dim=-1)
        places = sampling_points(references, offsets, sizes)
        y = sample_levels(v, sizes, places, weights.unflatten(-1, (len(sizes), -1)))
        return self.output_proj(merge_heads(y))


class DecoderAttention(nn.Module):
    """model.transformer_module.decoder.layers.*.self_attn: self-attention with position embeddings added
    to queries and keys.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.head_dim)
        self.out_proj = nn.Linear(config.decoder_heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        q = split_heads(self.q_proj(x + positions), self.head_dim)
        k = split_heads(self.k_proj(x + positions), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(merge_heads(y))


class CrossAttention(nn.Module):
    """model.transformer_module.decoder.layers.*.cross_attn: cross-attention with one weight for its
    queries, keys and values, position embeddings added to queries and keys and an attention mask over
    the source.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.in_proj_weight = nn.Parameter(
            torch.zeros(3 * config.decoder_heads * config.head_dim, config.hidden_size)
        )
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * config.decoder_heads * config.head_dim))
        self.out_proj = nn.Linear(config.decoder_heads * config.head_dim, config.hidden_size)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        encoder_hidden_states: Tensor,
        encoder_positions: Tensor,
        cross_attention_mask: Tensor,
    ) -> Tensor:
        query_weight, key_weight, value_weight = self.in_proj_weight.chunk(3)
        query_bias, key_bias, value_bias = self.in_proj_bias.chunk(3)
        q = split_heads(F.linear(x + positions, query_weight, query_bias), self.head_dim)
        k = split_heads(
            F.linear(encoder_hidden_states + encoder_positions, key_weight, key_bias), self.head_dim
        )
        v = split_heads(F.linear(encoder_hidden_states, value_weight, value_bias), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=cross_attention_mask)
        return self.out_proj(merge_heads(y))


class Embeddings(nn.Module):
    """model.pixel_level_module.encoder.embeddings: patch embeddings as a feature map, channels last, with
    a norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.patch_size = config.patch_size
        self.patch_embeddings: Any = nn.ModuleDict(
            {
                "projection": nn.Conv2d(
                    config.channels,
                    config.backbone_hidden_sizes[0],
                    kernel_size=config.patch_size,
                    stride=config.patch_size,
                )
            }
        )
        self.norm = nn.LayerNorm(config.backbone_hidden_sizes[0])

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.patch_embeddings.projection(
            pad_image(pixel_values.type_as(self.patch_embeddings.projection.weight), self.patch_size)
        )
        return self.norm(patches.permute(0, 2, 3, 1))


class Downsampling(nn.Module):
    """model.pixel_level_module.encoder.encoder.layers.*.downsample: patch merging: each 2 x 2 patches
    concatenated and projected to half of these channels with a norm before the projection.
    """

    def __init__(self, out_channels: int):
        super().__init__()
        self.norm = nn.LayerNorm(2 * out_channels)
        self.reduction = nn.Linear(2 * out_channels, out_channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.reduction(self.norm(merge_patches(x)))


class LevelMaps(nn.Sequential):
    """model.pixel_level_module.decoder.input_projections.*: convolution and norm."""

    def __init__(self, config: Config, in_channels: int):
        super().__init__(
            nn.Conv2d(in_channels, config.hidden_size, kernel_size=1), nn.GroupNorm(32, config.hidden_size)
        )


class LateralMap(nn.Sequential):
    """model.pixel_level_module.decoder.adapter_1: convolution and norm."""

    def __init__(self, config: Config):
        super().__init__(
            nn.Conv2d(config.backbone_hidden_sizes[0], config.hidden_size, kernel_size=1, bias=False),
            nn.GroupNorm(32, config.hidden_size),
        )


class OutputMap(nn.Sequential):
    """model.pixel_level_module.decoder.layer_1: convolution and norm."""

    def __init__(self, config: Config):
        super().__init__(
            nn.Conv2d(config.hidden_size, config.hidden_size, kernel_size=3, padding=1, bias=False),
            nn.GroupNorm(32, config.hidden_size),
        )


class MaskHead(nn.ModuleList):
    """model.transformer_module.decoder.mask_predictor.mask_embedder: feed-forward of three linear layers
    with ReLU.
    """

    __getitem__: Any

    def __init__(self, config: Config):
        super().__init__(
            [
                nn.ModuleList([nn.Linear(config.hidden_size, config.inner_size)]),
                nn.ModuleList([nn.Linear(config.inner_size, config.inner_size)]),
                nn.ModuleList([nn.Linear(config.inner_size, 256)]),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return self[2][0](F.relu(self[1][0](F.relu(self[0][0](x)))))


class DecoderLayer(nn.Module):
    """model.transformer_module.decoder.layers.*: cross-attention, attention and a feed-forward network,
    with a norm before or after each.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.cross_attn = CrossAttention(config)
        self.cross_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.self_attn = DecoderAttention(config)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.fc1 = nn.Linear(config.hidden_size, config.decoder_intermediate_size)
        self.fc2 = nn.Linear(config.decoder_intermediate_size, config.hidden_size)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        encoder_hidden_states: Tensor,
        encoder_positions: Tensor,
        cross_attention_mask: Tensor,
    ) -> Tensor:
        x = self.cross_attn_layer_norm(
            x + self.cross_attn(x, positions, encoder_hidden_states, encoder_positions, cross_attention_mask)
        )
        x = self.self_attn_layer_norm(x + self.self_attn(x, positions))
        return self.final_layer_norm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.fc1(x)))


class PixelDecoderLayer(nn.Module):
    """model.pixel_level_module.decoder.encoder.layers.*: a layer with attention, post-norm and a
    feed-forward network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn = PixelDecoderAttention(config)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.fc1 = nn.Linear(config.hidden_size, config.pixel_decoder_intermediate_size)
        self.fc2 = nn.Linear(config.pixel_decoder_intermediate_size, config.hidden_size)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(
        self, x: Tensor, positions: Tensor, sizes: list[tuple[int, int]], references: Tensor
    ) -> Tensor:
        x = self.self_attn_layer_norm(x + self.self_attn(x, positions, sizes, references))
        return self.final_layer_norm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.fc1(x)))


class BackboneAttention(nn.Module):
    """model.pixel_level_module.encoder.encoder.layers.*.blocks.*.attention: window attention with a
    relative position bias (Swin).
    """

    def __init__(self, config: Config, hidden_size: int, heads: int):
        super().__init__()
        self.window_size = config.window_size
        self.head_dim = config.head_dim
        self.self = AttentionSelf(config, hidden_size=hidden_size, heads=heads)
        self.output: Any = nn.ModuleDict({"dense": nn.Linear(heads * config.head_dim, hidden_size)})

    def forward(self, x: Tensor, shift: tuple[int, int], mask: Tensor | None) -> Tensor:
        windows = partition_windows(x, self.window_size, shift)
        q, k, v = self.self.query(windows), self.self.key(windows), self.self.value(windows)
        q, k, v = split_heads(q, self.head_dim), split_heads(k, self.head_dim), split_heads(v, self.head_dim)
        y = attend_biased(
            q, k, v, window_bias(self.self.relative_position_bias_table, self.window_size), mask
        )
        windows = self.output.dense(merge_heads(y))
        return join_windows(windows, x, self.window_size, shift)


class DeformablePixels(nn.Module):
    """model.pixel_level_module.decoder: a pixel decoder, whose places read points of several feature maps,
    and then the finest map (Mask2Former).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.input_projections: Any = nn.ModuleList(
            LevelMaps(config, in_channels=in_channels)
            for in_channels in (
                config.backbone_hidden_sizes[3],
                config.backbone_hidden_sizes[2],
                config.backbone_hidden_sizes[1],
            )
        )
        self.level_embed = nn.Parameter(torch.zeros(3, config.hidden_size))
        self.encoder: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(PixelDecoderLayer(config) for _ in range(config.pixel_decoder_layers))}
        )
        self.adapter_1 = LateralMap(config)
        self.layer_1 = OutputMap(config)
        self.mask_projection = nn.Conv2d(config.hidden_size, 256, kernel_size=1)

    def forward(self, maps: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        levels = []
        for level, map in zip(self.input_projections, maps[:0:-1], strict=True):
            levels.append(level(map))
        sizes = level_sizes(levels)
        x = join_levels(levels)
        positions = torch.cat(level_sinusoids(levels, 10000.0), dim=1) + spread_levels(
            self.level_embed, sizes
        )
        references = level_centres(sizes, x.new_ones(x.shape[0], len(sizes), 2))
        for layer in self.encoder.layers:
            x = layer(x, positions, sizes, references)
        levels, first = [], 0
        for rows, columns in sizes:
            level = x[:, first : first + rows * columns].transpose(1, 2)
            levels.append(level.unflatten(-1, (rows, columns)))
            first = first + rows * columns
        finest = self.adapter_1(maps[0])
        y = finest + F.interpolate(levels[-1], size=finest.shape[-2:], mode="bilinear")
        return self.mask_projection(F.relu(self.layer_1(y))), levels


class BackboneLayer(nn.Module):
    """model.pixel_level_module.encoder.encoder.layers.*.blocks.*: a layer with pre-norm, attention and a
    feed-forward network.
    """

    def __init__(self, config: Config, hidden_size: int, heads: int):
        super().__init__()
        intermediate_size = config.backbone_expansion * hidden_size
        self.layernorm_before = nn.LayerNorm(hidden_size, eps=config.norm_eps)
        self.attention = BackboneAttention(config, hidden_size=hidden_size, heads=heads)
        self.layernorm_after = nn.LayerNorm(hidden_size, eps=config.norm_eps)
        self.intermediate: Any = nn.ModuleDict({"dense": nn.Linear(hidden_size, intermediate_size)})
        self.output: Any = nn.ModuleDict({"dense": nn.Linear(intermediate_size, hidden_size)})

    def forward(self, x: Tensor, shift: tuple[int, int], mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.layernorm_before(x), shift, mask)
        return x + self.feed_forward(self.layernorm_after(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class MaskedDecoder(nn.Module):
    """model.transformer_module.decoder: learned queries, whose layers read one feature map after another,
    each query where its mask is (Mask2Former).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.layernorm = nn.LayerNorm(config.hidden_size)
        self.mask_predictor: Any = nn.ModuleDict({"mask_embedder": MaskHead(config)})
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))

    def forward(
        self,
        queries: Tensor,
        query_places: Tensor,
        pixels: Tensor,
        sizes: list[tuple[int, int]],
        sources: list[Tensor],
        waves: list[Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:
        x = queries
        positions = query_places
        state = self.layernorm(x)
        masks = torch.einsum("bqc,bcyx->bqyx", self.mask_predictor.mask_embedder(state), pixels)
        for index, layer in enumerate(self.layers):
            level = index % len(sizes)
            encoder_hidden_states, encoder_positions = sources[level], waves[level]
            covered = F.interpolate(masks, size=sizes[level], mode="bilinear").sigmoid().flatten(2) >= 0.5
            covers_none = ~covered.any(dim=-1, keepdim=True)
            cross_attention_mask = (covered | covers_none)[:, None]
            x = layer(x, positions, encoder_hidden_states, encoder_positions, cross_attention_mask)
            state = self.layernorm(x)
            masks = torch.einsum("bqc,bcyx->bqyx", self.mask_predictor.mask_embedder(state), pixels)
        return x, state, masks


class StageWithDownsampling(nn.Module):
    """model.pixel_level_module.encoder.encoder.layers.*: a stage of layers with shifted windows in every
    second, whose map is kept, with downsampling after them.
    """

    def __init__(self, config: Config, hidden_size: int, heads: int, layers: int, out_channels: int):
        super().__init__()
        self.window_size = config.window_size
        self.blocks = nn.ModuleList(
            BackboneLayer(config, hidden_size=hidden_size, heads=heads) for _ in range(layers)
        )
        self.downsample = Downsampling(out_channels=out_channels)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for index, layer in enumerate(self.blocks):
            step = index % 2 * (self.window_size // 2)
            shift = step, step
            mask = window_mask(x, self.window_size, shift)
            x = layer(x, shift, mask)
        return self.downsample(x), x


class Stage(nn.Module):
    """model.pixel_level_module.encoder.encoder.layers.3: a stage of layers with shifted windows in every
    second, whose map is kept.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.window_size = config.window_size
        self.blocks = nn.ModuleList(
            BackboneLayer(config, hidden_size=config.backbone_hidden_sizes[3], heads=config.backbone_heads[3])
            for _ in range(config.backbone_layers[3])
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for index, layer in enumerate(self.blocks):
            step = index % 2 * (self.window_size // 2)
            shift = step, step
            mask = window_mask(x, self.window_size, shift)
            x = layer(x, shift, mask)
        return x, x


class StagedEncoder(nn.Module):
    """model.pixel_level_module.encoder: an image through stages, each coarser than the one before, with
    the feature maps of its stages, as they are before downsampling and the feature maps of some of four
    stages, each with a norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.states_stages = config.states_stages
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {
                "layers": nn.ModuleList(
                    [
                        *(
                            StageWithDownsampling(
                                config,
                                hidden_size=hidden_size,
                                heads=heads,
                                layers=layers,
                                out_channels=out_channels,
                            )
                            for hidden_size, heads, layers, out_channels in zip(
                                config.backbone_hidden_sizes[:-1],
                                config.backbone_heads[:-1],
                                config.backbone_layers[:-1],
                                config.backbone_hidden_sizes[1:],
                                strict=True,
                            )
                        ),
                        Stage(config),
                    ]
                )
            }
        )
        self.hidden_states_norms: Any = nn.ModuleDict(
            {
                "stage1": nn.LayerNorm(config.backbone_hidden_sizes[0]),
                "stage2": nn.LayerNorm(config.backbone_hidden_sizes[1]),
                "stage3": nn.LayerNorm(config.backbone_hidden_sizes[2]),
                "stage4": nn.LayerNorm(config.backbone_hidden_sizes[3]),
            }
        )
        # unused: each map has a norm of its own
        self.swin = nn.ModuleDict(
            {"layernorm": nn.LayerNorm(config.backbone_hidden_sizes[3], eps=config.norm_eps)}
        )

    def forward(self, pixel_values: Tensor) -> list[Tensor]:
        x = self.embeddings(pixel_values)
        states = [x]
        for stage in self.encoder.layers:
            x, kept = stage(x)
            states.append(kept)
        first = states[1]
        first = self.hidden_states_norms.stage1(first).permute(0, 3, 1, 2)
        second = self.hidden_states_norms.stage2(states[2]).permute(0, 3, 1, 2)
        third = self.hidden_states_norms.stage3(states[3]).permute(0, 3, 1, 2)
        fourth = self.hidden_states_norms.stage4(states[4]).permute(0, 3, 1, 2)
        return some_states([states[0], first, second, third, fourth], self.states_stages)


class Model(nn.Module):
    """The model with a pixel decoder, which joins the feature maps of a backbone, a decoder of learned
    queries, which read one feature map after another where their masks are (Mask2Former) and labels and
    a mask for each query.
    """

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.model: Any = nn.ModuleDict(
            {
                "pixel_level_module": nn.ModuleDict(
                    {"encoder": StagedEncoder(config), "decoder": DeformablePixels(config)}
                ),
                "transformer_module": nn.ModuleDict(
                    {
                        "level_embed": nn.Embedding(3, config.hidden_size),
                        "queries_embedder": nn.Embedding(config.queries, config.hidden_size),
                        "queries_features": nn.Embedding(config.queries, config.hidden_size),
                        "decoder": MaskedDecoder(config),
                    }
                ),
            }
        )
        self.class_predictor = nn.Linear(config.hidden_size, config.labels + 1)
        # unused: of the loss
        self.criterion = nn.ParameterDict({"empty_weight": nn.Parameter(torch.zeros(151))})

    def forward(self, pixel_values: Tensor, pixel_mask: Tensor | None = None) -> Output:
        """pixel_values (batch, channels, height, width), pixel_mask (batch, height, width); pixel_mask is
        not read
        """
        maps = self.model.pixel_level_module.encoder(pixel_values)
        pixels, levels = self.model.pixel_level_module.decoder(maps)
        sizes = level_sizes(levels)
        waves = level_sinusoids(levels, 10000.0)
        sources = level_rows(levels, self.model.transformer_module.level_embed.weight)
        query_places = self.model.transformer_module.queries_embedder.weight.expand(pixels.shape[0], -1, -1)
        queries = self.model.transformer_module.queries_features.weight.expand(pixels.shape[0], -1, -1)
        last, x, masks = self.model.transformer_module.decoder(
            queries, query_places, pixels, sizes, sources, waves
        )
        predicted = self.class_predictor(x)
        return Output(
            class_queries_logits=predicted,
            masks_queries_logits=masks,
            encoder_last_hidden_state=maps[-1],
            pixel_decoder_last_hidden_state=pixels,
            transformer_decoder_last_hidden_state=last,
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
# {"config": {"activation_function": "relu", "architectures": ["Mask2FormerForUniversalSegmentation"],
# "backbone_config": {"depths": [2, 2, 6, 2], "embed_dim": 96, "hidden_act": "gelu", "layer_norm_eps": 1e-05,
# "model_type": "swin", "num_channels": 3, "num_heads": [3, 6, 12, 24], "num_layers": 4, "patch_size": 4,
# "qkv_bias": true, "use_absolute_embeddings": false, "window_size": 7}, "dim_feedforward": 2048,
# "encoder_feedforward_dim": 1024, "encoder_layers": 6, "feature_size": 256, "hidden_dim": 256, "model_type":
# "mask2former", "num_attention_heads": 8, "num_hidden_layers": 10, "num_queries": 100, "pre_norm": false},
# "notes": ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from
# the hub", "evidence for its config: recalled"]}
# sha256 of all above: 1b891b7e41192e51
