"""google/mobilenet_v2_1.0_224: written by mapper 0.1.0, rules 085fa52bb6da.

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
    # rule: families/mobilenet_v2.yaml: the entry of layer.strides and 5 more
    depthwise_strides: tuple[int, ...] = (2, 2, 2, 1, 2, 1)
    # shape: mobilenet_v2.conv_stem.reduce_1x1.convolution.weight [16, 32, 1, 1] and 6 more
    output_sizes: tuple[int, ...] = (16, 24, 32, 64, 96, 160, 320)
    pooled_size: int = 1280  # shape: classifier.weight [1001, 1280]
    # shape: mobilenet_v2.conv_stem.reduce_1x1.convolution.weight [16, 32, 1, 1] and 11 more
    expansion: int = 6
    depths: tuple[int, ...] = (2, 3, 4, 3, 3, 1)  # name: mobilenet_v2.layer.{0..1} and 5 more
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
        self.conv_3x3 = Depthwise(config, out_channels=config.embedding_size, stride=1)
        self.reduce_1x1 = Contraction(
            config, in_channels=config.embedding_size, out_channels=config.output_sizes[0]
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.reduce_1x1(F.relu6(self.conv_3x3(x)))


class Layer(nn.Module):
    """mobilenet_v2.layer.*: inverted bottleneck with a pointwise convolution to more channels, a depthwise
    convolution and a projection.
    """

    def __init__(self, config: Config, input_size: int, stride: int, output_size: int):
        super().__init__()
        inner_size = config.expansion * input_size
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

    def __init__(self, config: Config, input_size: int):
        super().__init__()
        inner_size = config.expansion * input_size
        self.expand_1x1 = Contraction(config, in_channels=input_size, out_channels=inner_size)
        self.conv_3x3 = Depthwise(config, out_channels=inner_size, stride=1)
        self.reduce_1x1 = Contraction(config, in_channels=inner_size, out_channels=input_size)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu6(self.expand_1x1(x))
        return x + self.reduce_1x1(F.relu6(self.conv_3x3(y)))


class Encoder(nn.Module):
    """mobilenet_v2: an image through stages, each coarser than the one before, with layers of
    convolutions, a last convolution and pooling.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.conv_stem = FirstLayer(config)
        self.layer = nn.ModuleList(
            layer
            for input_size, stride, output_size, depth in zip(
                config.output_sizes[:-1],
                config.depthwise_strides,
                config.output_sizes[1:],
                config.depths,
                strict=True,
            )
            for layer in [
                Layer(config, input_size=input_size, stride=stride, output_size=output_size),
                *(LayerWithResidual(config, input_size=output_size) for _ in range(depth - 1)),
            ]
        )
        self.conv_1x1 = Contraction(
            config, in_channels=config.output_sizes[6], out_channels=config.pooled_size
        )

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
        self.mobilenet_v2 = Encoder(config)
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
# sha256 of all above: 280023a0510ffdc8
