"""Images of another size, and looks between pixels. https://onnx.ai/onnx/operators/"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.graphs.operators import operator
from mapper.graphs.operators.common import axis_in, ints


def coordinates(mode: str, old: int, new: int, scale: float, start: float, end: float) -> Tensor:
    """Where each number of a resized axis lies on the old one."""
    at = torch.arange(new, dtype=torch.float64)
    if mode == "align_corners" and abs(old * scale - new) > 1e-3:
        raise ValueError("Resize by a scale that gives no whole size is not clear where corners are aligned")
    if mode == "align_corners":
        return at * (old - 1) / (new - 1) if new > 1 else at * 0
    if mode == "asymmetric":
        return at / scale
    if mode == "tf_crop_and_resize":
        if new > 1:
            return start * (old - 1) + at * (end - start) * (old - 1) / (new - 1)
        return at * 0 + 0.5 * (start + end) * (old - 1)
    if mode == "pytorch_half_pixel":
        return (at + 0.5) / scale - 0.5 if new > 1 else at * 0
    if mode == "half_pixel_symmetric":
        exact = old * scale
        return old / 2 * (1 - new / exact) + (at + 0.5) / scale - 0.5
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    return (at + 0.5) / scale - 0.5


def nearest(at: Tensor, mode: str) -> Tensor:
    """Whole coordinates."""
    if mode == "floor":
        return at.floor()
    if mode == "ceil":
        return at.ceil()
    return (at + 0.5).floor() if mode == "round_prefer_ceil" else (at - 0.5).ceil()


def taps(at: Tensor, mode: str, scale: float, a: float) -> tuple[Tensor, Tensor]:
    """The neighbours of each coordinate and their weights; a scale under 1 smooths over more of them. (new, taps)"""
    wide = 1 / min(scale, 1.0)
    reach = (2 if mode == "cubic" else 1) * wide
    count = math.ceil(2 * reach) + 1
    first = (at - reach).ceil()
    places = first[:, None] + torch.arange(count, dtype=torch.float64)
    far = ((places - at[:, None]) / wide).abs()
    if mode == "linear":
        weights = (1 - far).clamp(min=0)
    else:
        near = ((a + 2) * far - (a + 3)) * far * far + 1
        tail = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
        weights = torch.where(far <= 1, near, torch.where(far < 2, tail, torch.zeros_like(far)))
    return places, weights


def resize_axis(
    x: Tensor,
    axis: int,
    new: int,
    scale: float,
    start: float,
    end: float,
    mode: str,
    coordinate_mode: str,
    nearest_mode: str,
    a: float,
    exclude_outside: int,
    antialias: int,
    extrapolation_value: float,
) -> Tensor:
    """One axis in another size."""
    old = x.shape[axis]
    at = coordinates(coordinate_mode, old, new, scale, start, end)
    if mode == "nearest":
        found = x.index_select(axis, nearest(at, nearest_mode).clamp(0, old - 1).long().to(x.device))
    else:
        places, weights = taps(at, mode, scale if antialias else 1.0, a)
        if exclude_outside:
            weights = weights * ((places >= 0) & (places < old))
        weights = weights / weights.sum(1, keepdim=True)
        index = places.clamp(0, old - 1).long().to(x.device)
        parts = x.index_select(axis, index.reshape(-1)).unflatten(axis, (new, -1))
        shape = [1] * parts.dim()
        shape[axis], shape[axis + 1] = weights.shape
        found = (parts * weights.to(device=x.device, dtype=x.dtype).view(shape)).sum(axis + 1)
    if coordinate_mode != "tf_crop_and_resize":
        return found
    outside = ((at < 0) | (at > old - 1)).to(x.device).view(-1, *(1,) * (x.dim() - 1 - axis))
    return torch.where(outside, torch.full_like(found, extrapolation_value), found)


def kept_ratio(old: list[int], sizes: list[int], policy: str) -> tuple[list[int], list[float]]:
    """Sizes with one scale for all axes: the least of them, or the largest."""
    rates = [size / was for size, was in zip(sizes, old, strict=True)]
    if policy == "stretch":
        return sizes, rates
    rate = min(rates) if policy == "not_larger" else max(rates)
    return [math.floor(rate * was + 0.5) for was in old], [rate] * len(old)


@operator("Resize", since=11)
def resize(
    x: Tensor,
    roi: list[float] | Tensor | None = None,
    scales: list[float] | Tensor | None = None,
    sizes: list[int] | Tensor | None = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    """Each axis by itself: by a scale, or to a size."""
    along = [axis_in(axis, x.dim()) for axis in axes] if axes is not None else list(range(x.dim()))
    old = [x.shape[axis] for axis in along]
    given = scales.tolist() if isinstance(scales, Tensor) else scales
    if given:
        rates, wanted = given, [math.floor(was * rate) for was, rate in zip(old, given, strict=True)]
    else:
        wanted, rates = kept_ratio(old, ints(sizes), keep_aspect_ratio_policy)
    box = (roi.tolist() if isinstance(roi, Tensor) else roi) or [0.0] * len(along) + [1.0] * len(along)
    values = x if x.is_floating_point() or mode == "nearest" else x.float()
    for place, axis in enumerate(along):
        if (
            wanted[place] == old[place]
            and rates[place] == 1
            and coordinate_transformation_mode != "tf_crop_and_resize"
        ):
            continue
        values = resize_axis(
            values,
            axis,
            wanted[place],
            rates[place],
            box[place],
            box[place + len(along)],
            mode,
            coordinate_transformation_mode,
            nearest_mode,
            cubic_coeff_a,
            exclude_outside,
            antialias,
            extrapolation_value,
        )
    return values.to(x.dtype)


@operator("Resize", since=10, until=10)
def resize_10(x: Tensor, scales: list[float] | Tensor, *, mode: str = "nearest") -> Tensor:
    """By scales, the first pixel on the first."""
    return resize(
        x, None, scales, coordinate_transformation_mode="asymmetric", mode=mode, nearest_mode="floor"
    )


@operator("Upsample", since=9, until=9)
def upsample(x: Tensor, scales: list[float] | Tensor, *, mode: str = "nearest") -> Tensor:
    return resize_10(x, scales, mode=mode)


@operator("Upsample", since=7, until=8)
def upsample_7(x: Tensor, *, scales: list[float], mode: str = "nearest") -> Tensor:
    return resize_10(x, scales, mode=mode)


@operator("GridSample", since=16)
def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    """Pixels where a grid of coordinates in [-1, 1] points to. x (B, C, H, W), grid (B, H', W', 2)"""
    known = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return F.grid_sample(x, grid.to(x.dtype), known, padding_mode, bool(align_corners))


@operator("AffineGrid", since=20)
def affine_grid(theta: Tensor, size: list[int] | Tensor, *, align_corners: int = 0) -> Tensor:
    return F.affine_grid(theta, ints(size), bool(align_corners))


def between(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Pixels at rows `y` and columns `z`, between four neighbours; nothing beyond the border by more than one. x (C, H, W)"""
    height, width = x.shape[1:]
    outside = (y < -1) | (y > height) | (z < -1) | (z > width)
    y, z = y.clamp(min=0), z.clamp(min=0)
    top, left = y.long().clamp(max=height - 1), z.long().clamp(max=width - 1)
    y, z = y.clamp(max=height - 1), z.clamp(max=width - 1)
    low, right = (top + 1).clamp(max=height - 1), (left + 1).clamp(max=width - 1)
    dy, dz = y - top, z - left
    parts = torch.stack([
        x[:, top, left] * ((1 - dy) * (1 - dz)),
        x[:, top, right] * ((1 - dy) * dz),
        x[:, low, left] * (dy * (1 - dz)),
        x[:, low, right] * (dy * dz),
    ])  # fmt: skip
    return torch.where(outside, torch.zeros_like(parts), parts)


