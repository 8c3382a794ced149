"""Stretches of keys packed into one each, which attention sees behind the latest keys (DeepSeek-V4)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.operations.pooling import in_groups
from mapper.operations.rotary import apply_rotary_interleaved


def apply_rotary_last(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the last R channels, neighbours paired, and keeps those before. cos and sin (B, 1, T, R / 2)"""
    plain, rest = x.split([x.shape[-1] - 2 * cos.shape[-1], 2 * cos.shape[-1]], dim=-1)
    return torch.cat((plain, apply_rotary_interleaved(rest, cos, sin)), dim=-1)


def pack_overlapping(values: Tensor, gates: Tensor, bias: Tensor) -> Tensor:
    """The same of each window's second half of the channels and the window before's first half.

    values and gates (B, T, 2 * D), bias (rate, 2 * D) -> (B, T // rate, D)
    """
    values, gates = in_groups(values, bias.shape[0]), in_groups(gates, bias.shape[0]) + bias
    (before, own), (gates_before, gates_own) = values.chunk(2, dim=-1), gates.chunk(2, dim=-1)
    before = F.pad(before, (0, 0, 0, 0, 1, 0))[:, : values.shape[1]]
    gates_before = F.pad(gates_before, (0, 0, 0, 0, 1, 0), value=float("-inf"))[:, : values.shape[1]]
    weights = torch.cat((gates_before, gates_own), dim=2).softmax(dim=2, dtype=torch.float32)
    return (torch.cat((before, own), dim=2) * weights.to(values.dtype)).sum(dim=2)
