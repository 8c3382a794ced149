"""Time series: values on a common scale, and what each time sees of them. Series (B, T) or (B, T, C)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def series_patches(x: Tensor, context: int, size: int, missing: float) -> tuple[Tensor, Tensor]:
    """The last `context` values in patches, zeros before the first, and where there is none (1) or one (0).

    A value equal to `missing` is none. x (B, T) -> two (B, context / size, size)
    """
    x = x[:, -context:]
    front = context - x.shape[1]
    absent = F.pad(((x - missing).abs() < 1e-6).to(x.dtype), (front, 0), value=1.0)
    x = F.pad(x, (front, 0)).masked_fill(absent != 0, 0.0)
    return x.unflatten(1, (-1, size)), absent.unflatten(1, (-1, size))


def series_patch_scale(patches: Tensor, absent: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of the first patch with three values or more, else of the last. -> two (B,)"""
    there = 1 - absent
    enough = there.sum(dim=-1) >= 3
    last = patches.shape[1] - 1
    index = torch.where(enough.any(dim=1), enough.int().argmax(dim=1), last)
    rows = torch.arange(patches.shape[0], device=patches.device)
    values, there = patches[rows, index], there[rows, index]
    count = there.sum(dim=1).clamp(min=1)
    mean = (values * there).sum(dim=1) / count
    variance = (((values - mean[:, None]) * there) ** 2).sum(dim=1) / count
    return mean, variance.sqrt().clamp(min=1e-6)


def series_running_scale(patches: Tensor, absent: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of all values up to the end of each patch, merged patch by patch. -> two (B, N)"""
    there = 1 - absent
    count = mean = variance = patches.new_zeros(patches.shape[0])
    means, deviations = [], []
    for values, seen in zip(patches.unbind(1), there.unbind(1), strict=True):
        new = seen.sum(dim=1)
        own = (values * seen).sum(dim=1) / new.clamp(min=1)
        spread = (((values - own[:, None]) * seen) ** 2).sum(dim=1) / new.clamp(min=1)
        total = (count + new).clamp(min=1)
        merged = (count * mean + new * own) / total
        apart = count * (mean - merged) ** 2 + new * (own - merged) ** 2
        variance = (count * variance + new * spread + apart) / total
        count, mean = count + new, merged
        means.append(mean)
        deviations.append(variance.sqrt())
    return torch.stack(means, dim=1), torch.stack(deviations, dim=1)


def series_quantiles(y: Tensor, spread: Tensor, median: int) -> Tensor:
    """Quantiles around a median as far as another forecast spreads them, mean and median as they are.

    y (B, T, Q), spread (B, T' or less, Q) -> (B, T, Q)
    """
    length = min(y.shape[1], spread.shape[1])
    spread = spread[:, :length] - spread[:, :length, median : median + 1] + y[:, :length, median : median + 1]
    index = torch.arange(y.shape[-1], device=y.device)
    kept = (index == 0) | (index == median)
    return torch.cat((torch.where(kept, y[:, :length], spread), y[:, length:]), dim=1)
