"""convnext, tiny: written by mapper 0.1.0, rules 505f7d688489.

Reading: exact (family convnext).
tiny: the header is the example 'two stages, a classifier' of families/convnext.yaml

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

    kernel_size: int = 7  # shape: convnext.encoder.stages.0.layers.{0..1}.dwconv.weight [8, 1, 7, 7]
    channels: int = 3  # shape: convnext.embeddings.patch_embeddings.weight [8, 3, 4, 4]
    embedding_size: int = 8  # shape: convnext.embeddings.patch_embeddings.weight [8, 3, 4, 4]
    patch_size: int = 4  # shape: convnext.embeddings.patch_embeddings.weight [8, 3, 4, 4]
    in_channels: int = 8  # shape: convnext.encoder.stages.1.downsampling_layer.0.weight [8]
    out_channels: int = 12  # shape: convnext.encoder.stages.1.downsampling_layer.1.weight [12, 8, 2, 2]
    # shape: convnext.encoder.stages.1.downsampling_layer.1.weight [12, 8, 2, 2]
    convolution_kernel_size: int = 2
    pooled_size: int = 12  # shape: classifier.weight [5, 12]
    labels: int = 5  # shape: classifier.weight [5, 12]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def channels_first(x: Tensor) -> Tensor:
    """(B, Y, X, C) -> (B, C, Y, X)"""
    return x.permute(0, 3, 1, 2)


def channels_last(x: Tensor) -> Tensor:
    """(B, C, Y, X) -> (B, Y, X, C)"""
    return x.permute(0, 2, 3, 1)


class Layer(nn.Module):
    """convnext.encoder.stages.*.layers.*: a convolution channel by channel, its norm, then a feed-forward
    over the channels.
    """

    def __init__(self, config: Config, hidden_size: int, intermediate_size: int):
        super().__init__()
        self.dwconv = nn.Conv2d(
            hidden_size,
            hidden_size,
            kernel_size=config.kernel_size,
            padding=config.kernel_size // 2,
            groups=hidden_size,
        )
        self.layernorm = nn.LayerNorm(hidden_size, eps=1e-6)
        self.pwconv1 = nn.Linear(hidden_size, intermediate_size)
        self.pwconv2 = nn.Linear(intermediate_size, hidden_size)
        self.layer_scale_parameter = nn.Parameter(torch.zeros(hidden_size))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layernorm(channels_last(self.dwconv(x)))
        y = self.feed_forward(y)
        y = y * self.layer_scale_parameter
        return x + channels_first(y)

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.pwconv2(F.gelu(self.pwconv1(x)))


class Embeddings(nn.Module):
    """convnext.embeddings: the patches of an image, normed, side by side."""

    def __init__(self, config: Config):
        super().__init__()
        self.patch_embeddings = nn.Conv2d(
            config.channels, config.embedding_size, kernel_size=config.patch_size, stride=config.patch_size
        )
        self.layernorm = nn.LayerNorm(config.embedding_size, eps=1e-6)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return channels_first(
            self.layernorm(
                channels_last(self.patch_embeddings(pixel_values.type_as(self.patch_embeddings.weight)))
            ),
        )


class Downsampling(nn.ModuleList):
    """convnext.encoder.stages.1.downsampling_layer: a norm over the channels, then patches of the image,
    side by side.
    """

    def __init__(self, config: Config):
        super().__init__(
            [
                nn.LayerNorm(config.in_channels, eps=1e-6),
                nn.Conv2d(
                    config.in_channels,
                    config.out_channels,
                    kernel_size=config.convolution_kernel_size,
                    stride=config.convolution_kernel_size,
                ),
            ],
        )

    def forward(self, x: Tensor) -> Tensor:
        return self[1](channels_first(self[0](channels_last(x))))


class StageWithDownsampling(nn.Module):
    """convnext.encoder.stages.1: layers one after another, on a coarser grid where there is one."""

    def __init__(self, config: Config):
        super().__init__()
        self.downsampling_layer = Downsampling(config)
        self.layers = nn.ModuleList(Layer(config, hidden_size=12, intermediate_size=48) for _ in range(1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.downsampling_layer(x)
        for layer in self.layers:
            x = layer(x)
        return x


class Stage(nn.Module):
    """convnext.encoder.stages.0: layers one after another, on a coarser grid where there is one."""

    def __init__(self, config: Config):
        super().__init__()
        self.layers = nn.ModuleList(Layer(config, hidden_size=8, intermediate_size=32) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class StagedEncoder(nn.Module):
    """convnext: an image through stages, each coarser than the one before, and one normed vector of the
    last.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder = nn.ModuleDict(
            {"stages": nn.ModuleList([Stage(config), StageWithDownsampling(config)])}
        )
        self.layernorm = nn.LayerNorm(12, eps=1e-12)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embeddings(pixel_values)
        for stage in self.encoder.stages:
            x = stage(x)
        return x, self.layernorm(x.mean(dim=(-2, -1)))


class Model(nn.Module):
    """The model: one score for each label, from the tower's vector of an image or from its positions."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.convnext = StagedEncoder(config)
        self.classifier = nn.Linear(config.pooled_size, config.labels)

    def forward(self, pixel_values: Tensor) -> Output:
        """pixel_values (batch, channels, height, width)"""
        x, pooled = self.convnext(pixel_values)
        return Output(logits=self.classifier(pooled), last_hidden_state=x)


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
