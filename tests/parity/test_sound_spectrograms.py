"""Sounds by convolutions over a spectrogram whose Fourier transform is stored, against the same in torch alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.harness import randomise
from tests.parity.test_sound_library_names import assert_near, built, saved


class Block(nn.Module):
    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


class Spectra(nn.Module):
    """Power of windows of 32 samples, ten from one to the next."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.arange(17)[:, None] * torch.arange(32) * (2 * torch.pi / 32)
        self.stft = nn.ModuleDict()
        for name, wave in (("conv_real", angles.cos()), ("conv_imag", -angles.sin())):
            self.stft[name] = nn.Conv1d(1, 17, 32, stride=10, bias=False)
            self.stft[name].weight.data = (wave * torch.hann_window(32))[:, None]  # type: ignore[union-attr]

    def forward(self, x: Tensor) -> Tensor:
        frames = torch.stft(x, 32, 10, window=torch.hann_window(32), return_complex=True)
        return frames.abs().square().transpose(1, 2)


class Tagged(nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks, self.spectrogram_extractor = blocks, Spectra()
        self.logmel_extractor = nn.Module()
        self.logmel_extractor.melW = nn.Parameter(torch.rand(17, 64))
        self.bn0 = nn.BatchNorm1d(64)
        for at in range(blocks):
            self.add_module(f"conv_block{at + 1}", Block(4 * at or 1, 4 * at + 4))
        self.fc1, self.fc_audioset = nn.Linear(4 * blocks, 12), nn.Linear(12, 5)

    def forward(self, x: Tensor, pooling: str = "features") -> list[Tensor]:
        power = self.spectrogram_extractor(x) @ self.logmel_extractor.melW
        x = self.bn0(10 * torch.log10(power.clamp(min=1e-10)).transpose(1, 2)).transpose(1, 2)[:, None]
        frames = x.shape[2]
        for at in range(self.blocks):
            x = self.get_submodule(f"conv_block{at + 1}")(x)
            x = F.avg_pool2d(x, 2) if at < 5 else x
        x = x.mean(3)
        if pooling == "features":
            x = torch.relu(self.fc1(x.amax(2) + x.mean(2)))
            return [torch.sigmoid(self.fc_audioset(x)), x]
        x = F.max_pool1d(x, 3, 1, 1) + F.avg_pool1d(x, 3, 1, 1)
        shares = torch.sigmoid(self.fc_audioset(torch.relu(self.fc1(x.transpose(1, 2)))))
        whole = [shares[:, min(at // 2 ** min(self.blocks, 5), shares.shape[1] - 1)] for at in range(frames)]
        return [torch.stack(whole, 1), shares.amax(1) if pooling == "maximum" else shares.mean(1)]


@pytest.mark.parametrize("blocks", [4, 6])
@pytest.mark.parametrize("pooling", ["features", "maximum", "mean"])
def test_sounds_by_what_is_stored_of_a_spectrogram(tmp_path: Path, blocks: int, pooling: str) -> None:
    model, x = randomise(Tagged(blocks)).eval(), torch.randn(2, 1010)
    for name, kernel in Spectra().stft.named_children():
        model.spectrogram_extractor.stft[name].weight.data = kernel.weight.data  # no random transform
    model.logmel_extractor.melW.data.abs_()
    made = built(tmp_path, model, hints={"sounds.pooling": pooling})
    with torch.no_grad():
        found, (first, second) = made(x), model(x, pooling)
    assert_near(found.probabilities, first if pooling == "features" else second)
    assert_near(*((found.embeddings, second) if pooling == "features" else (found.framewise, first)))


def test_what_is_pooled_is_asked(tmp_path: Path) -> None:
    report = mapper.inspect(saved(tmp_path, Tagged(4))).architecture
    assert [(question.fact, set(question.candidates)) for question in report.questions] == [
        ("sounds.pooling", {"features", "maximum", "mean"})
    ]
