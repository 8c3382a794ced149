"""swin, tiny: written by mapper 0.1.0, rules 505f7d688489.

Reading: exact (family swin).
tiny: the header is the example 'two stages, a classifier, the index of older releases' of families/swin.yaml

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

    head_dim: int = 8  # shape: swin.encoder.layers.0.blocks.{0..1}.attention.self.query.weight [16, 16]
    # shape: swin.encoder.layers.0.blocks.{0..1}.attention.self.relative_position_bias_table [25, 2]
    window_size: int = 3
    channels: int = 3  # shape: swin.embeddings.patch_embeddings.projection.weight [16, 3, 4, 4]
    embedding_size: int = 16  # shape: swin.embeddings.patch_embeddings.projection.weight [16, 3, 4, 4]
    patch_size: int = 4  # shape: swin.embeddings.patch_embeddings.projection.weight [16, 3, 4, 4]
    pooled_size: int = 32  # shape: classifier.weight [5, 32]
    labels: int = 5  # shape: classifier.weight [5, 32]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def repeat_heads(x: Tensor, groups: int) -> Tensor:
    """Gives every query head its own copy of a shared head. x (B, K, T, D) -> (B, K * groups, T, D)"""
    B, K, T, D = x.shape
    return x[:, :, None].expand(B, K, groups, T, D).reshape(B, K * groups, T, D)


def attend_scaled_biased(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """Attention with scores q @ k * scale + bias. bias broadcasts to (B, H, T, S)"""
    bias = bias.to(q.dtype)
    if mask is not None:  # the lowest number rather than -inf: a row without any key stays finite
        bias = bias.masked_fill(~mask, torch.finfo(q.dtype).min)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = repeat_heads(k, groups), repeat_heads(v, groups)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def attend_biased(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled attention with a float bias added to the scores. bias broadcasts to (B, H, T, S)"""
    return attend_scaled_biased(q, k, v, bias, mask, q.shape[-1] ** -0.5)


def channels_last(x: Tensor) -> Tensor:
    """(B, C, Y, X) -> (B, Y, X, C)"""
    return x.permute(0, 2, 3, 1)


def join_windows(windows: Tensor, x: Tensor, size: int, shift: int) -> Tensor:
    """Undoes partition_windows of x. windows (B * windows, size * size, C), x (B, Y, X, C) -> (B, Y, X, C)"""
    height, width = x.shape[1], x.shape[2]
    rows, columns = (height + size - 1) // size, (width + size - 1) // size
    y = windows.unflatten(1, (size, size)).unflatten(0, (-1, rows, columns)).transpose(2, 3)
    y = y.flatten(3, 4).flatten(1, 2)
    if shift > 0:
        y = torch.roll(y, (shift, shift), dims=(1, 2))
    return y[:, :height, :width]


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def pad_to_multiple(x: Tensor, size: int) -> Tensor:
    """Zeros below and to the right until both sides are multiples of size. x (B, Y, X, C)"""
    return F.pad(x, (0, 0, 0, -x.shape[2] % size, 0, -x.shape[1] % size))


def merge_patches(x: Tensor) -> Tensor:
    """Joins each 2 x 2 patches into one.

    x (B, Y, X, C) -> (B, Y / 2, X / 2, 4 * C), down the first column first
    """
    x = pad_to_multiple(x, 2)
    return torch.cat((x[:, ::2, ::2], x[:, 1::2, ::2], x[:, ::2, 1::2], x[:, 1::2, 1::2]), dim=-1)


def pad_image(x: Tensor, size: int) -> Tensor:
    """Zeros below and to the right until both sides are multiples of size. x (B, C, Y, X)"""
    return F.pad(x, (0, -x.shape[3] % size, 0, -x.shape[2] % size))


def partition_windows(x: Tensor, size: int, shift: int) -> Tensor:
    """Pads, shifts up and left, and cuts into windows. x (B, Y, X, C) -> (B * windows, size * size, C)"""
    x = pad_to_multiple(x, size)
    if shift > 0:
        x = torch.roll(x, (-shift, -shift), dims=(1, 2))
    x = x.unflatten(2, (-1, size)).unflatten(1, (-1, size)).transpose(2, 3)  # (B, n, m, size, size, C)
    return x.flatten(3, 4).flatten(0, 2)


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


def window_mask(x: Tensor, size: int, shift: int) -> Tensor | None:
    """Keeps parts apart that only the shift brought together.

    x (B, Y, X, C) -> (B * windows, 1, S, S), S size ** 2
    """
    if shift == 0:
        return None
    rows, columns = (window_parts(side, size, shift, x.device) for side in (x.shape[1], x.shape[2]))
    parts = rows[:, None, :, None] * 3 + columns[None, :, None, :]  # (n, m, size, size)
    parts = parts.flatten(2).flatten(0, 1)
    mask = parts[:, None, :] == parts[:, :, None]
    return mask[:, None].repeat(x.shape[0], 1, 1, 1)


def window_shift(x: Tensor, size: int, shift: int) -> int:
    """The shift, or 0 where one window spans a side of the image. x (B, Y, X, C)"""
    return shift if min(x.shape[1], x.shape[2]) > size else 0


class AttentionSelf(nn.Module):
    """swin.encoder.layers.*.blocks.*.attention.self."""

    def __init__(self, config: Config, hidden_size: int, heads: int):
        super().__init__()
        self.query = nn.Linear(hidden_size, heads * config.head_dim)
        self.key = nn.Linear(hidden_size, heads * config.head_dim)
        self.value = nn.Linear(hidden_size, heads * config.head_dim)
        self.relative_position_bias_table = nn.Parameter(
            torch.zeros((2 * config.window_size - 1) ** 2, heads)
        )
        self.register_buffer("relative_position_index", torch.zeros(9, 9))


