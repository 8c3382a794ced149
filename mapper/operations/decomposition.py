"""Series apart into a slow trend and what moves around it, and attention by delays (paper 2106.13008)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def moving_average(x: Tensor, size: int) -> Tensor:
    """The mean of `size` times around each, the first and the last repeated at the ends. x (B, T, W)"""
    sides = (size - 1) // 2
    padded = F.pad(x.transpose(1, 2), (sides, sides), mode="replicate")
    return F.avg_pool1d(padded, size, stride=1).transpose(1, 2)


def autocorrelation(q: Tensor, k: Tensor, v: Tensor, factor: int) -> Tensor:
    """Values of later times, by how alike queries are to keys so much later, over factor * log(T) delays.

    All heads share a sequence's delays; the j-th of B * H rows takes those of sequence j mod B, as the
    published code does. q (B, H, T, D), k, v (B, H, S, D) -> (B, H, T, D)
    """
    (batch, heads, length, _), short = q.shape, q.shape[2] - k.shape[2]
    if short > 0:
        q = q[:, :, :short]
        k, v = (torch.cat((t, torch.zeros_like(q)), dim=2) for t in (k, v))
    else:
        k, v = k[:, :, :length], v[:, :, :length]
    q, k = q.float(), k.float()  # there is no Fourier transform of half floats
    alike = torch.fft.rfft(q, n=length, dim=2) * torch.fft.rfft(k, n=length, dim=2).conj()
    scores = torch.fft.irfft(alike, n=length, dim=2).mean(dim=(1, 3)).to(v.dtype)  # (B, T)
    scores, delays = scores.topk(int(factor * math.log(v.shape[2])), dim=1)
    weights = scores.softmax(dim=-1).repeat(heads, 1)
    places = torch.arange(length, device=q.device) + delays.repeat(heads, 1)[..., None]  # (B * H, N, T)
    row = torch.arange(batch * heads, device=q.device)[:, None, None]
    rows = v.repeat(1, 1, 2, 1).flatten(0, 1)[row, places]
    return torch.einsum("bn,bntd->btd", weights, rows).unflatten(0, (batch, heads))
