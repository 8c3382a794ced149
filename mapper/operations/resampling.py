"""Waveforms with twice or half as many samples, by windowed sinc filters (Smith and Gossett, 1984)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def between_kernel(x: Tensor) -> Tensor:
    """Filter for what lies between two samples, by 56 on each side. -> (1, 1, 112), of x's type"""
    window = torch.hann_window(225, periodic=False)[1::2]
    places = torch.linspace(-55.5, 55.5, 112) * math.pi
    return (places.sin() / places * window)[None, None].to(x)


def upsample_waveform(x: Tensor, times: int) -> Tensor:
    """So many times as many samples, a power of two. x (B, C, T) -> (B, C, times * T)"""
    for _ in range(times.bit_length() - 1):
        between = F.conv1d(x.flatten(0, 1)[:, None], between_kernel(x), padding=56)[..., 1:].view(x.shape)
        x = torch.stack((x, between), dim=-1).flatten(2)
    return x


def halve_waveform(x: Tensor, times: int) -> Tensor:
    """One of so many samples, a power of two. x (B, C, times * T) -> (B, C, T)"""
    for _ in range(times.bit_length() - 1):
        x = F.pad(x, (0, x.shape[2] % 2))
        even, odd = x[..., ::2], x[..., 1::2]
        between = F.conv1d(odd.flatten(0, 1)[:, None], between_kernel(x), padding=56)[..., :-1]
        x = 0.5 * (even + between.view(even.shape))
    return x


def pad_to_strides(x: Tensor, depth: int, kernel: int, times: int) -> Tensor:
    """Zeros behind a waveform until so many convolutions, with strides of half a kernel, leave nothing over.

    x (B, C, T), of which so many times as many samples are read -> (B, C, T')
    """
    length, stride = times * x.shape[2], kernel // 2
    for _ in range(depth):
        length = max(math.ceil((length - kernel) / stride) + 1, 1)
    for _ in range(depth):
        length = (length - 1) * stride + kernel
    return F.pad(x, (0, math.ceil(length / times) - x.shape[2]))
