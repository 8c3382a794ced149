"""A U-Net over samples with recurrent layers in its middle, against the same in torch alone."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.harness import TOLERANCE, randomise
from tests.parity.test_sound_library_names import built, saved


def halfway(x: Tensor) -> Tensor:
    """What lies half a sample behind each one: windowed sinc over 56 samples on either side."""
    made = torch.zeros_like(x)
    for away in range(-55, 57):
        place = away - 0.5
        weight = math.sin(math.pi * place) / (math.pi * place) * math.cos(math.pi * place / 112) ** 2
        at = torch.arange(x.shape[-1]) + away
        real = (at >= 0) & (at < x.shape[-1])
        made = made + weight * torch.where(real, x[..., at.clamp(0, x.shape[-1] - 1)], torch.zeros(()))
    return made


class Middle(nn.Module):
    def __init__(self, size: int, both: bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(size, size, 2, batch_first=True, bidirectional=both)
        self.linear = nn.Linear(2 * size, size) if both else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.lstm(x.transpose(1, 2))[0]
        return (self.linear(y) if self.linear else y).transpose(1, 2)


class Unet(nn.Module):
    def __init__(self, both: bool, gate: int) -> None:
        super().__init__()
        act = nn.GLU(1) if gate == 2 else nn.ReLU()
        self.encoder = nn.ModuleList(
            nn.Sequential(nn.Conv1d(of, to, 8, 4), nn.ReLU(), nn.Conv1d(to, gate * to, 1), act)
            for of, to in ((1, 6), (6, 12))
        )
        self.decoder = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(of, gate * of, 1), act, nn.ConvTranspose1d(of, to, 8, 4), *[nn.ReLU()] * (to > 1)
            )
            for of, to in ((12, 6), (6, 1))
        )
        self.lstm = Middle(12, both)

    def forward(self, sound: Tensor, times: int, normalized: bool) -> Tensor:
        deviation = sound.mean(1, keepdim=True).std(-1, keepdim=True)
        x = sound / (deviation + 1e-3) if normalized else sound
        need = 8
        while (
            need < times * x.shape[-1] or (need - 8) % 4 or (need - 4) // 4 < 8 or ((need - 4) // 4 - 8) % 4
        ):
            need += 1
        x = F.pad(x, (0, -(-need // times) - x.shape[-1]))
        for _ in range(times // 2):
            x = torch.stack((x, halfway(x)), -1).flatten(2)
        outs = []
        for part in self.encoder:
            x = part(x)
            outs.append(x)
        x = self.lstm(x)
        for part in self.decoder:
            x = part(x + outs.pop()[..., : x.shape[-1]])
        for _ in range(times // 2):
            x = F.pad(x, (0, x.shape[-1] % 2))
            x = (x[..., ::2] + halfway(x[..., 1::2].flip(-1)).flip(-1)) / 2  # what lies half a sample before
        x = x[..., : sound.shape[-1]]
        return deviation * x if normalized else x


def assert_near(made: Tensor, wanted: Tensor) -> None:
    assert made.shape == wanted.shape  # of the largest: the last bias is most of these numbers
    assert float((made - wanted).abs().max() / wanted.abs().max()) <= TOLERANCE


@pytest.mark.parametrize(("times", "both", "gate"), [(1, True, 2), (2, False, 2), (4, False, 1)])
def test_a_waveform_without_its_noise(tmp_path: Path, times: int, both: bool, gate: int) -> None:
    model, x = randomise(Unet(both, gate)), torch.randn(2, 1, 201)
    made = built(tmp_path, model, hints={"wave.upsampling": times})
    with torch.no_grad():
        assert_near(made(x).audio_values, model(x, times, normalized=True))


def test_with_its_settings(tmp_path: Path) -> None:
    model, x = randomise(Unet(False, 2)), torch.randn(1, 1, 77)
    made = built(tmp_path, model, {"resample": 2, "normalize": False})
    with torch.no_grad():
        assert_near(made(x).audio_values, model(x, 2, normalized=False))


def test_how_many_samples_it_reads_is_asked(tmp_path: Path) -> None:
    report = mapper.inspect(saved(tmp_path, Unet(False, 2))).architecture
    assert [question.fact for question in report.questions] == ["wave.upsampling"]
