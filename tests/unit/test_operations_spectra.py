"""Waveforms as spectra of frames and back, beside torch's own transforms."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from mapper.operations.spectra import (
    log_mel_frames,
    log_mel_spectrogram,
    mean_and_deviation,
    overlap_frames,
    repeat_to_frames,
)


@pytest.mark.parametrize("hop", [16, 20])
def test_centred_frames_are_those_of_torch(hop: int) -> None:
    x, window, filters = torch.randn(2, 331), torch.hann_window(64), torch.rand(33, 5)
    spectra = torch.stft(x, 64, hop, window=window, center=True, return_complex=True)
    wanted = (spectra.abs().transpose(1, 2) @ filters).log().transpose(1, 2)
    torch.testing.assert_close(log_mel_frames(x, window, filters, hop, True), wanted, rtol=1e-4, atol=1e-4)
    back = overlap_frames(spectra.abs(), spectra.angle(), window, hop, True)
    torch.testing.assert_close(back, torch.istft(spectra, 64, hop, window=window), rtol=1e-4, atol=1e-4)


def test_as_many_frames_as_hops_give_the_waveform_back() -> None:
    x, window = torch.randn(1, 160), torch.hann_window(64)
    padded = F.pad(x, (24, 24), "reflect")
    spectra = torch.fft.rfft(padded.unfold(-1, 64, 16) * window).transpose(1, 2)
    assert log_mel_frames(x, window, torch.rand(33, 5), 16, False).shape == (1, 5, 10)
    torch.testing.assert_close(overlap_frames(spectra.abs(), spectra.angle(), window, 16, False), x, rtol=1e-4, atol=1e-4)  # fmt: skip


def test_statistics_of_frames_are_those_of_the_frames_with_a_weight() -> None:
    x, weights = torch.randn(2, 3, 7), torch.tensor([1.0, 1, 1, 1, 0, 0, 0]).expand(2, 1, 7)
    wanted = torch.cat((x[..., :4].mean(-1), x[..., :4].std(-1, unbiased=False)), dim=1)
    torch.testing.assert_close(mean_and_deviation(x, weights), wanted)


def test_frames_behind_the_last_step_repeat_it() -> None:
    x = torch.tensor([[[1.0], [2.0], [3.0]]])
    assert repeat_to_frames(x, 14)[0, :, 0].tolist() == [1.0] * 4 + [2.0] * 4 + [3.0] * 6
    assert repeat_to_frames(x, 3)[0, :, 0].tolist() == [1.0, 2.0, 3.0]


def test_decibels_of_a_stored_transform() -> None:
    real, imaginary = torch.tensor([[[0.0, 1.0, 0.0, 0.0]]]), torch.tensor([[[0.0, 0.0, 1.0, 0.0]]])
    x, filters = torch.tensor([[3.0, 4.0, 0.0, 0.0]]), torch.tensor([[1.0, 4.0]])
    # frames begin two samples before: (0, 4, 3, 4), then (3, 4, 0, 0), (0, 0, 0, 4)
    made = log_mel_spectrogram(x, real, imaginary, filters, 2)
    wanted = [
        [10 * math.log10(25), 10 * math.log10(16), -100.0],
        [10 * math.log10(100), 10 * math.log10(64), -100.0],
    ]
    assert torch.allclose(made[0], torch.tensor(wanted))
