"""Whole numbers that stand for others. https://onnx.ai/onnx/operators/"""

from __future__ import annotations

import torch
from torch import Tensor

from mapper.graphs.operators import operator
from mapper.graphs.operators.common import axis_in
from mapper.graphs.operators.matrix import conv


def spread(scale: Tensor, x: Tensor, axis: int, block_size: int) -> Tensor:
    """Scales beside the numbers that they are of: one for all, for each of an axis, or for each block of it."""
    if block_size:
        return scale.repeat_interleave(block_size, axis).narrow(axis, 0, x.shape[axis])
    if scale.dim() == 0 or scale.numel() == 1:
        return scale.reshape(())
    return scale.view(-1, *(1,) * (x.dim() - 1 - axis_in(axis, x.dim())))


@operator("QuantizeLinear", since=10)
def quantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: torch.dtype | None = None,
    precision: torch.dtype | None = None,
    saturate: int = 1,
) -> Tensor:
    """Divided by the scale, rounded to even, moved by the zero point, and held in what the type has."""
    dtype = zero_point.dtype if zero_point is not None else output_dtype or torch.uint8
    if dtype.is_floating_point:
        raise ValueError("QuantizeLinear to eight-bit floats is not computed")
    by = spread(scale, x, axis, block_size)
    exact = precision or (
        torch.float32 if x.dtype in (torch.int32, torch.float16, torch.bfloat16) else x.dtype
    )
    found = (x.to(exact) / by.to(exact)).round()
    if zero_point is not None:
        found = found + spread(zero_point.to(torch.int32), x, axis, block_size)
    limits = torch.iinfo(dtype)
    return found.clamp(limits.min, limits.max).to(torch.int32).to(dtype)


@operator("DequantizeLinear", since=10)
def dequantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: torch.dtype | None = None,
) -> Tensor:
    found = x.to(torch.int32) if not x.is_floating_point() else x.float()
    if zero_point is not None:
        found = found - spread(zero_point.to(found.dtype), x, axis, block_size)
    return (found.float() * spread(scale, x, axis, block_size).float()).to(output_dtype or scale.dtype)


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Eight bits over the range that there is, zero within it."""
    low, high = x.min().clamp(max=0), x.max().clamp(min=0)
    scale = (high - low) / 255
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    zero = (-low / scale).round().clamp(0, 255)
    return ((x / scale).round() + zero).clamp(0, 255).to(torch.uint8), scale, zero.to(torch.uint8)


@operator("MatMulInteger", since=10)
def mat_mul_integer(
    a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    left, right = a.to(torch.int32), b.to(torch.int32)
    if a_zero is not None:
        left = left - (
            a_zero.to(torch.int32)[..., None]
            if a_zero.dim() == 1 and a_zero.numel() > 1
            else a_zero.to(torch.int32)
        )
    if b_zero is not None:
        right = right - b_zero.to(torch.int32)
    return left @ right


@operator("ConvInteger", since=10)
def conv_integer(
    x: Tensor,
    weight: Tensor,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """In float64, which holds these whole numbers as they are."""
    left = x.double() if x_zero is None else x.double() - x_zero.double()
    right = weight.double()
    if w_zero is not None:
        right = right - (
            w_zero.double().view(-1, *(1,) * (weight.dim() - 1)) if w_zero.numel() > 1 else w_zero.double()
        )
    found = conv(left, right, auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides)
    return found.to(torch.int32)


def requantized(found: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    limits = torch.iinfo(zero.dtype)
    return ((found / scale).round() + zero.to(found.dtype)).clamp(limits.min, limits.max).to(zero.dtype)


@operator("QLinearMatMul", since=10)
def q_linear_mat_mul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    left = (a.double() - a_zero.double()) * a_scale.double()
    return requantized(left @ ((b.double() - b_zero.double()) * b_scale.double()), y_scale.double(), y_zero)


@operator("QLinearConv", since=10)
def q_linear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    weight: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    rank = weight.dim() - 1
    by = w_scale.double().view(-1, *(1,) * rank) if w_scale.numel() > 1 else w_scale.double()
    zero = w_zero.double().view(-1, *(1,) * rank) if w_zero.numel() > 1 else w_zero.double()
    added = None if bias is None else bias.double() * x_scale.double() * w_scale.double().reshape(-1)
    found = conv(
        (x.double() - x_zero.double()) * x_scale.double(),
        (weight.double() - zero) * by,
        added,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        pads=pads,
        strides=strides,
    )
    return requantized(found, y_scale.double(), y_zero)
