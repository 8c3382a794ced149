"""ustc-community/dfine-small-coco: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family d_fine).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
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

    channels: int = 3  # shape: model.backbone.model.embedder.stem1.convolution.weight [16, 3, 3, 3]
    # shape: model.backbone.model.embedder.stem2a.convolution.weight [8, 16, 2, 2]
    backbone_embeddings_channels: int = 8
    stem_last_stride: int = 2  # default: backbone_config.stem_strides, left out: the default of hgnet_v2
    hidden_size: int = 256  # shape: model.enc_output.0.weight [256, 256]
    heads: int = 8  # shape: model.decoder.layers.{0..2}.encoder_attn.sampling_offsets.weight [192, 256]
    # shape and config: model.encoder.encoder.0.layers.0.self_attn.q_proj.weight [256, 256] = heads * head_dim
    encoder_head_dim: int = 32
    # shape and config: model.decoder.layers.{0..2}.self_attn.q_proj.weight [256, 256] = heads * head_dim
    decoder_head_dim: int = 32
    entry_maps_out_channels: int = 256  # shape: model.encoder_input_proj.0.0.weight [256, 512, 1, 1]
    entry_maps_kernel_size: int = 1  # shape: model.encoder_input_proj.0.0.weight [256, 512, 1, 1]
    points: int = 12  # shape: model.decoder.layers.{0..2}.encoder_attn.num_points_scale [12]
    offset_scale: float = 0.5  # config: decoder_offset_scale
    level_points: int = 4  # config: decoder_n_points
    # default: backbone_config.stage_downsample_strides[1], left out: the default of hgnet_v2
    strides: int = 2
    batch_norm_eps: float = 1e-5  # rule: families/d_fine.yaml (a constant of the published code)
    proposal_boxes_inner_size: int = 256  # shape: model.enc_bbox_head.layers.0.weight [256, 256]
    decoder_first_boxes_channels: int = 4  # shape: model.decoder.pre_bbox_head.layers.2.weight [4, 256]
    norm_eps: float = 1e-5  # config: layer_norm_eps
    intermediate_size: int = 1024  # shape: model.decoder.layers.{0..2}.fc1.weight [1024, 256]
    # shape: model.encoder.fpn_blocks.{0..1}.csp_rep1.bottlenecks.0.conv1.conv.weight [64, 64, 3, 3]
    encoder_group_size: int = 64
    backbone_layers: int = 3  # name: model.backbone.model.encoder.stages.0.blocks.0.layers.*
    decoder_layers: int = 3  # name: model.decoder.layers.*
    labels: int = 80  # shape: model.enc_score_head.weight [80, 256]
    queries_best_bins: int = 4  # config: top_prob_values
    # shape: model.encoder.fpn_blocks.0.conv1.conv.weight [512, 512, 1, 1] and 1 more
    encoder_inner_channels: int = 512
    # shape: model.encoder.fpn_blocks.0.conv2.conv.weight [64, 64, 3, 3] and 1 more
    encoder_channels: int = 64
    encoder_layers: int = 1  # name: model.encoder.encoder.0.layers.*
    states_stages: tuple[int, ...] = (2, 3, 4)  # config: backbone_config.out_indices
    queries: int = 300  # config: num_queries


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    pred_boxes: Tensor
    last_hidden_state: Tensor
    init_reference_points: Tensor
    intermediate_hidden_states: Tensor
    intermediate_logits: Tensor
    initial_reference_points: Tensor
    intermediate_reference_points: Tensor
    intermediate_predicted_corners: Tensor
    enc_topk_logits: Tensor
    enc_topk_bboxes: Tensor
    enc_outputs_class: Tensor
    enc_outputs_coord_logits: Tensor


torch.export.register_dataclass(Output)


class FrozenBatchNorm(nn.Module):
    """BatchNorm with fixed statistics, all four stored as buffers. (B, C, Y, X) -> (B, C, Y, X)"""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, size: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", torch.empty(size))
        self.register_buffer("bias", torch.empty(size))
        self.register_buffer("running_mean", torch.empty(size))
        self.register_buffer("running_var", torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        mean, var = self.running_mean, self.running_var
        return F.batch_norm(x, mean, var, self.weight, self.bias, False, 0.0, self.eps)


def distances_of_bins(corners: Tensor, bound: Tensor, scale: Tensor) -> Tensor:
    """The mean of the bins' distances, which grow from the middle on; bound, scale (1,). -> (B, Q, 4)"""
    side = corners.shape[-1] // 8  # bins on either side of the middle
    reach = bound.abs() * scale.abs()
    steps = (reach + 1) ** (torch.arange(1, side, device=corners.device) / (side - 1))
    right = torch.cat((steps - 1, 2 * reach))
    distances = torch.cat((-right.flip(0), torch.zeros_like(reach), right))
    return corners.unflatten(-1, (4, -1)).softmax(-1) @ distances.to(corners.dtype)


