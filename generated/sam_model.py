"""facebook/sam-vit-base: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family sam).
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

    # shape: prompt_encoder.mask_embed.conv1.weight [4, 1, 2, 2] and 1 more
    mask_prompts_channels: tuple[int, int] = (4, 16)
    mask_prompts_norm_eps: float = 1e-6  # config: prompt_encoder_config.layer_norm_eps
    decoder_hidden_size: int = 256  # shape: mask_decoder.iou_token.weight [1, 256]
    vision_hidden_size: int = 768  # shape: vision_encoder.patch_embed.projection.weight [768, 3, 16, 16]
    vision_heads: int = 12  # shape: vision_encoder.layers.0.attn.qkv.weight [2304, 768]
    vision_head_dim: int = 64  # shape: vision_encoder.layers.0.attn.rel_pos_h [27, 64]
    vision_norm_eps: float = 1e-6  # config: vision_config.layer_norm_eps
    decoder_heads: int = 8  # config: mask_decoder_config.num_attention_heads
    inner_size: int = 256  # shape: mask_decoder.iou_prediction_head.proj_in.weight [256, 256]
    vision_intermediate_size: int = 3072  # shape: vision_encoder.layers.0.mlp.lin1.weight [3072, 768]
    # shape: mask_decoder.transformer.layers.0.mlp.lin1.weight [2048, 256]
    decoder_intermediate_size: int = 2048
    channels: int = 3  # shape: vision_encoder.patch_embed.projection.weight [768, 3, 16, 16]
    patch_size: int = 16  # shape: vision_encoder.patch_embed.projection.weight [768, 3, 16, 16]
    image_window: int = 14  # config: vision_config.window_size
    # rule: vocabulary/config_attention.yaml: full_attention where attention.full_layers says
    layer_types: tuple[str, ...] = (("windows",) * 2 + ("full_attention",)) * 4
    masks: int = 4  # shape: mask_decoder.mask_tokens.weight [4, 256]
    enlarging_channels: int = 64  # shape: mask_decoder.upscale_conv1.weight [256, 64, 2, 2]
    enlarging_norm_eps: float = 1e-6  # rule: families/sam_hq.yaml (a constant of the published code)
    image_size: int = 1024  # config: prompt_encoder_config.image_size


@dataclass
class Output:
    """What the model returns."""

    iou_scores: Tensor
    pred_masks: Tensor


torch.export.register_dataclass(Output)


def flatten_patches(x: Tensor) -> Tensor:
    """Patches as a sequence, row by row. x (B, C, Y, X) -> (B, Y * X, C)"""
    return x.flatten(2).transpose(1, 2)


def for_each_prompt(x: Tensor, prompts: Tensor) -> Tensor:
    """What is of an image, once for each prompt. x (B or 1, ...), prompts (B, P, ...) -> (B * P, ...)"""
    x = x.expand(prompts.shape[0], *x.shape[1:])
    return x[:, None].expand(-1, prompts.shape[1], *[-1] * (x.dim() - 1)).flatten(0, 1)


def point_fourier_features(points: Tensor, table: Tensor) -> Tensor:
    """Sines and cosines of points (..., 2) in 0 to 1 along stored directions (2, F) -> (..., 2 * F)"""
    angles = (2 * points - 1).to(table.dtype) @ table * (2 * math.pi)
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


def map_fourier_features(x: Tensor, table: Tensor) -> Tensor:
    """Waves of where the places of a map stand. x (B, C, Y, X), table (2, F) -> (1, Y * X, 2 * F)"""
    down = (torch.arange(x.shape[2], device=x.device) + 0.5) / x.shape[2]
    across = (torch.arange(x.shape[3], device=x.device) + 0.5) / x.shape[3]
    points = torch.stack(torch.meshgrid(across, down, indexing="xy"), dim=-1)
    return point_fourier_features(points, table).flatten(0, 1)[None]


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def join_windows(windows: Tensor, x: Tensor, size: int, shift: tuple[int, int]) -> Tensor:
    """Undoes partition_windows of x. windows (B * windows, size * size, C), x (B, Y, X, C) -> (B, Y, X, C)"""
    height, width = x.shape[1], x.shape[2]
    rows, columns = (height + size - 1) // size, (width + size - 1) // size
    y = windows.unflatten(1, (size, size)).unflatten(0, (-1, rows, columns)).transpose(2, 3)
    y = y.flatten(3, 4).flatten(1, 2)
    if any(shift):
        y = torch.roll(y, shift, dims=(1, 2))
    return y[:, :height, :width]


def merge_map(windows: Tensor, x: Tensor, size: int) -> Tensor:
    """Undoes partition_map of x, which may have had other channels.

    windows (B * windows, S, S, C) or (B * windows, S * S, C), x (B, Y, X, _) -> (B, Y, X, C)
    """
    channels = windows.shape[-1]
    if size == 0:
        return windows.reshape(*x.shape[:3], channels)
    return join_windows(windows.reshape(-1, size * size, channels), x, size, (0, 0))


def offset_vectors(table: Tensor, size: int) -> Tensor:
    """The vector of each pair of places on a line. table (2 * N - 1, D), stretched -> (size, size, D)"""
    table = F.interpolate(table.t()[None], 2 * size - 1, mode="linear")[0].t()
    index = torch.arange(size, device=table.device)
    return table[index[:, None] - index + size - 1]


def offset_bias(q: Tensor, rows: Tensor, columns: Tensor, grid: Tensor) -> Tensor:
    """Scores of each query with vectors for the vertical and the horizontal offset (MViTv2, 2112.01526).

    q (B, H, T, D), rows and columns (2 * N - 1, D), fitted to grid (B, Y, X, C), T = Y * X -> (B, H, T, T)
    """
    height, width = grid.shape[1], grid.shape[2]
    q = q.unflatten(2, (height, width))
    down = torch.einsum("bhyxd,ykd->bhyxk", q, offset_vectors(rows, height))
    across = torch.einsum("bhyxd,xkd->bhyxk", q, offset_vectors(columns, width))
    return (down[..., :, None] + across[..., None, :]).flatten(4).flatten(2, 3)


def partition_windows(x: Tensor, size: int, shift: tuple[int, int]) -> Tensor:
    """Pads, shifts up and left, and cuts into windows. x (B, Y, X, C) -> (B * windows, size * size, C)"""
    x = F.pad(x, (0, 0, 0, -x.shape[2] % size, 0, -x.shape[1] % size))
    if any(shift):
        x = torch.roll(x, (-shift[0], -shift[1]), dims=(1, 2))
    x = x.unflatten(2, (-1, size)).unflatten(1, (-1, size)).transpose(2, 3)  # (B, n, m, size, size, C)
    return x.flatten(3, 4).flatten(0, 2)


def partition_map(x: Tensor, size: int) -> Tensor:
    """Cuts an image into windows, with zeros below and to the right; 0 leaves it whole.

    x (B, Y, X, C) -> (B * windows, size, size, C)
    """
    return x if size == 0 else partition_windows(x, size, (0, 0)).unflatten(1, (size, size))


def prompt_points(
    points: Tensor, labels: Tensor | None, alone: bool, size: int, table: Tensor, kinds: tuple[Tensor, ...]
) -> Tensor:
    """Vectors of points: 1 inside of what is meant, 0 outside, -1 in neither, -10 for padding.

    points (B, P, N, 2) in pixels of an image of size, labels (B, P, N) or None: all inside; alone: one point
    in neither is added; kinds: vectors (1, W) of outside, inside, neither -> (B, P, N or N + 1, W)
    """
    labels = torch.ones_like(points[..., 0]) if labels is None else labels.to(points.dtype)
    points = points + 0.5
    if alone:
        points = torch.cat((points, torch.zeros_like(points[:, :, :1])), dim=2)
        labels = torch.cat((labels, -torch.ones_like(labels[:, :, :1])), dim=2)
    labels = labels[..., None]
    x = torch.where(labels == -1, kinds[2], point_fourier_features(points / size, table))
    x = x.masked_fill(labels == -10, 0.0)
    return x + (labels == 0) * kinds[0] + (labels == 1) * kinds[1]


def prompt_vectors(
    x: Tensor, points: Tensor | None, labels: Tensor | None, boxes: Tensor | None, size: int, table: Tensor,
    kinds: tuple[Tensor, ...],
) -> Tensor:  # fmt: skip
    """Vectors of what is asked for in images x (B, C, Y, X); where nothing is, one prompt without a vector.

    kinds: vectors of points outside, inside and in neither, and of both corners of a box -> (B, P, N, C)
    """
    found = []
    if points is not None:
        found.append(prompt_points(points, labels, boxes is None, size, table, kinds[:3]))
    if boxes is not None:
        corners = (boxes.unflatten(-1, (2, 2)) + 0.5) / size  # of pixels
        found.append(point_fourier_features(corners, table) + torch.cat(kinds[3:]))
    return torch.cat(found, dim=2) if found else x.new_zeros(x.shape[0], 1, 0, x.shape[1])


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class MaskPrompts(nn.Module):
    """prompt_encoder.mask_embed: a mask prompt as a feature map, by strided convolutions (SAM)."""

    def __init__(self, config: Config):
        super().__init__()
        self.conv1 = nn.Conv2d(1, config.mask_prompts_channels[0], kernel_size=2, stride=2)
        self.layer_norm1 = nn.LayerNorm(config.mask_prompts_channels[0], eps=config.mask_prompts_norm_eps)
        self.conv2 = nn.Conv2d(
            config.mask_prompts_channels[0], config.mask_prompts_channels[1], kernel_size=2, stride=2
        )
        self.layer_norm2 = nn.LayerNorm(config.mask_prompts_channels[1], eps=config.mask_prompts_norm_eps)
        self.conv3 = nn.Conv2d(config.mask_prompts_channels[1], config.decoder_hidden_size, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer_norm1(self.conv1(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        x = self.layer_norm2(self.conv2(F.gelu(x)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.conv3(F.gelu(x))


class VisionAttention(nn.Module):
    """vision_encoder.layers.*.attn: self-attention over a feature map or its windows, with decomposed
    relative position bias where it is stored.
    """

    def __init__(self, config: Config, rel_pos_size0: int):
        super().__init__()
        self.head_dim = config.vision_head_dim
        self.qkv = nn.Linear(config.vision_hidden_size, 3 * config.vision_heads * config.vision_head_dim)
        self.rel_pos_h = nn.Parameter(torch.zeros(rel_pos_size0, config.vision_head_dim))
        self.rel_pos_w = nn.Parameter(torch.zeros(rel_pos_size0, config.vision_head_dim))
        self.proj = nn.Linear(config.vision_heads * config.vision_head_dim, config.vision_hidden_size)

    def forward(self, x: Tensor, window: int) -> Tensor:
        grid = partition_map(x, window)
        q, k, v = self.qkv(grid.flatten(1, 2)).chunk(3, dim=-1)
        q, k, v = split_heads(q, self.head_dim), split_heads(k, self.head_dim), split_heads(v, self.head_dim)
        bias = offset_bias(q, self.rel_pos_h, self.rel_pos_w, grid)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return merge_map(self.proj(merge_heads(y)), x, window)


class Neck(nn.Module):
    """vision_encoder.neck: neck: two convolutions, each with layer norm over the channels."""

    def __init__(self, config: Config):
        super().__init__()
        self.conv1 = nn.Conv2d(
            config.vision_hidden_size, config.decoder_hidden_size, kernel_size=1, bias=False
        )
        self.layer_norm1 = nn.LayerNorm(config.decoder_hidden_size, eps=config.vision_norm_eps)
        self.conv2 = nn.Conv2d(
            config.decoder_hidden_size, config.decoder_hidden_size, kernel_size=3, padding=1, bias=False
        )
        self.layer_norm2 = nn.LayerNorm(config.decoder_hidden_size, eps=config.vision_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer_norm1(self.conv1(x).permute(0, 2, 3, 1))
        x = self.layer_norm2(self.conv2(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))
        return x.permute(0, 3, 1, 2)


class DecoderAttention(nn.Module):
    """mask_decoder.transformer.layers.*.self_attn,
    mask_decoder.transformer.layers.*.cross_attn_token_to_image and 2 more: attention whose queries,
    keys and values come from three different inputs.
    """

    def __init__(self, config: Config, head_dim: int):
        super().__init__()
        self.head_dim = head_dim
        self.q_proj = nn.Linear(config.decoder_hidden_size, config.decoder_heads * head_dim)
        self.k_proj = nn.Linear(config.decoder_hidden_size, config.decoder_heads * head_dim)
        self.v_proj = nn.Linear(config.decoder_hidden_size, config.decoder_heads * head_dim)
        self.out_proj = nn.Linear(config.decoder_heads * head_dim, config.decoder_hidden_size)

    def forward(self, x: Tensor, seen: Tensor, values: Tensor) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(seen), self.head_dim)
        v = split_heads(self.v_proj(values), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(merge_heads(y))


class MaskMaps(nn.Module):
    """mask_decoder.output_hypernetworks_mlps.*, mask_decoder.iou_prediction_head: feed-forward of three
    linear layers with ReLU.
    """

    def __init__(self, config: Config, proj_out_features: int):
        super().__init__()
        self.proj_in = nn.Linear(config.decoder_hidden_size, config.inner_size)
        self.layers = nn.ModuleList([nn.Linear(config.inner_size, config.inner_size)])
        self.proj_out = nn.Linear(config.inner_size, proj_out_features)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj_out(F.relu(self.layers[0](F.relu(self.proj_in(x)))))


class VisionFeedForward(nn.Module):
    """vision_encoder.layers.*.mlp: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.lin1 = nn.Linear(config.vision_hidden_size, config.vision_intermediate_size)
        self.lin2 = nn.Linear(config.vision_intermediate_size, config.vision_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin2(F.gelu(self.lin1(x)))


class DecoderFeedForward(nn.Module):
    """mask_decoder.transformer.layers.*.mlp: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.lin1 = nn.Linear(config.decoder_hidden_size, config.decoder_intermediate_size)
        self.lin2 = nn.Linear(config.decoder_intermediate_size, config.decoder_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin2(F.relu(self.lin1(x)))


class FourierPositions(nn.Module):
    """shared_image_embedding: Fourier position embeddings of a feature map (SAM)."""

    def __init__(self, config: Config):
        super().__init__()
        self.positional_embedding = nn.Parameter(torch.zeros(2, config.decoder_hidden_size // 2))

    def forward(self, x: Tensor) -> Tensor:
        return map_fourier_features(x, self.positional_embedding)


class DecoderLayer(nn.Module):
    """mask_decoder.transformer.layers.0: post-norm; tokens with self-attention and cross-attention to an
    image, and the image with cross-attention to the tokens (SAM).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn = DecoderAttention(config, head_dim=32)
        self.layer_norm1 = nn.LayerNorm(config.decoder_hidden_size, eps=1e-6)
        self.cross_attn_token_to_image = DecoderAttention(config, head_dim=16)
        self.layer_norm2 = nn.LayerNorm(config.decoder_hidden_size, eps=1e-6)
        self.mlp = DecoderFeedForward(config)
        self.layer_norm3 = nn.LayerNorm(config.decoder_hidden_size, eps=1e-6)
        self.cross_attn_image_to_token = DecoderAttention(config, head_dim=16)
        self.layer_norm4 = nn.LayerNorm(config.decoder_hidden_size, eps=1e-6)

    def forward(
        self, x: Tensor, image: Tensor, image_positions: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        x = self.layer_norm1(self.self_attn(x, x, x))
        image_places = image + image_positions
        x = self.layer_norm2(x + self.cross_attn_token_to_image(x + positions, image_places, image))
        x = self.layer_norm3(x + self.mlp(x))
        image = self.layer_norm4(image + self.cross_attn_image_to_token(image_places, x + positions, x))
        return x, image


class DecoderLayerWithPositioned(nn.Module):
    """mask_decoder.transformer.layers.1: post-norm; tokens with self-attention and cross-attention to an
    image, and the image with cross-attention to the tokens (SAM).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn = DecoderAttention(config, head_dim=32)
        self.layer_norm1 = nn.LayerNorm(config.decoder_hidden_size, eps=1e-6)
        self.cross_attn_token_to_image = DecoderAttention(config, head_dim=16)
        self.layer_norm2 = nn.LayerNorm(config.decoder_hidden_size, eps=1e-6)
        self.mlp = DecoderFeedForward(config)
        self.layer_norm3 = nn.LayerNorm(config.decoder_hidden_size, eps=1e-6)
        self.cross_attn_image_to_token = DecoderAttention(config, head_dim=16)
        self.layer_norm4 = nn.LayerNorm(config.decoder_hidden_size, eps=1e-6)

    def forward(
        self, x: Tensor, image: Tensor, image_positions: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        places = x + positions
        x = self.layer_norm1(x + self.self_attn(places, places, x))
        image_places = image + image_positions
        x = self.layer_norm2(x + self.cross_attn_token_to_image(x + positions, image_places, image))
        x = self.layer_norm3(x + self.mlp(x))
        image = self.layer_norm4(image + self.cross_attn_image_to_token(image_places, x + positions, x))
        return x, image


class VisionLayer(nn.Module):
    """vision_encoder.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config, rel_pos_size0: int):
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)
        self.attn = VisionAttention(config, rel_pos_size0=rel_pos_size0)
        self.layer_norm2 = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)
        self.mlp = VisionFeedForward(config)

    def forward(self, x: Tensor, window: int) -> Tensor:
        x = x + self.attn(self.layer_norm1(x), window)
        return x + self.mlp(self.layer_norm2(x))


