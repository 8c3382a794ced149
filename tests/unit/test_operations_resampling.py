"""Twice and half as many samples of a waveform, and what makes it whole for strides."""

from __future__ import annotations

import torch

from mapper.operations.resampling import between_kernel, halve_waveform, pad_to_strides, upsample_waveform


def test_a_slow_wave_lies_between_its_samples() -> None:
    wave = torch.sin(torch.arange(400) * 0.05)[None, None]
    made = upsample_waveform(wave, 4)
    assert made.shape[2] == 1600 and torch.equal(made[..., ::4], wave)
    wanted = torch.sin(torch.arange(1600) * 0.0125)
    assert (made[0, 0] - wanted)[300:-300].abs().max() < 1e-3
    assert (halve_waveform(made, 4) - wave)[..., 100:-100].abs().max() < 1e-3


def test_one_sample_for_one_leaves_a_waveform_as_it_is() -> None:
    x = torch.randn(2, 1, 5)
    assert torch.equal(upsample_waveform(x, 1), x) and torch.equal(halve_waveform(x, 1), x)


def test_the_kernel_sums_to_one() -> None:
    kernel = between_kernel(torch.zeros(()))
    assert kernel.shape == (1, 1, 112) and abs(float(kernel.sum()) - 1) < 1e-2


def test_nothing_is_left_over_by_convolutions_with_a_stride() -> None:
    assert pad_to_strides(torch.zeros(1, 1, 37), 2, 8, 1).shape[2] == 52  # 52 -> 12 -> 2
    assert pad_to_strides(torch.zeros(1, 1, 36), 2, 8, 1).shape[2] == 36  # 36 -> 8 -> 1
    assert pad_to_strides(torch.zeros(1, 1, 10), 2, 8, 4).shape[2] == 13