def image_sinusoids(x: Tensor, height: int, width: int, reaches_last: bool = False) -> Tensor:
    """Sines and cosines by column, then by row, for the patches of an image. x (B, T, W) -> (1, T, W)

    Wavelengths grow to 10,000 times the first, which the last has only where it `reaches_last`.
    """
    quarter = x.shape[-1] // 4
    steps = quarter - 1 if reaches_last else quarter
    omega = 10000.0 ** -(torch.arange(quarter, dtype=torch.float64, device=x.device) / steps)
    index = torch.arange(height * width, device=x.device)[:, None]
    across, down = index % width * omega, index // width * omega
    return torch.cat((across.sin(), across.cos(), down.sin(), down.cos()), dim=-1)[None].to(x.dtype)


def inverse_sigmoid(shares: Tensor, least: float = 1e-5) -> Tensor:
    """What sigmoid makes the shares of, no further out than those of least and 1 - least. Any shape"""
    return torch.log(shares.clamp(min=least) / (1 - shares).clamp(min=least))


def join_levels(maps: list[Tensor]) -> Tensor:
    """The places of all maps in one row. -> (B, S, C)"""
    return torch.cat([x.flatten(2).transpose(1, 2) for x in maps], dim=1)


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


def spread_levels(table: Tensor, sizes: list[tuple[int, int]]) -> Tensor:
    """The row of a table (L, C) that each place's map has. -> (S, C)"""
    return torch.cat(
        [row.expand(rows * columns, -1) for row, (rows, columns) in zip(table, sizes, strict=True)]
    )


def level_anchors(sizes: list[tuple[int, int]], x: Tensor) -> tuple[Tensor, Tensor]:
    """A box around each place, twice as wide from map to map, before a sigmoid; and which are in the image.

    -> (1, S, 4) as x, y, width, height, with the largest number where they are not; (1, S, 1)
    """
    middles = level_centres(sizes, x.new_ones(1, len(sizes), 2))[:, :, :1].flatten(2)
    sides = x.new_tensor([[0.05 * 2.0**level] * 2 for level in range(len(sizes))])
    boxes = torch.cat((middles, spread_levels(sides, sizes)[None]), dim=-1)
    inside = ((boxes > 0.01) & (boxes < 0.99)).all(-1, keepdim=True)
    logits = torch.log(boxes / (1 - boxes)).masked_fill(~inside, torch.finfo(x.dtype).max)
    return logits.to(x.dtype), inside


def level_points(seen: list[Tensor]) -> Tensor:
    """Where each place stands among the real columns and rows, 0 to 1. -> (B, S, 2)"""
    points = []
    for x in seen:
        down, across = x.cumsum(2, dtype=torch.float32), x.cumsum(3, dtype=torch.float32)
        down = (down - 0.5) / (down[:, :, -1:] + 1e-6)
        across = (across - 0.5) / (across[..., -1:] + 1e-6)
        points.append(torch.cat((across, down), dim=1))
    return join_levels(points)


def level_sizes(maps: list[Tensor]) -> list[tuple[int, int]]:
    """Rows and columns of each map."""
    return [(x.shape[2], x.shape[3]) for x in maps]


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def sample_points(
    v: Tensor, sizes: list[tuple[int, int]], places: Tensor, weights: Tensor, counts: int | tuple[int, ...]
) -> Tensor:
    """The same of so many points of each map, side by side: counts for each map, or one for all.

    v (B, H, S, D), places (B, T, H, P, 2), weights (B, T, H, P) that sum to 1 -> (B, H, T, D)
    """
    of_levels = [counts] * len(sizes) if isinstance(counts, int) else list(counts)
    read = []
    parts = v.split([rows * columns for rows, columns in sizes], dim=2)
    for x, (rows, columns), points in zip(parts, sizes, places.split(of_levels, dim=3), strict=True):
        x = x.transpose(2, 3).unflatten(-1, (rows, columns)).flatten(0, 1)
        grid = 2 * points.transpose(1, 2).flatten(0, 1).to(x.dtype) - 1
        read.append(F.grid_sample(x, grid, align_corners=False))  # (B * H, D, T, P)
    y = (torch.cat(read, dim=-1) * weights.transpose(1, 2).flatten(0, 1)[:, None]).sum(-1)
    return y.unflatten(0, (v.shape[0], -1)).transpose(2, 3)


def select_rows(x: Tensor, best: Tensor) -> Tensor:
    """What stands at some places. x (B, S, C), best (B, T) -> (B, T, C)"""
    return x.gather(1, best[..., None].expand(-1, -1, x.shape[-1]))


