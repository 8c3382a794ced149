"""Speech from text (VITS, paper 2106.06103): how long each word lasts, coupling layers, and a waveform from frames."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def spread_by_durations(x: Tensor, durations: Tensor) -> tuple[Tensor, Tensor]:
    """Each word's vector for as many frames as it lasts, and which frames of a row are real, of at least one.

    x (B, T, C), durations (B, T) -> (B, C, frames), (B, 1, frames)
    """
    ends = durations.cumsum(dim=-1)
    lengths = ends[:, -1].clamp(min=1)
    frames = torch.arange(int(lengths.max()), device=x.device)
    words = (frames[:, None] >= ends[:, None]).sum(dim=-1)  # (B, frames): words that are over by then
    rows = torch.cat((x, torch.zeros_like(x[:, :1])), dim=1)
    spread = rows.gather(1, words[..., None].expand(-1, -1, x.shape[-1]))
    return spread.transpose(1, 2), (frames < lengths[:, None])[:, None].to(x.dtype)


def gated_convolutions(x: Tensor, mask: Tensor, gates: nn.ModuleList, skips: nn.ModuleList) -> Tensor:
    """Convolutions with tanh and sigmoid gates, each read by the next one and by the sum (paper 1609.03499).

    x (B, C, T), mask (B, 1, T), each of `gates` C -> 2 C channels, each of `skips` C -> 2 C, the last C -> C
    """
    channels, total = x.shape[1], torch.zeros_like(x)
    for gate, skip in zip(gates, skips, strict=True):
        filtered, opened = gate(x).chunk(2, dim=1)
        y = skip(filtered.tanh() * opened.sigmoid())
        total = total + y[:, -channels:]
        x = (x + y[:, :channels]) * mask
    return total * mask


def dilated_residuals(
    x: Tensor, firsts: nn.ModuleList, seconds: nn.ModuleList, dilations: tuple[int, ...], slope: float
) -> Tensor:
    """Residual units of a dilated and a plain convolution, each after a leaky ReLU (paper 2010.05646).

    x (B, C, T); each of `firsts` is applied with its dilation
    """
    for first, second, dilation in zip(firsts, seconds, dilations, strict=True):
        weight, bias = first.get_parameter("weight"), first.get_parameter("bias")
        padding = dilation * (weight.shape[-1] - 1) // 2
        y = F.conv1d(F.leaky_relu(x, slope), weight, bias, padding=padding, dilation=dilation)
        x = x + second(F.leaky_relu(y, slope))
    return x


def upsample_frames(
    x: Tensor, upsamplers: nn.ModuleList, blocks: nn.ModuleList, rates: tuple[int, ...], slope: float
) -> Tensor:
    """Transposed convolutions, after each the mean of what its share of the residual blocks give (HiFi-GAN).

    x (B, C, T) -> (B, _, T * product of the rates)
    """
    share = len(blocks) // len(rates)
    for at, (upsampler, rate) in enumerate(zip(upsamplers, rates, strict=True)):
        weight, bias = upsampler.get_parameter("weight"), upsampler.get_parameter("bias")
        padding = (weight.shape[-1] - rate) // 2
        x = F.conv_transpose1d(F.leaky_relu(x, slope), weight, bias, stride=rate, padding=padding)
        x = torch.stack([block(x) for block in blocks[at * share : (at + 1) * share]]).mean(dim=0)
    return x
