"""apple/mobilevit-small: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family mobilevit).
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

    channels: int = 3  # shape: mobilevit.conv_stem.convolution.weight [16, 3, 3, 3]
    embedding_size: int = 16  # shape: mobilevit.conv_stem.convolution.weight [16, 3, 3, 3]
    stem_stride: int = 2  # default: vocabulary/config_maps.yaml (as in most published code)
    kernel_size: int = 3  # shape: mobilevit.conv_stem.convolution.weight [16, 3, 3, 3]
    # shape: mobilevit.encoder.layer.0.layer.0.reduce_1x1.convolution.weight [32, 64, 1, 1] and 4 more
    output_sizes: tuple[int, ...] = (32, 64, 96, 128, 160)
    pooled_size: int = 640  # shape: classifier.weight [1000, 640]
    heads: int = 4  # config: num_attention_heads
    # shape and config: mobilevit.encoder.layer.2.transformer.layer.{0..1}.attention.attention.query.weight...
    head_dims: tuple[int, ...] = (36, 48, 60)
    norm_eps: float = 1e-5  # config: layer_norm_eps
    # shape: mobilevit.encoder.layer.2.transformer.layer.{0..1}.intermediate.dense.weight [288, 144] and ...
    expansion: int = 2
    # shape: mobilevit.encoder.layer.0.layer.0.conv_3x3.convolution.weight [64, 1, 3, 3] and 5 more
    layer_expansion: int = 4
    patch_size: int = 2  # config: patch_size
    labels: int = 1000  # shape: classifier.weight [1000, 640]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def fold_patches(sequences: Tensor, x: Tensor, size: int) -> Tensor:
    """Undoes unfold_patches of an image as large as x.

    sequences (B * size ** 2, patches, C), x (B, _, Y, X) -> (B, C, Y, X)
    """
    columns = (x.shape[3] + size - 1) // size
    y = sequences.unflatten(1, (-1, columns)).unflatten(0, (-1, size, size))  # (B, size, size, n, m, C)
    y = y.permute(0, 5, 3, 1, 4, 2).flatten(4, 5).flatten(2, 3)
    return F.interpolate(y, size=(x.shape[2], x.shape[3]), mode="bilinear", align_corners=False)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def unfold_patches(x: Tensor, size: int) -> Tensor:
    """A sequence of each offset inside of the patches; sides that are no multiple are stretched (MobileViT).

    x (B, C, Y, X), size the side of a patch -> (B * size ** 2, patches, C)
    """
    height, width = (side + -side % size for side in x.shape[2:])
    x = F.interpolate(x, size=(height, width), mode="bilinear", align_corners=False)
    x = x.unflatten(3, (-1, size)).unflatten(2, (-1, size))  # (B, C, n, size, m, size)
    return x.permute(0, 3, 5, 2, 4, 1).flatten(3, 4).flatten(0, 2)


class Embeddings(nn.Module):
    """mobilevit.conv_stem: a stem: a convolution with a norm and an activation."""

    def __init__(self, config: Config):
        super().__init__()
        self.convolution = nn.Conv2d(
            config.channels,
            config.embedding_size,
            kernel_size=config.kernel_size,
            stride=config.stem_stride,
            padding=config.kernel_size // 2,
            bias=False,
        )
        self.normalization = nn.BatchNorm2d(config.embedding_size)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.convolution(pixel_values.type_as(self.convolution.weight))
        return F.silu(self.normalization(x))


class Expansion(nn.Module):
    """mobilevit.encoder.layer.*.layer.*.expand_1x1, mobilevit.encoder.layer.*.layer.*.reduce_1x1 and 6
    more: convolution and norm.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int):
        super().__init__()
        self.convolution = nn.Conv2d(
            in_channels, out_channels, kernel_size=kernel_size, padding=kernel_size // 2, bias=False
        )
        self.normalization = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalization(self.convolution(x))


class Depthwise(nn.Module):
    """mobilevit.encoder.layer.*.layer.*.conv_3x3, mobilevit.encoder.layer.*.downsampling_layer.conv_3x3:
    depthwise convolution and norm.
    """

    def __init__(self, out_channels: int, stride: int):
        super().__init__()
        self.convolution = nn.Conv2d(
            out_channels,
            out_channels,
            kernel_size=3,
            stride=stride,
            padding=1,
            groups=out_channels,
            bias=False,
        )
        self.normalization = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalization(self.convolution(x))