def some_states(states: list[Tensor], layers: tuple[int, ...]) -> list[Tensor]:
    """The outputs of several layers."""
    return [states[layer] for layer in layers]


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Embeddings(nn.Module):
    """model.backbone.model.embedder: a stem: a convolution of stride two, max pooling beside two small
    ones, two more, each with a scale (HGNet).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.stem1: Any = nn.ModuleDict(
            {
                "convolution": nn.Conv2d(config.channels, 16, kernel_size=3, stride=2, padding=1, bias=False),
                "normalization": FrozenBatchNorm(16),
                "lab": nn.ParameterDict(
                    {"scale": nn.Parameter(torch.zeros(1)), "bias": nn.Parameter(torch.zeros(1))}
                ),
            }
        )
        self.stem2a: Any = nn.ModuleDict(
            {
                "convolution": nn.Conv2d(16, config.backbone_embeddings_channels, kernel_size=2, bias=False),
                "normalization": FrozenBatchNorm(config.backbone_embeddings_channels),
                "lab": nn.ParameterDict(
                    {"scale": nn.Parameter(torch.zeros(1)), "bias": nn.Parameter(torch.zeros(1))}
                ),
            }
        )
        self.stem2b: Any = nn.ModuleDict(
            {
                "convolution": nn.Conv2d(config.backbone_embeddings_channels, 16, kernel_size=2, bias=False),
                "normalization": FrozenBatchNorm(16),
                "lab": nn.ParameterDict(
                    {"scale": nn.Parameter(torch.zeros(1)), "bias": nn.Parameter(torch.zeros(1))}
                ),
            }
        )
        self.stem3: Any = nn.ModuleDict(
            {
                "convolution": nn.Conv2d(
                    32, 16, kernel_size=3, stride=config.stem_last_stride, padding=1, bias=False
                ),
                "normalization": FrozenBatchNorm(16),
                "lab": nn.ParameterDict(
                    {"scale": nn.Parameter(torch.zeros(1)), "bias": nn.Parameter(torch.zeros(1))}
                ),
            }
        )
        self.stem4: Any = nn.ModuleDict(
            {
                "convolution": nn.Conv2d(16, 16, kernel_size=1, bias=False),
                "normalization": FrozenBatchNorm(16),
                "lab": nn.ParameterDict(
                    {"scale": nn.Parameter(torch.zeros(1)), "bias": nn.Parameter(torch.zeros(1))}
                ),
            }
        )

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = F.relu(
            self.stem1.normalization(
                self.stem1.convolution(pixel_values.type_as(self.stem1.convolution.weight))
            )
        )
        x = x * self.stem1.lab.scale + self.stem1.lab.bias
        x = F.pad(x, (0, 1, 0, 1))
        y = F.relu(self.stem2a.normalization(self.stem2a.convolution(x)))
        y = y * self.stem2a.lab.scale + self.stem2a.lab.bias
        y = F.relu(self.stem2b.normalization(self.stem2b.convolution(F.pad(y, (0, 1, 0, 1)))))
        y = y * self.stem2b.lab.scale + self.stem2b.lab.bias
        x = torch.cat((F.max_pool2d(x, 2, stride=1), y), dim=1)
        x = F.relu(self.stem3.normalization(self.stem3.convolution(x)))
        x = x * self.stem3.lab.scale + self.stem3.lab.bias
        x = F.relu(self.stem4.normalization(self.stem4.convolution(x)))
        return x * self.stem4.lab.scale + self.stem4.lab.bias


class Attention(nn.Module):
    """model.encoder.encoder.0.layers.0.self_attn, model.decoder.layers.*.self_attn: self-attention with
    position embeddings added to queries and keys.
    """

    def __init__(self, config: Config, head_dim: int):
        super().__init__()
        self.head_dim = head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.heads * head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.heads * head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.heads * head_dim)
        self.out_proj = nn.Linear(config.heads * head_dim, config.hidden_size)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        q = split_heads(self.q_proj(x + positions), self.head_dim)
        k = split_heads(self.k_proj(x + positions), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(merge_heads(y))


class BackboneLayerWithNorm(nn.Module):
    """model.backbone.model.encoder.stages.*.blocks.0.layers.*: a convolution, its norm and activation."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.convolution = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False)
        self.normalization = FrozenBatchNorm(out_channels)
        self.lab: Any = nn.ParameterDict(
            {"scale": nn.Parameter(torch.zeros(1)), "bias": nn.Parameter(torch.zeros(1))}
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution_forward(x)

    def convolution_forward(self, x: Tensor) -> Tensor:
        return F.relu(self.normalization(self.convolution(x))) * self.lab.scale + self.lab.bias


class Convolution(nn.Module):
    """model.backbone.model.encoder.stages.*.blocks.*.aggregation.*: convolution, norm and activation, then
    a scale and a shift for all channels (learnable affine block).
    """

    def __init__(self, config: Config, in_channels: int, out_channels: int):
        super().__init__()
        self.convolution = nn.Conv2d(
            in_channels,
            out_channels,
            kernel_size=config.entry_maps_kernel_size,
            padding=config.entry_maps_kernel_size // 2,
            bias=False,
        )
        self.normalization = FrozenBatchNorm(out_channels)
        self.lab: Any = nn.ParameterDict(
            {"scale": nn.Parameter(torch.zeros(1)), "bias": nn.Parameter(torch.zeros(1))}
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.normalization(self.convolution(x))) * self.lab.scale + self.lab.bias


class ConvolutionWithScaled(nn.Module):
    """model.backbone.model.encoder.stages.*.blocks.*.layers.*.conv2: convolution, norm and activation,
    then a scale and a shift for all channels (learnable affine block).
    """

    def __init__(self, out_channels: int):
        super().__init__()
        self.convolution = nn.Conv2d(
            out_channels, out_channels, kernel_size=5, padding=2, groups=out_channels, bias=False
        )
        self.normalization = FrozenBatchNorm(out_channels)
        self.lab: Any = nn.ParameterDict(
            {"scale": nn.Parameter(torch.zeros(1)), "bias": nn.Parameter(torch.zeros(1))}
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.normalization(self.convolution(x))) * self.lab.scale + self.lab.bias


class CrossAttention(nn.Module):
    """model.decoder.layers.*.encoder_attn: reading of a few learned points of each feature map inside of a
    box, without projections (D-FINE).
    """

    num_points_scale: Tensor

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.decoder_head_dim
        self.heads = config.heads
        self.offset_scale = config.offset_scale
        self.level_points = config.level_points
        self.sampling_offsets = nn.Linear(config.hidden_size, 2 * config.heads * config.points)
        self.register_buffer("num_points_scale", torch.zeros(config.points))
        self.attention_weights = nn.Linear(config.hidden_size, config.heads * config.points)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        encoder_hidden_states: Tensor,
        references: Tensor,
        sizes: list[tuple[int, int]],
    ) -> Tensor:
        q = x + positions
        v = split_heads(encoder_hidden_states, self.head_dim)
        offsets = self.sampling_offsets(q).unflatten(-1, (self.heads, -1, 2)) * self.num_points_scale[:, None]
        weights = torch.softmax(self.attention_weights(q).unflatten(-1, (self.heads, -1)), dim=-1)
        middle, extent = references[:, :, None, :, :2], references[:, :, None, :, 2:]
        places = middle + offsets * extent * self.offset_scale
        return merge_heads(sample_points(v, sizes, places, weights, self.level_points))


