"""timm/resnet18.a1_in1k: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family timm_resnet).
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

    # shape: layer1.{0..1}.conv1.weight [64, 64, 3, 3] and 3 more
    hidden_sizes: tuple[int, ...] = (64, 128, 256, 512)
    stage_stride: int = 2  # rule: families/timm_resnet.yaml (a stage halves the image)
    layers: int = 2  # name: layer1.*
    channels: int = 3  # shape: conv1.weight [64, 3, 7, 7]
    stem_stride: int = 2  # default: vocabulary/config_maps.yaml (as in most published code)
    kernel_size: int = 7  # shape: conv1.weight [64, 3, 7, 7]
    labels: int = 1000  # shape: fc.weight [1000, 512]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


class Layer(nn.Module):
    """layer1.*, layer2.1 and 2 more: two convolutions with a residual (ResNet)."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(x + y)


class Shortcut(nn.Sequential):
    """layer2.0.downsample, layer3.0.downsample and 1 more: convolution and norm."""

    def __init__(self, config: Config, in_channels: int, out_channels: int):
        super().__init__(
            nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=config.stage_stride, bias=False),
            nn.BatchNorm2d(out_channels),
        )


class LayerWithShortcut(nn.Module):
    """layer2.0, layer3.0 and 1 more: two convolutions with a projected shortcut (ResNet)."""

    def __init__(self, config: Config, input_size: int, hidden_size: int):
        super().__init__()
        self.conv1 = nn.Conv2d(
            input_size, hidden_size, kernel_size=3, stride=config.stage_stride, padding=1, bias=False
        )
        self.bn1 = nn.BatchNorm2d(hidden_size)
        self.conv2 = nn.Conv2d(hidden_size, hidden_size, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(hidden_size)
        self.downsample = Shortcut(config, in_channels=input_size, out_channels=hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(self.downsample(x) + y)


class Stage(nn.Sequential):
    """layer1: a stage of layers in sequence."""

    def __init__(self, config: Config):
        super().__init__(*(Layer(channels=config.hidden_sizes[0]) for _ in range(config.layers)))


class StageWithShortcut(nn.Sequential):
    """layer2, layer3 and 1 more: a stage of layers in sequence."""

    def __init__(self, config: Config, input_size: int, hidden_size: int):
        super().__init__(
            LayerWithShortcut(config, input_size=input_size, hidden_size=hidden_size),
            *(Layer(channels=hidden_size) for _ in range(config.layers - 1)),
        )


class Model(nn.Module):
    """The model with an image classification head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.conv1 = nn.Conv2d(
            config.channels,
            config.hidden_sizes[0],
            kernel_size=config.kernel_size,
            stride=config.stem_stride,
            padding=config.kernel_size // 2,
            bias=False,
        )
        self.bn1 = nn.BatchNorm2d(config.hidden_sizes[0])
        self.layer1 = Stage(config)
        self.layer2 = StageWithShortcut(
            config, input_size=config.hidden_sizes[0], hidden_size=config.hidden_sizes[1]
        )
        self.layer3 = StageWithShortcut(
            config, input_size=config.hidden_sizes[1], hidden_size=config.hidden_sizes[2]
        )
        self.layer4 = StageWithShortcut(
            config, input_size=config.hidden_sizes[2], hidden_size=config.hidden_sizes[3]
        )
        self.fc = nn.Linear(config.hidden_sizes[3], config.labels)

    def forward(self, pixel_values: Tensor) -> Output:
        """pixel_values (batch, channels, height, width)"""
        x, pooled = self.tower(pixel_values)
        return Output(logits=self.fc(pooled), last_hidden_state=x)

    def tower(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embeddings(pixel_values)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return x, x.mean(dim=(-2, -1))

    def embeddings(self, pixel_values: Tensor) -> Tensor:
        x = self.conv1(pixel_values.type_as(self.conv1.weight))
        x = F.relu(self.bn1(x))
        return F.max_pool2d(x, 3, stride=2, padding=1)


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
# {"config": {"architecture": "resnet18", "num_classes": 1000}, "notes": ["header from the bundled catalogue
# (reconstructed with timm 1.0.31), not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: e15ac14bb96e289c
