"""A vocoder whose convolutions are modules in modules and read mirrored samples, against the same in torch alone."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from tests.parity.harness import randomise
from tests.parity.test_sound_library_names import assert_near, built


class Inside(nn.Module):
    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        self.conv = weight_norm(convolution)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


def mirrored(size: int, out: int, kernel: int, dilation: int = 1) -> Inside:
    beside = dilation * (kernel // 2)
    return Inside(nn.Conv1d(size, out, kernel, padding=beside, dilation=dilation, padding_mode="reflect"))


class Unit(nn.Module):
    def __init__(self, size: int, kernel: int) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(mirrored(size, size, kernel, by) for by in (1, 3))
        self.convs2 = nn.ModuleList(mirrored(size, size, kernel) for _ in (1, 3))

    def forward(self, x: Tensor) -> Tensor:
        for first, second in zip(self.convs1, self.convs2, strict=True):
            x = x + second(F.leaky_relu(first(F.leaky_relu(x, 0.1)), 0.1))
        return x


class Vocoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv_pre, self.conv_post = mirrored(12, 16, 7), mirrored(4, 1, 7)
        self.ups = nn.ModuleList(
            Inside(nn.ConvTranspose1d(16 // 2**at, 8 // 2**at, 2 * rate, rate, rate // 2)) for at, rate in enumerate((4, 2))
        )  # fmt: skip
        self.resblocks = nn.ModuleList(Unit(8 // 2**at, kernel) for at in range(2) for kernel in (3, 5))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_pre(x)
        for at, up in enumerate(self.ups):
            x = up(F.leaky_relu(x, 0.1))
            x = (self.resblocks[2 * at](x) + self.resblocks[2 * at + 1](x)) / 2
        return torch.tanh(self.conv_post(F.leaky_relu(x)))


def test_without_a_config(tmp_path: Path) -> None:
    model, x = randomise(Vocoder()), torch.randn(2, 12, 6)
    made = built(tmp_path, model, hints={"vocoder.rates": [4, 2], "residual.dilations": [1, 3]})
    with torch.no_grad():
        assert_near(made(x).waveform, model(x))
