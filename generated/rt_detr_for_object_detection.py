"""PekingU/rtdetr_r50vd: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family rt_detr).
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

    hidden_size: int = 256  # shape: model.enc_output.0.weight [256, 256]
    encoder_heads: int = 8  # config: encoder_attention_heads
    decoder_heads: int = 8  # config: decoder_attention_heads
    # shape and config: model.encoder.encoder.0.layers.0.self_attn.q_proj.weight [256, 256] = heads * head_dim
    encoder_head_dim: int = 32
    # shape and config: model.decoder.layers.{0..5}.encoder_attn.value_proj.weight [256, 256] = heads * ...
    decoder_head_dim: int = 32
    # shape and config: model.decoder.layers.{0..5}.encoder_attn.sampling_offsets.weight [192, 256] = 2 * ...
    points: int = 12
    # shape: model.backbone.model.embedder.embedder.2.convolution.weight [64, 32, 3, 3]
    embedding_size: int = 64
    # shape: model.backbone.model.encoder.stages.0.layers.0.layer.2.convolution.weight [256, 64, 1, 1] ...
    backbone_hidden_sizes: tuple[int, ...] = (256, 512, 1024, 2048)
    batch_norm_eps: float = 1e-5  # rule: families/rt_detr.yaml (a constant of the published code)
    entry_maps_kernel_size: int = 1  # shape: model.encoder_input_proj.0.0.weight [256, 512, 1, 1]
    channels: int = 3  # shape: model.backbone.model.embedder.embedder.0.convolution.weight [32, 3, 3, 3]
    # shape: model.backbone.model.embedder.embedder.0.convolution.weight [32, 3, 3, 3]
    backbone_embeddings_channels: int = 32
    level_maps_kernel_size: int = 1  # shape: model.decoder_input_proj.{0..2}.0.weight [256, 256, 1, 1]
    proposal_boxes_inner_size: int = 256  # shape: model.enc_bbox_head.layers.0.weight [256, 256]
    norm_eps: float = 1e-5  # config: layer_norm_eps
    intermediate_size: int = 1024  # shape: model.decoder.layers.{0..5}.fc1.weight [1024, 256]
    # shape: model.backbone.model.encoder.stages.0.layers.0.layer.0.convolution.weight [64, 64, 1, 1] and ...
    backbone_reduction: int = 4
    decoder_layers: int = 6  # name: model.decoder.layers.*
    labels: int = 80  # shape: model.enc_score_head.weight [80, 256]
    # name: model.backbone.model.encoder.stages.0.layers.* and 3 more
    backbone_layers: tuple[int, ...] = (3, 4, 6, 3)
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
    intermediate_reference_points: Tensor
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


def level_sizes(maps: list[Tensor]) -> list[tuple[int, int]]:
    """Rows and columns of each map."""
    return [(x.shape[2], x.shape[3]) for x in maps]


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


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


def select_rows(x: Tensor, best: Tensor) -> Tensor:
    """What stands at some places. x (B, S, C), best (B, T) -> (B, T, C)"""
    return x.gather(1, best[..., None].expand(-1, -1, x.shape[-1]))


def some_states(states: list[Tensor], layers: tuple[int, ...]) -> list[Tensor]:
    """The outputs of several layers."""
    return [states[layer] for layer in layers]


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Attention(nn.Module):
    """model.encoder.encoder.0.layers.0.self_attn, model.decoder.layers.*.self_attn: self-attention with
    position embeddings added to queries and keys.
    """

    def __init__(self, config: Config, heads: int, head_dim: int):
        super().__init__()
        self.head_dim = head_dim
        self.q_proj = nn.Linear(config.hidden_size, heads * head_dim)
        self.k_proj = nn.Linear(config.hidden_size, heads * head_dim)
        self.v_proj = nn.Linear(config.hidden_size, heads * head_dim)
        self.out_proj = nn.Linear(heads * head_dim, config.hidden_size)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        q = split_heads(self.q_proj(x + positions), self.head_dim)
        k = split_heads(self.k_proj(x + positions), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(merge_heads(y))


class CrossAttention(nn.Module):
    """model.decoder.layers.*.encoder_attn: reading of a few learned points of each feature map around
    references (Deformable DETR).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.decoder_head_dim
        self.heads = config.decoder_heads
        self.value_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.sampling_offsets = nn.Linear(config.hidden_size, 2 * config.decoder_heads * config.points)
        self.attention_weights = nn.Linear(config.hidden_size, config.decoder_heads * config.points)
        self.output_proj = nn.Linear(config.decoder_heads * config.decoder_head_dim, config.hidden_size)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        encoder_hidden_states: Tensor,
        sizes: list[tuple[int, int]],
        references: Tensor,
    ) -> Tensor:
        q = x + positions
        v = self.value_proj(encoder_hidden_states)
        v = split_heads(v, self.head_dim)
        offsets = self.sampling_offsets(q).unflatten(-1, (self.heads, len(sizes), -1, 2))
        weights = torch.softmax(self.attention_weights(q).unflatten(-1, (self.heads, -1)), dim=-1)
        places = sampling_points(references, offsets, sizes)
        y = sample_levels(v, sizes, places, weights.unflatten(-1, (len(sizes), -1)))
        return self.output_proj(merge_heads(y))


