"""Speech from text (VITS, paper 2106.06103): how long each word lasts, coupling layers, and a waveform from frames."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mapper.operations.convolution import weight_norm


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


def dilated_units(
    x: Tensor,
    mask: Tensor,
    depthwise: nn.ModuleList,
    firsts: nn.ModuleList,
    pointwise: nn.ModuleList,
    seconds: nn.ModuleList,
) -> Tensor:
    """Residual units of a depthwise and a pointwise convolution, each with a norm and GELU.

    Paper 2106.06103. x (B, C, T), mask (B, 1, T); the nth depthwise kernel is dilated by its width to the
    power of n
    """
    units = zip(depthwise, firsts, pointwise, seconds, strict=True)
    for number, (apart, first, together, second) in enumerate(units):
        weight, bias = apart.get_parameter("weight"), apart.get_parameter("bias")
        width, dilation = weight.shape[-1], weight.shape[-1] ** number
        padding = (width - 1) * dilation // 2
        y = F.conv1d(x * mask, weight, bias, padding=padding, dilation=dilation, groups=weight.shape[0])
        y = F.gelu(first(y.mT).mT)
        x = x + F.gelu(second(together(y).mT).mT)
    return x * mask


def spline_bins(logits: Tensor, bound: float) -> Tensor:
    """Where the bins of a spline meet, from -bound to bound, by shares of at least 0.001.

    (..., n) -> (..., n + 1)
    """
    least = 1e-3
    shares = least + (1 - least * logits.shape[-1]) * logits.softmax(dim=-1)
    ends = (2 * bound * shares.cumsum(dim=-1) - bound)[..., :-1]
    outer = torch.full_like(shares[..., :1], bound)
    return torch.cat((-outer, ends, outer), dim=-1)


def invert_splines(y: Tensor, bins: Tensor, scale: float, bound: float) -> Tensor:
    """Where monotone splines of rational quadratics have these values; beyond the bound, the values.

    Paper 1906.04032. y (...), bins (..., 3n - 1): for each of n bins a logit of its width and one of its
    height, both divided by the scale, and the slopes where two bins meet before softplus;
    the slope at both ends is 1
    """
    count = (bins.shape[-1] + 1) // 3
    across = spline_bins(bins[..., :count] / scale, bound)
    up = spline_bins(bins[..., count : 2 * count] / scale, bound)
    slopes = F.pad(1e-3 + F.softplus(bins[..., 2 * count :]), (1, 1), value=1.0)
    value = y.clamp(-bound, bound)[..., None]
    at = (value >= up[..., 1:-1]).sum(dim=-1, keepdim=True)
    width, height = across.diff(dim=-1).gather(-1, at), up.diff(dim=-1).gather(-1, at)
    slope, left, right = height / width, slopes.gather(-1, at), slopes.gather(-1, at + 1)
    above = value - up.gather(-1, at)
    bend = above * (left + right - 2 * slope)
    square, linear, constant = height * (slope - left) + bend, height * left - bend, -slope * above
    share = 2 * constant / (-linear - (linear**2 - 4 * square * constant).sqrt())
    inside = (share * width + across.gather(-1, at)).squeeze(-1)
    return torch.where((y >= -bound) & (y <= bound), inside, y)


def kernel_of(convolution: nn.Module) -> Tensor:
    """Kernel of a convolution, or what its stored length and direction make (paper 1602.07868).

    It may stand in a module of its own.
    """
    held = {name.rpartition(".")[2]: tensor for name, tensor in convolution.named_parameters()}
    held.pop("bias", None)
    if "weight" in held:
        return held["weight"]
    length, direction = (
        held[name] for name in sorted(held)
    )  # weight_g and weight_v, original0 and original1
    return weight_norm(length, direction)


def bias_of(convolution: nn.Module) -> Tensor | None:
    """Bias of a convolution, which may stand in a module of its own; None where it has none."""
    held = [tensor for name, tensor in convolution.named_parameters() if name.rpartition(".")[2] == "bias"]
    return held[0] if held else None


def dilated_residuals(
    x: Tensor, firsts: nn.ModuleList, seconds: nn.ModuleList, dilations: tuple[int, ...], slope: float
) -> Tensor:
    """Residual units of a dilated and a plain convolution, each after a leaky ReLU (paper 2010.05646).

    x (B, C, T); each of `firsts` is applied with its dilation
    """
    for first, second, dilation in zip(firsts, seconds, dilations, strict=True):
        weight, bias = kernel_of(first), bias_of(first)
        padding = dilation * (weight.shape[-1] - 1) // 2
        y = F.conv1d(F.leaky_relu(x, slope), weight, bias, padding=padding, dilation=dilation)
        weight, bias = kernel_of(second), bias_of(second)
        x = x + F.conv1d(F.leaky_relu(y, slope), weight, bias, padding=weight.shape[-1] // 2)
    return x


def upsample_frames(
    x: Tensor, upsamplers: nn.ModuleList, blocks: nn.ModuleList, rates: tuple[int, ...], slope: float
) -> Tensor:
    """Transposed convolutions, after each the mean of what its share of the residual blocks give (HiFi-GAN).

    x (B, C, T) -> (B, _, T * product of the rates)
    """
    share = len(blocks) // len(rates)
    for at, (upsampler, rate) in enumerate(zip(upsamplers, rates, strict=True)):
        weight, bias = kernel_of(upsampler), bias_of(upsampler)
        padding = (weight.shape[-1] - rate) // 2
        x = F.conv_transpose1d(F.leaky_relu(x, slope), weight, bias, stride=rate, padding=padding)
        x = torch.stack([block(x) for block in blocks[at * share : (at + 1) * share]]).mean(dim=0)
    return x


def dilated_snakes(
    x: Tensor,
    firsts: nn.ModuleList,
    seconds: nn.ModuleList,
    snakes: nn.ModuleList,
    dilations: tuple[int, ...],
) -> Tensor:
    """Residual units of a dilated and a plain convolution, each after its own activation (paper 2206.04658).

    x (B, C, T); each of `firsts` is applied with its dilation
    """
    before, between = list(snakes)[::2], list(snakes)[1::2]
    for at, (first, second, dilation) in enumerate(zip(firsts, seconds, dilations, strict=True)):
        weight, bias = kernel_of(first), bias_of(first)
        padding = dilation * (weight.shape[-1] - 1) // 2
        y = F.conv1d(before[at](x), weight, bias, padding=padding, dilation=dilation)
        x = x + second(between[at](y))
    return x


def convolve_mirrored(x: Tensor, convolution: nn.Module, dilation: int) -> Tensor:
    """A convolution that reads mirrored samples beyond the ends. x (B, C, T) -> (B, _, T)"""
    weight = kernel_of(convolution)
    beside = dilation * (weight.shape[-1] - 1) // 2
    return F.conv1d(F.pad(x, (beside, beside), "reflect"), weight, bias_of(convolution), dilation=dilation)


def mirrored_residuals(
    x: Tensor, firsts: nn.ModuleList, seconds: nn.ModuleList, dilations: tuple[int, ...], slope: float
) -> Tensor:
    """Residual units of a dilated and a plain convolution that read mirrored samples beyond the ends.

    x (B, C, T); each of `firsts` is applied with its dilation
    """
    for first, second, dilation in zip(firsts, seconds, dilations, strict=True):
        y = convolve_mirrored(F.leaky_relu(x, slope), first, dilation)
        x = x + convolve_mirrored(F.leaky_relu(y, slope), second, 1)
    return x
