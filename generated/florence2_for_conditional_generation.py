"""florence-community/Florence-2-base: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family florence2).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
No dropout is written: training mode computes the same; `mapper generate --train` writes it.

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    # shape: model.multi_modal_projector.image_position_embed.column_embeddings.weight [50, 512]
    projector_channels: int = 512
    # shape: model.vision_tower.blocks.0.0.channel_block.norm1.weight [128] and 3 more
    vision_hidden_sizes: tuple[int, ...] = (128, 256, 512, 1024)
    hidden_size: int = 768  # shape: model.language_model.decoder.embed_positions.weight [4098, 768]
    encoder_heads: int = 12  # config: text_config.encoder_attention_heads
    # shape and config: model.language_model.encoder.layers.{0..5}.self_attn.q_proj.weight [768, 768] = ...
    encoder_head_dim: int = 64
    decoder_heads: int = 12  # config: text_config.decoder_attention_heads
    # shape and config: model.language_model.decoder.layers.{0..5}.encoder_attn.q_proj.weight [768, 768] ...
    decoder_head_dim: int = 64
    vision_heads: tuple[int, ...] = (4, 8, 16, 32)  # config: vision_config.num_heads[0] and 3 more
    # shape and config: model.vision_tower.blocks.0.0.spatial_block.window_attn.qkv.weight [384, 128] = 3 ...
    vision_head_dim: int = 32
    # shape: model.vision_tower.blocks.0.0.channel_block.ffn.fc1.weight [512, 128] and 7 more
    vision_expansion: int = 4
    channel_groups: tuple[int, ...] = (4, 8, 16, 32)  # config: vision_config.num_groups[0] and 3 more
    intermediate_size: int = 3072  # shape: model.language_model.decoder.layers.{0..5}.fc1.weight [3072, 768]
    position_offset: int = 2  # rule: families/bart.yaml (a constant of the published code)
    # shape and rule: model.language_model.decoder.embed_positions.weight [4098, 768] = ...
    positions: int = 4096
    encoder_layers: int = 6  # name: model.language_model.encoder.layers.*
    decoder_layers: int = 6  # name: model.language_model.decoder.layers.*
    window_size: int = 12  # config: vision_config.window_size
    vision_layers: tuple[int, ...] = (1, 1, 9, 1)  # name: model.vision_tower.blocks.0.* and 3 more
    vocab_size: int = 51290  # shape: model.language_model.shared.weight [51290, 768]
    features_image_id: int = 51289  # config: image_token_id


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    encoder_last_hidden_state: Tensor


torch.export.register_dataclass(Output)


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


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


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


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def positions_in_order(x: Tensor) -> Tensor:
    """0, 1, 2, ... for every position of x. x (B, T, ...) -> (1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None]


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


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Projector(nn.Module):
    """model.multi_modal_projector: projector with position embeddings of columns, rows and frames, and the
    mean of all places before them, a linear layer and a norm after it.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.image_position_embed: Any = nn.ModuleDict(
            {
                "column_embeddings": nn.Embedding(50, config.projector_channels),
                "row_embeddings": nn.Embedding(50, config.projector_channels),
            }
        )
        self.visual_temporal_embed: Any = nn.ParameterDict(
            {"pos_idx_to_embed": nn.Parameter(torch.zeros(100, config.vision_hidden_sizes[3]))}
        )
        self.image_projection = nn.Linear(config.vision_hidden_sizes[3], config.hidden_size, bias=False)
        self.image_proj_norm = nn.LayerNorm(config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        across = self.image_position_embed.column_embeddings.weight[:width].T[:, None].expand(-1, height, -1)
        down = self.image_position_embed.row_embeddings.weight[:height].T[..., None].expand(-1, -1, width)
        x = (
            flatten_patches(x + torch.cat((across, down), dim=0))
            + self.visual_temporal_embed.pos_idx_to_embed[0]
        )
        x = torch.cat((x.mean(dim=1, keepdim=True), x), dim=1)
        return self.image_proj_norm(self.image_projection(x))


class EncoderAttention(nn.Module):
    """model.language_model.encoder.layers.*.self_attn: self-attention with an attention mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.encoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim)
        self.out_proj = nn.Linear(config.encoder_heads * config.encoder_head_dim, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out_proj(merge_heads(y))


class DecoderAttention(nn.Module):
    """model.language_model.decoder.layers.*.self_attn: self-attention with a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.decoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.out_proj = nn.Linear(config.decoder_heads * config.decoder_head_dim, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.out_proj(merge_heads(y))


class CrossAttention(nn.Module):
    """model.language_model.decoder.layers.*.encoder_attn: cross-attention with an attention mask over the
    source.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.decoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.out_proj = nn.Linear(config.decoder_heads * config.decoder_head_dim, config.hidden_size)

    def forward(
        self, x: Tensor, encoder_hidden_states: Tensor, cross_attention_mask: Tensor | None
    ) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(encoder_hidden_states), self.head_dim)
        v = split_heads(self.v_proj(encoder_hidden_states), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=cross_attention_mask)
        return self.out_proj(merge_heads(y))


