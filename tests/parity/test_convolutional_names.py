"""Convolutional networks whose parts are numbered in words, against the same networks written here with torch alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.parity.harness import check_by_names
from tests.parity.test_torchvision_names import CLASSES, Squeezed, convolved


def parts(**named: nn.Module) -> nn.Module:
    """Modules under names, none of which is called through it."""
    holder = nn.Module()
    for name, part in named.items():
        holder.add_module(name, part)
    return holder


class DenseLayer(nn.Module):
    def __init__(self, size: int, inner: int, growth: int):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(size), nn.Conv2d(size, inner, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(inner), nn.Conv2d(inner, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(F.relu(self.norm1(x)))
        return torch.cat((x, self.conv2(F.relu(self.norm2(y)))), dim=1)


class DenseNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        size, features = 8, nn.Sequential()
        conv, norm = convolved(3, size, 7, 2)
        features.add_module("conv0", conv)
        features.add_module("norm0", norm)
        features.add_module("pool0", nn.Sequential(nn.ReLU(), nn.MaxPool2d(3, 2, 1)))
        for number, count in enumerate((2, 11, 2), 1):
            block = nn.Sequential()
            for at in range(count):
                block.add_module(f"denselayer{at + 1}", DenseLayer(size + 4 * at, 6, 4))
            size += 4 * count
            features.add_module(f"denseblock{number}", block)
            if number < 3:
                transition = nn.Sequential()
                transition.add_module("norm", nn.BatchNorm2d(size))
                transition.add_module("relu", nn.ReLU())
                transition.add_module("conv", nn.Conv2d(size, size // 2, 1, bias=False))
                transition.add_module("pool", nn.AvgPool2d(2))
                features.add_module(f"transition{number}", transition)
                size //= 2
        features.add_module("norm5", nn.BatchNorm2d(size))
        self.features, self.classifier = features, nn.Linear(size, CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        return self.classifier(F.relu(self.features(image)).mean((2, 3)))


class RegLayer(nn.Module):
    """Of torchvision; RegNet's bottleneck with groups of four channels."""

    def __init__(self, size: int, out: int, is_squeezed: bool):
        super().__init__()
        stride = 1 if size == out else 2
        self.f = nn.Sequential()
        self.f.add_module("a", convolved(size, out, act=nn.ReLU()))
        self.f.add_module("b", convolved(out, out, 3, stride, nn.ReLU(), groups=out // 4))
        if is_squeezed:
            self.f.add_module("se", Squeezed(out, 3, nn.ReLU(), nn.Sigmoid()))
        self.f.add_module("c", convolved(out, out))
        if size != out:
            self.proj = convolved(size, out, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.f(x) + (self.proj(x) if hasattr(self, "proj") else x))


class RegNet(nn.Module):
    def __init__(self, is_squeezed: bool):
        super().__init__()
        self.stem, size, self.trunk_output = convolved(3, 8, 3, 2, nn.ReLU()), 8, nn.Sequential()
        for number, count in enumerate((1, 12, 2), 1):
            stage, out = nn.Sequential(), 8 + 4 * number
            for at in range(count):
                stage.add_module(f"block{number}-{at}", RegLayer(out if at else size, out, is_squeezed))
            self.trunk_output.add_module(f"block{number}", stage)
            size = out
        self.fc = nn.Linear(size, CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        return self.fc(self.trunk_output(self.stem(image)).mean((2, 3)))


class ShuffleLayer(nn.Module):
    def __init__(self, size: int, out: int, stride: int):
        super().__init__()
        half, source = out // 2, size if stride == 2 else size // 2
        if stride == 2:
            self.branch1 = nn.Sequential(
                *convolved(size, size, 3, 2, groups=size), *convolved(size, half, act=nn.ReLU())
            )
        first, last = convolved(source, half, act=nn.ReLU()), convolved(half, half, act=nn.ReLU())
        self.branch2 = nn.Sequential(*first, *convolved(half, half, 3, stride, groups=half), *last)

    def forward(self, x: Tensor) -> Tensor:
        first, second = (self.branch1(x), x) if hasattr(self, "branch1") else x.chunk(2, dim=1)
        y = torch.cat((first, self.branch2(second)), dim=1)
        return y.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)


class ShuffleNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = convolved(3, 6, 3, 2, nn.ReLU())
        for number, size, out in ((2, 6, 8), (3, 8, 12), (4, 12, 16)):
            stage = nn.Sequential(
                ShuffleLayer(size, out, 2), ShuffleLayer(out, out, 1), ShuffleLayer(out, out, 1)
            )
            self.add_module(f"stage{number}", stage)
        self.conv5, self.fc = convolved(16, 20, act=nn.ReLU()), nn.Linear(20, CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv1(image), 3, 2, 1)
        return self.fc(self.conv5(self.stage4(self.stage3(self.stage2(x)))).mean((2, 3)))


class DenseBlock(nn.Module):
    def __init__(self, size: int, growth: int):
        super().__init__()
        for at in range(5):
            self.add_module(
                f"conv{at + 1}", nn.Conv2d(size + at * growth, growth if at < 4 else size, 3, padding=1)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for at in range(4):
            y = torch.cat((y, F.leaky_relu(self.get_submodule(f"conv{at + 1}")(y), 0.2)), dim=1)
        return x + 0.2 * self.conv5(y)


class DenseBlockPlus(DenseBlock):
    """With a residual of the second convolution, and that of the fourth (1904.10247)."""

    def __init__(self, size: int, growth: int):
        super().__init__(size, growth)
        self.conv1x1 = nn.Conv2d(size, growth, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y, kept = x, [self.conv1x1(x)]
        for at in range(4):
            made = F.leaky_relu(self.get_submodule(f"conv{at + 1}")(y), 0.2)
            if at % 2:
                made = made + kept[-1]
                kept.append(made)
            y = torch.cat((y, made), dim=1)
        return x + 0.2 * self.conv5(y)


class Restorer(nn.Module):
    """ESRGAN; `factor` places of a row are read as channels."""

    def __init__(
        self, words: dict[str, str], factor: int, times: int = 2, block: type[nn.Module] = DenseBlock
    ):
        super().__init__()
        self.words, self.factor = words, factor
        self.enlarging = [f"conv_up{at + 1}" for at in range(times)]
        sizes = {"conv_first": (3 * factor**2, 8), "conv_last": (8, 3)}
        layers = nn.ModuleList()
        for _ in range(2):
            layers.append(parts(**{f"{words['rdb']}{at}": block(8, 4) for at in (1, 2, 3)}))
        self.add_module(words["body"], layers)
        for name in ("conv_first", "conv_body", *self.enlarging, "conv_hr", "conv_last"):
            self.add_module(words.get(name, name), nn.Conv2d(*sizes.get(name, (8, 8)), 3, padding=1))

    def part(self, name: str) -> nn.Module:
        return self.get_submodule(self.words.get(name, name))

    def forward(self, image: Tensor) -> Tensor:
        first = self.part("conv_first")(F.pixel_unshuffle(image, self.factor))
        x = first
        for layer in self.part("body").children():
            x = x + 0.2 * nn.Sequential(*layer.children())(x)
        x = first + self.part("conv_body")(x)
        for name in self.enlarging:
            x = F.leaky_relu(self.part(name)(F.interpolate(x, scale_factor=2)), 0.2)
        return self.part("conv_last")(F.leaky_relu(self.part("conv_hr")(x), 0.2))


OLDER = {
    "body": "RRDB_trunk",
    "rdb": "RDB",
    "conv_body": "trunk_conv",
    "conv_up1": "upconv1",
    "conv_up2": "upconv2",
}


class Sequence(Restorer):
    """ESRGAN as it was first released, whose layers are called by their position in sequences."""

    def __init__(self, times: int = 2) -> None:
        super().__init__({"body": "body", "rdb": "RDB"}, 1, times)
        last = 3 * times + 2
        self.positions = {"conv_first": 0, "conv_hr": last, "conv_last": last + 2}
        self.positions |= {name: 3 * at for at, name in enumerate(self.enlarging, 1)}
        self._register_state_dict_hook(self.released)

    @staticmethod
    def released(model: nn.Module, state: dict[str, Tensor], *_: object) -> None:
        for name in list(state):
            stem, _dot, word = name.rpartition(".")
            if stem.startswith("body."):
                renamed = f"model.1.sub.{stem.removeprefix('body.')}.0"
            else:
                at = model.positions.get(stem)  # type: ignore[operator, union-attr]
                renamed = "model.1.sub.2" if at is None else f"model.{at}"
            state[f"{renamed}.{word}"] = state.pop(name)


class EfficientLayer(nn.Module):
    """Of efficientnet-pytorch: pads as TensorFlow does, for images of the size that the network was published with."""

    def __init__(self, size: int, out: int, kernel: int, stride: int, ratio: int) -> None:
        super().__init__()
        inner, self.stride, self.kernel, self.is_kept = size * ratio, stride, kernel, False
        if ratio > 1:
            self._expand_conv, self._bn0 = nn.Conv2d(size, inner, 1, bias=False), nn.BatchNorm2d(inner, 1e-3)
        self._depthwise_conv = nn.Conv2d(inner, inner, kernel, stride, groups=inner, bias=False)
        self._bn1 = nn.BatchNorm2d(inner, 1e-3)
        self._se_reduce, self._se_expand = nn.Conv2d(inner, 3, 1), nn.Conv2d(3, inner, 1)
        self._project_conv, self._bn2 = nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out, 1e-3)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self._bn0(self._expand_conv(x))) if hasattr(self, "_expand_conv") else x
        first = (self.kernel - self.stride) // 2
        last = self.kernel - self.stride - first
        y = F.silu(self._bn1(self._depthwise_conv(F.pad(y, (first, last, first, last)))))
        gate = self._se_expand(F.silu(self._se_reduce(y.mean((2, 3), keepdim=True))))
        y = self._bn2(self._project_conv(y * gate.sigmoid()))
        return x + y if self.is_kept else y


class EfficientNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = nn.Conv2d(3, 8, 3, 2, bias=False), nn.BatchNorm2d(8, 1e-3)
        size, self._blocks = 8, nn.ModuleList()
        kernels, strides, outs = (3, 3, 5, 3, 5, 5, 3), (1, 2, 2, 2, 1, 2, 1), (4, 6, 10, 12, 14, 16, 18)
        for run, count in enumerate((1, 2, 2, 3, 3, 4, 1)):
            for at in range(count):
                stride = 1 if at else strides[run]
                layer = EfficientLayer(size, outs[run], kernels[run], stride, 6 if run else 1)
                layer.is_kept, size = at > 0, outs[run]
                self._blocks.append(layer)
        self._conv_head, self._bn1 = nn.Conv2d(size, 20, 1, bias=False), nn.BatchNorm2d(20, 1e-3)
        self._fc = nn.Linear(20, CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        x = F.silu(self._bn0(self._conv_stem(F.pad(image, (0, 1, 0, 1)))))
        for layer in self._blocks:
            x = layer(x)
        return self._fc(F.silu(self._bn1(self._conv_head(x))).mean((2, 3)))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "densenet": DenseNet,
    "regnet_x": lambda: RegNet(is_squeezed=False),
    "regnet_y": lambda: RegNet(is_squeezed=True),
    "shufflenet": ShuffleNet,
    "efficientnet": EfficientNet,
    "esrgan": lambda: Restorer({"body": "body", "rdb": "rdb"}, 2),
    "esrgan_plus": lambda: Restorer({"body": "body", "rdb": "rdb"}, 1, 2, DenseBlockPlus),
    "esrgan_first": Sequence,
    "esrgan_first_once": lambda: Sequence(1),
    "esrgan_first_three_times": lambda: Sequence(3),
    "esrgan_older": lambda: Restorer({**OLDER, "conv_hr": "HRconv"}, 1),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_that_names_alone_tell(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    is_restored = "esrgan" in name
    image = torch.randn((2, 3, 64, 96), generator=torch.Generator().manual_seed(1))
    image = image[..., :24] if is_restored else image
    check_by_names(NETWORKS[name](), tmp_path, image, "reconstruction" if is_restored else "logits")
