"""Time series: values on a common scale, and what each time sees of them. Series (B, T) or (B, T, C)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def series_scale_mean(x: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """No shift, and the mean size of the values that were observed, at least 1e-10. -> two (B, 1, ...)"""
    total = (x * observed).abs().sum(dim=1, keepdim=True)
    count = observed.sum(dim=1, keepdim=True)
    other = total.sum(dim=0) / count.sum(dim=0).clamp(
        min=1
    )  # of the whole batch, where a series has no value
    scale = torch.where(count > 0, total / count.clamp(min=1), other).clamp(min=1e-10)
    return torch.zeros_like(scale), scale


def series_scale_deviation(x: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the values that were observed. -> two (B, 1, ...)"""
    count = observed.sum(dim=1, keepdim=True).clamp(min=1.0)
    mean = (x * observed).sum(dim=1, keepdim=True) / count
    variance = (((x - mean) * observed) ** 2).sum(dim=1, keepdim=True) / count
    return mean, torch.sqrt(variance + 1e-5)


def series_scale_none(x: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """No shift and no scale. -> two (B, 1, ...)"""
    one = torch.ones_like(x[:, :1])
    return torch.zeros_like(one), one


def series_observed(x: Tensor, observed: Tensor | None) -> Tensor:
    """The caller's mask of observed values, or all of them. (B, T, ...)"""
    return torch.ones_like(x) if observed is None else observed.to(x.dtype)


def series_lags(x: Tensor, length: int, lags: tuple[int, ...]) -> Tensor:
    """For each of the last `length` times the values so many times before it. -> (B, length, lags)"""
    parts = [x[:, x.shape[1] - lag - length : x.shape[1] - lag] for lag in lags]
    return torch.stack(parts, dim=-1).flatten(2)


def series_inputs(values: Tensor, times: Tensor, static: Tensor, lags: tuple[int, ...]) -> Tensor:
    """What each time sees: lagged values, what holds for the whole series, and what is known of the time.

    values (B, T, ...), times (B, L, F), static (B, S) -> (B, L, lags + S + F)
    """
    length = times.shape[1]
    static = static[:, None].expand(-1, length, -1)
    return torch.cat((series_lags(values, length, lags), static, times), dim=-1)


def run_with_steps(x: Tensor, layers: nn.ModuleList, steps: nn.ModuleList) -> Tensor:
    """Layers with a step behind each but the last, as steps are fewer by one. x (B, T, W) -> (B, T', W)"""
    for layer, step in zip(layers, steps, strict=False):
        x = step(layer(x))
    return layers[-1](x)