class ImageMap(nn.Module):
    """vision_encoder: a map of patch embeddings, layers with full or windowed attention."""

    def __init__(self, config: Config):
        super().__init__()
        self.image_window = config.image_window
        self.layer_types = config.layer_types
        self.patch_embed: Any = nn.ModuleDict(
            {
                "projection": nn.Conv2d(
                    config.channels,
                    config.vision_hidden_size,
                    kernel_size=config.patch_size,
                    stride=config.patch_size,
                )
            }
        )
        self.pos_embed = nn.Parameter(torch.zeros(1, 64, 64, config.vision_hidden_size))
        self.layers = nn.ModuleList(
            VisionLayer(config, rel_pos_size0=rel_pos_size0)
            for rel_pos_size0 in (27, 27, 127, 27, 27, 127, 27, 27, 127, 27, 27, 127)
        )
        self.neck = Neck(config)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.embeddings(pixel_values)
        windows = {"full_attention": 0, "windows": self.image_window}
        for layer, kind in zip(self.layers, self.layer_types, strict=True):
            x = layer(x, windows[kind])
        return self.neck(x.permute(0, 3, 1, 2))

    def embeddings(self, pixel_values: Tensor) -> Tensor:
        x = self.patch_embed.projection(pixel_values.type_as(self.patch_embed.projection.weight)).permute(
            0, 2, 3, 1
        )
        return x + self.pos_embed