class Downsampling(nn.Module):
    """model.backbone.model.encoder.stages.*.downsample: convolution of any kernel, stride and groups, and
    norm.
    """

    def __init__(self, config: Config, out_channels: int):
        super().__init__()
        self.convolution = nn.Conv2d(
            out_channels,
            out_channels,
            kernel_size=3,
            stride=config.strides,
            padding=1,
            groups=out_channels,
            bias=False,
        )
        self.normalization = FrozenBatchNorm(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalization(self.convolution(x))


class ConvolutionWithPostNorm(nn.Module):
    """model.backbone.model.encoder.stages.*.blocks.*.layers.*.conv1: convolution and norm."""

    def __init__(self, config: Config, in_channels: int, out_channels: int):
        super().__init__()
        self.convolution = nn.Conv2d(
            in_channels,
            out_channels,
            kernel_size=config.entry_maps_kernel_size,
            padding=config.entry_maps_kernel_size // 2,
            bias=False,
        )
        self.normalization = FrozenBatchNorm(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalization(self.convolution(x))


class LateralMaps(nn.Module):
    """model.encoder.lateral_convs.*: convolution and norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.conv = nn.Conv2d(
            config.hidden_size,
            config.hidden_size,
            kernel_size=config.entry_maps_kernel_size,
            padding=config.entry_maps_kernel_size // 2,
            bias=False,
        )
        self.norm = nn.BatchNorm2d(config.hidden_size, eps=config.batch_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class Bottlenecks(nn.Module):
    """model.encoder.fpn_blocks.*.csp_rep1.bottlenecks.0, model.encoder.fpn_blocks.*.csp_rep2.bottlenecks.0
    and 2 more: the sum of two convolutions with kernels of different size, each with batch norm, and an
    activation (RepVGG).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.conv1: Any = nn.ModuleDict(
            {
                "conv": nn.Conv2d(64, 64, kernel_size=3, padding=1, bias=False),
                "norm": nn.BatchNorm2d(64, eps=config.batch_norm_eps),
            }
        )
        self.conv2: Any = nn.ModuleDict(
            {
                "conv": nn.Conv2d(64, 64, kernel_size=1, bias=False),
                "norm": nn.BatchNorm2d(64, eps=config.batch_norm_eps),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1.norm(self.conv1.conv(x)) + self.conv2.norm(self.conv2.conv(x))
        return F.silu(y)


class CoarserMaps(nn.Module):
    """model.encoder.downsample_convs.*: a convolution of single positions, then a depthwise one, which may
    be strided, each with a norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.conv1: Any = nn.ModuleDict(
            {
                "conv": nn.Conv2d(config.hidden_size, config.hidden_size, kernel_size=1, bias=False),
                "norm": nn.BatchNorm2d(config.hidden_size, eps=config.batch_norm_eps),
            }
        )
        self.conv2: Any = nn.ModuleDict(
            {
                "conv": nn.Conv2d(
                    config.hidden_size,
                    config.hidden_size,
                    kernel_size=3,
                    stride=2,
                    padding=1,
                    groups=config.hidden_size,
                    bias=False,
                ),
                "norm": nn.BatchNorm2d(config.hidden_size, eps=config.batch_norm_eps),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2.norm(self.conv2.conv(self.conv1.norm(self.conv1.conv(x))))


class Fusion(nn.Module):
    """model.decoder.layers.*.gateway: the sum of two states, each gated by both, and a norm (D-FINE)."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate = nn.Linear(2 * config.hidden_size, 2 * config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        one, two = torch.sigmoid(self.gate(torch.cat((x, other), dim=-1))).chunk(2, dim=-1)
        return self.norm(one * x + two * other)


class EntryMaps(nn.Sequential):
    """model.encoder_input_proj.*: convolution and norm."""

    def __init__(self, config: Config, in_channels: int):
        super().__init__(
            nn.Conv2d(
                in_channels,
                config.hidden_size,
                kernel_size=config.entry_maps_kernel_size,
                padding=config.entry_maps_kernel_size // 2,
                bias=False,
            ),
            nn.BatchNorm2d(config.hidden_size),
        )


class ProposalBoxes(nn.ModuleList):
    """model.enc_bbox_head.layers, model.decoder.pre_bbox_head.layers: feed-forward of three linear layers
    with ReLU.
    """

    def __init__(self, config: Config):
        super().__init__(
            [
                nn.Linear(config.hidden_size, config.proposal_boxes_inner_size),
                nn.Linear(config.proposal_boxes_inner_size, config.proposal_boxes_inner_size),
                nn.Linear(config.proposal_boxes_inner_size, 4),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return self[2](F.relu(self[1](F.relu(self[0](x)))))


class BoxHeads(nn.Module):
    """model.decoder.bbox_embed.*: feed-forward of three linear layers with ReLU."""

    def __init__(self, config: Config):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.Linear(config.hidden_size, config.proposal_boxes_inner_size),
                nn.Linear(config.proposal_boxes_inner_size, config.proposal_boxes_inner_size),
                nn.Linear(config.proposal_boxes_inner_size, 132),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[2](F.relu(self.layers[1](F.relu(self.layers[0](x)))))


class ReferenceHead(nn.ModuleList):
    """model.decoder.query_pos_head.layers: feed-forward of two linear layers with ReLU."""

    def __init__(self, config: Config):
        super().__init__([nn.Linear(4, 512), nn.Linear(512, config.hidden_size)])

    def forward(self, x: Tensor) -> Tensor:
        return self[1](F.relu(self[0](x)))


class QualityHeads(nn.Module):
    """model.decoder.lqe_layers.*: feed-forward of two linear layers with ReLU."""

    def __init__(self):
        super().__init__()
        self.reg_conf: Any = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(20, 64), nn.Linear(64, 1)])})

    def forward(self, x: Tensor) -> Tensor:
        return self.reg_conf.layers[1](F.relu(self.reg_conf.layers[0](x)))


class DecoderLayer(nn.Module):
    """model.decoder.layers.*: post-norm, with a gate that joins what cross-attention gives to what it
    reads (D-FINE).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn = Attention(config, head_dim=config.decoder_head_dim)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.encoder_attn = CrossAttention(config)
        self.gateway = Fusion(config)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        encoder_hidden_states: Tensor,
        references: Tensor,
        sizes: list[tuple[int, int]],
    ) -> Tensor:
        x = self.self_attn_layer_norm(x + self.self_attn(x, positions))
        x = self.gateway(x, self.encoder_attn(x, positions, encoder_hidden_states, references, sizes))
        x = x + self.feed_forward(x)
        return self.final_layer_norm(x.clamp(-65504, 65504))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.fc1(x)))


class EncoderLayer(nn.Module):
    """model.encoder.encoder.0.layers.0: a layer with attention, post-norm and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn = Attention(config, head_dim=config.encoder_head_dim)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        x = self.self_attn_layer_norm(x + self.self_attn(x, positions))
        return self.final_layer_norm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class CrossStage(nn.Module):
    """model.encoder.fpn_blocks.*.csp_rep1, model.encoder.fpn_blocks.*.csp_rep2 and 2 more: bottlenecks
    after one of two maps, and the sum of both (CSP), with two convolutions side by side.
    """

    def __init__(self, config: Config, in_channels: int):
        super().__init__()
        self.conv1: Any = nn.ModuleDict(
            {
                "conv": nn.Conv2d(in_channels, config.encoder_group_size, kernel_size=1, bias=False),
                "norm": nn.BatchNorm2d(config.encoder_group_size, eps=config.batch_norm_eps),
            }
        )
        self.conv2: Any = nn.ModuleDict(
            {
                "conv": nn.Conv2d(in_channels, 64, kernel_size=1, bias=False),
                "norm": nn.BatchNorm2d(64, eps=config.batch_norm_eps),
            }
        )
        self.bottlenecks = nn.ModuleList([Bottlenecks(config)])

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.conv1.norm(self.conv1.conv(x)))
        kept = F.silu(self.conv2.norm(self.conv2.conv(x)))
        for inner in self.bottlenecks:
            y = inner(y)
        return kept + y


class FirstStageWithConvolution(nn.Module):
    """model.backbone.model.encoder.stages.0.blocks.0: a stage of layers in sequence, then aggregation of
    all their outputs by two convolutions (HGNet).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.layers = nn.ModuleList(
            BackboneLayerWithNorm(in_channels=16, out_channels=16) for _ in range(config.backbone_layers)
        )
        self.aggregation = nn.ModuleList(
            [
                Convolution(config, in_channels=64, out_channels=32),
                Convolution(config, in_channels=32, out_channels=64),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        states = [x]
        y = x
        for layer in self.layers:
            y = layer(y)
            states.append(y)
        return self.aggregation[1](self.aggregation[0](torch.cat(states, dim=1)))


class SecondStageWithConvolution(nn.Module):
    """model.backbone.model.encoder.stages.1.blocks.0: a stage of layers in sequence, then aggregation of
    all their outputs by two convolutions (HGNet).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.layers = nn.ModuleList(
            BackboneLayerWithNorm(in_channels=in_channels, out_channels=32) for in_channels in (64, 32, 32)
        )
        self.aggregation = nn.ModuleList(
            [
                Convolution(config, in_channels=160, out_channels=128),
                Convolution(config, in_channels=128, out_channels=config.entry_maps_out_channels),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        states = [x]
        y = x
        for layer in self.layers:
            y = layer(y)
            states.append(y)
        return self.aggregation[1](self.aggregation[0](torch.cat(states, dim=1)))


class BackboneLayer(nn.Module):
    """model.backbone.model.encoder.stages.*.blocks.*.layers.*: a pointwise convolution, then a depthwise
    one.
    """

    def __init__(self, config: Config, in_channels: int, out_channels: int):
        super().__init__()
        self.conv1 = ConvolutionWithPostNorm(config, in_channels=in_channels, out_channels=out_channels)
        self.conv2 = ConvolutionWithScaled(out_channels=out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(self.conv1(x))


class DistributionDecoder(nn.Module):
    """model.decoder: queries with boxes, whose distances to their sides every layer refines as a
    distribution over bins (D-FINE).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.queries_best_bins = config.queries_best_bins
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.bbox_embed = nn.ModuleList(BoxHeads(config) for _ in range(config.decoder_layers))
        self.query_pos_head: Any = nn.ModuleDict({"layers": ReferenceHead(config)})
        self.pre_bbox_head: Any = nn.ModuleDict({"layers": ProposalBoxes(config)})
        self.up = nn.Parameter(torch.zeros(1))
        self.reg_scale = nn.Parameter(torch.zeros(1))
        self.class_embed = nn.ModuleList(nn.Linear(config.hidden_size, config.labels) for _ in range(3))
        self.lqe_layers = nn.ModuleList(QualityHeads() for _ in range(3))

    def forward(
        self, queries: Tensor, proposals: Tensor, encoder_hidden_states: Tensor, sizes: list[tuple[int, int]]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        x = queries
        boxes = proposals.sigmoid()
        y = torch.zeros_like(queries)
        corners = y[..., :1]
        first = None
        states = []
        for layer, box_head in zip(self.layers, self.bbox_embed, strict=True):
            positions = self.query_pos_head.layers(boxes).clamp(-10, 10)
            references = boxes[:, :, None]
            x = layer(x, positions, encoder_hidden_states, references, sizes)
            if first is None:
                first = (self.pre_bbox_head.layers(x) + inverse_sigmoid(boxes)).sigmoid()
            corners = corners + box_head(x + y)
            y = x
            near, far = distances_of_bins(corners, self.up, self.reg_scale).chunk(2, dim=-1)
            assert first is not None
            middle, sides = first.chunk(2, dim=-1)
            half, part = self.reg_scale.abs() * 0.5, sides / self.reg_scale.abs()
            low, high = middle - (half + near) * part, middle + (half + far) * part
            boxes = torch.cat(((low + high) / 2, high - low), dim=-1)
            states.append(x)
        best = corners.unflatten(-1, (4, -1)).softmax(-1).topk(self.queries_best_bins, dim=-1).values
        best = torch.cat((best, best.mean(-1, keepdim=True)), dim=-1).flatten(-2)
        scores = self.class_embed[-1](x) + self.lqe_layers[-1](best)
        if first is None:
            first = boxes
        return torch.stack(states), scores, first, corners, boxes


class FinerBlocks(nn.Module):
    """model.encoder.fpn_blocks.*, model.encoder.pan_blocks.*: half of a convolution's channels, the other
    half, and this after one and two stages of bottlenecks, joined (ELAN).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.conv1: Any = nn.ModuleDict(
            {
                "conv": nn.Conv2d(512, config.encoder_inner_channels, kernel_size=1, bias=False),
                "norm": nn.BatchNorm2d(config.encoder_inner_channels, eps=config.batch_norm_eps),
            }
        )
        self.csp_rep1 = CrossStage(config, in_channels=config.encoder_inner_channels // 2)
        self.conv2: Any = nn.ModuleDict(
            {
                "conv": nn.Conv2d(64, config.encoder_channels, kernel_size=3, padding=1, bias=False),
                "norm": nn.BatchNorm2d(config.encoder_channels, eps=config.batch_norm_eps),
            }
        )
        self.csp_rep2 = CrossStage(config, in_channels=config.encoder_channels)
        self.conv3: Any = nn.ModuleDict(
            {
                "conv": nn.Conv2d(64, config.encoder_channels, kernel_size=3, padding=1, bias=False),
                "norm": nn.BatchNorm2d(config.encoder_channels, eps=config.batch_norm_eps),
            }
        )
        self.conv4: Any = nn.ModuleDict(
            {
                "conv": nn.Conv2d(
                    2 * (config.encoder_inner_channels // 2) + 2 * config.encoder_channels,
                    config.hidden_size,
                    kernel_size=1,
                    bias=False,
                ),
                "norm": nn.BatchNorm2d(config.hidden_size, eps=config.batch_norm_eps),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        first, second = F.silu(self.conv1.norm(self.conv1.conv(x))).chunk(2, dim=1)
        y = self.csp_rep1(second)
        y = F.silu(self.conv2.norm(self.conv2.conv(y)))
        z = self.csp_rep2(y)
        z = F.silu(self.conv3.norm(self.conv3.conv(z)))
        return F.silu(self.conv4.norm(self.conv4.conv(torch.cat((first, second, y, z), dim=1))))


class StageWithAggregatedAnyKernel(nn.Module):
    """model.backbone.model.encoder.stages.1: a stage of groups of layers with downsampling before them."""

    def __init__(self, config: Config):
        super().__init__()
        self.downsample = Downsampling(config, out_channels=64)
        self.blocks = nn.ModuleList([SecondStageWithConvolution(config)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.downsample(x)
        for stage in self.blocks:
            x = stage(x)
        return x


class Stage(nn.Module):
    """model.backbone.model.encoder.stages.*.blocks.0: a stage of layers in sequence, then aggregation of
    all their outputs by two convolutions (HGNet).
    """

    def __init__(
        self,
        config: Config,
        out_channels: int,
        blocks_in_channels: tuple[int, ...],
        in_channels_2: int,
        convolution_2_out_channels: int,
    ):
        super().__init__()
        self.layers = nn.ModuleList(
            BackboneLayer(config, in_channels=in_channels, out_channels=out_channels)
            for in_channels in blocks_in_channels
        )
        self.aggregation = nn.ModuleList(
            [
                Convolution(config, in_channels=in_channels_2 + 3 * out_channels, out_channels=in_channels_2),
                Convolution(config, in_channels=in_channels_2, out_channels=convolution_2_out_channels),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        states = [x]
        y = x
        for layer in self.layers:
            y = layer(y)
            states.append(y)
        return self.aggregation[1](self.aggregation[0](torch.cat(states, dim=1)))


class StageWithLightPostNorm(nn.Module):
    """model.backbone.model.encoder.stages.2.blocks.1: a stage of layers in sequence, then aggregation of
    all their outputs by two convolutions (HGNet).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.layers = nn.ModuleList(
            BackboneLayer(config, in_channels=in_channels, out_channels=64) for in_channels in (512, 64, 64)
        )
        self.aggregation = nn.ModuleList(
            [
                Convolution(config, in_channels=704, out_channels=config.entry_maps_out_channels),
                Convolution(config, in_channels=config.entry_maps_out_channels, out_channels=512),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        states = [x]
        y = x
        for layer in self.layers:
            y = layer(y)
            states.append(y)
        y = self.aggregation[1](self.aggregation[0](torch.cat(states, dim=1)))
        return x + y


class StageWithAggregatedConvolution(nn.Module):
    """model.backbone.model.encoder.stages.0: a stage of groups of layers."""

    def __init__(self, config: Config):
        super().__init__()
        self.blocks = nn.ModuleList([FirstStageWithConvolution(config)])

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.blocks:
            x = stage(x)
        return x


class MapEncoders(nn.Module):
    """model.encoder.encoder.0: layers over the places of a feature map, with 2D sinusoidal position
    embeddings.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = x.shape[2], x.shape[3]
        x = x.flatten(2).transpose(1, 2)
        across, down = image_sinusoids(x, rows, columns).chunk(2, dim=-1)
        positions = torch.cat((down, across), dim=-1)
        for layer in self.layers:
            x = layer(x, positions)
        return x.transpose(1, 2).unflatten(-1, (rows, columns))


class HybridEncoder(nn.Module):
    """model.encoder: layers over the coarsest feature map, then fusion of all maps from coarse to fine and
    from fine to coarse (RT-DETR).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.encoder = nn.ModuleList([MapEncoders(config)])
        self.lateral_convs = nn.ModuleList(LateralMaps(config) for _ in range(2))
        self.fpn_blocks = nn.ModuleList(FinerBlocks(config) for _ in range(2))
        self.downsample_convs = nn.ModuleList(CoarserMaps(config) for _ in range(2))
        self.pan_blocks = nn.ModuleList(FinerBlocks(config) for _ in range(2))

    def forward(self, levels: list[Tensor]) -> list[Tensor]:
        x = levels[-1]
        for inner in self.encoder:
            x = inner(x)
        states = []
        for lateral, block, finer in zip(self.lateral_convs, self.fpn_blocks, levels[:-1][::-1], strict=True):
            x = lateral(x)
            states.append(x)
            x = block(torch.cat((F.interpolate(x, scale_factor=2.0), finer), dim=1))
        fused = [x]
        for downsample, block, coarser in zip(
            self.downsample_convs, self.pan_blocks, states[::-1], strict=True
        ):
            x = block(torch.cat((downsample(x), coarser), dim=1))
            fused.append(x)
        return fused


class StageWithLightPostNormAndStagesAndResidual(nn.Module):
    """model.backbone.model.encoder.stages.2: a stage of groups of layers with downsampling before them."""

    def __init__(self, config: Config):
        super().__init__()
        self.downsample = Downsampling(config, out_channels=config.entry_maps_out_channels)
        self.blocks = nn.ModuleList(
            [
                Stage(
                    config,
                    out_channels=64,
                    blocks_in_channels=(256, 64, 64),
                    in_channels_2=config.entry_maps_out_channels,
                    convolution_2_out_channels=512,
                ),
                StageWithLightPostNorm(config),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.downsample(x)
        for stage in self.blocks:
            x = stage(x)
        return x


class StageWithLightPostNormAndStages(nn.Module):
    """model.backbone.model.encoder.stages.3: a stage of groups of layers with downsampling before them."""

    def __init__(self, config: Config):
        super().__init__()
        self.downsample = Downsampling(config, out_channels=512)
        self.blocks = nn.ModuleList(
            [
                Stage(
                    config,
                    out_channels=128,
                    blocks_in_channels=(512, 128, 128),
                    in_channels_2=512,
                    convolution_2_out_channels=1024,
                )
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.downsample(x)
        for stage in self.blocks:
            x = stage(x)
        return x


class StagedEncoder(nn.Module):
    """model.backbone.model: an image through stages, each coarser than the one before, with the feature
    maps of its stages, which are kept and the feature maps of some stages.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.states_stages = config.states_stages
        self.embedder = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {
                "stages": nn.ModuleList(
                    [
                        StageWithAggregatedConvolution(config),
                        StageWithAggregatedAnyKernel(config),
                        StageWithLightPostNormAndStagesAndResidual(config),
                        StageWithLightPostNormAndStages(config),
                    ]
                )
            }
        )

    def forward(self, pixel_values: Tensor) -> list[Tensor]:
        x = self.embedder(pixel_values)
        states = [x]
        for stage in self.encoder.stages:
            x = stage(x)
            states.append(x)
        return some_states(states, self.states_stages)


class Model(nn.Module):
    """The model with an encoder that fuses several feature maps, which are read as they are, a decoder of
    the positions with the highest scores, whose boxes it refines as distributions (D-FINE) and labels
    and boxes, which the layers of the decoder refine.
    """

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.queries = config.queries
        self.model: Any = nn.ModuleDict(
            {
                "encoder_input_proj": nn.ModuleList(
                    EntryMaps(config, in_channels=in_channels) for in_channels in (512, 1024, 2048)
                ),
                "backbone": nn.ModuleDict({"model": StagedEncoder(config)}),
                "encoder": HybridEncoder(config),
                "enc_output": nn.ModuleList(
                    [
                        nn.Linear(config.hidden_size, config.hidden_size),
                        nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
                    ]
                ),
                "enc_score_head": nn.Linear(config.hidden_size, config.labels),
                "enc_bbox_head": nn.ModuleDict({"layers": ProposalBoxes(config)}),
                "decoder": DistributionDecoder(config),
                "denoising_class_embed": nn.Embedding(81, config.hidden_size),
            }
        )

    def forward(self, pixel_values: Tensor, pixel_mask: Tensor | None = None) -> Output:
        """pixel_values (batch, channels, height, width), pixel_mask (batch, height, width); pixel_mask is
        not read
        """
        levels = []
        for projection, map in zip(
            self.model.encoder_input_proj, self.model.backbone.model(pixel_values), strict=True
        ):
            levels.append(projection(map))
        levels = self.model.encoder(levels)
        sizes = level_sizes(levels)
        encoder_hidden_states = join_levels(levels)
        anchors, inside = level_anchors(sizes, encoder_hidden_states)
        candidates = self.model.enc_output[1](self.model.enc_output[0](encoder_hidden_states * inside))
        scores = self.model.enc_score_head(candidates)
        boxes = self.model.enc_bbox_head.layers(candidates) + anchors
        best = scores.amax(-1).topk(self.queries, dim=1).indices
        proposals = select_rows(boxes, best)
        queries = select_rows(candidates, best)
        states, last_scores, first, corners, last_boxes = self.model.decoder(
            queries, proposals, encoder_hidden_states, sizes
        )
        predicted = last_scores[:, None]
        refined = last_boxes[:, None]
        predicted_boxes = refined[:, -1]
        return Output(
            logits=predicted[:, -1],
            pred_boxes=predicted_boxes,
            last_hidden_state=states[-1],
            init_reference_points=proposals,
            intermediate_hidden_states=states,
            intermediate_logits=predicted,
            initial_reference_points=first[:, None],
            intermediate_reference_points=refined,
            intermediate_predicted_corners=corners[:, None],
            enc_topk_logits=select_rows(scores, best),
            enc_topk_bboxes=proposals.sigmoid(),
            enc_outputs_class=scores,
            enc_outputs_coord_logits=boxes,
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
# {"config": {"activation_function": "silu", "architectures": ["DFineForObjectDetection"], "backbone_config":
# {"hidden_act": "relu", "model_type": "hgnet_v2", "num_channels": 3, "out_indices": [2, 3, 4],
# "use_learnable_affine_block": true}, "batch_norm_eps": 1e-05, "d_model": 256, "decoder_activation_function":
# "relu", "decoder_attention_heads": 8, "decoder_ffn_dim": 1024, "decoder_layers": 3, "decoder_n_points": 4,
# "decoder_offset_scale": 0.5, "encoder_activation_function": "gelu", "encoder_attention_heads": 8,
# "encoder_hidden_dim": 256, "layer_norm_eps": 1e-05, "model_type": "d_fine", "normalize_before": false,
# "num_feature_levels": 3, "num_queries": 300, "top_prob_values": 4}, "notes": ["header from the bundled
# catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# recalled"]}
# sha256 of all above: 9ae43baa9676982b
