"""Squeeze-and-excitation in blocks of networks that nobody names (paper 1709.01507)."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mapper

RELU = {"chain.activation": "relu", "chain.activation_before_norm": False, "chain.pooling": "none"}
SAID = {
    **RELU, "chain.stride": 1, "chain.padding": "half", "chain.reduction": "mean", "chain.output": "none",
    "chain.residual": "before_activation", "norm.eps": 1e-5,
}  # fmt: skip


def pair(is_linear: bool, width: int) -> list[nn.Module]:
    """To fewer features and back."""
    if is_linear:
        return [nn.Linear(width, width // 4), nn.Linear(width // 4, width)]
    return [nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)]


class Block(nn.Module):
    """A residual block whose output is scaled, by layers of these names."""

    def __init__(self, inputs: int, outputs: int, names: tuple[str, str], is_linear: bool, gate: str):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)
        for name, layer in zip(names, pair(is_linear, outputs), strict=True):
            folder, _, word = name.rpartition(".")
            for part in folder.split(".") if folder else []:
                self.add_module(part, getattr(self, part, nn.Module()))
            self.get_submodule(folder).add_module(word, layer)
        if inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1)
        self.names, self.is_linear, self.gate = names, is_linear, gate

    def scale(self, x):
        first, last = map(self.get_submodule, self.names)
        y = x.mean((2, 3)) if self.is_linear else x.mean((2, 3), keepdim=True)
        y = getattr(F, self.gate.replace("_", ""))(last(F.relu(first(y))))
        return x * y[..., None, None] if self.is_linear else x * y

    def forward(self, x):
        y = self.scale(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(y + (self.shortcut(x) if hasattr(self, "shortcut") else x))


class Net(nn.Module):
    def __init__(self, block, *settings):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(block(8, 8, *settings), block(8, 8, *settings))
        self.layer2 = nn.Sequential(block(8, 16, *settings), block(16, 16, *settings))
        self.linear = nn.Linear(16, 5)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.linear(self.layer2(self.layer1(x)).mean((2, 3)))


def lively(net: nn.Module) -> nn.Module:
    for parameter in net.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return net.eval()


NAMES = {
    "loose convolutions": (("fc1", "fc2"), False, "sigmoid"),
    "loose maps": (("se_down", "se_up"), True, "sigmoid"),
    "maps that no word names": (("to_few", "to_all"), True, "hard_sigmoid"),
    "a folder": (("se.fc1", "se.fc2"), False, "hard_sigmoid"),
    "a list": (("se.0", "se.2"), True, "sigmoid"),
}


@pytest.mark.parametrize(("names", "is_linear", "gate"), NAMES.values(), ids=NAMES)
@torch.no_grad()
def test_a_residual_block_is_scaled_before_its_sum(names, is_linear, gate) -> None:
    net, x = lively(Net(Block, names, is_linear, gate)), torch.randn(2, 3, 7, 9)
    questions = {question.name for question in mapper.inspect(net.state_dict()).architecture.questions}
    assert "chain.scaling" in questions
    made = mapper.build(net.state_dict(), hints={**SAID, "chain.scaling": gate})
    torch.testing.assert_close(made(x).output, net(x))


class Bottleneck(nn.Module):
    """A block whose last convolution has one place, is scaled, and is as large as that beside the block."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, 8, 1), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv3, self.bn3 = nn.Conv2d(8, outputs, 1), nn.BatchNorm2d(outputs)
        self.se = nn.Module()
        self.se.fc = nn.Sequential(
            nn.Linear(outputs, 2, bias=False), nn.ReLU(), nn.Linear(2, outputs, bias=False)
        )
        if inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn3(self.conv3(F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))))
        y = y * torch.sigmoid(self.se.fc(y.mean((2, 3))))[..., None, None]
        return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


@torch.no_grad()
def test_a_bottleneck_is_scaled_behind_its_convolution_of_one_place() -> None:
    net, x = lively(Net(Bottleneck)), torch.randn(2, 3, 7, 6)
    said = {**SAID, "chain.scaling": "sigmoid", "chain.long_skip": "none"}
    made = mapper.build(net.state_dict(), hints=said)
    torch.testing.assert_close(made(x).output, net(x))


class Inverted(nn.Module):
    """A block that is wide within, and scaled there behind its activation (1905.02244)."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        wide = 2 * inputs
        self.expand, self.bn1 = nn.Conv2d(inputs, wide, 1), nn.BatchNorm2d(wide)
        self.depth, self.bn2 = nn.Conv2d(wide, wide, 3, padding=1, groups=wide), nn.BatchNorm2d(wide)
        self.se = nn.Sequential(*pair(True, wide))
        self.project, self.bn3 = nn.Conv2d(wide, outputs, 1), nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = F.relu(self.bn2(self.depth(F.relu(self.bn1(self.expand(x))))))
        y = y * torch.sigmoid(self.se[1](F.relu(self.se[0](y.mean((2, 3))))))[..., None, None]
        return F.relu(self.bn3(self.project(y)))


@torch.no_grad()
def test_within_a_block_channels_are_scaled_behind_the_activation() -> None:
    net, x = lively(Net(Inverted)), torch.randn(1, 3, 6, 5)
    said = {**SAID, "chain.scaling": "sigmoid", "chain.residual": "none"}
    torch.testing.assert_close(mapper.build(net.state_dict(), hints=said)(x).output, net(x))


class Plain(nn.Module):
    """A block without a sum: an activation, and what it gives is scaled, or the other way round."""

    def __init__(self, inputs: int, outputs: int, is_first: bool):
        super().__init__()
        self.conv, self.se = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Sequential(*pair(True, outputs))
        self.is_first = is_first

    def forward(self, x):
        y = self.conv(x)
        y = F.relu(y) if self.is_first else y
        y = y * torch.sigmoid(self.se[1](F.relu(self.se[0](y.mean((2, 3))))))[..., None, None]
        return y if self.is_first else F.relu(y)


@pytest.mark.parametrize("is_first", [False, True])
@torch.no_grad()
def test_where_no_sum_shows_it_the_place_of_the_activation_is_asked(is_first: bool) -> None:
    net, x = lively(Net(Plain, is_first)), torch.randn(1, 3, 6, 5)
    said = {**SAID, "chain.scaling": "sigmoid", "chain.residual": "none"}
    found = mapper.inspect(net.state_dict(), said).architecture
    assert {question.name for question in found.questions} == {"chain.scaled"}
    said["chain.scaled"] = "after_activation" if is_first else "before_activation"
    torch.testing.assert_close(mapper.build(net.state_dict(), hints=said)(x).output, net(x))


@torch.no_grad()
def test_what_else_weighs_channels_is_not_taken_for_it() -> None:
    """A mean and the largest of each channel go through the same layers (1807.06521); words of attention say so."""
    net = lively(Net(Block, ("ca.fc1", "ca.fc2"), False, "sigmoid"))
    names = {question.name for question in mapper.inspect(net.state_dict()).architecture.questions}
    assert "chain.scaling" not in names
    with pytest.raises(mapper.MapperError):
        mapper.build(net.state_dict(), hints={**SAID, "chain.scaling": "sigmoid"})
