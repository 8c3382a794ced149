"""Convolutional networks under torchvision's names, against the same networks written here with torch alone.

There is no config beside them: names and shapes tell which network it is, and its paper tells the rest. No reading
of these is exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.parity.harness import check_by_names

CLASSES = 5


class Chain(nn.Module):
    """Features, the mean over the image, and a classifier."""

    def __init__(self, features: nn.Module, *classifier: nn.Module):
        super().__init__()
        self.features = features
        self.classifier = nn.Sequential(*classifier)

    def forward(self, image: Tensor) -> Tensor:
        x: Tensor = self.features(image).mean((2, 3))
        return self.classifier(x)


def convolved(
    size: int, out: int, kernel: int = 1, stride: int = 1, act: nn.Module | None = None, **more: Any
) -> nn.Sequential:
    """A convolution without a bias, its norm, and its activation where it has one."""
    eps, groups = more.get("eps", 1e-5), more.get("groups", 1)
    parts = [
        nn.Conv2d(size, out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out, eps=eps),
    ]
    return nn.Sequential(*parts, *([act] if act else []))


class Residual(nn.Module):
    """A part of some name, added to its input where the shapes allow."""

    def __init__(self, name: str, parts: Iterable[nn.Module], is_added: bool):
        super().__init__()
        self.name, self.is_added = name, is_added
        self.add_module(name, nn.Sequential(*parts))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = getattr(self, self.name)(x)
        return x + y if self.is_added else y


class Squeezed(nn.Module):
    def __init__(self, size: int, inner: int, act: nn.Module, gate: nn.Module):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(size, inner, 1), nn.Conv2d(inner, size, 1)
        self.act, self.gate = act, gate

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.fc2(self.act(self.fc1(x.mean((2, 3), keepdim=True)))))


def mobilenet_v2() -> nn.Module:
    act, size, layers = nn.ReLU6(), 6, []
    rows = [
        (1, 4, 1, 1),
        (2, 6, 2, 2),
        (2, 8, 3, 2),
        (2, 10, 4, 2),
        (2, 12, 3, 1),
        (2, 14, 3, 2),
        (2, 16, 1, 1),
    ]
    for factor, out, count, stride in rows:
        for step in [stride] + [1] * (count - 1):
            wide = size * factor
            expansion = [convolved(size, wide, act=act)] if factor > 1 else []
            depthwise = convolved(wide, wide, 3, step, act, groups=wide)
            parts = [*expansion, depthwise, *convolved(wide, out)]
            layers.append(Residual("conv", parts, step == 1 and size == out))
            size = out
    features = nn.Sequential(convolved(3, 6, 3, 2, act), *layers, convolved(size, 20, act=act))
    return Chain(features, nn.Dropout(), nn.Linear(20, CLASSES))


def inverted(
    size: int, wide: int, out: int, kernel: int, stride: int, act: nn.Module, **more: Any
) -> Residual:
    """An inverted residual: wider, channel by channel, squeezed where `inner` says so, and narrow."""
    eps = more.get("eps", 1e-5)
    parts: list[nn.Module] = [convolved(size, wide, act=act, eps=eps)] if wide != size else []
    parts.append(convolved(wide, wide, kernel, stride, act, groups=wide, eps=eps))
    if "inner" in more:
        parts.append(Squeezed(wide, more["inner"], more["squeezing"], more["gate"]))
    parts.append(convolved(wide, out, eps=eps))
    return Residual("block", parts, stride == 1 and size == out)


def mobilenet_v3(is_small: bool) -> nn.Module:
    small = [(2, 1, 3), (2, 0, 3), (1, 0, 3), (2, 1, 5), *[(1, 1, 5)] * 4, (2, 1, 5), (1, 1, 5), (1, 1, 5)]
    large = [(1, 0, 3), (2, 0, 3), (1, 0, 3), (2, 1, 5), (1, 1, 5), (1, 1, 5), (2, 0, 3), *[(1, 0, 3)] * 3]
    rows = small if is_small else [*large, (1, 1, 3), (1, 1, 3), (2, 1, 5), (1, 1, 5), (1, 1, 5)]
    size, layers = 6, []
    for index, (stride, is_squeezed, kernel) in enumerate(rows):
        out = 6 if not index else 6 + 2 * (index // 3)
        act = nn.ReLU() if index < (3 if is_small else 6) else nn.Hardswish()
        more = {"inner": 3, "squeezing": nn.ReLU(), "gate": nn.Hardsigmoid()} if is_squeezed else {}
        layers.append(inverted(size, 2 * size if index else size, out, kernel, stride, act, eps=1e-3, **more))
        size = out
    stem = convolved(3, 6, 3, 2, nn.Hardswish(), eps=1e-3)
    features = nn.Sequential(stem, *layers, convolved(size, 20, act=nn.Hardswish(), eps=1e-3))
    return Chain(features, nn.Linear(20, 16), nn.Hardswish(), nn.Dropout(), nn.Linear(16, CLASSES))


def efficientnet(strides: list[int], fused: int, eps: float) -> nn.Module:
    size, stages = 6, []
    squeezed = {"inner": 2, "squeezing": nn.SiLU(), "gate": nn.Sigmoid(), "eps": eps}
    for index, stride in enumerate(strides):
        layers: list[nn.Module] = []
        out = 6 + 2 * (index // 2)
        for step in (stride, 1):
            wide = 2 * size if index else size
            if index >= fused:
                layers.append(inverted(size, wide, out, 3 + 2 * (index % 2), step, nn.SiLU(), **squeezed))
            else:
                first = convolved(size, wide, 3, step, nn.SiLU(), eps=eps)
                parts = [first, convolved(wide, out, eps=eps)] if index else [first]
                layers.append(Residual("block", parts, step == 1 and size == out))
            size = out
        stages.append(nn.Sequential(*layers))
    stem = convolved(3, 6, 3, 2, nn.SiLU(), eps=eps)
    features = nn.Sequential(stem, *stages, convolved(size, 20, act=nn.SiLU(), eps=eps))
    return Chain(features, nn.Dropout(), nn.Linear(20, CLASSES))


class MapNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Axes(nn.Module):
    def __init__(self, *axes: int):
        super().__init__()
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.axes)


class ScaledResidual(Residual):
    def __init__(self, size: int):
        first, last = Axes(0, 2, 3, 1), Axes(0, 3, 1, 2)
        depthwise, norm = nn.Conv2d(size, size, 7, padding=3, groups=size), nn.LayerNorm(size, eps=1e-6)
        up, down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        super().__init__("block", [depthwise, first, norm, up, nn.GELU(), down, last], True)
        self.layer_scale = nn.Parameter(torch.ones(size, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer_scale * self.block(x)


class ConvNext(Chain):
    def forward(self, image: Tensor) -> Tensor:
        return self.classifier(self.features(image).mean((2, 3), keepdim=True))


def convnext() -> nn.Module:
    sizes = [6, 8, 10, 12]
    features: list[nn.Module] = [nn.Sequential(nn.Conv2d(3, 6, 4, 4), MapNorm(6, eps=1e-6))]
    for index, size in enumerate(sizes):
        if index:
            features.append(
                nn.Sequential(MapNorm(sizes[index - 1], eps=1e-6), nn.Conv2d(sizes[index - 1], size, 2, 2))
            )
        features.append(nn.Sequential(*(ScaledResidual(size) for _ in range(2))))
    return ConvNext(nn.Sequential(*features), MapNorm(12, eps=1e-6), nn.Flatten(1), nn.Linear(12, CLASSES))


class Bottleneck(nn.Module):
    """ResNeXt's: the middle convolution over groups of channels."""

    def __init__(self, size: int, inner: int, out: int, stride: int):
        super().__init__()
        self.conv1, self.bn1 = convolved(size, inner)
        self.conv2, self.bn2 = convolved(inner, inner, 3, stride, groups=2)
        self.conv3, self.bn3 = convolved(inner, out)
        if stride > 1 or size != out:
            self.downsample = convolved(size, out, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(F.relu(self.bn2(self.conv2(y)))))
        return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class ResNext(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolved(3, 8, 7, 2)
        for number in range(1, 5):
            size, out = (8 if number == 1 else 8 + 4 * (number - 1)), 8 + 4 * number
            layers = [
                Bottleneck(size, 2 * number, out, 1 if number == 1 else 2),
                Bottleneck(out, 2 * number, out, 1),
            ]
            self.add_module(f"layer{number}", nn.Sequential(*layers))
        self.fc = nn.Linear(24, CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(image))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


NETWORKS = {
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v3_small": lambda: mobilenet_v3(is_small=True),
    "mobilenet_v3_large": lambda: mobilenet_v3(is_small=False),
    "efficientnet": lambda: efficientnet([1, 2, 2, 2, 1, 2, 1], 0, 1e-5),
    "efficientnet_v2": lambda: efficientnet([1, 2, 2, 2, 1, 2], 3, 1e-3),
    "convnext": convnext,
    "resnext": ResNext,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_that_names_alone_tell(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    image = torch.randn((2, 3, 64, 96), generator=torch.Generator().manual_seed(1))
    check_by_names(NETWORKS[name](), tmp_path, image)
