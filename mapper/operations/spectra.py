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
