"""google/mobilenet_v2_1.0_224: written by mapper 0.1.0, rules 05eabb4b260a.

Reading: exact (family mobilenet_v2).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: transformers-default
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

    channels: int = 3  # shape: mobilenet_v2.conv_stem.first_conv.convolution.weight [32, 3, 3, 3]
    embedding_size: int = 32  # shape: mobilenet_v2.conv_stem.first_conv.convolution.weight [32, 3, 3, 3]
    kernel_size: int = 3  # shape: mobilenet_v2.conv_stem.first_conv.convolution.weight [32, 3, 3, 3]
    batch_norm_eps: float = 0.001  # config: layer_norm_eps
    pooled_size: int = 1280  # shape: classifier.weight [1001, 1280]
    labels: int = 1001  # shape: classifier.weight [1001, 1280]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def pad_same(x: Tensor, kernel: int, stride: int) -> Tensor:
    """Zeros so that a convolution gives ceil(side / stride), the odd one last (TensorFlow). x (B, C, Y, X)"""
    down, across = (max(kernel - stride - (-side % -stride), 0) for side in (x.shape[2], x.shape[3]))
    return F.pad(x, (across // 2, across - across // 2, down // 2, down - down // 2))


class Embeddings(nn.Module):
    """mobilenet_v2.conv_stem.first_conv: a stem: a norm and an activation after a convolution of stride
    two with the padding of TensorFlow.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.kernel_size = config.kernel_size
        self.convolution = nn.Conv2d(
            config.channels, config.embedding_size, kernel_size=config.kernel_size, stride=2, bias=False
        )
        self.normalization = nn.BatchNorm2d(config.embedding_size, eps=config.batch_norm_eps)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = pixel_values.type_as(self.convolution.weight)
        x = pad_same(x, self.kernel_size, 2)
        return F.relu6(self.normalization(self.convolution(x)))


class Depthwise(nn.Module):
    """mobilenet_v2.conv_stem.conv_3x3, mobilenet_v2.layer.*.conv_3x3: depthwise convolution and norm."""

    def __init__(self, config: Config, out_channels: int, stride: int):
        super().__init__()
        self.kernel_size = 3
        self.stride = stride
        self.convolution = nn.Conv2d(
            out_channels, out_channels, kernel_size=3, stride=stride, groups=out_channels, bias=False
        )
        self.normalization = nn.BatchNorm2d(out_channels, eps=config.batch_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        x = pad_same(x, self.kernel_size, self.stride)
        return self.normalization(self.convolution(x))


class Contraction(nn.Module):
    """mobilenet_v2.conv_stem.reduce_1x1, mobilenet_v2.layer.*.expand_1x1 and 2 more: convolution and norm."""

    def __init__(self, config: Config, in_channels: int, out_channels: int):
        super().__init__()
        self.convolution = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=False)
        self.normalization = nn.BatchNorm2d(out_channels, eps=config.batch_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalization(self.convolution(x))


class FirstLayer(nn.Module):
    """mobilenet_v2.conv_stem: inverted bottleneck with a depthwise convolution and a projection."""

    def __init__(self, config: Config):
        super().__init__()
        self.first_conv = Embeddings(config)
        self.conv_3x3 = Depthwise(config, out_channels=32, stride=1)
        self.reduce_1x1 = Contraction(config, in_channels=32, out_channels=16)

    def forward(self, x: Tensor) -> Tensor:
        return self.reduce_1x1(F.relu6(self.conv_3x3(x)))


class Layer(nn.Module):
    """mobilenet_v2.layer.*: inverted bottleneck with a pointwise convolution to more channels, a depthwise
    convolution and a projection.
    """

    def __init__(self, config: Config, input_size: int, inner_size: int, stride: int, output_size: int):
        super().__init__()
        self.expand_1x1 = Contraction(config, in_channels=input_size, out_channels=inner_size)
        self.conv_3x3 = Depthwise(config, out_channels=inner_size, stride=stride)
        self.reduce_1x1 = Contraction(config, in_channels=inner_size, out_channels=output_size)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu6(self.expand_1x1(x))
        return self.reduce_1x1(F.relu6(self.conv_3x3(y)))


class LayerWithResidual(nn.Module):
    """mobilenet_v2.layer.*: inverted bottleneck with a pointwise convolution to more channels, a depthwise
    convolution, a projection and a residual.
    """

    def __init__(self, config: Config, input_size: int, inner_size: int):
        super().__init__()
        self.expand_1x1 = Contraction(config, in_channels=input_size, out_channels=inner_size)
        self.conv_3x3 = Depthwise(config, out_channels=inner_size, stride=1)
        self.reduce_1x1 = Contraction(config, in_channels=inner_size, out_channels=input_size)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu6(self.expand_1x1(x))
        return x + self.reduce_1x1(F.relu6(self.conv_3x3(y)))


class EmbeddingsWithLayers(nn.Module):
    """mobilenet_v2: an image through stages, each coarser than the one before, with layers of
    convolutions, a last convolution and pooling.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.conv_stem = FirstLayer(config)
        self.layer = nn.ModuleList(
            [
                Layer(config, input_size=16, inner_size=96, stride=2, output_size=24),
                LayerWithResidual(config, input_size=24, inner_size=144),
                Layer(config, input_size=24, inner_size=144, stride=2, output_size=32),
                *(LayerWithResidual(config, input_size=32, inner_size=192) for _ in range(2)),
                Layer(config, input_size=32, inner_size=192, stride=2, output_size=64),
                *(LayerWithResidual(config, input_size=64, inner_size=384) for _ in range(3)),
                Layer(config, input_size=64, inner_size=384, stride=1, output_size=96),
                *(LayerWithResidual(config, input_size=96, inner_size=576) for _ in range(2)),
                Layer(config, input_size=96, inner_size=576, stride=2, output_size=160),
                *(LayerWithResidual(config, input_size=160, inner_size=960) for _ in range(2)),
                Layer(config, input_size=160, inner_size=960, stride=1, output_size=320),
            ]
        )
        self.conv_1x1 = Contraction(config, in_channels=320, out_channels=1280)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.conv_stem(self.conv_stem.first_conv(pixel_values))
        for layer in self.layer:
            x = layer(x)
        x = F.relu6(self.conv_1x1(x))
        return x, x.mean(dim=(-2, -1))


class Model(nn.Module):
    """The model with an image classification head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.mobilenet_v2 = EmbeddingsWithLayers(config)
        self.classifier = nn.Linear(config.pooled_size, config.labels)

    def forward(self, pixel_values: Tensor) -> Output:
        """pixel_values (batch, channels, height, width)"""
        x, pooled = self.mobilenet_v2(pixel_values)
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
# {"config": {"architectures": ["MobileNetV2ForImageClassification"], "hidden_act": "relu6", "layer_norm_eps":
# 0.001, "model_type": "mobilenet_v2", "num_channels": 3, "tf_padding": true}, "notes": ["header from the
# bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its
# config: transformers-default"]}
# sha256 of all above: 0c3818dbb66b7bda
