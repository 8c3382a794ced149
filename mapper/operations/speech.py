"""Speech from text (VITS, paper 2106.06103): how long each word lasts, coupling layers, and a waveform from frames."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


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
