"""A vocoder whose snake activations stand between low-pass filters, against the same in torch alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from tests.parity.harness import randomise
from tests.parity.test_sound_library_names import assert_near, built


class Filtered(nn.Module):
    """Twice as many samples, x + sin(a x) ** 2 / b, and half as many again."""

    def __init__(self, size: int, has_scale: bool) -> None:
        super().__init__()
        self.act = nn.Module()
        self.act.alpha = nn.Parameter(torch.zeros(size))
        if has_scale:
            self.act.beta = nn.Parameter(torch.zeros(size))
        self.upsample, self.downsample = nn.Module(), nn.Module()
        self.downsample.lowpass = nn.Module()
        for holder in (self.upsample, self.downsample.lowpass):
            holder.register_buffer("filter", torch.softmax(torch.randn(1, 1, 6), -1))
        self.is_logarithmic = True

    def forward(self, x: Tensor) -> Tensor:
        kernel, wide = self.upsample.filter[0, 0], torch.zeros(*x.shape[:2], 2 * x.shape[2] + 12)
        near = F.pad(x, (2, 2), "replicate")  # each sample is spread over six places, two further each time
        for at in range(near.shape[2]):
            wide[..., 2 * at : 2 * at + 6] += 2 * near[..., at : at + 1] * kernel
        y = wide[..., 6 : 6 + 2 * x.shape[2]]
        alpha, beta = self.act.alpha, getattr(self.act, "beta", self.act.alpha)
        alpha, beta = (alpha.exp(), beta.exp()) if self.is_logarithmic else (alpha, beta)
        y = y + torch.sin(alpha[:, None] * y) ** 2 / (beta[:, None] + 1e-9)
        return (F.pad(y, (2, 3), "replicate").unfold(2, 6, 2) * self.downsample.lowpass.filter[0, 0]).sum(-1)


class Unit(nn.Module):
    def __init__(self, size: int, kernel: int, has_scale: bool) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(
            weight_norm(nn.Conv1d(size, size, kernel, dilation=by, padding=by * (kernel // 2)))
            for by in (1, 3)
        )
        self.convs2 = nn.ModuleList(
            weight_norm(nn.Conv1d(size, size, kernel, padding=kernel // 2)) for _ in (1, 3)
        )
        self.activations = nn.ModuleList(Filtered(size, has_scale) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for at, (first, second) in enumerate(zip(self.convs1, self.convs2, strict=True)):
            x = x + second(self.activations[2 * at + 1](first(self.activations[2 * at](x))))
        return x


class Vocoder(nn.Module):
    def __init__(self, has_scale: bool, has_bias: bool) -> None:
        super().__init__()
        self.conv_pre = weight_norm(nn.Conv1d(12, 16, 7, padding=3))
        self.ups = nn.ModuleList(
            nn.ModuleList(
                [weight_norm(nn.ConvTranspose1d(16 // 2**at, 8 // 2**at, 2 * rate, rate, rate // 2))]
            )
            for at, rate in enumerate((4, 2))
        )
        self.resblocks = nn.ModuleList(
            Unit(8 // 2**at, kernel, has_scale) for at in range(2) for kernel in (3, 5)
        )
        self.activation_post = Filtered(4, has_scale)
        self.conv_post = weight_norm(nn.Conv1d(4, 1, 7, padding=3, bias=has_bias))

    def forward(self, x: Tensor, has_tanh: bool) -> Tensor:
        x = self.conv_pre(x)
        for at, (up,) in enumerate(self.ups):  # type: ignore[misc]
            x = up(x)
            x = (self.resblocks[2 * at](x) + self.resblocks[2 * at + 1](x)) / 2
        x = self.conv_post(self.activation_post(x))
        return torch.tanh(x) if has_tanh else x.clamp(-1, 1)


@pytest.fixture
def x() -> Tensor:
    """Features of sounds, the same in every run, as are the filters that a test makes after it."""
    torch.manual_seed(0)
    return torch.randn(2, 12, 5)


def drawn(has_scale: bool, has_bias: bool) -> Vocoder:
    """A vocoder whose samples lie well within the bounds, where a wrong one would show."""
    model = randomise(Vocoder(has_scale, has_bias))
    model.conv_post.parametrizations.weight.original0.data.mul_(0.3)
    return model  # type: ignore[return-value]


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("has_scale", [True, False])
def test_without_a_config(tmp_path: Path, x: Tensor, has_scale: bool, has_bias: bool) -> None:
    model = drawn(has_scale, has_bias)
    made = built(tmp_path, model, hints={"vocoder.rates": [4, 2], "residual.dilations": [1, 3]})
    with torch.no_grad():
        assert_near(made(x).waveform, model(x, has_tanh=has_bias))


def test_with_its_config(tmp_path: Path, x: Tensor) -> None:
    model = drawn(True, True)
    for part in model.modules():
        if isinstance(part, Filtered):
            part.is_logarithmic = False
            part.act.alpha.data.abs_().add_(0.5)
            part.act.beta.data.abs_().add_(0.5)
    settings = {"upsample_rates": [4, 2], "resblock_dilation_sizes": [[1, 3], [1, 3]], "snake_logscale": False, "use_tanh_at_final": False}  # fmt: skip
    made = built(tmp_path, model, settings)
    with torch.no_grad():
        assert_near(made(x).waveform, model(x, has_tanh=False))
