"""Many numbers to one: sums, extremes, running totals. https://onnx.ai/onnx/operators/"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mapper.graphs.operators import operator
from mapper.graphs.operators.common import axis_in, ints, wide


def reduced_axes(x: Tensor, axes: list[int] | Tensor | None, noop_with_empty_axes: int) -> tuple[int, ...]:
    """The axes to reduce, counted from the front; all where none are named, or none."""
    found = tuple(axis_in(axis, x.dim()) for axis in ints(axes))
    return found if found or noop_with_empty_axes else tuple(range(x.dim()))


@operator("ReduceSum", since=13)
def reduce_sum(
    x: Tensor, axes: list[int] | Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    over = reduced_axes(x, axes, noop_with_empty_axes)
    return (x.sum(over, keepdim=bool(keepdims)) if over else x).to(x.dtype)


@operator("ReduceSum", until=12)
def reduce_sum_1(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    return reduce_sum(x, axes, keepdims=keepdims)


@operator("ReduceMean", since=18)
def reduce_mean(
    x: Tensor, axes: list[int] | Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    over = reduced_axes(x, axes, noop_with_empty_axes)
    return mean_over(x, over, bool(keepdims))


@operator("ReduceMean", until=17)
def reduce_mean_1(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    return reduce_mean(x, axes, keepdims=keepdims)


@operator("ReduceMax", since=18)
def reduce_max(
    x: Tensor, axes: list[int] | Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    over = reduced_axes(x, axes, noop_with_empty_axes)
    return extreme(x, over, bool(keepdims), True)


@operator("ReduceMax", until=17)
def reduce_max_1(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    return reduce_max(x, axes, keepdims=keepdims)


@operator("ReduceMin", since=18)
def reduce_min(
    x: Tensor, axes: list[int] | Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    over = reduced_axes(x, axes, noop_with_empty_axes)
    return extreme(x, over, bool(keepdims), False)


@operator("ReduceMin", until=17)
def reduce_min_1(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    return reduce_min(x, axes, keepdims=keepdims)


@operator("ReduceProd", since=18)
def reduce_prod(
    x: Tensor, axes: list[int] | Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    over = reduced_axes(x, axes, noop_with_empty_axes)
    return product(x, over, bool(keepdims))


@operator("ReduceProd", until=17)
def reduce_prod_1(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    return reduce_prod(x, axes, keepdims=keepdims)


@operator("ReduceL1", since=18)
def reduce_l1(
    x: Tensor, axes: list[int] | Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    over = reduced_axes(x, axes, noop_with_empty_axes)
    return x.abs().sum(over, keepdim=bool(keepdims)).to(x.dtype) if over else x.abs()


@operator("ReduceL1", until=17)
def reduce_l1_1(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    return reduce_l1(x, axes, keepdims=keepdims)


@operator("ReduceL2", since=18)
def reduce_l2(
    x: Tensor, axes: list[int] | Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    over = reduced_axes(x, axes, noop_with_empty_axes)
    return root_of_squares(x, over, bool(keepdims))


@operator("ReduceL2", until=17)
def reduce_l2_1(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    return reduce_l2(x, axes, keepdims=keepdims)


@operator("ReduceSumSquare", since=18)
def reduce_sum_square(
    x: Tensor, axes: list[int] | Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    over = reduced_axes(x, axes, noop_with_empty_axes)
    return (x * x).sum(over, keepdim=bool(keepdims)).to(x.dtype) if over else x * x


@operator("ReduceSumSquare", until=17)
def reduce_sum_square_1(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    return reduce_sum_square(x, axes, keepdims=keepdims)


@operator("ReduceLogSum", since=18)
def reduce_log_sum(
    x: Tensor, axes: list[int] | Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    over = reduced_axes(x, axes, noop_with_empty_axes)
    return x.sum(over, keepdim=bool(keepdims)).log() if over else x.log()


@operator("ReduceLogSum", until=17)
def reduce_log_sum_1(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    return reduce_log_sum(x, axes, keepdims=keepdims)


@operator("ReduceLogSumExp", since=18)
def reduce_log_sum_exp(
    x: Tensor, axes: list[int] | Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    over = reduced_axes(x, axes, noop_with_empty_axes)
    return x.logsumexp(over, keepdim=bool(keepdims)) if over else x


@operator("ReduceLogSumExp", until=17)
def reduce_log_sum_exp_1(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    return reduce_log_sum_exp(x, axes, keepdims=keepdims)


def mean_over(x: Tensor, over: tuple[int, ...], keepdim: bool) -> Tensor:
    if not over:
        return x
    return (
        x.mean(over, keepdim=keepdim)
        if x.is_floating_point()
        else x.double().mean(over, keepdim=keepdim).to(x.dtype)
    )


def extreme(x: Tensor, over: tuple[int, ...], keepdim: bool, largest: bool) -> Tensor:
    """The largest or smallest number; of no numbers the least or greatest that the type has."""
    if not over:
        return x
    shape = [1 if axis in over else size for axis, size in enumerate(x.shape)]
    values = wide(x)
    if x.dtype == torch.bool:
        return values.any(over, keepdim=keepdim) if largest else values.all(over, keepdim=keepdim)
    if 0 in [x.shape[axis] for axis in over]:
        limits = torch.finfo(x.dtype) if x.is_floating_point() else torch.iinfo(x.dtype)
        edge = (
            (-math.inf if largest else math.inf)
            if x.is_floating_point()
            else (limits.min if largest else limits.max)
        )
        found = torch.full(shape, edge, dtype=x.dtype, device=x.device)
        return found if keepdim else found.squeeze(over)
    found = values.amax(over, keepdim=keepdim) if largest else values.amin(over, keepdim=keepdim)
    return found.to(x.dtype)


def product(x: Tensor, over: tuple[int, ...], keepdim: bool) -> Tensor:
    found = x
    for axis in over:
        found = found.prod(axis, keepdim=True)
    return (found if keepdim or not over else found.squeeze(over)).to(x.dtype)


def root_of_squares(x: Tensor, over: tuple[int, ...], keepdim: bool) -> Tensor:
    values = x if x.is_floating_point() else x.double()
    found = (values * values).sum(over, keepdim=keepdim) if over else values * values
    return found.sqrt().to(x.dtype)


@operator("ArgMax")
def arg_max(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    """The first of the largest numbers, or the last."""
    values = wide(x)
    if select_last_index:
        return x.shape[axis] - 1 - values.flip(axis).argmax(axis, keepdim=bool(keepdims))
    return values.argmax(axis, keepdim=bool(keepdims))


@operator("ArgMin")
def arg_min(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    values = wide(x)
    if select_last_index:
        return x.shape[axis] - 1 - values.flip(axis).argmin(axis, keepdim=bool(keepdims))
    return values.argmin(axis, keepdim=bool(keepdims))


def shifted(x: Tensor, axis: int, first: int) -> Tensor:
    """Each number in the place of the next, and `first` in that of the first."""
    size = x.shape[axis]
    start = torch.full_like(x.narrow(axis, 0, min(size, 1)), first)
    return torch.cat([start, x.narrow(axis, 0, max(size - 1, 0))], axis)


@operator("CumSum", since=11)
def cum_sum(x: Tensor, axis: int | Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    along = ints(axis)[0]
    values = x.flip(along) if reverse else x
    found = (shifted(values, along, 0) if exclusive else values).cumsum(along).to(x.dtype)
    return found.flip(along) if reverse else found


@operator("CumProd", since=26)
def cum_prod(x: Tensor, axis: int | Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    along = ints(axis)[0]
    values = x.flip(along) if reverse else x
    found = (shifted(values, along, 1) if exclusive else values).cumprod(along).to(x.dtype)
    return found.flip(along) if reverse else found


@operator("LpNormalization")
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Divided by its norm; zero where that is zero."""
    norm = x.abs().sum(axis, keepdim=True) if p == 1 else (x * x).sum(axis, keepdim=True).sqrt()
    return torch.where(norm == 0, torch.zeros_like(x), x / norm)
