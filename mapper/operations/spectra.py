"""Waveforms as the spectra of their frames, and back."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def log_mel_frames(x: Tensor, window: Tensor, filters: Tensor, hop: int, is_centred: bool) -> Tensor:
    """Logarithm of the mel bins of each frame; centred frames have their middle at a multiple of the hop.

    x (B, S), window (N), filters (N / 2 + 1, M) -> (B, M, T)
    """
    size = window.shape[0]
    beside = size // 2 if is_centred else (size - hop) // 2
    padded = F.pad(x[:, None], (beside, beside), "reflect")[:, 0]
    spectra = torch.fft.rfft(padded.unfold(-1, size, hop) * window).abs()
    return (spectra @ filters).clamp(min=1e-7).log().transpose(1, 2)


def mean_and_deviation(x: Tensor, weights: Tensor) -> Tensor:
    """Mean and standard deviation of each channel over all frames, by weights of the frames.

    x (B, C, T), weights (B, C or 1, T) -> (B, 2 * C)
    """
    shares = weights / weights.sum(dim=2, keepdim=True)
    mean = (shares * x).sum(dim=2)
    variance = (shares * (x - mean[:, :, None]).square()).sum(dim=2)
    return torch.cat((mean, variance.clamp(min=1e-12).sqrt()), dim=1)


def overlap_frames(magnitude: Tensor, phase: Tensor, window: Tensor, hop: int, is_centred: bool) -> Tensor:
    """The waveform whose overlapping frames have these spectra, over the sum of squared windows.

    magnitude and phase (B, N / 2 + 1, T), window (N) -> (B, S), S about hop * T, less a hop where centred
    """
    size, count = window.shape[0], magnitude.shape[-1]
    frames = torch.fft.irfft(torch.polar(magnitude, phase), size, dim=1) * window[:, None]
    length = (count - 1) * hop + size
    squares = window.square()[None, :, None].expand(1, size, count)
    added, weights = (
        F.fold(part, (1, length), (1, size), stride=(1, hop))[:, 0, 0] for part in (frames, squares)
    )
    beside = size // 2 if is_centred else (size - hop) // 2
    return (added / weights)[:, beside : length - beside]


def log_mel_spectrogram(x: Tensor, real: Tensor, imaginary: Tensor, filters: Tensor, hop: int) -> Tensor:
    """Decibels of the mel bins of centred frames, by a Fourier transform that is stored as two kernels.

    x (B, S), real and imaginary (N / 2 + 1, 1, N), filters (N / 2 + 1, M) -> (B, M, T)
    """
    beside = real.shape[-1] // 2
    padded = F.pad(x[:, None], (beside, beside), "reflect")
    power = F.conv1d(padded, real, stride=hop).square() + F.conv1d(padded, imaginary, stride=hop).square()
    return 10 * (power.transpose(1, 2) @ filters).clamp(min=1e-10).log10().transpose(1, 2)


def repeat_to_frames(x: Tensor, frames: int) -> Tensor:
    """Each step as often as it stands for frames whole, and the last for those behind them too.

    x (B, steps, C) -> (B, frames, C)
    """
    times = 2 ** ((frames // x.shape[1]).bit_length() - 1)
    repeated = x.repeat_interleave(times, dim=1)
    return torch.cat((repeated, repeated[:, -1:].expand(-1, frames - repeated.shape[1], -1)), dim=1)
