"""Spectra and windows of sounds. https://onnx.ai/onnx/operators/"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mapper.graphs.operators import operator
from mapper.graphs.operators.common import axis_in, ints


@operator("DFT", since=20)
def dft(
    x: Tensor,
    length: int | Tensor | None = None,
    axis: int | Tensor = -2,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    """The discrete Fourier transform along an axis; the last one holds real and imaginary parts. (..., 1 or 2)"""
    along = axis_in(ints(axis)[0], x.dim())
    count = ints(length)[0] if length is not None else None
    values = torch.view_as_complex(x.contiguous()) if x.shape[-1] == 2 else x[..., 0]
    if inverse and onesided:
        return torch.fft.irfft(values, count, along)[..., None]
    found = torch.fft.ifft(values, count, along) if inverse else torch.fft.fft(values, count, along)
    if onesided:
        found = found.narrow(along, 0, found.shape[along] // 2 + 1)
    return torch.view_as_real(found).to(x.dtype)


@operator("DFT", since=17, until=19)
def dft_17(
    x: Tensor, length: int | Tensor | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Tensor:
    return dft(x, length, axis, inverse=inverse, onesided=onesided)


@operator("STFT", since=17)
def stft(
    signal: Tensor,
    frame_step: int | Tensor,
    window: Tensor | None = None,
    frame_length: int | Tensor | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    """The spectrum of each frame. signal (B, T, 1 or 2) -> (B, frames, bins, 2)"""
    if window is None and frame_length is None:
        raise ValueError("STFT needs a window or a length of frames")
    count = window.shape[0] if window is not None else ints(frame_length)[0]
    frames = signal.unfold(1, count, ints(frame_step)[0]).transpose(2, 3)
    if window is not None:
        frames = frames * window[:, None]
    return dft(frames, None, 2, onesided=onesided)


def cosine_window(size: int | Tensor, periodic: int, parts: list[float], dtype: torch.dtype) -> Tensor:
    """A window that is a sum of cosines."""
    count = ints(size)[0]
    at = torch.arange(count, dtype=torch.float64) * (2 * math.pi / (count if periodic else count - 1))
    return sum(
        (part * torch.cos(at * place) for place, part in enumerate(parts)),
        torch.zeros(count, dtype=torch.float64),
    ).to(dtype)


@operator("HannWindow", since=17)
def hann_window(
    size: int | Tensor, *, output_datatype: torch.dtype = torch.float32, periodic: int = 1
) -> Tensor:
    return cosine_window(size, periodic, [0.5, -0.5], output_datatype)


@operator("HammingWindow", since=17)
def hamming_window(
    size: int | Tensor, *, output_datatype: torch.dtype = torch.float32, periodic: int = 1
) -> Tensor:
    return cosine_window(size, periodic, [25 / 46, -21 / 46], output_datatype)


@operator("BlackmanWindow", since=17)
def blackman_window(
    size: int | Tensor, *, output_datatype: torch.dtype = torch.float32, periodic: int = 1
) -> Tensor:
    return cosine_window(size, periodic, [0.42, -0.5, 0.08], output_datatype)


@operator("MelWeightMatrix", since=17)
def mel_weight_matrix(
    num_mel_bins: int | Tensor,
    dft_length: int | Tensor,
    sample_rate: int | Tensor,
    lower_edge_hertz: Tensor,
    upper_edge_hertz: Tensor,
    *,
    output_datatype: torch.dtype = torch.float32,
) -> Tensor:
    """Triangles over the bins of a spectrum, evenly spaced in mel. -> (dft_length // 2 + 1, num_mel_bins)"""
    count, length, rate = ints(num_mel_bins)[0], ints(dft_length)[0], ints(sample_rate)[0]
    low, high = (2595 * math.log10(1 + float(edge) / 700) for edge in (lower_edge_hertz, upper_edge_hertz))
    mel = torch.arange(count + 2, dtype=torch.float64) * ((high - low) / (count + 2)) + low
    bins = ((length + 1) * 700 * torch.expm1(mel / 2595 * math.log(10)) // rate)[None]
    left, center, right = bins[:, :-2], bins[:, 1:-1], bins[:, 2:]
    at = torch.arange(length // 2 + 1, dtype=torch.float64)[:, None]
    rising = torch.where(
        (at >= left) & (at <= center), (at - left) / (center - left).clamp(min=1), torch.zeros_like(at)
    )
    rising = torch.where(center == left, (at == center).double(), rising)
    falling = (right - at) / (right - center).clamp(min=1)
    return torch.where((at >= center) & (at < right), falling, rising).to(output_datatype)
