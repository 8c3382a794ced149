"""depth-anything/Depth-Anything-V2-Small-hf: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family depth_anything).
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

    channels: int = 3  # shape: backbone.embeddings.patch_embeddings.projection.weight [384, 3, 14, 14]
    hidden_size: int = 384  # shape: backbone.layernorm.weight [384]
    patch_size: int = 14  # shape: backbone.embeddings.patch_embeddings.projection.weight [384, 3, 14, 14]
    positions: int = 1370  # shape: backbone.embeddings.position_embeddings [1, 1370, 384]
    fusion_size: int = 64  # shape: neck.convs.0.weight [64, 48, 3, 3]
    depth_head_channels: int = 32  # shape: head.conv1.weight [32, 64, 3, 3]
    heads: int = 6  # config: backbone_config.num_attention_heads
    # shape and config: backbone.encoder.layer.{0..11}.attention.attention.query.weight [384, 384] = ...
    head_dim: int = 64
    intermediate_size: int = 1536  # shape: backbone.encoder.layer.{0..11}.mlp.fc1.weight [1536, 384]
    # shape: neck.reassemble_stage.layers.0.projection.weight [48, 384, 1, 1] and 3 more
    neck_channels: tuple[int, ...] = (48, 96, 192, 384)
    norm_eps: float = 1e-6  # default: backbone_config.layer_norm_eps, left out: the default of dinov2
    backbone_layers: int = 12  # name: backbone.encoder.layer.*
    features_layer: tuple[int, ...] = (3, 6, 9, 12)  # config: backbone_config.out_indices
    neck_layers: int = 4  # name: neck.fusion_stage.layers.*


@dataclass
class Output:
    """What the model returns."""

    predicted_depth: Tensor


torch.export.register_dataclass(Output)


def flatten_patches(x: Tensor) -> Tensor:
    """Patches as a sequence, row by row. x (B, C, Y, X) -> (B, Y * X, C)"""
    return x.flatten(2).transpose(1, 2)


def level_sizes(maps: list[Tensor]) -> list[tuple[int, int]]:
    """Rows and columns of each map."""
    return [(x.shape[2], x.shape[3]) for x in maps]


def mask_patches(x: Tensor, token: Tensor, masked: Tensor | None) -> Tensor:
    """Puts the token where `masked` is true; None masks nothing.

    x (B, T, W) or (B, Y, X, W), token (..., W), masked (B, T) with T = Y * X -> like x
    """
    return x if masked is None else torch.where(masked.bool().reshape(x.shape[:-1])[..., None], token, x)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def prepend_token(token: Tensor, x: Tensor) -> Tensor:
    """One learned vector before each sequence. token (..., W), x (B, T, W) -> (B, 1 + T, W)"""
    return torch.cat((token.expand(x.shape[0], 1, -1), x), dim=1)


def resize_positions(table: Tensor, kept: int, height: int, width: int, antialias: bool = False) -> Tensor:
    """Fits a square table of patch positions to a grid of height x width by bicubic interpolation.

    table (..., kept + N * N, W), the first `kept` rows (class token) stay -> (1, kept + height * width, W).
    Where the size is the same the values are, too: the branch that would skip it stops a dynamic export.
    A table of another number of rows belongs to the one image size it was trained on, and stays as it is.
    """
    table = table.reshape(-1, table.shape[-1])
    side = math.isqrt(table.shape[0] - kept)
    if side * side != table.shape[0] - kept:
        return table[None]
    grid = table[kept:].unflatten(0, (side, side)).permute(2, 0, 1)[None].float()
    grid = F.interpolate(grid, (height, width), mode="bicubic", align_corners=False, antialias=antialias)
    return torch.cat((table[:kept], grid[0].to(table.dtype).flatten(1).t()))[None]


def some_states(states: list[Tensor], layers: tuple[int, ...]) -> list[Tensor]:
    """The outputs of several layers."""
    return [states[layer] for layer in layers]


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Embeddings(nn.Module):
    """backbone.embeddings: an image embedding with a mask token, a class token and learned position
    embeddings.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.patch_embeddings: Any = nn.ModuleDict(
            {
                "projection": nn.Conv2d(
                    config.channels,
                    config.hidden_size,
                    kernel_size=config.patch_size,
                    stride=config.patch_size,
                )
            }
        )
        self.mask_token = nn.Parameter(torch.zeros(1, config.hidden_size))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        self.position_embeddings = nn.Parameter(torch.zeros(1, config.positions, config.hidden_size))

    def forward(self, pixel_values: Tensor, bool_masked_pos: Tensor | None) -> Tensor:
        patches = self.patch_embeddings.projection(
            pixel_values.type_as(self.patch_embeddings.projection.weight)
        )
        x = mask_patches(flatten_patches(patches), self.mask_token, bool_masked_pos)
        x = prepend_token(self.cls_token, x)
        return x + resize_positions(self.position_embeddings, 1, patches.shape[2], patches.shape[3])