class Attention(nn.Module):
    """mobilevit.encoder.layer.*.transformer.layer.*.attention: self-attention."""

    def __init__(self, config: Config, hidden_size: int, head_dim: int):
        super().__init__()
        self.head_dim = head_dim
        self.attention: Any = nn.ModuleDict(
            {
                "query": nn.Linear(hidden_size, config.heads * head_dim),
                "key": nn.Linear(hidden_size, config.heads * head_dim),
                "value": nn.Linear(hidden_size, config.heads * head_dim),
            }
        )
        self.output: Any = nn.ModuleDict({"dense": nn.Linear(config.heads * head_dim, hidden_size)})

    def forward(self, x: Tensor) -> Tensor:
        q = split_heads(self.attention.query(x), self.head_dim)
        k = split_heads(self.attention.key(x), self.head_dim)
        v = split_heads(self.attention.value(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.output.dense(merge_heads(y))


class Layer(nn.Module):
    """mobilevit.encoder.layer.*.transformer.layer.*: a layer with pre-norm, attention and a feed-forward
    network.
    """

    def __init__(self, config: Config, hidden_size: int, head_dim: int):
        super().__init__()
        intermediate_size = config.expansion * hidden_size
        self.layernorm_before = nn.LayerNorm(hidden_size, eps=config.norm_eps)
        self.attention = Attention(config, hidden_size=hidden_size, head_dim=head_dim)
        self.layernorm_after = nn.LayerNorm(hidden_size, eps=config.norm_eps)
        self.intermediate: Any = nn.ModuleDict({"dense": nn.Linear(hidden_size, intermediate_size)})
        self.output: Any = nn.ModuleDict({"dense": nn.Linear(intermediate_size, hidden_size)})

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.layernorm_before(x))
        return x + self.feed_forward(self.layernorm_after(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.silu(self.intermediate.dense(x)))


class LayerWithDepthwise(nn.Module):
    """mobilevit.encoder.layer.*.layer.0, mobilevit.encoder.layer.*.downsampling_layer: inverted bottleneck
    with a pointwise convolution to more channels, a depthwise convolution and a projection.
    """

    def __init__(self, config: Config, input_size: int, stride: int, output_size: int):
        super().__init__()
        inner_size = config.layer_expansion * input_size
        self.expand_1x1 = Expansion(in_channels=input_size, out_channels=inner_size, kernel_size=1)
        self.conv_3x3 = Depthwise(out_channels=inner_size, stride=stride)
        self.reduce_1x1 = Expansion(in_channels=inner_size, out_channels=output_size, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.expand_1x1(x))
        return self.reduce_1x1(F.silu(self.conv_3x3(y)))


class LayerWithDepthwiseAndResidual(nn.Module):
    """mobilevit.encoder.layer.1.layer.*: inverted bottleneck with a pointwise convolution to more
    channels, a depthwise convolution, a projection and a residual.
    """

    def __init__(self, config: Config):
        super().__init__()
        inner_size = config.layer_expansion * config.output_sizes[1]
        self.expand_1x1 = Expansion(
            in_channels=config.output_sizes[1], out_channels=inner_size, kernel_size=1
        )
        self.conv_3x3 = Depthwise(out_channels=inner_size, stride=1)
        self.reduce_1x1 = Expansion(
            in_channels=inner_size, out_channels=config.output_sizes[1], kernel_size=1
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.expand_1x1(x))
        return x + self.reduce_1x1(F.silu(self.conv_3x3(y)))


class StageWithStride(nn.Module):
    """mobilevit.encoder.layer.*: a stage of convolutions and layers over their map with unfolded patches
    (MobileViT).
    """

    def __init__(
        self,
        config: Config,
        input_size: int,
        output_size: int,
        hidden_size: int,
        head_dim: int,
        layers: int,
        convolution_3_in_channels: int,
    ):
        super().__init__()
        self.patch_size = config.patch_size
        self.downsampling_layer = LayerWithDepthwise(
            config, input_size=input_size, stride=2, output_size=output_size
        )
        self.conv_kxk = Expansion(in_channels=output_size, out_channels=output_size, kernel_size=3)
        self.conv_1x1: Any = nn.ModuleDict(
            {"convolution": nn.Conv2d(output_size, hidden_size, kernel_size=1, bias=False)}
        )
        self.transformer: Any = nn.ModuleDict(
            {
                "layer": nn.ModuleList(
                    Layer(config, hidden_size=hidden_size, head_dim=head_dim) for _ in range(layers)
                )
            }
        )
        self.layernorm = nn.LayerNorm(hidden_size, eps=config.norm_eps)
        self.conv_projection = Expansion(in_channels=hidden_size, out_channels=output_size, kernel_size=1)
        self.fusion = Expansion(
            in_channels=convolution_3_in_channels, out_channels=output_size, kernel_size=3
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.downsampling_layer(x)
        y = unfold_patches(self.conv_1x1.convolution(F.silu(self.conv_kxk(x))), self.patch_size)
        for layer in self.transformer.layer:
            y = layer(y)
        y = fold_patches(self.layernorm(y), x, self.patch_size)
        y = F.silu(self.conv_projection(y))
        return F.silu(self.fusion(torch.cat((x, y), dim=1)))


class Stage(nn.Module):
    """mobilevit.encoder.layer.0: a stage of layers in sequence."""

    def __init__(self, config: Config):
        super().__init__()
        self.layer = nn.ModuleList(
            [
                LayerWithDepthwise(
                    config, input_size=config.embedding_size, stride=1, output_size=config.output_sizes[0]
                )
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layer:
            x = layer(x)
        return x


class StageWithResidual(nn.Module):
    """mobilevit.encoder.layer.1: a stage of layers in sequence."""

    def __init__(self, config: Config):
        super().__init__()
        self.layer = nn.ModuleList(
            [
                LayerWithDepthwise(
                    config, input_size=config.output_sizes[0], stride=2, output_size=config.output_sizes[1]
                ),
                *(LayerWithDepthwiseAndResidual(config) for _ in range(2)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layer:
            x = layer(x)
        return x


class StagedEncoder(nn.Module):
    """mobilevit: an image through stages, each coarser than the one before, with a last convolution and
    pooling.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.conv_stem = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {
                "layer": nn.ModuleList(
                    [
                        Stage(config),
                        StageWithResidual(config),
                        StageWithStride(
                            config,
                            input_size=config.output_sizes[1],
                            output_size=config.output_sizes[2],
                            hidden_size=144,
                            head_dim=config.head_dims[0],
                            layers=2,
                            convolution_3_in_channels=192,
                        ),
                        StageWithStride(
                            config,
                            input_size=config.output_sizes[2],
                            output_size=config.output_sizes[3],
                            hidden_size=192,
                            head_dim=config.head_dims[1],
                            layers=4,
                            convolution_3_in_channels=256,
                        ),
                        StageWithStride(
                            config,
                            input_size=config.output_sizes[3],
                            output_size=config.output_sizes[4],
                            hidden_size=240,
                            head_dim=config.head_dims[2],
                            layers=3,
                            convolution_3_in_channels=320,
                        ),
                    ]
                )
            }
        )
        self.conv_1x1_exp = Expansion(
            in_channels=config.output_sizes[4], out_channels=config.pooled_size, kernel_size=1
        )

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.conv_stem(pixel_values)
        for stage in self.encoder.layer:
            x = stage(x)
        x = F.silu(self.conv_1x1_exp(x))
        return x, x.mean(dim=(-2, -1))


class Model(nn.Module):
    """The model with an image classification head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.mobilevit = StagedEncoder(config)
        self.classifier = nn.Linear(config.pooled_size, config.labels)

    def forward(self, pixel_values: Tensor) -> Output:
        """pixel_values (batch, channels, height, width)"""
        x, pooled = self.mobilevit(pixel_values)
        return Output(logits=self.classifier(pooled), last_hidden_state=x)


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
# {"config": {"architectures": ["MobileViTForImageClassification"], "hidden_act": "silu", "layer_norm_eps":
# 1e-05, "model_type": "mobilevit", "num_attention_heads": 4, "num_channels": 3, "patch_size": 2, "qkv_bias":
# true}, "notes": ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config),
# not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: 01176f2b5b6ca393
