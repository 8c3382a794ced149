"""timm/mobilenetv3_small_100.lamb_in1k: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family timm_mobilenetv3).
header from the bundled catalogue (reconstructed with timm 1.0.31), not from the hub
evidence for its config: recalled
No dropout is written: training mode computes the same, the batch norms apart; `mapper generate --train`
writes it.

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

    hidden_size: int = 576  # shape: conv_head.weight [1024, 576, 1, 1]
    channels: int = 3  # shape: conv_stem.weight [16, 3, 3, 3]
    embedding_size: int = 16  # shape: conv_stem.weight [16, 3, 3, 3]
    stem_stride: int = 2  # default: vocabulary/config_maps.yaml (as in most published code)
    kernel_size: int = 3  # shape: conv_stem.weight [16, 3, 3, 3]
    pooled_size: int = 1024  # shape: classifier.weight [1000, 1024]
    labels: int = 1000  # shape: classifier.weight [1000, 1024]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


class LayerWithDepthwiseExpansionAndStride(nn.Module):
    """blocks.1.0: inverted bottleneck with a pointwise convolution to more channels, a depthwise
    convolution and a projection.
    """

    def __init__(self):
        super().__init__()
        self.conv_pw = nn.Conv2d(16, 72, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(72)
        self.conv_dw = nn.Conv2d(72, 72, kernel_size=3, stride=2, padding=1, groups=72, bias=False)
        self.bn2 = nn.BatchNorm2d(72)
        self.conv_pwl = nn.Conv2d(72, 24, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(24)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv_pw(x)))
        return self.bn3(self.conv_pwl(F.relu(self.bn2(self.conv_dw(y)))))


class LayerWithDepthwiseExpansionAndResidual(nn.Module):
    """blocks.1.1: inverted bottleneck with a pointwise convolution to more channels, a depthwise
    convolution, a projection and a residual.
    """

    def __init__(self):
        super().__init__()
        self.conv_pw = nn.Conv2d(24, 88, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(88)
        self.conv_dw = nn.Conv2d(88, 88, kernel_size=3, padding=1, groups=88, bias=False)
        self.bn2 = nn.BatchNorm2d(88)
        self.conv_pwl = nn.Conv2d(88, 24, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(24)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv_pw(x)))
        return x + self.bn3(self.conv_pwl(F.relu(self.bn2(self.conv_dw(y)))))


class SqueezeExcitation(nn.Module):
    """blocks.*.*.se: squeeze-and-excitation: channels gated by their means with two layers."""

    def __init__(self, channels: int, reduced_size: int):
        super().__init__()
        self.conv_reduce = nn.Conv2d(channels, reduced_size, kernel_size=1)
        self.conv_expand = nn.Conv2d(reduced_size, channels, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        y = x.mean(dim=(-2, -1), keepdim=True)
        y = self.conv_expand(F.relu(self.conv_reduce(y)))
        return x * F.hardsigmoid(y)


class LayerWithConvolution(nn.Module):
    """blocks.5.0: a convolution, its norm and activation."""

    def __init__(self, config: Config):
        super().__init__()
        self.conv = nn.Conv2d(96, config.hidden_size, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return F.hardswish(self.bn1(self.conv(x)))


class LayerWithDepthwiseExpansion(nn.Module):
    """blocks.*.0: inverted bottleneck with a pointwise convolution to more channels, a depthwise
    convolution, squeeze-and-excitation and a projection.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int,
        squeeze_excitation_reduced_size: int,
        contraction_out_channels: int,
    ):
        super().__init__()
        self.conv_pw = nn.Conv2d(in_channels, channels, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv_dw = nn.Conv2d(
            channels, channels, kernel_size=5, stride=stride, padding=2, groups=channels, bias=False
        )
        self.bn2 = nn.BatchNorm2d(channels)
        self.se = SqueezeExcitation(channels=channels, reduced_size=squeeze_excitation_reduced_size)
        self.conv_pwl = nn.Conv2d(channels, contraction_out_channels, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(contraction_out_channels)

    def forward(self, x: Tensor) -> Tensor:
        y = F.hardswish(self.bn1(self.conv_pw(x)))
        y = F.hardswish(self.bn2(self.conv_dw(y)))
        return self.bn3(self.conv_pwl(self.se(y)))


class Layer(nn.Module):
    """blocks.*.*: inverted bottleneck with a pointwise convolution to more channels, a depthwise
    convolution, squeeze-and-excitation, a projection and a residual.
    """

    def __init__(self, channels: int, out_channels: int, squeeze_excitation_reduced_size: int):
        super().__init__()
        self.conv_pw = nn.Conv2d(channels, out_channels, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv_dw = nn.Conv2d(
            out_channels, out_channels, kernel_size=5, padding=2, groups=out_channels, bias=False
        )
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.se = SqueezeExcitation(channels=out_channels, reduced_size=squeeze_excitation_reduced_size)
        self.conv_pwl = nn.Conv2d(out_channels, channels, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = F.hardswish(self.bn1(self.conv_pw(x)))
        y = self.se(F.hardswish(self.bn2(self.conv_dw(y))))
        return x + self.bn3(self.conv_pwl(y))


class LayerWithDepthwiseProjected(nn.Module):
    """blocks.0.0: inverted bottleneck with a depthwise convolution, squeeze-and-excitation and a
    projection.
    """

    def __init__(self):
        super().__init__()
        self.conv_dw = nn.Conv2d(16, 16, kernel_size=3, stride=2, padding=1, groups=16, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.se = SqueezeExcitation(channels=16, reduced_size=8)
        self.conv_pw = nn.Conv2d(16, 16, kernel_size=1, bias=False)
        self.bn2 = nn.BatchNorm2d(16)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv_dw(x)))
        return self.bn2(self.conv_pw(self.se(y)))


class StageWithDepthwise(nn.Sequential):
    """blocks.1: a stage of layers in sequence."""

    def __init__(self):
        super().__init__(LayerWithDepthwiseExpansionAndStride(), LayerWithDepthwiseExpansionAndResidual())


class StageWithConvolution(nn.Sequential):
    """blocks.5: a stage of layers in sequence."""

    def __init__(self, config: Config):
        super().__init__(LayerWithConvolution(config))


class StageWithGated(nn.Sequential):
    """blocks.0: a stage of layers in sequence."""

    def __init__(self):
        super().__init__(LayerWithDepthwiseProjected())


class Stage(nn.Sequential):
    """blocks.*: a stage of layers in sequence."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int,
        squeeze_excitation_reduced_size: int,
        layers_channels: int,
        layers_out_channels: int,
        layers_squeeze_excitation_reduced_size: int,
        layers: int,
    ):
        super().__init__(
            LayerWithDepthwiseExpansion(
                in_channels=in_channels,
                channels=out_channels,
                stride=stride,
                squeeze_excitation_reduced_size=squeeze_excitation_reduced_size,
                contraction_out_channels=layers_channels,
            ),
            *(
                Layer(
                    channels=layers_channels,
                    out_channels=layers_out_channels,
                    squeeze_excitation_reduced_size=layers_squeeze_excitation_reduced_size,
                )
                for _ in range(layers - 1)
            ),
        )


class Model(nn.Module):
    """The model with an image classification head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.conv_stem = nn.Conv2d(
            config.channels,
            config.embedding_size,
            kernel_size=config.kernel_size,
            stride=config.stem_stride,
            padding=config.kernel_size // 2,
            bias=False,
        )
        self.bn1 = nn.BatchNorm2d(config.embedding_size)
        self.blocks = nn.ModuleList(
            [
                StageWithGated(),
                StageWithDepthwise(),
                Stage(
                    in_channels=24,
                    out_channels=96,
                    stride=2,
                    squeeze_excitation_reduced_size=24,
                    layers_channels=40,
                    layers_out_channels=240,
                    layers_squeeze_excitation_reduced_size=64,
                    layers=3,
                ),
                Stage(
                    in_channels=40,
                    out_channels=120,
                    stride=1,
                    squeeze_excitation_reduced_size=32,
                    layers_channels=48,
                    layers_out_channels=144,
                    layers_squeeze_excitation_reduced_size=40,
                    layers=2,
                ),
                Stage(
                    in_channels=48,
                    out_channels=288,
                    stride=2,
                    squeeze_excitation_reduced_size=72,
                    layers_channels=96,
                    layers_out_channels=576,
                    layers_squeeze_excitation_reduced_size=144,
                    layers=3,
                ),
                StageWithConvolution(config),
            ]
        )
        self.conv_head = nn.Conv2d(config.hidden_size, config.pooled_size, kernel_size=1)
        self.classifier = nn.Linear(config.pooled_size, config.labels)

    def forward(self, pixel_values: Tensor) -> Output:
        """pixel_values (batch, channels, height, width)"""
        x, pooled = self.tower(pixel_values)
        pooled = pooled.flatten(1)
        return Output(logits=self.classifier(pooled), last_hidden_state=x)

    def tower(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embeddings(pixel_values)
        for stage in self.blocks:
            x = stage(x)
        return x, F.hardswish(self.conv_head(x.mean(dim=(-2, -1), keepdim=True)))

    def embeddings(self, pixel_values: Tensor) -> Tensor:
        x = self.conv_stem(pixel_values.type_as(self.conv_stem.weight))
        return F.hardswish(self.bn1(x))


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
# {"config": {"architecture": "mobilenetv3_small_100", "num_classes": 1000}, "notes": ["header from the
# bundled catalogue (reconstructed with timm 1.0.31), not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: ecd3220c8a57a1cb