@operator("RoiAlign", since=16)
def roi_align(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Each region as an image of one size. x (B, C, H, W), rois (N, 4) -> (N, C, height, width)"""
    shift = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    found = []
    for box, batch in zip(rois * spatial_scale - shift, batch_indices.tolist(), strict=True):
        left, top, right, low = box.tolist()
        wide, high = right - left, low - top
        if not shift:
            wide, high = max(wide, 1.0), max(high, 1.0)
        rows = sampling_ratio or math.ceil(high / output_height)
        columns = sampling_ratio or math.ceil(wide / output_width)
        y = top + (torch.arange(output_height * rows, dtype=x.dtype, device=x.device) + 0.5) * high / (
            output_height * rows
        )
        z = left + (torch.arange(output_width * columns, dtype=x.dtype, device=x.device) + 0.5) * wide / (
            output_width * columns
        )
        parts = between(x[batch], y[:, None].expand(-1, len(z)), z[None].expand(len(y), -1))
        parts = parts.unflatten(-1, (output_width, columns)).unflatten(-3, (output_height, rows))
        found.append(parts.sum(0).mean((-3, -1)) if mode == "avg" else parts.amax((0, -3, -1)))
    return torch.stack(found) if found else x.new_zeros(0, x.shape[1], output_height, output_width)


@operator("RoiAlign", since=10, until=15)
def roi_align_10(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    return roi_align(
        x,
        rois,
        batch_indices,
        coordinate_transformation_mode="output_half_pixel",
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )
