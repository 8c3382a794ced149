"""laion/clap-htsat-fused: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family clap).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: transformers-default
No dropout is written: training mode computes the same, the batch norms apart; `mapper generate --train`
writes it.

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

    vocab_size: int = 50265  # shape: text_model.embeddings.word_embeddings.weight [50265, 768]
    text_hidden_size: int = 768  # shape: text_model.embeddings.word_embeddings.weight [50265, 768]
    segments: int = 1  # shape: text_model.embeddings.token_type_embeddings.weight [1, 768]
    positions: int = 514  # shape: text_model.embeddings.position_embeddings.weight [514, 768]
    # default: text_config.layer_norm_eps, left out: the default of clap_text_model
    text_norm_eps: float = 1e-12
    padding_index: int = 1  # default: text_config.pad_token_id, left out: the default of clap_text_model
    # shape: audio_model.audio_encoder.layers.0.blocks.{0..1}.layernorm_before.weight [96] and 3 more
    audio_hidden_sizes: tuple[int, ...] = (96, 192, 384, 768)
    # shape: audio_model.audio_encoder.layers.0.blocks.{0..1}.attention.self.relative_position_bias_table ...
    audio_heads: tuple[int, ...] = (4, 8, 16, 32)
    # shape: audio_model.audio_encoder.layers.0.blocks.{0..1}.attention.self.query.weight [96, 96]
    audio_head_dim: int = 24
    # shape: audio_model.audio_encoder.layers.0.blocks.{0..1}.attention.self.relative_position_bias_table ...
    window_size: int = 8
    embedding_size: int = 96  # shape: audio_model.audio_encoder.patch_embed.proj.weight [96, 1, 4, 4]
    # shape: audio_model.audio_encoder.patch_embed.fusion_model.local_att.0.weight [24, 96, 1, 1]
    inner_size: int = 24
    text_heads: int = 12  # default: text_config.num_attention_heads, left out: the default of clap_text_model
    # shape and default: text_model.encoder.layer.{0..11}.attention.self.query.weight [768, 768] = heads ...
    text_head_dim: int = 64
    projector_size: int = 512  # shape: audio_projection.linear1.weight [512, 768]
    output_size: int = 512  # shape: audio_projection.linear2.weight [512, 512]
    # shape: text_model.encoder.layer.{0..11}.intermediate.dense.weight [3072, 768]
    text_intermediate_size: int = 3072
    # shape: audio_model.audio_encoder.layers.0.blocks.{0..1}.intermediate.dense.weight [384, 96] and 3 more
    audio_expansion: int = 4
    text_layers: int = 12  # name: text_model.encoder.layer.*
    # name: audio_model.audio_encoder.layers.0.blocks.* and 3 more
    audio_layers: tuple[int, ...] = (2, 2, 6, 2)
    mel_bins: int = 64  # shape: audio_model.audio_encoder.batch_norm.weight [64]
    patches_stride: int = 4  # default: audio_config.patch_stride, left out: the default of clap_audio_model
    patch_size: int = 4  # shape: audio_model.audio_encoder.patch_embed.proj.weight [96, 1, 4, 4]
    frames_folds: int = 4  # default: vocabulary/config_audio.yaml: floor(image.size / mel_bins)
    image_size: int = 256  # default: audio_config.spec_size, left out: the default of clap_audio_model


@dataclass
class Output:
    """What the model returns."""

    logits_per_audio: Tensor
    logits_per_text: Tensor
    text_embeds: Tensor
    audio_embeds: Tensor


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


def fold_spectrogram(x: Tensor, side: int, bands: int) -> Tensor:
    """A spectrogram as a square image: parts of its time, one below the other; a short one is stretched.

    x (B, C, T, bands) -> (B, C, side, side)
    """
    folds = side // bands
    if x.shape[2] < folds * side:
        x = F.interpolate(x, (folds * side, bands), mode="bicubic", align_corners=True)
    return x.unflatten(2, (folds, side)).transpose(3, 4).flatten(2, 3)


def join_windows(windows: Tensor, x: Tensor, size: int, shift: tuple[int, int]) -> Tensor:
    """Undoes partition_windows of x. windows (B * windows, size * size, C), x (B, Y, X, C) -> (B, Y, X, C)"""
    height, width = x.shape[1], x.shape[2]
    rows, columns = (height + size - 1) // size, (width + size - 1) // size
    y = windows.unflatten(1, (size, size)).unflatten(0, (-1, rows, columns)).transpose(2, 3)
    y = y.flatten(3, 4).flatten(1, 2)
    if any(shift):
        y = torch.roll(y, shift, dims=(1, 2))
    return y[:, :height, :width]


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def merge_patches(x: Tensor) -> Tensor:
    """Joins each 2 x 2 patches into one.

    x (B, Y, X, C) -> (B, Y / 2, X / 2, 4 * C), down the first column first
    """
    x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
    return torch.cat((x[:, ::2, ::2], x[:, 1::2, ::2], x[:, ::2, 1::2], x[:, 1::2, 1::2]), dim=-1)


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


def positions_of_ids(input_ids: Tensor, padding_id: int) -> Tensor:
    """Counts real tokens from padding_id + 1; padding gets padding_id (RoBERTa).

    input_ids (B, T) -> (B, T)
    """
    real = (input_ids != padding_id).long()
    return real.cumsum(dim=1) * real + padding_id


def segment_ids(input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
    """The caller's segments, or the first segment everywhere. (B, T)"""
    return torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids


def side_shift(side: int, size: int, shift: int) -> int:
    """How far windows are shifted along a side: not at all where one window spans it."""
    return shift if side > size else 0


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


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


class Embeddings(nn.Module):
    """text_model.embeddings: token embeddings with token types, learned position embeddings that skip
    padding and a norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.padding_index = config.padding_index
        self.word_embeddings = nn.Embedding(config.vocab_size, config.text_hidden_size)
        self.token_type_embeddings = nn.Embedding(config.segments, config.text_hidden_size)
        self.position_embeddings = nn.Embedding(config.positions, config.text_hidden_size)
        self.LayerNorm = nn.LayerNorm(config.text_hidden_size, eps=config.text_norm_eps)
        # unused: the positions 0, 1, 2 and so on, counted by the forward itself
        self.register_buffer("position_ids", torch.zeros(1, config.positions, dtype=torch.int64))
        # unused: zeros, made by the forward itself
        self.register_buffer("token_type_ids", torch.zeros(1, config.positions, dtype=torch.int64))

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.word_embeddings(input_ids)
        x = x + self.token_type_embeddings(segment_ids(input_ids, token_type_ids))
        if position_ids is None:
            position_ids = positions_of_ids(input_ids, self.padding_index)
        return self.LayerNorm(x + self.position_embeddings(position_ids))


class AttentionSelf(nn.Module):
    """audio_model.audio_encoder.layers.*.blocks.*.attention.self: holds what the module around it computes
    with.
    """

    def __init__(self, config: Config, hidden_size: int, heads: int):
        super().__init__()
        self.query = nn.Linear(hidden_size, heads * config.audio_head_dim)
        self.key = nn.Linear(hidden_size, heads * config.audio_head_dim)
        self.value = nn.Linear(hidden_size, heads * config.audio_head_dim)
        self.relative_position_bias_table = nn.Parameter(
            torch.zeros((2 * config.window_size - 1) ** 2, heads)
        )
        # unused: made from the window's size by the forward itself
        self.register_buffer("relative_position_index", torch.zeros(64, 64, dtype=torch.int64))


class Fusion(nn.Module):
    """audio_model.audio_encoder.patch_embed.fusion_model: attentional feature fusion: the sum of two
    feature maps, gated by local and global context.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.local_att = nn.ModuleDict(
            {
                "0": nn.Conv2d(config.embedding_size, config.inner_size, kernel_size=1),
                "1": nn.BatchNorm2d(config.inner_size),
                "3": nn.Conv2d(config.inner_size, config.embedding_size, kernel_size=1),
                "4": nn.BatchNorm2d(config.embedding_size),
            }
        )
        self.global_att = nn.ModuleDict(
            {
                "1": nn.Conv2d(config.embedding_size, config.inner_size, kernel_size=1),
                "2": nn.BatchNorm2d(config.inner_size),
                "4": nn.Conv2d(config.inner_size, config.embedding_size, kernel_size=1),
                "5": nn.BatchNorm2d(config.embedding_size),
            }
        )

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        both = x + other
        here = self.local_att["4"](
            self.local_att["3"](F.relu(self.local_att["1"](self.local_att["0"](both))))
        )
        everywhere = both.mean(dim=(-2, -1), keepdim=True)
        everywhere = self.global_att["5"](
            self.global_att["4"](F.relu(self.global_att["2"](self.global_att["1"](everywhere))))
        )
        share = F.sigmoid(here + everywhere)
        return 2 * x * share + 2 * other * (1 - share)


class Downsampling(nn.Module):
    """audio_model.audio_encoder.layers.*.downsample: patch merging: each 2 x 2 patches concatenated and
    projected to half of these channels with a norm before the projection.
    """

    def __init__(self, out_channels: int):
        super().__init__()
        self.norm = nn.LayerNorm(2 * out_channels)
        self.reduction = nn.Linear(2 * out_channels, out_channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.reduction(self.norm(merge_patches(x)))


class TextAttention(nn.Module):
    """text_model.encoder.layer.*.attention: self-attention with an attention mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.text_head_dim
        self.self: Any = nn.ModuleDict(
            {
                "query": nn.Linear(config.text_hidden_size, config.text_heads * config.text_head_dim),
                "key": nn.Linear(config.text_hidden_size, config.text_heads * config.text_head_dim),
                "value": nn.Linear(config.text_hidden_size, config.text_heads * config.text_head_dim),
            }
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.text_heads * config.text_head_dim, config.text_hidden_size),
                "LayerNorm": nn.LayerNorm(config.text_hidden_size, eps=config.text_norm_eps),
            }
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.self.query(x), self.head_dim)
        k = split_heads(self.self.key(x), self.head_dim)
        v = split_heads(self.self.value(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output.dense(merge_heads(y))


class AudioProjector(nn.Module):
    """audio_projection, text_projection: projector with two linear layers around an activation."""

    def __init__(self, config: Config):
        super().__init__()
        self.linear1 = nn.Linear(config.text_hidden_size, config.projector_size)
        self.linear2 = nn.Linear(config.projector_size, config.output_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear2(F.relu(self.linear1(x)))


class Pooler(nn.Module):
    """text_model.pooler: pooler with a linear layer and an activation over the first token."""

    def __init__(self, config: Config):
        super().__init__()
        self.dense = nn.Linear(config.text_hidden_size, config.text_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dense(x[:, 0]))


class TextLayer(nn.Module):
    """text_model.encoder.layer.*: a layer with attention, post-norm and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention = TextAttention(config)
        self.intermediate: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.text_hidden_size, config.text_intermediate_size)}
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.text_intermediate_size, config.text_hidden_size),
                "LayerNorm": nn.LayerNorm(config.text_hidden_size, eps=config.text_norm_eps),
            }
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.attention.output.LayerNorm(x + self.attention(x, mask))
        return self.output.LayerNorm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class AudioAttention(nn.Module):
    """audio_model.audio_encoder.layers.*.blocks.*.attention: window attention with a relative position
    bias (Swin).
    """

    def __init__(self, config: Config, hidden_size: int, heads: int):
        super().__init__()
        self.window_size = config.window_size
        self.head_dim = config.audio_head_dim
        self.self = AttentionSelf(config, hidden_size=hidden_size, heads=heads)
        self.output: Any = nn.ModuleDict({"dense": nn.Linear(heads * config.audio_head_dim, hidden_size)})

    def forward(self, x: Tensor, shift: tuple[int, int], mask: Tensor | None) -> Tensor:
        windows = partition_windows(x, self.window_size, shift)
        q, k, v = self.self.query(windows), self.self.key(windows), self.self.value(windows)
        q, k, v = split_heads(q, self.head_dim), split_heads(k, self.head_dim), split_heads(v, self.head_dim)
        y = attend_biased(
            q, k, v, window_bias(self.self.relative_position_bias_table, self.window_size), mask
        )
        windows = self.output.dense(merge_heads(y))
        return join_windows(windows, x, self.window_size, shift)


class AudioLayer(nn.Module):
    """audio_model.audio_encoder.layers.*.blocks.*: a layer with pre-norm, attention and a feed-forward
    network.
    """

    def __init__(self, config: Config, hidden_size: int, heads: int):
        super().__init__()
        intermediate_size = config.audio_expansion * hidden_size
        self.layernorm_before = nn.LayerNorm(hidden_size)
        self.attention = AudioAttention(config, hidden_size=hidden_size, heads=heads)
        self.layernorm_after = nn.LayerNorm(hidden_size)
        self.intermediate: Any = nn.ModuleDict({"dense": nn.Linear(hidden_size, intermediate_size)})
        self.output: Any = nn.ModuleDict({"dense": nn.Linear(intermediate_size, hidden_size)})

    def forward(self, x: Tensor, shift: tuple[int, int], mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.layernorm_before(x), shift, mask)
        return x + self.feed_forward(self.layernorm_after(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class Encoder(nn.Module):
    """text_model: a stack of layers with a padding mask and a pooler."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layer": nn.ModuleList(TextLayer(config) for _ in range(config.text_layers))}
        )
        self.pooler = Pooler(config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        x = self.embeddings(input_ids, token_type_ids, position_ids)
        mask = padding_mask(attention_mask)
        for layer in self.encoder.layer:
            x = layer(x, mask)
        return x, self.pooler(x)


class StageWithDownsampling(nn.Module):
    """audio_model.audio_encoder.layers.*: a stage of layers with shifted windows in every second (Swin)
    with downsampling.
    """

    def __init__(self, config: Config, hidden_size: int, heads: int, layers: int, out_channels: int):
        super().__init__()
        self.window_size = config.window_size
        self.blocks = nn.ModuleList(
            AudioLayer(config, hidden_size=hidden_size, heads=heads) for _ in range(layers)
        )
        self.downsample = Downsampling(out_channels=out_channels)

    def forward(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.blocks):
            step = index % 2 * (self.window_size // 2)
            step = side_shift(min(x.shape[1], x.shape[2]), self.window_size, step)
            shift = step, step
            mask = window_mask(x, self.window_size, shift)
            x = layer(x, shift, mask)
        return self.downsample(x)


class Stage(nn.Module):
    """audio_model.audio_encoder.layers.3: a stage of layers with shifted windows in every second (Swin)."""

    def __init__(self, config: Config):
        super().__init__()
        self.window_size = config.window_size
        self.blocks = nn.ModuleList(
            AudioLayer(config, hidden_size=config.audio_hidden_sizes[3], heads=config.audio_heads[3])
            for _ in range(config.audio_layers[3])
        )

    def forward(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.blocks):
            step = index % 2 * (self.window_size // 2)
            step = side_shift(min(x.shape[1], x.shape[2]), self.window_size, step)
            shift = step, step
            mask = window_mask(x, self.window_size, shift)
            x = layer(x, shift, mask)
        return x


class StagedSpectrogram(nn.Module):
    """audio_model.audio_encoder: a folded spectrogram through stages, unfolded, and the mean of its
    places.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.frames_folds = config.frames_folds
        self.image_size = config.image_size
        self.mel_bins = config.mel_bins
        self.batch_norm = nn.BatchNorm2d(config.mel_bins)
        self.patch_embed: Any = nn.ModuleDict(
            {
                "proj": nn.Conv2d(
                    1,
                    config.audio_hidden_sizes[0],
                    kernel_size=config.patch_size,
                    stride=config.patches_stride,
                    padding=(config.patch_size - config.patches_stride) // 2,
                ),
                "mel_conv2d": nn.Conv2d(
                    1,
                    config.audio_hidden_sizes[0],
                    kernel_size=(4, 12),
                    stride=(4, 12),
                    padding=(config.patch_size - config.patches_stride) // 2,
                ),
                "fusion_model": Fusion(config),
                "norm": nn.LayerNorm(config.audio_hidden_sizes[0]),
            }
        )
        self.layers = nn.ModuleList(
            [
                *(
                    StageWithDownsampling(
                        config, hidden_size=hidden_size, heads=heads, layers=layers, out_channels=out_channels
                    )
                    for hidden_size, heads, layers, out_channels in zip(
                        config.audio_hidden_sizes[:-1],
                        config.audio_heads[:-1],
                        config.audio_layers[:-1],
                        config.audio_hidden_sizes[1:],
                        strict=True,
                    )
                ),
                Stage(config),
            ]
        )
        self.norm = nn.LayerNorm(config.audio_hidden_sizes[3])

    def forward(self, input_features: Tensor, is_longer: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embeddings(input_features, is_longer)
        for stage in self.layers:
            x = stage(x)
        x = self.norm(x).permute(0, 3, 1, 2).unflatten(2, (self.frames_folds, -1)).transpose(2, 3).flatten(3)
        return x, x.mean(dim=(-2, -1))

    def embeddings(self, input_features: Tensor, is_longer: Tensor) -> Tensor:
        x = self.batch_norm(input_features.transpose(1, 3)).transpose(1, 3)
        x = fold_spectrogram(x, self.image_size, self.mel_bins)
        whole = self.patch_embed.proj(x[:, :1])
        parts = self.patch_embed.mel_conv2d(x[:, 1:].flatten(0, 1)[:, None])
        parts = parts.unflatten(0, (x.shape[0], -1)).permute(0, 2, 3, 1, 4).flatten(3)
        parts = F.pad(parts, (0, whole.shape[-1] - parts.shape[-1]))
        x = torch.where(
            is_longer[:, :, None, None], self.patch_embed.fusion_model(whole, parts), whole
        ).permute(0, 2, 3, 1)
        return self.patch_embed.norm(x)


class Model(nn.Module):
    """The model: similarity of text embeddings and those of sounds with a scale of each."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.audio_model: Any = nn.ModuleDict({"audio_encoder": StagedSpectrogram(config)})
        self.text_model = Encoder(config)
        self.audio_projection = AudioProjector(config)
        self.text_projection = AudioProjector(config)
        self.logit_scale_t = nn.Parameter(torch.zeros(()))
        self.logit_scale_a = nn.Parameter(torch.zeros(()))

    def forward(
        self,
        input_ids: Tensor,
        input_features: Tensor,
        is_longer: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), input_features (batch, 4, frames, 64), is_longer (batch, 1),
        attention_mask (batch, length), token_type_ids (batch, length), position_ids (batch, length)
        """
        x, sounds = self.audio_model.audio_encoder(input_features, is_longer)
        _, words = self.text_model(input_ids, attention_mask, token_type_ids, position_ids)
        sounds = F.normalize(self.audio_projection(sounds), dim=-1)
        words = F.normalize(self.text_projection(words), dim=-1)
        by_text, by_audio = words @ sounds.t(), sounds @ words.t()
        by_text, by_audio = by_text * self.logit_scale_t.exp(), by_audio * self.logit_scale_a.exp()
        return Output(
            logits_per_audio=by_audio, logits_per_text=by_text, text_embeds=words, audio_embeds=sounds
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
# {"config": {"architectures": ["ClapModel"], "audio_config": {"enable_fusion": true, "model_type":
# "clap_audio_model"}, "model_type": "clap", "projection_hidden_act": "relu", "text_config": {"model_type":
# "clap_text_model"}}, "notes": ["header from the bundled catalogue (reconstructed with transformers 5.23.0
# from config), not from the hub", "evidence for its config: transformers-default"]}
# sha256 of all above: bb1a0ef841edabbf