class Convolution(nn.Module):
    """model.backbone.model.encoder.stages.*.layers.*.layer.*,
    model.backbone.model.encoder.stages.0.layers.0.shortcut: convolution and norm.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int, kernel_size: int):
        super().__init__()
        self.convolution = nn.Conv2d(
            in_channels,
            out_channels,
            kernel_size=kernel_size,
            stride=stride,
            padding=kernel_size // 2,
            bias=False,
        )
        self.normalization = FrozenBatchNorm(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalization(self.convolution(x))


class Shortcut(nn.Module):
    """model.backbone.model.encoder.stages.*.layers.0.shortcut.1: average pooling of 2 x 2 places,
    convolution and norm (ResNet-D).
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.convolution = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=False)
        self.normalization = FrozenBatchNorm(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalization(self.convolution(F.avg_pool2d(x, 2, ceil_mode=True)))


class LateralMaps(nn.Module):
    """model.encoder.lateral_convs.*, model.encoder.downsample_convs.*: convolution and norm."""

    def __init__(self, config: Config, stride: int, kernel_size: int):
        super().__init__()
        self.conv = nn.Conv2d(
            config.hidden_size,
            config.hidden_size,
            kernel_size=kernel_size,
            stride=stride,
            padding=kernel_size // 2,
            bias=False,
        )
        self.norm = nn.BatchNorm2d(config.hidden_size, eps=config.batch_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class Bottlenecks(nn.Module):
    """model.encoder.fpn_blocks.*.bottlenecks.*, model.encoder.pan_blocks.*.bottlenecks.*: the sum of two
    convolutions with kernels of different size, each with batch norm, and an activation (RepVGG).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.conv1: Any = nn.ModuleDict(
            {
                "conv": nn.Conv2d(
                    config.hidden_size, config.hidden_size, kernel_size=3, padding=1, bias=False
                ),
                "norm": nn.BatchNorm2d(config.hidden_size, eps=config.batch_norm_eps),
            }
        )
        self.conv2: Any = nn.ModuleDict(
            {
                "conv": nn.Conv2d(config.hidden_size, config.hidden_size, kernel_size=1, bias=False),
                "norm": nn.BatchNorm2d(config.hidden_size, eps=config.batch_norm_eps),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1.norm(self.conv1.conv(x)) + self.conv2.norm(self.conv2.conv(x))
        return F.silu(y)


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


class Embeddings(nn.ModuleList):
    """model.backbone.model.embedder.embedder: a stem: three convolutions, of which the first has stride
    two, with norms and activations, with max pooling (ResNet-D).
    """

    __getitem__: Any

    def __init__(self, config: Config):
        super().__init__(
            [
                nn.ModuleDict(
                    {
                        "convolution": nn.Conv2d(
                            config.channels,
                            config.backbone_embeddings_channels,
                            kernel_size=3,
                            stride=2,
                            padding=1,
                            bias=False,
                        ),
                        "normalization": FrozenBatchNorm(config.backbone_embeddings_channels),
                    }
                ),
                nn.ModuleDict(
                    {
                        "convolution": nn.Conv2d(
                            config.backbone_embeddings_channels,
                            config.backbone_embeddings_channels,
                            kernel_size=3,
                            padding=1,
                            bias=False,
                        ),
                        "normalization": FrozenBatchNorm(config.backbone_embeddings_channels),
                    }
                ),
                nn.ModuleDict(
                    {
                        "convolution": nn.Conv2d(
                            config.backbone_embeddings_channels,
                            config.embedding_size,
                            kernel_size=3,
                            padding=1,
                            bias=False,
                        ),
                        "normalization": FrozenBatchNorm(config.embedding_size),
                    }
                ),
            ]
        )

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = F.relu(
            self[0].normalization(self[0].convolution(pixel_values.type_as(self[0].convolution.weight)))
        )
        x = self[2].convolution(F.relu(self[1].normalization(self[1].convolution(x))))
        x = F.relu(self[2].normalization(x))
        return F.max_pool2d(x, 3, stride=2, padding=1)


class LevelMaps(nn.Sequential):
    """model.decoder_input_proj.*: convolution and norm."""

    def __init__(self, config: Config):
        super().__init__(
            nn.Conv2d(
                config.hidden_size,
                config.hidden_size,
                kernel_size=config.level_maps_kernel_size,
                padding=config.level_maps_kernel_size // 2,
                bias=False,
            ),
            nn.BatchNorm2d(config.hidden_size, eps=config.batch_norm_eps),
        )


class ProposalBoxes(nn.ModuleList):
    """model.enc_bbox_head.layers: feed-forward of three linear layers with ReLU."""

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
                nn.Linear(config.proposal_boxes_inner_size, 4),
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


class DecoderLayer(nn.Module):
    """model.decoder.layers.*: a layer with attention, post-norm, cross-attention and a feed-forward
    network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn = Attention(config, heads=config.decoder_heads, head_dim=config.decoder_head_dim)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.encoder_attn = CrossAttention(config)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        encoder_hidden_states: Tensor,
        sizes: list[tuple[int, int]],
        references: Tensor,
    ) -> Tensor:
        x = self.self_attn_layer_norm(x + self.self_attn(x, positions))
        x = self.encoder_attn_layer_norm(
            x + self.encoder_attn(x, positions, encoder_hidden_states, sizes, references)
        )
        return self.final_layer_norm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.fc1(x)))


