"""apple/mobilevitv2-1.0: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family mobilevitv2).
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

    channels: int = 3  # shape: mobilevitv2.conv_stem.convolution.weight [32, 3, 3, 3]
    embedding_size: int = 32  # shape: mobilevitv2.conv_stem.convolution.weight [32, 3, 3, 3]
    stem_stride: int = 2  # default: vocabulary/config_maps.yaml (as in most published code)
    kernel_size: int = 3  # shape: mobilevitv2.conv_stem.convolution.weight [32, 3, 3, 3]
    # shape: mobilevitv2.encoder.layer.2.transformer.layer.{0..1}.ffn.conv1.convolution.weight [256, 128, ...
    expansion: int = 2
    norm_eps: float = 1e-5  # config: layer_norm_eps
    # shape: mobilevitv2.encoder.layer.0.layer.0.conv_3x3.convolution.weight [64, 1, 3, 3] and 5 more
    layer_expansion: int = 2
    patch_size: int = 2  # config: patch_size
    pooled_size: int = 512  # shape: classifier.weight [1000, 512]
    labels: int = 1000  # shape: classifier.weight [1000, 512]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


class Embeddings(nn.Module):
    """mobilevitv2.conv_stem: a stem: a convolution with a norm and an activation."""

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
    """mobilevitv2.encoder.layer.*.layer.*.expand_1x1, mobilevitv2.encoder.layer.*.layer.*.reduce_1x1 and 3
    more: convolution and norm.
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.convolution = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=False)
        self.normalization = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalization(self.convolution(x))


class Depthwise(nn.Module):
    """mobilevitv2.encoder.layer.*.layer.*.conv_3x3,
    mobilevitv2.encoder.layer.*.downsampling_layer.conv_3x3 and 1 more: depthwise convolution and norm.
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
    """mobilevitv2.encoder.layer.*.transformer.layer.*.attention: separable self-attention over a feature
    map, values times the sum of the keys by one score each (MobileViT v2).
    """

    def __init__(self, hidden_size: int):
        super().__init__()
        self.hidden_size = hidden_size
        self.qkv_proj: Any = nn.ModuleDict(
            {"convolution": nn.Conv2d(hidden_size, 2 * hidden_size + 1, kernel_size=1)}
        )
        self.out_proj: Any = nn.ModuleDict(
            {"convolution": nn.Conv2d(hidden_size, hidden_size, kernel_size=1)}
        )

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv_proj.convolution(x).split([1, self.hidden_size, self.hidden_size], dim=1)
        context = (key * query.softmax(-1)).sum(dim=-1, keepdim=True)
        return self.out_proj.convolution(F.relu(value) * context)


class FeedForward(nn.Module):
    """mobilevitv2.encoder.layer.*.transformer.layer.*.ffn: feed-forward network with pointwise
    convolutions.
    """

    def __init__(self, config: Config, hidden_size: int):
        super().__init__()
        intermediate_size = config.expansion * hidden_size
        self.conv1: Any = nn.ModuleDict(
            {"convolution": nn.Conv2d(hidden_size, intermediate_size, kernel_size=1)}
        )
        self.conv2: Any = nn.ModuleDict(
            {"convolution": nn.Conv2d(intermediate_size, hidden_size, kernel_size=1)}
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2.convolution(F.silu(self.conv1.convolution(x)))


class Layer(nn.Module):
    """mobilevitv2.encoder.layer.*.transformer.layer.*: a layer with pre-norm, attention and a feed-forward
    network.
    """

    def __init__(self, config: Config, hidden_size: int):
        super().__init__()
        self.layernorm_before = nn.GroupNorm(1, hidden_size, eps=config.norm_eps)
        self.attention = Attention(hidden_size=hidden_size)
        self.layernorm_after = nn.GroupNorm(1, hidden_size, eps=config.norm_eps)
        self.ffn = FeedForward(config, hidden_size=hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.layernorm_before(x))
        return x + self.ffn(self.layernorm_after(x))


class LayerWithDepthwise(nn.Module):
    """mobilevitv2.encoder.layer.*.layer.0, mobilevitv2.encoder.layer.2.downsampling_layer: inverted
    bottleneck with a pointwise convolution to more channels, a depthwise convolution and a projection.
    """

    def __init__(self, config: Config, input_size: int, output_size: int, stride: int):
        super().__init__()
        inner_size = config.layer_expansion * input_size
        self.expand_1x1 = Expansion(in_channels=input_size, out_channels=output_size)
        self.conv_3x3 = Depthwise(out_channels=inner_size, stride=stride)
        self.reduce_1x1 = Expansion(in_channels=inner_size, out_channels=output_size)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.expand_1x1(x))
        return self.reduce_1x1(F.silu(self.conv_3x3(y)))


class LayerWithDepthwiseAndResidual(nn.Module):
    """mobilevitv2.encoder.layer.1.layer.1: inverted bottleneck with a pointwise convolution to more
    channels, a depthwise convolution, a projection and a residual.
    """

    def __init__(self, config: Config):
        super().__init__()
        inner_size = config.layer_expansion * 128
        self.expand_1x1 = Expansion(in_channels=128, out_channels=inner_size)
        self.conv_3x3 = Depthwise(out_channels=inner_size, stride=1)
        self.reduce_1x1 = Expansion(in_channels=inner_size, out_channels=128)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.expand_1x1(x))
        return x + self.reduce_1x1(F.silu(self.conv_3x3(y)))


class FirstLayer(nn.Module):
    """mobilevitv2.encoder.layer.*.downsampling_layer: inverted bottleneck with a pointwise convolution to
    more channels, a depthwise convolution and a projection.
    """

    def __init__(self, config: Config, input_size: int, output_size: int):
        super().__init__()
        inner_size = config.layer_expansion * input_size
        self.expand_1x1 = Expansion(in_channels=input_size, out_channels=inner_size)
        self.conv_3x3 = Depthwise(out_channels=inner_size, stride=2)
        self.reduce_1x1 = Expansion(in_channels=inner_size, out_channels=output_size)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.expand_1x1(x))
        return self.reduce_1x1(F.silu(self.conv_3x3(y)))


class StageWithUnfolded(nn.Module):
    """mobilevitv2.encoder.layer.2: a stage of convolutions and layers over their map with a map of patches
    (MobileViT v2).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.patch_size = config.patch_size
        self.downsampling_layer = LayerWithDepthwise(config, input_size=128, output_size=256, stride=2)
        self.conv_kxk = Depthwise(out_channels=256, stride=1)
        self.conv_1x1: Any = nn.ModuleDict({"convolution": nn.Conv2d(256, 128, kernel_size=1, bias=False)})
        self.transformer: Any = nn.ModuleDict(
            {"layer": nn.ModuleList(Layer(config, hidden_size=128) for _ in range(2))}
        )
        self.layernorm = nn.GroupNorm(1, 128, eps=config.norm_eps)
        self.conv_projection = Expansion(in_channels=128, out_channels=256)

    def forward(self, x: Tensor) -> Tensor:
        x = self.downsampling_layer(x)
        x = self.conv_1x1.convolution(F.silu(self.conv_kxk(x)))
        y = F.unfold(x, self.patch_size, stride=self.patch_size).unflatten(1, (x.shape[1], -1))
        for layer in self.transformer.layer:
            y = layer(y)
        y = F.fold(self.layernorm(y).flatten(1, 2), x.shape[2:], self.patch_size, stride=self.patch_size)
        return self.conv_projection(y)