class DepthHead(nn.Module):
    """head: depth head: convolutions, then sigmoid or ReLU, with upsampling."""

    def __init__(self, config: Config):
        super().__init__()
        self.patch_size = config.patch_size
        self.conv1 = nn.Conv2d(config.fusion_size, config.depth_head_channels, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(
            config.depth_head_channels, config.depth_head_channels, kernel_size=3, padding=1
        )
        self.conv3 = nn.Conv2d(config.depth_head_channels, 1, kernel_size=1)

    def forward(self, x: Tensor, pixel_values: Tensor) -> Tensor:
        height = pixel_values.shape[2] // self.patch_size * self.patch_size
        width = pixel_values.shape[3] // self.patch_size * self.patch_size
        x = F.interpolate(self.conv1(x), size=(height, width), mode="bilinear", align_corners=True)
        x = self.conv3(F.relu(self.conv2(x))).squeeze(1)
        return F.relu(x)


class Attention(nn.Module):
    """backbone.encoder.layer.*.attention: self-attention."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.attention: Any = nn.ModuleDict(
            {
                "query": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "key": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "value": nn.Linear(config.hidden_size, config.heads * config.head_dim),
            }
        )
        self.output: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.heads * config.head_dim, config.hidden_size)}
        )

    def forward(self, x: Tensor) -> Tensor:
        q = split_heads(self.attention.query(x), self.head_dim)
        k = split_heads(self.attention.key(x), self.head_dim)
        v = split_heads(self.attention.value(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.output.dense(merge_heads(y))


class FeedForward(nn.Module):
    """backbone.encoder.layer.*.mlp: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class NeckLayerWithResizeAndUpsampling(nn.Module):
    """neck.reassemble_stage.layers.*: a projection of a feature map to other channels with upsampling."""

    def __init__(self, channels: int, resize_stride: int, resize_kernel_size: int):
        super().__init__()
        self.projection = nn.Conv2d(384, channels, kernel_size=1)
        self.resize = nn.ConvTranspose2d(
            channels, channels, kernel_size=resize_kernel_size, stride=resize_stride
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.projection(x)
        return self.resize(x)


class NeckLayerWithResize(nn.Module):
    """neck.reassemble_stage.layers.3: a projection of a feature map to other channels with downsampling."""

    def __init__(self, config: Config):
        super().__init__()
        self.projection = nn.Conv2d(384, config.neck_channels[3], kernel_size=1)
        self.resize = nn.Conv2d(
            config.neck_channels[3], config.neck_channels[3], kernel_size=3, stride=2, padding=1
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.projection(x)
        return self.resize(x)


class Residual(nn.Module):
    """neck.fusion_stage.layers.*.residual_layer2, neck.fusion_stage.layers.*.residual_layer1: residual
    unit of two convolutions, each after a ReLU.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.convolution1 = nn.Conv2d(config.fusion_size, config.fusion_size, kernel_size=3, padding=1)
        self.convolution2 = nn.Conv2d(config.fusion_size, config.fusion_size, kernel_size=3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.convolution2(F.relu(self.convolution1(F.relu(x))))


class NeckLayer(nn.Module):
    """neck.reassemble_stage.layers.2: a projection of a feature map to other channels."""

    def __init__(self, config: Config):
        super().__init__()
        self.projection = nn.Conv2d(384, config.neck_channels[2], kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.projection(x)


class BackboneLayer(nn.Module):
    """backbone.encoder.layer.*: a layer with pre-norm, attention, layer scale and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.attention = Attention(config)
        self.layer_scale1: Any = nn.ParameterDict({"lambda1": nn.Parameter(torch.zeros(config.hidden_size))})
        self.norm2 = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = FeedForward(config)
        self.layer_scale2: Any = nn.ParameterDict({"lambda1": nn.Parameter(torch.zeros(config.hidden_size))})

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x)) * self.layer_scale1.lambda1
        return x + self.mlp(self.norm2(x)) * self.layer_scale2.lambda1


class NeckLayerWithResidual(nn.Module):
    """neck.fusion_stage.layers.0: residual convolutions of a feature map, then an interpolation (DPT
    fusion).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.residual_layer2 = Residual(config)
        self.projection = nn.Conv2d(config.fusion_size, config.fusion_size, kernel_size=1)
        # unused: nothing stands before the coarsest map that it could be added to
        self.residual_layer1 = nn.ModuleDict(
            {
                "convolution1": nn.Conv2d(config.fusion_size, config.fusion_size, kernel_size=3),
                "convolution2": nn.Conv2d(config.fusion_size, config.fusion_size, kernel_size=3),
            }
        )

    def forward(self, x: Tensor, map: Tensor, size: tuple[int, int]) -> Tensor:
        x = self.residual_layer2(x)
        return self.projection(F.interpolate(x, size=size, mode="bilinear", align_corners=True))


class NeckLayerWithResidualAndFinerFeatureMap(nn.Module):
    """neck.fusion_stage.layers.*: residual convolutions of a feature map, then an interpolation (DPT
    fusion), with a finer feature map added.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.residual_layer1 = Residual(config)
        self.residual_layer2 = Residual(config)
        self.projection = nn.Conv2d(config.fusion_size, config.fusion_size, kernel_size=1)

    def forward(self, x: Tensor, map: Tensor, size: tuple[int, int]) -> Tensor:
        x = x + self.residual_layer1(map)
        x = self.residual_layer2(x)
        return self.projection(F.interpolate(x, size=size, mode="bilinear", align_corners=True))


class ImageMaps(nn.Module):
    """backbone: the states of several layers, each as a map of patches."""

    def __init__(self, config: Config):
        super().__init__()
        self.patch_size = config.patch_size
        self.features_layer = config.features_layer
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layer": nn.ModuleList(BackboneLayer(config) for _ in range(config.backbone_layers))}
        )
        self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, pixel_values: Tensor, bool_masked_pos: Tensor | None) -> list[Tensor]:
        x = self.embeddings(pixel_values, bool_masked_pos)
        states = [x]
        for layer in self.encoder.layer:
            x = layer(x)
            states.append(x)
        maps = []
        height, width = pixel_values.shape[2] // self.patch_size, pixel_values.shape[3] // self.patch_size
        for state in some_states(states, self.features_layer):
            patches = self.layernorm(state)[:, 1:].transpose(1, 2)
            maps.append(patches.unflatten(2, (height, width)))
        return maps


