"""timm/convnextv2_nano.fcmae_ft_in22k_in1k: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family timm_convnext).
header from the bundled catalogue (reconstructed with timm 1.0.31), not from the hub
evidence for its config: recalled
No dropout is written: training mode computes the same; `mapper generate --train` writes it.

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

    # shape: stages.0.blocks.{0..1}.conv_dw.weight [80, 1, 7, 7] and 3 more
    hidden_sizes: tuple[int, ...] = (80, 160, 320, 640)
    expansion: int = 4  # shape: stages.0.blocks.{0..1}.mlp.fc1.weight [320, 80, 1, 1] and 3 more
    channels: int = 3  # shape: stem.0.weight [80, 3, 4, 4]
    patch_size: int = 4  # shape: stem.0.weight [80, 3, 4, 4]
    norm_eps: float = 1e-6  # rule: families/timm_convnext.yaml (a constant of the published code)
    convolution_kernel_size: int = 2  # shape: stages.1.downsample.1.weight [160, 80, 2, 2]
    kernel_size: int = 7  # shape: stages.0.blocks.{0..1}.conv_dw.weight [80, 1, 7, 7]
    layers: tuple[int, ...] = (2, 2, 8, 2)  # name: stages.0.blocks.* and 3 more
    labels: int = 1000  # shape: head.fc.weight [1000, 640]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


class FeedForward(nn.Module):
    """stages.*.blocks.*.mlp: feed-forward network with pointwise convolutions and global response
    normalisation (ConvNeXt v2).
    """

    def __init__(self, config: Config, hidden_size: int):
        super().__init__()
        intermediate_size = config.expansion * hidden_size
        self.fc1 = nn.Conv2d(hidden_size, intermediate_size, kernel_size=1)
        self.grn: Any = nn.ParameterDict(
            {
                "weight": nn.Parameter(torch.zeros(intermediate_size)),
                "bias": nn.Parameter(torch.zeros(intermediate_size)),
            }
        )
        self.fc2 = nn.Conv2d(intermediate_size, hidden_size, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.fc1(x))
        y = y.permute(0, 2, 3, 1)
        size = y.norm(dim=(1, 2), keepdim=True)
        y = self.grn.weight * (y * (size / (size.mean(dim=-1, keepdim=True) + 1e-6))) + self.grn.bias + y
        return self.fc2(y.permute(0, 3, 1, 2))


class Embeddings(nn.ModuleList):
    """stem: patch embeddings as a feature map, with a norm."""

    __getitem__: Any

    def __init__(self, config: Config):
        super().__init__(
            [
                nn.Conv2d(
                    config.channels,
                    config.hidden_sizes[0],
                    kernel_size=config.patch_size,
                    stride=config.patch_size,
                ),
                nn.LayerNorm(config.hidden_sizes[0], eps=config.norm_eps),
            ]
        )

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self[0](pixel_values.type_as(self[0].weight))
        return self[1](x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Downsampling(nn.ModuleList):
    """stages.*.downsample: a strided convolution with layer norm over the channels before it."""

    def __init__(self, config: Config, in_channels: int, out_channels: int):
        super().__init__(
            [
                nn.LayerNorm(in_channels, eps=config.norm_eps),
                nn.Conv2d(
                    in_channels,
                    out_channels,
                    kernel_size=config.convolution_kernel_size,
                    stride=config.convolution_kernel_size,
                ),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self[0](x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self[1](x)


class Layer(nn.Module):
    """stages.*.blocks.*: a depthwise convolution, its norm, then a feed-forward over the channels, with
    layer norm (ConvNeXt).
    """

    def __init__(self, config: Config, hidden_size: int):
        super().__init__()
        self.conv_dw = nn.Conv2d(
            hidden_size,
            hidden_size,
            kernel_size=config.kernel_size,
            padding=config.kernel_size // 2,
            groups=hidden_size,
        )
        self.norm = nn.LayerNorm(hidden_size, eps=config.norm_eps)
        self.mlp = FeedForward(config, hidden_size=hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        y = self.mlp(self.norm(self.conv_dw(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2))
        return x + y


class StageWithDownsampling(nn.Module):
    """stages.*: a stage of layers in sequence with downsampling first."""

    def __init__(self, config: Config, input_size: int, hidden_size: int, layers: int):
        super().__init__()
        self.downsample = Downsampling(config, in_channels=input_size, out_channels=hidden_size)
        self.blocks = nn.ModuleList(Layer(config, hidden_size=hidden_size) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        x = self.downsample(x)
        for layer in self.blocks:
            x = layer(x)
        return x


class Stage(nn.Module):
    """stages.0: a stage of layers in sequence."""

    def __init__(self, config: Config):
        super().__init__()
        self.blocks = nn.ModuleList(
            Layer(config, hidden_size=config.hidden_sizes[0]) for _ in range(config.layers[0])
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.blocks:
            x = layer(x)
        return x


class Model(nn.Module):
    """The model with an image classification head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.stem: Any = Embeddings(config)
        self.stages = nn.ModuleList(
            [
                Stage(config),
                *(
                    StageWithDownsampling(
                        config, input_size=input_size, hidden_size=hidden_size, layers=layers
                    )
                    for input_size, hidden_size, layers in zip(
                        config.hidden_sizes[:-1], config.hidden_sizes[1:], config.layers[1:], strict=True
                    )
                ),
            ]
        )
        self.head: Any = nn.ModuleDict(
            {
                "norm": nn.LayerNorm(config.hidden_sizes[3], eps=config.norm_eps),
                "fc": nn.Linear(config.hidden_sizes[3], config.labels),
            }
        )

    def forward(self, pixel_values: Tensor) -> Output:
        """pixel_values (batch, channels, height, width)"""
        x, pooled = self.tower(pixel_values)
        return Output(logits=self.head.fc(pooled), last_hidden_state=x)

    def tower(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(pixel_values)
        for stage in self.stages:
            x = stage(x)
        return x, self.head.norm(x.mean(dim=(-2, -1)))


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
# {"config": {"architecture": "convnextv2_nano", "num_classes": 1000}, "notes": ["header from the bundled
# catalogue (reconstructed with timm 1.0.31), not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: ab8706df9333fce7
