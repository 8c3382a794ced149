"""Windows that move over an image or a sound, and the whole of it. https://onnx.ai/onnx/operators/"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.graphs.operators import operator
from mapper.graphs.operators.common import ints
from mapper.graphs.operators.matrix import edged, window_pads


def pool_pads(
    x: Tensor,
    kernel: list[int],
    strides: list[int],
    dilations: list[int],
    pads: list[int] | None,
    auto_pad: str,
    ceil_mode: int,
) -> tuple[list[tuple[int, int]], list[int]]:
    """The padding along each axis, and how much more behind it a last window needs that begins before the end."""
    around = window_pads(list(x.shape[2:]), kernel, strides, dilations, pads, auto_pad)
    more = []
    for axis, (before, behind) in enumerate(around):
        size, reach = x.shape[axis + 2] + before + behind, dilations[axis] * (kernel[axis] - 1) + 1
        left = (size - reach) % strides[axis]
        extra = strides[axis] - left if ceil_mode and left else 0
        begins = size + extra - reach
        more.append(extra if begins < x.shape[axis + 2] + before else 0)
    return around, more


def windows(x: Tensor, kernel: list[int], strides: list[int], dilations: list[int]) -> Tensor:
    """Every place of a window. x (B, C, *sizes) -> (B, C, *places, *kernel)"""
    for axis, (size, step, gap) in enumerate(zip(kernel, strides, dilations, strict=True)):
        x = x.unfold(axis + 2, gap * (size - 1) + 1, step)[..., ::gap]
    return x


@operator("MaxPool")
def max_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
    outputs: int = 1,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest number of each window, and with two outputs where it is in the whole tensor."""
    rank = len(kernel_shape)
    steps, gaps = strides or [1] * rank, dilations or [1] * rank
    around, more = pool_pads(x, kernel_shape, steps, gaps, pads, auto_pad, ceil_mode)
    values = x if x.is_floating_point() else x.to(torch.float64)
    full = edged(
        values,
        [(before, behind + extra) for (before, behind), extra in zip(around, more, strict=True)],
        -math.inf,
    )
    if outputs == 1:
        pool = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[rank]
        return pool(full, kernel_shape, steps, 0, gaps).to(x.dtype)
    best, at = windows(full, kernel_shape, steps, gaps).flatten(-rank).max(-1)
    return best.to(x.dtype), places(x, at, around, kernel_shape, steps, gaps, storage_order)


def places(
    x: Tensor,
    at: Tensor,
    around: list[tuple[int, int]],
    kernel: list[int],
    strides: list[int],
    dilations: list[int],
    order: int,
) -> Tensor:
    """Where numbers of windows are in the whole tensor. at (B, C, *places) -> (B, C, *places)"""
    rank, found = len(kernel), torch.zeros_like(at)
    taps: list[Tensor] = []
    for axis in reversed(range(rank)):
        taps.insert(0, at % kernel[axis])
        at = at // kernel[axis]
    axes = list(range(rank))[::-1] if order else list(range(rank))
    for axis in axes:
        starts = torch.arange(found.shape[axis + 2], device=x.device) * strides[axis] - around[axis][0]
        starts = starts.view(-1, *(1,) * (rank - 1 - axis))
        found = found * x.shape[axis + 2] + starts + taps[axis] * dilations[axis]
    channels = torch.arange(x.shape[0] * x.shape[1], device=x.device).view(*x.shape[:2], *(1,) * rank)
    return found + channels * math.prod(x.shape[2:])


@operator("AveragePool")
def average_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """The mean of each window: of what is in the tensor, or with its padding."""
    rank = len(kernel_shape)
    steps, gaps = strides or [1] * rank, dilations or [1] * rank
    around, more = pool_pads(x, kernel_shape, steps, gaps, pads, auto_pad, ceil_mode)
    extra = [(0, count) for count in more]
    over = tuple(range(-rank, 0))
    seen = windows(edged(edged(x, around), extra), kernel_shape, steps, gaps).sum(over)
    one = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype, device=x.device)
    counted = edged(edged(one, around, float(count_include_pad)), extra)
    return seen / windows(counted, kernel_shape, steps, gaps).sum(over)


@operator("LpPool", since=2)
def lp_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    p: int = 2,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    rank = len(kernel_shape)
    steps, gaps = strides or [1] * rank, dilations or [1] * rank
    around, more = pool_pads(x, kernel_shape, steps, gaps, pads, auto_pad, ceil_mode)
    full = edged(x, [(before, behind + extra) for (before, behind), extra in zip(around, more, strict=True)])
    seen = windows(full.abs() ** p, kernel_shape, steps, gaps)
    return seen.sum(tuple(range(-rank, 0))) ** (1 / p)


@operator("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return x.mean(tuple(range(2, x.dim())), keepdim=True)


@operator("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    return x.amax(tuple(range(2, x.dim())), keepdim=True)


@operator("GlobalLpPool", since=2)
def global_lp_pool(x: Tensor, *, p: int = 2) -> Tensor:
    return (x.abs() ** p).sum(tuple(range(2, x.dim())), keepdim=True) ** (1 / p)


@operator("MaxUnpool", since=9)
def max_unpool(
    x: Tensor,
    indices: Tensor,
    output_shape: list[int] | Tensor | None = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """The numbers of a maximum pooling back where they were, and zeros."""
    rank = len(kernel_shape)
    steps, edges = strides or [1] * rank, pads or [0] * 2 * rank
    small = [
        (x.shape[axis + 2] - 1) * steps[axis] + kernel_shape[axis] - edges[axis] - edges[axis + rank]
        for axis in range(rank)
    ]
    sizes = [*x.shape[:2], *small]
    flat = torch.zeros(math.prod(sizes), dtype=x.dtype, device=x.device)
    found = flat.scatter(0, indices.reshape(-1), x.reshape(-1)).reshape(sizes)
    if output_shape is None:
        return found
    wanted = ints(output_shape)
    return F.pad(
        found, [count for axis in reversed(range(2, rank + 2)) for count in (0, wanted[axis] - sizes[axis])]
    )