class Embeddings(nn.Module):
    """swin.embeddings: the patches of an image, normed, side by side, channels last."""

    def __init__(self, config: Config):
        super().__init__()
        self.patch_size = config.patch_size
        self.patch_embeddings = nn.ModuleDict(
            {
                "projection": nn.Conv2d(
                    config.channels,
                    config.embedding_size,
                    kernel_size=config.patch_size,
                    stride=config.patch_size,
                ),
            },
        )
        self.norm = nn.LayerNorm(config.embedding_size)

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.patch_embeddings.projection(
            pad_image(pixel_values.type_as(self.patch_embeddings.projection.weight), self.patch_size)
        )
        return self.norm(channels_last(patches))


class Downsampling(nn.Module):
    """swin.encoder.layers.0.downsample: each 2 x 2 patches become one of twice the width."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.reduction = nn.Linear(64, 32, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.reduction(self.norm(merge_patches(x)))


class Attention(nn.Module):
    """swin.encoder.layers.*.blocks.*.attention: patches of one window see each other, with a learned bias
    for each offset.
    """

    def __init__(self, config: Config, hidden_size: int, heads: int):
        super().__init__()
        self.window_size = config.window_size
        self.head_dim = config.head_dim
        self.self = AttentionSelf(config, hidden_size=hidden_size, heads=heads)
        self.output = nn.ModuleDict({"dense": nn.Linear(heads * config.head_dim, hidden_size)})

    def forward(self, x: Tensor, shift: int, mask: Tensor | None) -> Tensor:
        windows = partition_windows(x, self.window_size, shift)
        q = split_heads(self.self.query(windows), self.head_dim)
        k = split_heads(self.self.key(windows), self.head_dim)
        v = split_heads(self.self.value(windows), self.head_dim)
        y = attend_biased(
            q, k, v, window_bias(self.self.relative_position_bias_table, self.window_size), mask
        )
        return join_windows(self.output.dense(merge_heads(y)), x, self.window_size, shift)


class Layer(nn.Module):
    """swin.encoder.layers.*.blocks.*: pre-norm, each norm stands before its sub-layer, inside the
    residual.
    """

    def __init__(self, config: Config, hidden_size: int, heads: int, intermediate_size: int):
        super().__init__()
        self.layernorm_before = nn.LayerNorm(hidden_size)
        self.attention = Attention(config, hidden_size=hidden_size, heads=heads)
        self.layernorm_after = nn.LayerNorm(hidden_size)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(hidden_size, intermediate_size)})
        self.output = nn.ModuleDict({"dense": nn.Linear(intermediate_size, hidden_size)})

    def forward(self, x: Tensor, shift: int, mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.layernorm_before(x), shift, mask)
        return x + self.feed_forward(self.layernorm_after(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class StageWithDownsampling(nn.Module):
    """swin.encoder.layers.0: layers over windows that every second layer shifts by half, then a coarser
    grid where there is one.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.window_size = config.window_size
        self.blocks = nn.ModuleList(
            Layer(config, hidden_size=16, heads=2, intermediate_size=64) for _ in range(2)
        )
        self.downsample = Downsampling()

    def forward(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.blocks):
            shift = window_shift(x, self.window_size, index % 2 * (self.window_size // 2))
            mask = window_mask(x, self.window_size, shift)
            x = layer(x, shift, mask)
        return self.downsample(x)


class Stage(nn.Module):
    """swin.encoder.layers.1: layers over windows that every second layer shifts by half, then a coarser
    grid where there is one.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.window_size = config.window_size
        self.blocks = nn.ModuleList(
            Layer(config, hidden_size=32, heads=4, intermediate_size=128) for _ in range(1)
        )

    def forward(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.blocks):
            shift = window_shift(x, self.window_size, index % 2 * (self.window_size // 2))
            mask = window_mask(x, self.window_size, shift)
            x = layer(x, shift, mask)
        return x


class StagedEncoder(nn.Module):
    """swin: an image through stages, each coarser than the one before, and one vector of the last."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder = nn.ModuleDict(
            {"layers": nn.ModuleList([StageWithDownsampling(config), Stage(config)])}
        )
        self.layernorm = nn.LayerNorm(32)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embeddings(pixel_values)
        for stage in self.encoder.layers:
            x = stage(x)
        x = x.flatten(1, 2)
        x = self.layernorm(x)
        return x, x.mean(dim=1)


class Model(nn.Module):
    """The model: one score for each label, from the tower's vector of an image or from its positions."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.swin = StagedEncoder(config)
        self.classifier = nn.Linear(config.pooled_size, config.labels)

    def forward(self, pixel_values: Tensor) -> Output:
        """pixel_values (batch, channels, height, width)"""
        x, pooled = self.swin(pixel_values)
        return Output(logits=self.classifier(pooled), last_hidden_state=x)


def load(path: str | Path, config: Config = Config()) -> Model:
    """The model with the weights of a .safetensors file or of a directory of them, ready to evaluate."""
    from safetensors.torch import load_file

    files = [Path(path)] if Path(path).is_file() else sorted(Path(path).glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"no .safetensors file in {path}")
    tensors = {name: tensor for file in files for name, tensor in load_file(file).items()}
    with torch.device("meta"):
        model = Model(config)
    model.load_state_dict(tensors, strict=True, assign=True)
    return model.eval()
