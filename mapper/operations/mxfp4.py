"""Weights in four-bit floats, a scale for each block of 32 (MXFP4, OCP Microscaling Formats 1.0)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def unpack_mxfp4(blocks: Tensor, scales: Tensor, like: Tensor) -> Tensor:
    """The numbers of MXFP4 blocks in the dtype of a tensor; a byte holds two of them, the low bits first.

    blocks uint8 (..., G, 16), scales uint8 (..., G), an exponent plus 127 each -> (..., G * 32)
    """
    sizes = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # one bit of sign, two of exponent, one of mantissa
    table = torch.tensor((*sizes, *(-size for size in sizes)), dtype=like.dtype, device=blocks.device)
    numbers = table[torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2).int()]  # (..., G, 32)
    return torch.ldexp(numbers, scales.int()[..., None] - 127).to(like.dtype).flatten(-2)


def expert_linear_mxfp4(
    rows: Tensor, blocks: Tensor, scales: Tensor, bias: Tensor, sizes: list[int]
) -> Tensor:
    """Each block of rows through its expert's linear layer, unpacked expert by expert.

    rows (N, I), blocks uint8 (E, O, I / 32, 16), scales uint8 (E, O, I / 32), bias (E, O) -> (N, O)
    """
    every = torch.compiler.is_compiling()  # a graph has no branches
    parts = [
        F.linear(part, unpack_mxfp4(blocks[i], scales[i], rows), bias[i])
        for i, part in enumerate(rows.split(sizes))
        if every or len(part)
    ]
    return torch.cat(parts) if parts else rows.new_zeros(0, blocks.shape[1])