class FusedMaps(nn.Module):
    """neck: feature maps of several layers fused from the coarsest to the finest."""

    def __init__(self, config: Config):
        super().__init__()
        self.reassemble_stage: Any = nn.ModuleDict(
            {
                "layers": nn.ModuleList(
                    [
                        NeckLayerWithResizeAndUpsampling(
                            channels=config.neck_channels[0], resize_stride=4, resize_kernel_size=4
                        ),
                        NeckLayerWithResizeAndUpsampling(
                            channels=config.neck_channels[1], resize_stride=2, resize_kernel_size=2
                        ),
                        NeckLayer(config),
                        NeckLayerWithResize(config),
                    ]
                )
            }
        )
        self.convs = nn.ModuleList(
            nn.Conv2d(in_channels, config.fusion_size, kernel_size=3, padding=1, bias=False)
            for in_channels in config.neck_channels
        )
        self.fusion_stage: Any = nn.ModuleDict(
            {
                "layers": nn.ModuleList(
                    [
                        NeckLayerWithResidual(config),
                        *(
                            NeckLayerWithResidualAndFinerFeatureMap(config)
                            for _ in range(config.neck_layers - 1)
                        ),
                    ]
                )
            }
        )

    def forward(self, maps_of_layers: list[Tensor]) -> Tensor:
        sized = []
        for map, layer, projection in zip(
            maps_of_layers, self.reassemble_stage.layers, self.convs, strict=True
        ):
            sized.append(projection(layer(map)))
        x = sized[-1]
        sizes = level_sizes(sized[:-1])[::-1] + [(2 * sized[0].shape[2], 2 * sized[0].shape[3])]
        for layer, map, size in zip(self.fusion_stage.layers, sized[::-1], sizes, strict=True):
            x = layer(x, map, size)
        return x


class Model(nn.Module):
    """The model: depth estimation from feature maps of several depths."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.backbone = ImageMaps(config)
        self.neck = FusedMaps(config)
        self.head = DepthHead(config)

    def forward(self, pixel_values: Tensor, bool_masked_pos: Tensor | None = None) -> Output:
        """pixel_values (batch, channels, height, width), bool_masked_pos (batch, patches)"""
        maps = self.neck(self.backbone(pixel_values, bool_masked_pos))
        return Output(predicted_depth=self.head(maps, pixel_values))


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
# {"config": {"architectures": ["DepthAnythingForDepthEstimation"], "backbone_config": {"apply_layernorm":
# true, "hidden_size": 384, "model_type": "dinov2", "num_attention_heads": 6, "num_hidden_layers": 12,
# "out_indices": [3, 6, 9, 12], "patch_size": 14, "reshape_hidden_states": false}, "model_type":
# "depth_anything", "patch_size": 14}, "notes": ["header from the bundled catalogue (reconstructed with
# transformers 5.23.0 from config), not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: 43b2f6ab0fc39b8a
