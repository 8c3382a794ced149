"""facebook/regnet-y-040: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family regnet).
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

    channels: int = 3  # shape: regnet.embedder.embedder.convolution.weight [32, 3, 3, 3]
    embedding_size: int = 32  # shape: regnet.embedder.embedder.convolution.weight [32, 3, 3, 3]
    stem_stride: int = 2  # default: vocabulary/config_maps.yaml (as in most published code)
    kernel_size: int = 3  # shape: regnet.embedder.embedder.convolution.weight [32, 3, 3, 3]
    # shape: regnet.encoder.stages.0.layers.0.layer.3.convolution.weight [128, 128, 1, 1] and 3 more
    hidden_sizes: tuple[int, ...] = (128, 192, 512, 1088)
    group_size: int = 64  # shape: regnet.encoder.stages.0.layers.0.layer.1.convolution.weight [128, 64, 3, 3]
    stage_stride: int = 2  # rule: families/resnet.yaml (a stage halves the image)
    # shape: regnet.encoder.stages.0.layers.0.layer.2.attention.0.weight [8, 128, 1, 1] and 7 more
    squeeze_excitation_reduction: int = 4
    layers: tuple[int, ...] = (2, 6, 12, 2)  # name: regnet.encoder.stages.0.layers.* and 3 more
    labels: int = 1000  # shape: classifier.1.weight [1000, 1088]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


class Embeddings(nn.Module):
    """regnet.embedder.embedder: a stem: a convolution with a norm and an activation."""

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
        return F.relu(self.normalization(x))


class Convolution(nn.Module):
    """regnet.encoder.stages.*.layers.*.layer.*, regnet.encoder.stages.*.layers.0.shortcut: convolution and
    norm.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int):
        super().__init__()
        self.convolution = nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=stride, bias=False)
        self.normalization = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalization(self.convolution(x))


class ConvolutionWithGroupedAlike(nn.Module):
    """regnet.encoder.stages.*.layers.*.layer.1: convolution over groups of channels, as many out as in,
    and norm.
    """

    def __init__(self, config: Config, channels: int, stage_stride: int):
        super().__init__()
        self.convolution = nn.Conv2d(
            channels,
            channels,
            kernel_size=3,
            stride=stage_stride,
            padding=1,
            groups=channels // config.group_size,
            bias=False,
        )
        self.normalization = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalization(self.convolution(x))


class SqueezeExcitation(nn.ModuleDict):
    """regnet.encoder.stages.*.layers.*.layer.2.attention: squeeze-and-excitation: channels gated by their
    means with two layers.
    """

    def __init__(self, channels: int, reduced_size: int):
        super().__init__(
            {
                "0": nn.Conv2d(channels, reduced_size, kernel_size=1),
                "2": nn.Conv2d(reduced_size, channels, kernel_size=1),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        y = x.mean(dim=(-2, -1), keepdim=True)
        y = self["2"](F.relu(self["0"](y)))
        return x * torch.sigmoid(y)


class LayerWithShortcut(nn.Module):
    """regnet.encoder.stages.*.layers.0: three convolutions, the middle one over groups of channels where
    there are several, with one activation throughout, with squeeze-and-excitation and a residual that
    is projected.
    """

    def __init__(self, config: Config, input_size: int, hidden_size: int):
        super().__init__()
        self.layer: Any = nn.ModuleList(
            [
                Convolution(in_channels=input_size, out_channels=hidden_size, stride=1),
                ConvolutionWithGroupedAlike(config, channels=hidden_size, stage_stride=config.stage_stride),
                nn.ModuleDict(
                    {
                        "attention": SqueezeExcitation(
                            channels=hidden_size,
                            reduced_size=input_size // config.squeeze_excitation_reduction,
                        )
                    }
                ),
                Convolution(in_channels=hidden_size, out_channels=hidden_size, stride=1),
            ]
        )
        self.shortcut = Convolution(
            in_channels=input_size, out_channels=hidden_size, stride=config.stage_stride
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.layer[1](F.relu(self.layer[0](x))))
        y = self.layer[2].attention(y)
        y = self.shortcut(x) + self.layer[3](y)
        return F.relu(y)


class Layer(nn.Module):
    """regnet.encoder.stages.*.layers.*: three convolutions, the middle one over groups of channels where
    there are several, with one activation throughout, with squeeze-and-excitation and a residual.
    """

    def __init__(self, config: Config, input_size: int):
        super().__init__()
        self.layer: Any = nn.ModuleList(
            [
                Convolution(in_channels=input_size, out_channels=input_size, stride=1),
                ConvolutionWithGroupedAlike(config, channels=input_size, stage_stride=1),
                nn.ModuleDict(
                    {
                        "attention": SqueezeExcitation(
                            channels=input_size,
                            reduced_size=input_size // config.squeeze_excitation_reduction,
                        )
                    }
                ),
                Convolution(in_channels=input_size, out_channels=input_size, stride=1),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.layer[1](F.relu(self.layer[0](x))))
        y = self.layer[2].attention(y)
        y = x + self.layer[3](y)
        return F.relu(y)


class Stage(nn.Module):
    """regnet.encoder.stages.*: a stage of layers in sequence."""

    def __init__(self, config: Config, input_size: int, hidden_size: int, layers: int):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                LayerWithShortcut(config, input_size=input_size, hidden_size=hidden_size),
                *(Layer(config, input_size=hidden_size) for _ in range(layers - 1)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class StagedEncoder(nn.Module):
    """regnet: an image through stages, each coarser than the one before, with pooling."""

    def __init__(self, config: Config):
        super().__init__()
        self.embedder: Any = nn.ModuleDict({"embedder": Embeddings(config)})
        self.encoder: Any = nn.ModuleDict(
            {
                "stages": nn.ModuleList(
                    Stage(config, input_size=input_size, hidden_size=hidden_size, layers=layers)
                    for input_size, hidden_size, layers in zip(
                        [config.embedding_size, *config.hidden_sizes[:-1]],
                        config.hidden_sizes,
                        config.layers,
                        strict=True,
                    )
                )
            }
        )

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embedder.embedder(pixel_values)
        for stage in self.encoder.stages:
            x = stage(x)
        return x, x.mean(dim=(-2, -1), keepdim=True)


class Model(nn.Module):
    """The model with an image classification head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.regnet = StagedEncoder(config)
        self.classifier = nn.ModuleDict({"1": nn.Linear(config.hidden_sizes[3], config.labels)})

    def forward(self, pixel_values: Tensor) -> Output:
        """pixel_values (batch, channels, height, width)"""
        x, pooled = self.regnet(pixel_values)
        pooled = pooled.flatten(1)
        return Output(logits=self.classifier["1"](pooled), last_hidden_state=x)


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
# {"config": {"architectures": ["RegNetForImageClassification"], "depths": [2, 6, 12, 2],
# "downsample_in_first_stage": true, "embedding_size": 32, "hidden_act": "relu", "hidden_sizes": [128, 192,
# 512, 1088], "layer_type": "y", "model_type": "regnet", "num_channels": 3}, "notes": ["header from the
# bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its
# config: transformers-default"]}
# sha256 of all above: bd310d97c8e68925