class PatchesWithNormed(nn.Module):
    """model.vision_tower.convs.0: patch embedding with layer norm, channels last."""

    def __init__(self, config: Config):
        super().__init__()
        self.conv = nn.Conv2d(3, config.vision_hidden_sizes[0], kernel_size=7, stride=4, padding=3)
        self.norm = nn.LayerNorm(config.vision_hidden_sizes[0])

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x).permute(0, 2, 3, 1))


class Patches(nn.Module):
    """model.vision_tower.convs.*: a layer norm, then patch embedding, channels last."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.norm = nn.LayerNorm(in_channels)
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.conv(y).permute(0, 2, 3, 1)


class VisionAttention(nn.Module):
    """model.vision_tower.blocks.*.*.spatial_block.window_attn: self-attention over a feature map or its
    windows, with decomposed relative position bias where it is stored.
    """

    def __init__(self, config: Config, hidden_size: int, heads: int):
        super().__init__()
        self.head_dim = config.vision_head_dim
        self.qkv = nn.Linear(hidden_size, 3 * heads * config.vision_head_dim)
        self.proj = nn.Linear(heads * config.vision_head_dim, hidden_size)

    def forward(self, x: Tensor, window: int) -> Tensor:
        grid = partition_map(x, window)
        q, k, v = self.qkv(grid.flatten(1, 2)).chunk(3, dim=-1)
        q, k, v = split_heads(q, self.head_dim), split_heads(k, self.head_dim), split_heads(v, self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return merge_map(self.proj(merge_heads(y)), x, window)


class FeedForward(nn.Module):
    """model.vision_tower.blocks.*.*.spatial_block.ffn, model.vision_tower.blocks.*.*.channel_block.ffn:
    feed-forward network.
    """

    def __init__(self, config: Config, hidden_size: int):
        super().__init__()
        intermediate_size = config.vision_expansion * hidden_size
        self.fc1 = nn.Linear(hidden_size, intermediate_size)
        self.fc2 = nn.Linear(intermediate_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class VisionAttentionWithMapChannels(nn.Module):
    """model.vision_tower.blocks.*.*.channel_block.channel_attn: self-attention of channels to channels in
    groups, over all places of a feature map (DaViT).
    """

    def __init__(self, hidden_size: int, channel_groups: int):
        super().__init__()
        self.channel_groups = channel_groups
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.proj = nn.Linear(hidden_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.qkv(x).flatten(1, 2).unflatten(-1, (3, self.channel_groups, -1))
        q, k, v = mixed.permute(2, 0, 3, 4, 1).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).permute(0, 3, 1, 2)
        return self.proj(y.reshape(x.shape))


class DecoderLayer(nn.Module):
    """model.language_model.decoder.layers.*: a layer with attention, post-norm, cross-attention and a
    feed-forward network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn = DecoderAttention(config)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.encoder_attn = CrossAttention(config)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        encoder_hidden_states: Tensor,
        cross_attention_mask: Tensor | None,
    ) -> Tensor:
        x = self.self_attn_layer_norm(x + self.self_attn(x, mask))
        x = self.encoder_attn_layer_norm(
            x + self.encoder_attn(x, encoder_hidden_states, cross_attention_mask)
        )
        return self.final_layer_norm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class WindowLayer(nn.Module):
    """model.vision_tower.blocks.*.*.spatial_block: a layer with a depthwise convolution of the feature
    map, added to it, before each sub-layer, pre-norm, attention and a feed-forward network.
    """

    def __init__(self, config: Config, hidden_size: int, heads: int):
        super().__init__()
        self.conv1 = nn.Conv2d(hidden_size, hidden_size, kernel_size=3, padding=1, groups=hidden_size)
        self.norm1 = nn.LayerNorm(hidden_size)
        self.window_attn = VisionAttention(config, hidden_size=hidden_size, heads=heads)
        self.conv2 = nn.Conv2d(hidden_size, hidden_size, kernel_size=3, padding=1, groups=hidden_size)
        self.norm2 = nn.LayerNorm(hidden_size)
        self.ffn = FeedForward(config, hidden_size=hidden_size)

    def forward(self, x: Tensor, window: int) -> Tensor:
        x = x + self.conv1(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        x = x + self.window_attn(self.norm1(x), window)
        x = x + self.conv2(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return x + self.ffn(self.norm2(x))


class ChannelLayer(nn.Module):
    """model.vision_tower.blocks.*.*.channel_block: a layer with a depthwise convolution of the feature
    map, added to it, before each sub-layer, pre-norm, attention and a feed-forward network.
    """

    def __init__(self, config: Config, hidden_size: int, channel_groups: int):
        super().__init__()
        self.conv1 = nn.Conv2d(hidden_size, hidden_size, kernel_size=3, padding=1, groups=hidden_size)
        self.norm1 = nn.LayerNorm(hidden_size)
        self.channel_attn = VisionAttentionWithMapChannels(
            hidden_size=hidden_size, channel_groups=channel_groups
        )
        self.conv2 = nn.Conv2d(hidden_size, hidden_size, kernel_size=3, padding=1, groups=hidden_size)
        self.norm2 = nn.LayerNorm(hidden_size)
        self.ffn = FeedForward(config, hidden_size=hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.conv1(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        x = x + self.channel_attn(self.norm1(x))
        x = x + self.conv2(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return x + self.ffn(self.norm2(x))


class EncoderLayer(nn.Module):
    """model.language_model.encoder.layers.*: a layer with attention, post-norm and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn = EncoderAttention(config)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.self_attn_layer_norm(x + self.self_attn(x, mask))
        return self.final_layer_norm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Encoder(nn.Module):
    """model.language_model.encoder: a stack of layers with a padding mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.position_offset = config.position_offset
        self.embed_positions = nn.Embedding(config.position_offset + config.positions, config.hidden_size)
        self.layernorm_embedding = nn.LayerNorm(config.hidden_size)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))

    def forward(self, embedded: Tensor, attention_mask: Tensor | None) -> Tensor:
        x = self.embeddings(embedded)
        mask = padding_mask(attention_mask)
        for layer in self.layers:
            x = layer(x, mask)
        return x

    def embeddings(self, embedded: Tensor) -> Tensor:
        index = positions_in_order(embedded)
        return self.layernorm_embedding(embedded + self.embed_positions(index + self.position_offset))


class Decoder(nn.Module):
    """model.language_model.decoder: a stack of layers with a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.position_offset = config.position_offset
        self.embed_positions = nn.Embedding(config.position_offset + config.positions, config.hidden_size)
        self.layernorm_embedding = nn.LayerNorm(config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))

    def forward(
        self,
        embedded: Tensor,
        position_ids: Tensor | None,
        attention_mask: Tensor | None,
        encoder_hidden_states: Tensor,
        cross_attention_mask: Tensor | None,
    ) -> Tensor:
        x = self.embeddings(embedded, position_ids)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        for layer in self.layers:
            x = layer(x, mask, encoder_hidden_states, cross_attention_mask)
        return x

    def embeddings(self, embedded: Tensor, position_ids: Tensor | None) -> Tensor:
        index = position_indices(embedded, position_ids)
        return self.layernorm_embedding(embedded + self.embed_positions(index + self.position_offset))


class VisionLayer(nn.Module):
    """model.vision_tower.blocks.*.*: a layer over a feature map: attention within windows and a
    feed-forward network, then attention of channels and another (DaViT).
    """

    def __init__(self, config: Config, hidden_size: int, heads: int, channel_groups: int):
        super().__init__()
        self.window_size = config.window_size
        self.spatial_block = WindowLayer(config, hidden_size=hidden_size, heads=heads)
        self.channel_block = ChannelLayer(config, hidden_size=hidden_size, channel_groups=channel_groups)

    def forward(self, x: Tensor) -> Tensor:
        window = self.window_size
        return self.channel_block(self.spatial_block(x, window))


class Stage(nn.Sequential):
    """model.vision_tower.blocks.*: a stage of layers in sequence."""

    def __init__(self, config: Config, hidden_size: int, heads: int, channel_groups: int, layers: int):
        super().__init__(
            *(
                VisionLayer(config, hidden_size=hidden_size, heads=heads, channel_groups=channel_groups)
                for _ in range(layers)
            )
        )


class Pixels(nn.Module):
    """model.vision_tower: an image through stages, each coarser than the one before, with patch embeddings
    before each stage.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.convs = nn.ModuleList(
            [
                PatchesWithNormed(config),
                *(
                    Patches(in_channels=in_channels, out_channels=out_channels)
                    for in_channels, out_channels in zip(
                        config.vision_hidden_sizes[:-1], config.vision_hidden_sizes[1:], strict=True
                    )
                ),
            ]
        )
        self.blocks = nn.ModuleList(
            Stage(config, hidden_size=hidden_size, heads=heads, channel_groups=channel_groups, layers=layers)
            for hidden_size, heads, channel_groups, layers in zip(
                config.vision_hidden_sizes,
                config.vision_heads,
                config.channel_groups,
                config.vision_layers,
                strict=True,
            )
        )

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = pixel_values
        for patch, stage in zip(self.convs, self.blocks, strict=True):
            x = stage(patch(x)).permute(0, 3, 1, 2)
        return x


class Model(nn.Module):
    """The model with an encoder and a decoder (which share their embedding) and a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.features_image_id = config.features_image_id
        self.model: Any = nn.ModuleDict(
            {
                "vision_tower": Pixels(config),
                "multi_modal_projector": Projector(config),
                "language_model": nn.ModuleDict(
                    {
                        "shared": nn.Embedding(config.vocab_size, config.hidden_size),
                        "encoder": Encoder(config),
                        "decoder": Decoder(config),
                    }
                ),
            }
        )
        self.to(torch.float16)

    def forward(
        self,
        input_ids: Tensor,
        decoder_input_ids: Tensor,
        pixel_values: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), decoder_input_ids (batch, decoder_length), pixel_values (batch,
        channels, height, width), attention_mask (batch, length), decoder_attention_mask (batch,
        decoder_length), decoder_position_ids (batch, decoder_length)
        """
        image_features = None
        if pixel_values is not None:
            image_features = self.model.multi_modal_projector(self.model.vision_tower(pixel_values))
        embedded = scatter_features(
            self.model.language_model.shared(input_ids), image_features, input_ids, self.features_image_id
        )
        encoder_hidden_states = self.model.language_model.encoder(embedded, attention_mask)
        cross_attention_mask = padding_mask(attention_mask)
        input_ids = decoder_input_ids
        position_ids = decoder_position_ids
        embedded = scatter_features(
            self.model.language_model.shared(input_ids), None, input_ids, self.features_image_id
        )
        x = self.model.language_model.decoder(
            embedded, position_ids, decoder_attention_mask, encoder_hidden_states, cross_attention_mask
        )
        logits = F.linear(x, self.model.language_model.shared.weight)
        return Output(logits=logits, encoder_last_hidden_state=encoder_hidden_states)


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
# {"config": {"architectures": ["Florence2ForConditionalGeneration"], "image_token_id": 51289, "model_type":
# "florence2", "text_config": {"activation_function": "gelu", "d_model": 768, "decoder_attention_heads": 12,
# "decoder_ffn_dim": 3072, "decoder_layers": 6, "encoder_attention_heads": 12, "encoder_ffn_dim": 3072,
# "max_position_embeddings": 4096, "model_type": "bart", "num_hidden_layers": 6, "scale_embedding": false,
# "vocab_size": 51290}, "vision_config": {"activation_function": "gelu", "depths": [1, 1, 9, 1], "embed_dim":
# [128, 256, 512, 1024], "model_type": "florence_vision", "num_groups": [4, 8, 16, 32], "num_heads": [4, 8,
# 16, 32], "patch_padding": [3, 1, 1, 1], "patch_prenorm": [false, true, true, true], "patch_stride": [4, 2,
# 2, 2], "qkv_bias": true, "window_size": 12}}, "notes": ["header from the bundled catalogue (reconstructed
# with transformers 5.23.0 from config), not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: 15876bf2b9dd070e