class Model(nn.Module):
    """The model: masks for prompts of points, boxes or a mask (SAM)."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.prompts_image_size = config.image_size
        self.vision_encoder = ImageMap(config)
        self.mask_decoder: Any = nn.ModuleDict(
            {
                "iou_token": nn.Embedding(1, config.decoder_hidden_size),
                "mask_tokens": nn.Embedding(config.masks, config.decoder_hidden_size),
                "transformer": nn.ModuleDict(
                    {
                        "layers": nn.ModuleList([DecoderLayer(config), DecoderLayerWithPositioned(config)]),
                        "final_attn_token_to_image": DecoderAttention(config, head_dim=16),
                        "layer_norm_final_attn": nn.LayerNorm(config.decoder_hidden_size),
                    }
                ),
                "output_hypernetworks_mlps": nn.ModuleList(
                    MaskMaps(config, proj_out_features=32) for _ in range(4)
                ),
                "upscale_conv1": nn.ConvTranspose2d(
                    config.decoder_hidden_size, config.enlarging_channels, kernel_size=2, stride=2
                ),
                "upscale_layer_norm": nn.LayerNorm(config.enlarging_channels, eps=config.enlarging_norm_eps),
                "upscale_conv2": nn.ConvTranspose2d(config.enlarging_channels, 32, kernel_size=2, stride=2),
                "iou_prediction_head": MaskMaps(config, proj_out_features=4),
            }
        )
        self.shared_image_embedding = FourierPositions(config)
        self.prompt_encoder: Any = nn.ModuleDict(
            {
                "point_embed": nn.ModuleList(
                    [
                        nn.Embedding(1, config.decoder_hidden_size),
                        nn.Embedding(1, config.decoder_hidden_size),
                        nn.Embedding(1, config.decoder_hidden_size),
                        nn.Embedding(1, config.decoder_hidden_size),
                    ]
                ),
                "not_a_point_embed": nn.Embedding(1, config.decoder_hidden_size),
                "mask_embed": MaskPrompts(config),
                "no_mask_embed": nn.Embedding(1, config.decoder_hidden_size),
            }
        )

    def forward(
        self,
        pixel_values: Tensor,
        input_points: Tensor | None = None,
        input_labels: Tensor | None = None,
        input_boxes: Tensor | None = None,
        input_masks: Tensor | None = None,
    ) -> Output:
        """pixel_values (batch, channels, height, width), input_points (batch, prompts, points, 2),
        input_labels (batch, prompts, points), input_boxes (batch, prompts, 4), input_masks (batch, 1,
        mask_height, mask_width)
        """
        image = self.vision_encoder(pixel_values)
        own = torch.cat((self.mask_decoder.iou_token.weight, self.mask_decoder.mask_tokens.weight))
        table = self.shared_image_embedding.positional_embedding
        asked = self.prompts(image, input_points, input_labels, input_boxes, table)
        tokens = own.expand(asked.shape[0], asked.shape[1], -1, -1)
        tokens = torch.cat((tokens, asked), dim=-2).flatten(0, 1)
        drawn = None
        if input_masks is not None:
            drawn = self.prompt_encoder.mask_embed(input_masks)
        mask = drawn
        if mask is None:
            mask = self.prompt_encoder.no_mask_embed.weight[..., None, None]
        seen = for_each_prompt(image + mask, asked)
        prompted = flatten_patches(seen)
        image_positions = self.shared_image_embedding(image)
        x, changed = self.decoder(tokens, prompted, image_positions)
        vectors = []
        for index, head in enumerate(self.mask_decoder.output_hypernetworks_mlps):
            vectors.append(head(x[:, index + 1]))
        upscaled = F.gelu(self.enlarging(changed.mT.unflatten(2, seen.shape[2:])))
        masks = (torch.stack(vectors[1:], dim=1) @ upscaled.flatten(2)).unflatten(-1, upscaled.shape[2:])
        scores = self.mask_decoder.iou_prediction_head(x[:, 0])[:, 1:]
        parts = asked.shape[:2]
        return Output(iou_scores=scores.unflatten(0, parts), pred_masks=masks.unflatten(0, parts))

    def decoder(self, tokens: Tensor, prompted: Tensor, image_positions: Tensor) -> tuple[Tensor, Tensor]:
        x = tokens
        positions = tokens
        image = prompted
        for layer in self.mask_decoder.transformer.layers:
            x, image = layer(x, image, image_positions, positions)
        return (
            self.mask_decoder.transformer.layer_norm_final_attn(
                x
                + self.mask_decoder.transformer.final_attn_token_to_image(
                    x + positions, image + image_positions, image
                )
            ),
            image,
        )

    def enlarging(self, x: Tensor) -> Tensor:
        x = self.mask_decoder.upscale_layer_norm(
            self.mask_decoder.upscale_conv1(x).permute(0, 2, 3, 1)
        ).permute(0, 3, 1, 2)
        return self.mask_decoder.upscale_conv2(F.gelu(x))

    def prompts(
        self,
        x: Tensor,
        input_points: Tensor | None,
        input_labels: Tensor | None,
        input_boxes: Tensor | None,
        table: Tensor,
    ) -> Tensor:
        kinds = (
            self.prompt_encoder.point_embed[0].weight,
            self.prompt_encoder.point_embed[1].weight,
            self.prompt_encoder.not_a_point_embed.weight,
            self.prompt_encoder.point_embed[2].weight,
            self.prompt_encoder.point_embed[3].weight,
        )
        return prompt_vectors(
            x, input_points, input_labels, input_boxes, self.prompts_image_size, table, kinds
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
# {"config": {"architectures": ["SamModel"], "mask_decoder_config": {"hidden_act": "relu", "iou_head_depth":
# 3, "layer_norm_eps": 1e-06, "model_type": "sam_mask_decoder", "num_attention_heads": 8}, "model_type":
# "sam", "prompt_encoder_config": {"hidden_act": "gelu", "image_size": 1024, "layer_norm_eps": 1e-06,
# "model_type": "sam_prompt_encoder"}, "vision_config": {"global_attn_indexes": [2, 5, 8, 11], "hidden_act":
# "gelu", "hidden_size": 768, "layer_norm_eps": 1e-06, "mlp_dim": 3072, "model_type": "sam_vision_model",
# "num_attention_heads": 12, "num_channels": 3, "num_hidden_layers": 12, "output_channels": 256, "patch_size":
# 16, "qkv_bias": true, "use_abs_pos": true, "use_rel_pos": true, "window_size": 14}}, "notes": ["header from
# the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for
# its config: recalled"]}
# sha256 of all above: 83d8affd4a1a87fa
