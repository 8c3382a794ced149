"""Products of matrices and convolutions. https://onnx.ai/onnx/operators/"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.graphs.operators import operator


@operator("MatMul")
def mat_mul(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


@operator("Gemm", since=7)
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    found = (a.T if transA else a) @ (b.T if transB else b)
    found = found if alpha == 1 else found * alpha
    if c is None:
        return found
    return (found + (c if beta == 1 else c * beta)).to(a.dtype)


@operator("Gemm", until=6)
def gemm_1(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    broadcast: int = 0,
) -> Tensor:
    return gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


@operator("Einsum", since=12)
def einsum(*xs: Tensor, equation: str) -> Tensor:
    return torch.einsum(equation.replace(" ", ""), *xs)


@operator("Det", since=11)
def det(x: Tensor) -> Tensor:
    return torch.linalg.det(x)


def window_pads(
    sizes: list[int],
    kernel: list[int],
    strides: list[int],
    dilations: list[int],
    pads: list[int] | None,
    auto_pad: str,
) -> list[tuple[int, int]]:
    """What is added before and behind along each axis that a window moves along."""
    rank = len(kernel)
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        edges = pads if pads is not None and auto_pad == "NOTSET" else [0] * 2 * rank
        return [(edges[axis], edges[axis + rank]) for axis in range(rank)]
    found = []
    for axis in range(rank):
        steps = -(-sizes[axis] // strides[axis])
        more = max((steps - 1) * strides[axis] + dilations[axis] * (kernel[axis] - 1) + 1 - sizes[axis], 0)
        small, large = more // 2, more - more // 2
        found.append((small, large) if auto_pad == "SAME_UPPER" else (large, small))
    return found


def edged(x: Tensor, pads: list[tuple[int, int]], value: float = 0.0) -> Tensor:
    """Padded along the last axes."""
    flat = [count for pair in reversed(pads) for count in pair]
    return F.pad(x, flat, value=value) if any(flat) else x


@operator("Conv")
def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """x (B, C, *sizes), weight (O, C / group, *kernel) -> (B, O, *sizes)"""
    kernel = list(weight.shape[2:])
    gaps, steps = dilations or [1] * len(kernel), strides or [1] * len(kernel)
    around = window_pads(list(x.shape[2:]), kernel, steps, gaps, pads, auto_pad)
    even = [before for before, behind in around if before == behind]
    if len(even) < len(kernel):
        x, even = edged(x, around), [0] * len(kernel)
    convolve = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[len(kernel)]
    return convolve(x, weight, bias, steps, even, gaps, group)


@operator("ConvTranspose")
def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """x (B, C, *sizes), weight (C, O / group, *kernel) -> (B, O, *sizes)"""
    kernel = list(weight.shape[2:])
    rank = len(kernel)
    gaps, steps, more = dilations or [1] * rank, strides or [1] * rank, output_padding or [0] * rank
    transposed = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}[rank]
    found = transposed(x, weight, None, steps, 0, 0, group, gaps)
    full = [steps[a] * (x.shape[a + 2] - 1) + more[a] + (kernel[a] - 1) * gaps[a] + 1 for a in range(rank)]
    edges = pads if pads is not None and auto_pad == "NOTSET" else [0] * 2 * rank
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = (
            output_shape[-rank:]
            if output_shape is not None
            else [x.shape[a + 2] * steps[a] for a in range(rank)]
        )
        cut = [full[a] - wanted[a] for a in range(rank)]
        small, large = [count // 2 for count in cut], [count - count // 2 for count in cut]
        edges = small + large if auto_pad == "SAME_UPPER" else large + small
    found = F.pad(
        found,
        [
            count
            for a in reversed(range(rank))
            for count in (-edges[a], full[a] - found.shape[a + 2] - edges[a + rank])
        ],
    )
    return found if bias is None else found + bias.view(-1, *(1,) * rank)


@operator("CausalConvWithState", since=27)
def causal_conv_with_state(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    past_state: Tensor | None = None,
    *,
    activation: str = "none",
) -> tuple[Tensor, Tensor]:
    """Each channel along its own past. x (B, C, T), weight (C, 1, k), state (B, C, k - 1)"""
    reach = weight.shape[-1] - 1
    past = x.new_zeros(*x.shape[:2], reach) if past_state is None else past_state
    whole = torch.cat([past, x], -1)
    found = F.conv1d(whole, weight, bias, groups=weight.shape[0])
    found = F.silu(found) if activation in ("silu", "swish") else found
    return found, whole[..., whole.shape[-1] - reach :]


@operator("DeformConv", since=19)
def deform_conv(
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """A convolution each of whose taps looks where an offset says, between pixels. x (B, C, H, W)"""
    batch, channels, height, width = x.shape
    rows, columns = weight.shape[2:]
    (down, right), (gap_y, gap_x), edges = strides or [1, 1], dilations or [1, 1], pads or [0] * 4
    high, wide = offset.shape[2:]
    offset = offset.view(batch, offset_group, rows, columns, 2, high, wide)
    tap_y = torch.arange(rows, device=x.device).view(-1, 1, 1, 1) * gap_y - edges[0]
    tap_x = torch.arange(columns, device=x.device).view(1, -1, 1, 1) * gap_x - edges[1]
    y = offset[:, :, :, :, 0] + tap_y + torch.arange(high, device=x.device).view(-1, 1) * down
    z = offset[:, :, :, :, 1] + tap_x + torch.arange(wide, device=x.device) * right
    grid = torch.stack([(2 * z + 1) / width - 1, (2 * y + 1) / height - 1], -1)
    grid = grid.reshape(batch * offset_group, rows * columns * high, wide, 2).to(x.dtype)
    parts = x.reshape(batch * offset_group, channels // offset_group, height, width)
    seen = F.grid_sample(parts, grid, align_corners=False)
    seen = seen.view(batch, offset_group, channels // offset_group, rows, columns, high, wide)
    if mask is not None:
        seen = seen * mask.view(batch, offset_group, 1, rows, columns, high, wide)
    seen = seen.reshape(batch, group, channels // group, rows, columns, high, wide)
    kernels = weight.reshape(group, -1, channels // group, rows, columns)
    found = torch.einsum("bgckljw,gockl->bgojw", seen, kernels).reshape(batch, -1, high, wide)
    return found if bias is None else found + bias.view(-1, 1, 1)
