"""Normalisation. https://onnx.ai/onnx/operators/"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.graphs.operators import operator
from mapper.graphs.operators.common import axis_in


def per_channel(x: Tensor, like: Tensor) -> Tensor:
    """One number for each channel, beside numbers (B, C, ...)."""
    return x.view(-1, *(1,) * (like.dim() - 2))


@operator("BatchNormalization", since=14)
def batch_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    outputs: int = 1,
) -> Tensor | tuple[Tensor, ...]:
    """With the running statistics, or with those of the batch, which then go into the running ones."""
    if not training_mode:
        return F.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)
    over = tuple(axis for axis in range(x.dim()) if axis != 1)
    own_mean, own_var = x.mean(over), x.var(over, correction=0)
    found = F.batch_norm(x, own_mean, own_var, scale, bias, False, 0.0, epsilon)
    kept = (mean * momentum + own_mean * (1 - momentum), var * momentum + own_var * (1 - momentum))
    return (found, *kept) if outputs > 1 else found


@operator("BatchNormalization", until=13)
def batch_normalization_1(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    is_test: int = 1,
    spatial: int = 1,
    consumed_inputs: Any = None,
    outputs: int = 1,
) -> Tensor:
    if outputs > 1 or not spatial:
        raise ValueError("BatchNormalization before version 14 is run for inference alone, and by channel")
    return F.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)


@operator("InstanceNormalization")
def instance_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, consumed_inputs: Any = None
) -> Tensor:
    over = tuple(range(2, x.dim()))
    mean, var = x.mean(over, keepdim=True), x.var(over, correction=0, keepdim=True)
    return (x - mean) / (var + epsilon).sqrt() * per_channel(scale, x) + per_channel(bias, x)


@operator("LayerNormalization", since=17)
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> Tensor | tuple[Tensor, ...]:
    """Over the axes from `axis` on; with more outputs also mean and inverse deviation, computed in float32."""
    over = tuple(range(axis_in(axis, x.dim()), x.dim()))
    values = x.float() if stash_type == 1 and x.dtype != torch.float64 else x
    mean = values.mean(over, keepdim=True)
    rate = torch.rsqrt(values.var(over, correction=0, keepdim=True) + epsilon)
    found = ((values - mean) * rate).to(x.dtype) * scale
    found = found if bias is None else found + bias
    return (found, mean, rate)[:outputs] if outputs > 1 else found


@operator("RMSNormalization", since=23)
def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    over = tuple(range(axis_in(axis, x.dim()), x.dim()))
    values = x.float() if stash_type == 1 and x.dtype != torch.float64 else x
    return (values * torch.rsqrt((values * values).mean(over, keepdim=True) + epsilon)).to(x.dtype) * scale


def in_groups(x: Tensor, groups: int, epsilon: float) -> Tensor:
    """Normalised over the channels of each group and all places. x (B, C, ...) -> (B, C, ...)"""
    parts = x.reshape(x.shape[0], groups, -1)
    mean, var = parts.mean(-1, keepdim=True), parts.var(-1, correction=0, keepdim=True)
    return ((parts - mean) / (var + epsilon).sqrt()).reshape(x.shape)


@operator("GroupNormalization", since=21)
def group_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, num_groups: int, stash_type: int = 1
) -> Tensor:
    values = x.float() if stash_type == 1 and x.dtype != torch.float64 else x
    return in_groups(values, num_groups, epsilon).to(x.dtype) * per_channel(scale, x) + per_channel(bias, x)


@operator("GroupNormalization", since=18, until=20)
def group_normalization_18(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, num_groups: int
) -> Tensor:
    """With a scale and a bias for each group, as before version 21."""
    each = x.shape[1] // num_groups
    found = in_groups(x, num_groups, epsilon)
    return found * per_channel(scale.repeat_interleave(each), x) + per_channel(
        bias.repeat_interleave(each), x
    )


@operator("LRN")
def lrn(x: Tensor, *, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0, size: int) -> Tensor:
    """Divided by what stands in the channels around."""
    squares = (
        F.pad((x * x).movedim(1, -1), ((size - 1) // 2, size // 2)).unfold(-1, size, 1).sum(-1).movedim(-1, 1)
    )
    return x / (bias + alpha / size * squares) ** beta


@operator("MeanVarianceNormalization", since=9)
def mean_variance_normalization(x: Tensor, *, axes: list[int] | None = None) -> Tensor:
    over = tuple(axes if axes is not None else [0, 2, 3])
    mean = x.mean(over, keepdim=True)
    return (x - mean) / (((x * x).mean(over, keepdim=True) - mean * mean).sqrt() + 1e-9)


@operator("Dropout", since=12)
def dropout(
    x: Tensor,
    ratio: Tensor | float = 0.5,
    training_mode: Tensor | bool = False,
    *,
    seed: int | None = None,
    outputs: int = 1,
) -> Tensor | tuple[Tensor, Tensor]:
    """Nothing is dropped: what is imported is evaluated."""
    if bool(training_mode) and float(ratio) != 0:
        raise ValueError("Dropout in training mode draws at random")
    return (x, torch.ones_like(x, dtype=torch.bool)) if outputs > 1 else x


@operator("Dropout", until=11)
def dropout_1(
    x: Tensor, *, ratio: float = 0.5, is_test: int = 1, consumed_inputs: Any = None, outputs: int = 1
) -> Tensor | tuple[Tensor, Tensor]:
    return (x, torch.ones_like(x, dtype=torch.bool)) if outputs > 1 else x
