"""Another shape or type for the same numbers, and numbers that a shape gives. https://onnx.ai/onnx/operators/"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mapper.graphs.operators import operator
from mapper.graphs.operators.common import axis_in, ints


@operator("Reshape", since=5)
def reshape(x: Tensor, shape: list[int] | Tensor, *, allowzero: int = 0) -> Tensor:
    """In another shape, where 0 keeps the size that stands there."""
    sizes = [x.shape[axis] if size == 0 and not allowzero else size for axis, size in enumerate(ints(shape))]
    return x.reshape(sizes)


@operator("Reshape", until=4)
def reshape_1(x: Tensor, *, shape: list[int], consumed_inputs: Any = None) -> Tensor:
    return reshape(x, shape)


@operator("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    front = math.prod(x.shape[: axis_in(axis, x.dim())])
    return x.reshape(front, math.prod(x.shape[axis_in(axis, x.dim()) :]))


@operator("Transpose")
def transpose(x: Tensor, *, perm: list[int] | None = None) -> Tensor:
    return x.permute(perm if perm is not None else list(range(x.dim()))[::-1])


@operator("Squeeze", since=13)
def squeeze(x: Tensor, axes: list[int] | Tensor | None = None) -> Tensor:
    return x.squeeze() if axes is None else x.squeeze(tuple(ints(axes)))


@operator("Squeeze", until=12)
def squeeze_1(x: Tensor, *, axes: list[int] | None = None) -> Tensor:
    return squeeze(x, axes)


@operator("Unsqueeze", since=13)
def unsqueeze(x: Tensor, axes: list[int] | Tensor) -> Tensor:
    rank = x.dim() + len(ints(axes))
    for axis in sorted(axis_in(axis, rank) for axis in ints(axes)):
        x = x.unsqueeze(axis)
    return x


@operator("Unsqueeze", until=12)
def unsqueeze_1(x: Tensor, *, axes: list[int]) -> Tensor:
    return unsqueeze(x, axes)


@operator("Concat", since=4)
def concat(*xs: Tensor, axis: int) -> Tensor:
    return torch.cat(xs, axis)


@operator("Concat", until=3)
def concat_1(*xs: Tensor, axis: int = 1) -> Tensor:
    return torch.cat(xs, axis)


@operator("Split", since=13)
def split(
    x: Tensor,
    sizes: list[int] | Tensor | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    outputs: int,
) -> tuple[Tensor, ...]:
    """Parts of these sizes, or of one size but for the last."""
    if sizes is not None:
        return x.split(ints(sizes), axis)
    each = -(-x.shape[axis] // (num_outputs or outputs))
    whole, parts = x.shape[axis], num_outputs or outputs
    return x.split([max(min(each, whole - each * part), 0) for part in range(parts)], axis)


@operator("Split", since=2, until=12)
def split_2(x: Tensor, *, axis: int = 0, split: list[int] | None = None, outputs: int) -> tuple[Tensor, ...]:
    return x.split(split if split is not None else x.shape[axis] // outputs, axis)


@operator("Slice", since=10)
def slice_(
    x: Tensor,
    starts: list[int] | Tensor,
    ends: list[int] | Tensor,
    axes: list[int] | Tensor | None = None,
    steps: list[int] | Tensor | None = None,
) -> Tensor:
    """What lies from a start up to an end along each axis; steps may be negative."""
    first, last = ints(starts), ints(ends)
    along = ints(axes) if axes is not None else list(range(len(first)))
    by = ints(steps) if steps is not None else [1] * len(first)
    for start, end, axis, step in zip(first, last, along, by, strict=True):
        at = range(*slice(start, end, step).indices(x.shape[axis]))
        if step > 0:
            x = x[(slice(None),) * axis_in(axis, x.dim()) + (slice(at.start, max(at.stop, at.start), step),)]
        else:
            x = x.index_select(axis, torch.tensor(list(at), dtype=torch.int64, device=x.device))
    return x


@operator("Slice", until=9)
def slice_1(x: Tensor, *, starts: list[int], ends: list[int], axes: list[int] | None = None) -> Tensor:
    return slice_(x, starts, ends, axes)


@operator("Expand", since=8)
def expand(x: Tensor, shape: list[int] | Tensor) -> Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, ints(shape)))


@operator("Tile", since=6)
def tile(x: Tensor, repeats: list[int] | Tensor) -> Tensor:
    return x.repeat(ints(repeats)) if x.dim() else x


@operator("Pad", since=11)
def pad(
    x: Tensor,
    pads: list[int] | Tensor,
    value: Tensor | float | None = None,
    axes: list[int] | Tensor | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    """Numbers before and behind along each axis; negative counts take them away."""
    counts = ints(pads)
    along = ints(axes) if axes is not None else list(range(x.dim()))
    for place, axis in enumerate(along):
        x = padded(x, axis, counts[place], counts[place + len(along)], mode, value)
    return x


def padded(x: Tensor, axis: int, before: int, behind: int, mode: str, value: Tensor | float | None) -> Tensor:
    """One axis padded by "constant", "edge", "reflect" or "wrap"."""
    x = x.narrow(axis, max(-before, 0), x.shape[axis] - max(-before, 0) - max(-behind, 0))
    before, behind, size = max(before, 0), max(behind, 0), x.shape[axis]
    if before == behind == 0:
        return x
    if mode == "constant":
        fill = 0 if value is None else value.item() if isinstance(value, Tensor) else value
        shapes = [
            [*x.shape[: axis_in(axis, x.dim())], count, *x.shape[axis_in(axis, x.dim()) + 1 :]]
            for count in (before, behind)
        ]
        ends = [torch.full(shape, fill, dtype=x.dtype, device=x.device) for shape in shapes]
        return torch.cat([ends[0], x, ends[1]], axis)
    at = torch.arange(-before, size + behind, device=x.device)
    if mode == "edge":
        at = at.clamp(0, size - 1)
    elif mode == "wrap":
        at = at % size
    else:
        at = (at % (2 * size - 2)) if size > 1 else at * 0
        at = torch.where(at >= size, 2 * size - 2 - at, at)
    return x.index_select(axis, at)


@operator("Pad", since=2, until=10)
def pad_2(x: Tensor, *, pads: list[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    return pad(x, pads, value, mode=mode)


@operator("Pad", until=1)
def pad_1(x: Tensor, *, paddings: list[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    return pad(x, paddings, value, mode=mode)


@operator("Cast")
def cast(x: Tensor, *, to: torch.dtype, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return x.to(to)


@operator("CastLike", since=15)
def cast_like(x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return x.to(like.dtype)


@operator("BitCast", since=26)
def bit_cast(x: Tensor, *, to: torch.dtype) -> Tensor:
    return x.view(to)


@operator("Shape")
def shape_(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return torch.tensor(x.shape[start:end], dtype=torch.int64)


@operator("Size")
def size(x: Tensor) -> Tensor:
    return torch.tensor(x.numel())


@operator("ConstantOfShape", since=9)
def constant_of_shape(shape: list[int] | Tensor, *, value: Tensor | None = None) -> Tensor:
    if value is None:
        return torch.zeros(ints(shape))
    return torch.full(ints(shape), value.item(), dtype=value.dtype, device=value.device)


@operator("Range", since=11)
def range_(start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    count = max(math.ceil((limit.item() - start.item()) / delta.item()), 0)
    return (start + torch.arange(count, device=start.device) * delta).to(start.dtype)


@operator("EyeLike", since=9)
def eye_like(x: Tensor, *, dtype: torch.dtype | None = None, k: int = 0) -> Tensor:
    ones = torch.ones(tuple(x.shape), dtype=torch.int64, device=x.device)
    return (ones.triu(k) - ones.triu(k + 1)).to(dtype or x.dtype)


@operator("Trilu", since=14)
def trilu(x: Tensor, k: int | Tensor = 0, *, upper: int = 1) -> Tensor:
    return x.triu(ints(k)[0]) if upper else x.tril(ints(k)[0])


@operator("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Channels to blocks of pixels. x (B, C b b, H, W) -> (B, C, H b, W b)"""
    batch, channels, height, width = x.shape
    b, inner = blocksize, channels // blocksize**2
    if mode == "DCR":
        x = x.reshape(batch, b, b, inner, height, width).permute(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(batch, inner, b, b, height, width).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(batch, inner, height * b, width * b)


@operator("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Blocks of pixels to channels. x (B, C, H b, W b) -> (B, b b C, H, W)"""
    batch, channels, height, width = x.shape
    b = blocksize
    x = x.reshape(batch, channels, height // b, b, width // b, b)
    x = x.permute(0, 3, 5, 1, 2, 4) if mode == "DCR" else x.permute(0, 1, 3, 5, 2, 4)
    return x.reshape(batch, channels * b * b, height // b, width // b)


@operator("ReverseSequence", since=10)
def reverse_sequence(x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    """Each sequence of a batch backwards, as far as it is long."""
    x = x.movedim((batch_axis, time_axis), (0, 1))
    at = torch.arange(x.shape[1], device=x.device)[None]
    ends = lengths[:, None]
    at = torch.where(at < ends, ends - 1 - at, at)
    x = x[torch.arange(x.shape[0], device=x.device)[:, None], at]
    return x.movedim((0, 1), (batch_axis, time_axis))


@operator("CenterCropPad", since=18)
def center_crop_pad(x: Tensor, shape: list[int] | Tensor, *, axes: list[int] | None = None) -> Tensor:
    """Cropped or padded with zeros on both sides to these sizes."""
    along = axes if axes is not None else list(range(x.dim()))
    for axis, wanted in zip(along, ints(shape), strict=True):
        more = wanted - x.shape[axis]
        before = more // 2 if more > 0 else -((-more) // 2)
        x = padded(x, axis, before, more - before, "constant", 0)
    return x


@operator("Col2Im", since=18)
def col2im(
    x: Tensor,
    image_shape: list[int] | Tensor,
    block_shape: list[int] | Tensor,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Columns of blocks added up where they lie in an image. x (B, C block, L) -> (B, C, *image)"""
    image, block = ints(image_shape), ints(block_shape)
    rank = len(image)
    gaps, steps, edges = dilations or [1] * rank, strides or [1] * rank, pads or [0] * 2 * rank
    sizes = [image[axis] + edges[axis] + edges[axis + rank] for axis in range(rank)]
    at = torch.zeros(1, 1, dtype=torch.int64, device=x.device)
    for axis in range(rank):
        starts = torch.arange(0, sizes[axis] - gaps[axis] * (block[axis] - 1), steps[axis], device=x.device)
        places = torch.arange(block[axis], device=x.device)[:, None] * gaps[axis] + starts
        at = at[:, None, :, None] * sizes[axis] + places[None, :, None, :]
        at = at.reshape(at.shape[0] * at.shape[1], -1)
    columns = x.reshape(x.shape[0], -1, at.numel())
    found = torch.zeros(*columns.shape[:2], math.prod(sizes), dtype=x.dtype, device=x.device)
    found = found.index_add(2, at.reshape(-1), columns).reshape(*columns.shape[:2], *sizes)
    for axis in range(rank):
        found = found.narrow(axis + 2, edges[axis], image[axis])
    return found


@operator("OneHot", since=9)
def one_hot(indices: Tensor, depth: int | Tensor, values: Tensor, *, axis: int = -1) -> Tensor:
    """The second of `values` where an index points to, else the first; nothing where it points nowhere."""
    count = ints(depth)[0]
    places = torch.arange(count, device=indices.device)
    at = indices.to(torch.int64)
    at = torch.where((at < 0) & (at >= -count), at + count, at)
    hit = (at.unsqueeze(-1) == places).movedim(-1, axis)
    return torch.where(hit, values[1], values[0])