class EncoderLayer(nn.Module):
    """model.encoder.encoder.0.layers.0: a layer with attention, post-norm and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn = Attention(config, heads=config.encoder_heads, head_dim=config.encoder_head_dim)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        x = self.self_attn_layer_norm(x + self.self_attn(x, positions))
        return self.final_layer_norm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class FinerBlocks(nn.Module):
    """model.encoder.fpn_blocks.*, model.encoder.pan_blocks.*: bottlenecks after one of two maps, and the
    sum of both (CSP), with two convolutions side by side.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.conv1: Any = nn.ModuleDict(
            {
                "conv": nn.Conv2d(512, config.hidden_size, kernel_size=1, bias=False),
                "norm": nn.BatchNorm2d(config.hidden_size, eps=config.batch_norm_eps),
            }
        )
        self.conv2: Any = nn.ModuleDict(
            {
                "conv": nn.Conv2d(512, config.hidden_size, kernel_size=1, bias=False),
                "norm": nn.BatchNorm2d(config.hidden_size, eps=config.batch_norm_eps),
            }
        )
        self.bottlenecks = nn.ModuleList(Bottlenecks(config) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.conv1.norm(self.conv1.conv(x)))
        kept = F.silu(self.conv2.norm(self.conv2.conv(x)))
        for inner in self.bottlenecks:
            y = inner(y)
        return kept + y


class BackboneLayerWithShortcut(nn.Module):
    """model.backbone.model.encoder.stages.0.layers.0: a bottleneck of three convolutions with a projected
    shortcut (ResNet).
    """

    def __init__(self, config: Config):
        super().__init__()
        reduced_size = config.backbone_hidden_sizes[0] // config.backbone_reduction
        self.layer = nn.ModuleList(
            [
                Convolution(
                    in_channels=config.embedding_size, out_channels=reduced_size, stride=1, kernel_size=1
                ),
                Convolution(in_channels=reduced_size, out_channels=reduced_size, stride=1, kernel_size=3),
                Convolution(
                    in_channels=reduced_size,
                    out_channels=config.backbone_hidden_sizes[0],
                    stride=1,
                    kernel_size=1,
                ),
            ]
        )
        self.shortcut = Convolution(
            in_channels=config.embedding_size,
            out_channels=config.backbone_hidden_sizes[0],
            stride=1,
            kernel_size=1,
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.layer[0](x))
        y = F.relu(self.layer[1](y))
        return F.relu(self.shortcut(x) + self.layer[2](y))


