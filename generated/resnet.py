"""resnet, tiny: written by mapper 0.1.0, rules 505f7d688489.

Reading: exact (family resnet).
tiny: the header is the example 'bottlenecks, two stages, a classifier' of families/resnet.yaml

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

    channels: int = 3  # shape: resnet.embedder.embedder.convolution.weight [8, 3, 7, 7]
    embedding_size: int = 8  # shape: resnet.embedder.embedder.convolution.weight [8, 3, 7, 7]
    kernel_size: int = 7  # shape: resnet.embedder.embedder.convolution.weight [8, 3, 7, 7]
    pooled_size: int = 24  # shape: classifier.1.weight [5, 24]
    labels: int = 5  # shape: classifier.1.weight [5, 24]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


class Embeddings(nn.Module):
    """resnet.embedder.embedder: a wide convolution, its norm and activation, then the largest of each 3 x
    3 places.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.convolution = nn.Conv2d(
            config.channels,
            config.embedding_size,
            kernel_size=config.kernel_size,
            stride=2,
            padding=config.kernel_size // 2,
            bias=False,
        )
        self.normalization = nn.BatchNorm2d(config.embedding_size)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.convolution(pixel_values.type_as(self.convolution.weight))
        return F.max_pool2d(F.relu(self.normalization(x)), 3, stride=2, padding=1)


class Convolution(nn.Module):
    """resnet.encoder.stages.*.layers.*.layer.*, resnet.encoder.stages.*.layers.0.shortcut: a convolution
    and its norm.
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
        self.normalization = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalization(self.convolution(x))


class LayerWithShortcut(nn.Module):
    """resnet.encoder.stages.*.layers.0: three convolutions, the middle one over fewer channels, added to
    what a fourth makes of the image.
    """

    def __init__(self, input_size: int, reduced_size: int, stride: int, hidden_size: int):
        super().__init__()
        self.layer = nn.ModuleList(
            [
                Convolution(in_channels=input_size, out_channels=reduced_size, stride=1, kernel_size=1),
                Convolution(
                    in_channels=reduced_size, out_channels=reduced_size, stride=stride, kernel_size=3
                ),
                Convolution(in_channels=reduced_size, out_channels=hidden_size, stride=1, kernel_size=1),
            ],
        )
        self.shortcut = Convolution(
            in_channels=input_size, out_channels=hidden_size, stride=stride, kernel_size=1
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.layer[0](x))
        y = F.relu(self.layer[1](y))
        return F.relu(self.shortcut(x) + self.layer[2](y))


class Layer(nn.Module):
    """resnet.encoder.stages.0.layers.1: three convolutions, the middle one over fewer channels, added to
    what came in.
    """

    def __init__(self):
        super().__init__()
        self.layer = nn.ModuleList(
            [
                Convolution(in_channels=16, out_channels=4, stride=1, kernel_size=1),
                Convolution(in_channels=4, out_channels=4, stride=1, kernel_size=3),
                Convolution(in_channels=4, out_channels=16, stride=1, kernel_size=1),
            ],
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.layer[0](x))
        y = F.relu(self.layer[1](y))
        return F.relu(x + self.layer[2](y))


class Stage(nn.Module):
    """resnet.encoder.stages.0: layers one after another, on a coarser grid where there is one."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            [LayerWithShortcut(input_size=8, reduced_size=4, stride=1, hidden_size=16), Layer()]
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Stage2(nn.Module):
    """resnet.encoder.stages.1: layers one after another, on a coarser grid where there is one."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            LayerWithShortcut(input_size=16, reduced_size=6, stride=2, hidden_size=24) for _ in range(1)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class StagedEncoder(nn.Module):
    """resnet: an image through stages, each coarser than the one before, and one vector of the last."""

    def __init__(self, config: Config):
        super().__init__()
        self.embedder = nn.ModuleDict({"embedder": Embeddings(config)})
        self.encoder = nn.ModuleDict({"stages": nn.ModuleList([Stage(), Stage2()])})

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embedder.embedder(pixel_values)
        for stage in self.encoder.stages:
            x = stage(x)
        return x, x.mean(dim=(-2, -1), keepdim=True)


class Model(nn.Module):
    """The model: one score for each label, from the tower's vector of an image or from its positions."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.resnet = StagedEncoder(config)
        self.classifier = nn.ModuleDict({"1": nn.Linear(config.pooled_size, config.labels)})

    def forward(self, pixel_values: Tensor) -> Output:
        """pixel_values (batch, channels, height, width)"""
        x, pooled = self.resnet(pixel_values)
        pooled = pooled.flatten(1)
        return Output(logits=self.classifier["1"](pooled), last_hidden_state=x)


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