class Stage(nn.Module):
    """mobilevitv2.encoder.layer.*: a stage of convolutions and layers over their map with a map of patches
    (MobileViT v2).
    """

    def __init__(self, config: Config, input_size: int, output_size: int, hidden_size: int, layers: int):
        super().__init__()
        self.patch_size = config.patch_size
        self.downsampling_layer = FirstLayer(config, input_size=input_size, output_size=output_size)
        self.conv_kxk = Depthwise(out_channels=output_size, stride=1)
        self.conv_1x1: Any = nn.ModuleDict(
            {"convolution": nn.Conv2d(output_size, hidden_size, kernel_size=1, bias=False)}
        )
        self.transformer: Any = nn.ModuleDict(
            {"layer": nn.ModuleList(Layer(config, hidden_size=hidden_size) for _ in range(layers))}
        )
        self.layernorm = nn.GroupNorm(1, hidden_size, eps=config.norm_eps)
        self.conv_projection = Expansion(in_channels=hidden_size, out_channels=output_size)

    def forward(self, x: Tensor) -> Tensor:
        x = self.downsampling_layer(x)
        x = self.conv_1x1.convolution(F.silu(self.conv_kxk(x)))
        y = F.unfold(x, self.patch_size, stride=self.patch_size).unflatten(1, (x.shape[1], -1))
        for layer in self.transformer.layer:
            y = layer(y)
        y = F.fold(self.layernorm(y).flatten(1, 2), x.shape[2:], self.patch_size, stride=self.patch_size)
        return self.conv_projection(y)


class StageWithLayers(nn.Module):
    """mobilevitv2.encoder.layer.0: a stage of layers in sequence."""

    def __init__(self, config: Config):
        super().__init__()
        self.layer = nn.ModuleList([LayerWithDepthwise(config, input_size=32, output_size=64, stride=1)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layer:
            x = layer(x)
        return x


class StageWithLayersAndStride(nn.Module):
    """mobilevitv2.encoder.layer.1: a stage of layers in sequence."""

    def __init__(self, config: Config):
        super().__init__()
        self.layer = nn.ModuleList(
            [
                LayerWithDepthwise(config, input_size=64, output_size=128, stride=2),
                LayerWithDepthwiseAndResidual(config),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layer:
            x = layer(x)
        return x


class StagedEncoder(nn.Module):
    """mobilevitv2: an image through stages, each coarser than the one before, with pooling."""

    def __init__(self, config: Config):
        super().__init__()
        self.conv_stem = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {
                "layer": nn.ModuleList(
                    [
                        StageWithLayers(config),
                        StageWithLayersAndStride(config),
                        StageWithUnfolded(config),
                        Stage(config, input_size=256, output_size=384, hidden_size=192, layers=4),
                        Stage(config, input_size=384, output_size=512, hidden_size=256, layers=3),
                    ]
                )
            }
        )

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.conv_stem(pixel_values)
        for stage in self.encoder.layer:
            x = stage(x)
        return x, x.mean(dim=(-2, -1))


class Model(nn.Module):
    """The model with an image classification head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.mobilevitv2 = StagedEncoder(config)
        self.classifier = nn.Linear(config.pooled_size, config.labels)

    def forward(self, pixel_values: Tensor) -> Output:
        """pixel_values (batch, channels, height, width)"""
        x, pooled = self.mobilevitv2(pixel_values)
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
# {"config": {"architectures": ["MobileViTV2ForImageClassification"], "hidden_act": "swish", "layer_norm_eps":
# 1e-05, "model_type": "mobilevitv2", "num_channels": 3, "patch_size": 2}, "notes": ["header from the bundled
# catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# transformers-default"]}
# sha256 of all above: 7d724146fdb593f3
