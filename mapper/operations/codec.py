"""Waveforms to codes and back: convolutions that see no later sample, and the nearest code of a book."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def pad_start(x: Tensor, count: int, stride: int, mode: str = "constant") -> Tensor:
    """So many samples before the first, and behind the last as many as the last step lacks.

    x (B, C, T) -> (B, C, T')
    """
    return F.pad(x, (count, -x.shape[-1] % stride), mode)


def pad_to_frames(x: Tensor, kernels: list[int], times: int) -> Tensor:
    """Zeros behind the last sample, until there are whole frames, a multiple of so many.

    The kernels of the steps to a frame are twice their strides (paper 2306.06546).
    x (B, C, T) -> (B, C, T'), T' a multiple of all strides and of times
    """
    hop = math.prod(kernel // 2 for kernel in kernels)
    return F.pad(x, (0, -x.shape[-1] % (hop * times)))


def pad_mirrored(x: Tensor, start: int, end: int) -> Tensor:
    """So many samples before the first and behind the last in reverse order, zeros behind where they are few.

    x (B, C, T) -> (B, C, T + start + end)
    """
    lacking = max(0, max(start, end) + 1 - x.shape[-1])
    padded = F.pad(F.pad(x, (0, lacking)), (start, end), "reflect")
    return padded[..., : padded.shape[-1] - lacking]


def nearest_codes(x: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """The closest code for every position: its number, and the code.

    x (B, T, D), codes (V, D) -> (B, T), (B, T, D)
    """
    numbers = torch.cdist(x.flatten(0, 1)[None].float(), codes[None].float())[0].argmin(dim=-1)
    numbers = numbers.view(x.shape[:-1])
    return numbers, F.embedding(numbers, codes)


def snake(x: Tensor, frequency: Tensor, scale: Tensor | None = None) -> Tensor:
    """x + sin(frequency * x) ** 2 / scale, by default the frequency (papers 2006.08195, 2206.04658).

    x (B, C, T), frequency and scale (C, 1) -> (B, C, T)
    """
    return x + torch.sin(frequency * x) ** 2 / ((frequency if scale is None else scale) + 1e-9)


def upsample_twice(x: Tensor, kernel: Tensor) -> Tensor:
    """Twice as many samples through a low-pass filter; samples beyond the ends are as the last.

    x (B, C, T), kernel (1, 1, K) -> (B, C, 2 T)
    """
    size, channels = kernel.shape[-1], x.shape[1]
    beside = size // 2 - 1
    padded = F.pad(x, (beside, beside), "replicate")
    y = 2 * F.conv_transpose1d(padded, kernel.expand(channels, -1, -1), stride=2, groups=channels)
    start = 2 * beside + (size - 2) // 2
    return y[..., start : start + 2 * x.shape[-1]]


def halve_smooth(x: Tensor, kernel: Tensor) -> Tensor:
    """Every second sample behind a low-pass filter; samples beyond the ends are as the last.

    x (B, C, 2 T), kernel (1, 1, K) -> (B, C, T)
    """
    size, channels = kernel.shape[-1], x.shape[1]
    padded = F.pad(x, (size // 2 - (size + 1) % 2, size // 2), "replicate")
    return F.conv1d(padded, kernel.expand(channels, -1, -1), stride=2, groups=channels)