class BackboneLayerWithShortcutAndPooled(nn.Module):
    """model.backbone.model.encoder.stages.*.layers.0: a bottleneck of three convolutions with a projected
    shortcut (ResNet).
    """

    def __init__(self, config: Config, input_size: int, hidden_size: int):
        super().__init__()
        reduced_size = hidden_size // config.backbone_reduction
        self.layer = nn.ModuleList(
            [
                Convolution(in_channels=input_size, out_channels=reduced_size, stride=1, kernel_size=1),
                Convolution(in_channels=reduced_size, out_channels=reduced_size, stride=2, kernel_size=3),
                Convolution(in_channels=reduced_size, out_channels=hidden_size, stride=1, kernel_size=1),
            ]
        )
        self.shortcut = nn.ModuleDict({"1": Shortcut(in_channels=input_size, out_channels=hidden_size)})

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.layer[0](x))
        y = F.relu(self.layer[1](y))
        return F.relu(self.shortcut["1"](x) + self.layer[2](y))


class BackboneLayer(nn.Module):
    """model.backbone.model.encoder.stages.*.layers.*: a bottleneck of three convolutions with a residual
    (ResNet).
    """

    def __init__(self, config: Config, hidden_size: int):
        super().__init__()
        reduced_size = hidden_size // config.backbone_reduction
        self.layer = nn.ModuleList(
            [
                Convolution(in_channels=hidden_size, out_channels=reduced_size, stride=1, kernel_size=1),
                Convolution(in_channels=reduced_size, out_channels=reduced_size, stride=1, kernel_size=3),
                Convolution(in_channels=reduced_size, out_channels=hidden_size, stride=1, kernel_size=1),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.layer[0](x))
        y = F.relu(self.layer[1](y))
        return F.relu(x + self.layer[2](y))


class DeformableDecoder(nn.Module):
    """model.decoder: queries, each of which reads points of all feature maps, with boxes, inside which it
    reads, and which every layer refines (RT-DETR).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.bbox_embed = nn.ModuleList(BoxHeads(config) for _ in range(config.decoder_layers))
        self.class_embed = nn.ModuleList(
            nn.Linear(config.hidden_size, config.labels) for _ in range(config.decoder_layers)
        )
        self.query_pos_head: Any = nn.ModuleDict({"layers": ReferenceHead(config)})

    def forward(
        self, queries: Tensor, proposals: Tensor, encoder_hidden_states: Tensor, sizes: list[tuple[int, int]]
    ) -> tuple[Tensor, Tensor, Tensor]:
        x = queries
        states = []
        boxes = proposals.sigmoid()
        refined, scores = [], []
        for layer, box_head, class_head in zip(self.layers, self.bbox_embed, self.class_embed, strict=True):
            positions = self.query_pos_head.layers(boxes)
            references = boxes[:, :, None]
            x = layer(x, positions, encoder_hidden_states, sizes, references)
            boxes = (box_head(x) + inverse_sigmoid(boxes)).sigmoid()
            states.append(x)
            refined.append(boxes)
            scores.append(class_head(x))
        return torch.stack(states, dim=1), torch.stack(refined, dim=1), torch.stack(scores, dim=1)


class Stage(nn.Module):
    """model.backbone.model.encoder.stages.0: a stage of layers in sequence."""

    def __init__(self, config: Config):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                BackboneLayerWithShortcut(config),
                *(
                    BackboneLayer(config, hidden_size=config.backbone_hidden_sizes[0])
                    for _ in range(config.backbone_layers[0] - 1)
                ),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class StageWithPooled(nn.Module):
    """model.backbone.model.encoder.stages.*: a stage of layers in sequence."""

    def __init__(self, config: Config, input_size: int, hidden_size: int, layers: int):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                BackboneLayerWithShortcutAndPooled(config, input_size=input_size, hidden_size=hidden_size),
                *(BackboneLayer(config, hidden_size=hidden_size) for _ in range(layers - 1)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
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
        self.lateral_convs = nn.ModuleList(LateralMaps(config, stride=1, kernel_size=1) for _ in range(2))
        self.fpn_blocks = nn.ModuleList(FinerBlocks(config) for _ in range(2))
        self.downsample_convs = nn.ModuleList(LateralMaps(config, stride=2, kernel_size=3) for _ in range(2))
        self.pan_blocks = nn.ModuleList(FinerBlocks(config) for _ in range(2))

    def forward(self, levels: list[Tensor]) -> list[Tensor]:
        x = levels[-1]
        for inner in self.encoder:
            x = inner(x)
        states = []
        for lateral, block, finer in zip(self.lateral_convs, self.fpn_blocks, levels[:-1][::-1], strict=True):
            x = F.silu(lateral(x))
            states.append(x)
            x = block(torch.cat((F.interpolate(x, scale_factor=2.0), finer), dim=1))
        fused = [x]
        for downsample, block, coarser in zip(
            self.downsample_convs, self.pan_blocks, states[::-1], strict=True
        ):
            x = block(torch.cat((F.silu(downsample(x)), coarser), dim=1))
            fused.append(x)
        return fused


class StagedEncoder(nn.Module):
    """model.backbone.model: an image through stages, each coarser than the one before, with the feature
    maps of its stages, which are kept and the feature maps of some stages.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.states_stages = config.states_stages
        self.embedder: Any = nn.ModuleDict({"embedder": Embeddings(config)})
        self.encoder: Any = nn.ModuleDict(
            {
                "stages": nn.ModuleList(
                    [
                        Stage(config),
                        *(
                            StageWithPooled(
                                config, input_size=input_size, hidden_size=hidden_size, layers=layers
                            )
                            for input_size, hidden_size, layers in zip(
                                config.backbone_hidden_sizes[:-1],
                                config.backbone_hidden_sizes[1:],
                                config.backbone_layers[1:],
                                strict=True,
                            )
                        ),
                    ]
                )
            }
        )

    def forward(self, pixel_values: Tensor) -> list[Tensor]:
        x = self.embedder.embedder(pixel_values)
        states = [x]
        for stage in self.encoder.stages:
            x = stage(x)
            states.append(x)
        return some_states(states, self.states_stages)


class Model(nn.Module):
    """The model with an encoder that fuses several feature maps, a decoder of the places with the highest
    scores, whose boxes it refines (RT-DETR) and labels and boxes, which the layers of the decoder
    refine.
    """

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.queries = config.queries
        self.model: Any = nn.ModuleDict(
            {
                "encoder_input_proj": nn.ModuleList(
                    EntryMaps(config, in_channels=in_channels)
                    for in_channels in config.backbone_hidden_sizes[1:]
                ),
                "backbone": nn.ModuleDict({"model": StagedEncoder(config)}),
                "encoder": HybridEncoder(config),
                "decoder_input_proj": nn.ModuleList(LevelMaps(config) for _ in range(3)),
                "enc_output": nn.ModuleList(
                    [
                        nn.Linear(config.hidden_size, config.hidden_size),
                        nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
                    ]
                ),
                "enc_score_head": nn.Linear(config.hidden_size, config.labels),
                "enc_bbox_head": nn.ModuleDict({"layers": ProposalBoxes(config)}),
                "decoder": DeformableDecoder(config),
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
        fused, levels = self.model.encoder(levels), []
        for level in self.model.decoder_input_proj:
            levels.append(level(fused[min(len(levels), len(fused) - 1)]))
        sizes = level_sizes(levels)
        encoder_hidden_states = join_levels(levels)
        anchors, inside = level_anchors(sizes, encoder_hidden_states)
        candidates = self.model.enc_output[1](self.model.enc_output[0](encoder_hidden_states * inside))
        scores = self.model.enc_score_head(candidates)
        boxes = self.model.enc_bbox_head.layers(candidates) + anchors
        best = scores.amax(-1).topk(self.queries, dim=1).indices
        proposals = select_rows(boxes, best)
        queries = select_rows(candidates, best)
        states, refined, predicted = self.model.decoder(queries, proposals, encoder_hidden_states, sizes)
        predicted_boxes = refined[:, -1]
        return Output(
            logits=predicted[:, -1],
            pred_boxes=predicted_boxes,
            last_hidden_state=states[:, -1],
            init_reference_points=proposals,
            intermediate_hidden_states=states,
            intermediate_logits=predicted,
            intermediate_reference_points=refined,
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
# {"config": {"activation_function": "silu", "architectures": ["RTDetrForObjectDetection"], "backbone_config":
# {"depths": [3, 4, 6, 3], "downsample_in_bottleneck": false, "downsample_in_first_stage": false,
# "embedding_size": 64, "hidden_act": "relu", "hidden_sizes": [256, 512, 1024, 2048], "model_type":
# "rt_detr_resnet", "num_channels": 3, "out_indices": [2, 3, 4]}, "batch_norm_eps": 1e-05, "d_model": 256,
# "decoder_activation_function": "relu", "decoder_attention_heads": 8, "decoder_ffn_dim": 1024,
# "decoder_layers": 6, "encoder_activation_function": "gelu", "encoder_attention_heads": 8,
# "encoder_hidden_dim": 256, "layer_norm_eps": 1e-05, "model_type": "rt_detr", "normalize_before": false,
# "num_feature_levels": 3, "num_queries": 300}, "notes": ["header from the bundled catalogue (reconstructed
# with transformers 5.23.0 from config), not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: 1c2b242b50c4c150
