"""Linear attention without queries (RWKV, paper 2305.13048): means of what came before,
weighed by keys that fade.

One position after another: the running maximum that keeps exponents small depends on all keys before.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def token_shift(x: Tensor, weight: Tensor) -> Tensor:
    """Each position with the one before it, channel by channel. x (B, T, W), weight (1, 1, W) -> (B, T, W)"""
    return x * weight + F.pad(x, (0, 0, 1, -1)) * (1 - weight)


def weighted_key_value(k: Tensor, v: Tensor, decay: Tensor, first: Tensor) -> Tensor:
    """Mean of the values so far by weights exp(k), which fade by exp(-exp(decay)) at each step, in float32.

    A position's own weight is exp(k + first). k, v (B, T, C), decay, first (C,) -> (B, T, C)
    """
    fade, dtype = -torch.exp(decay.float()), v.dtype
    k, v = k.float(), v.float()
    total = weight = torch.zeros_like(k[:, 0])
    largest = torch.full_like(total, -1e38)
    outputs = []
    for t in range(k.shape[1]):
        top = torch.maximum(largest, k[:, t] + first)
        old, own = torch.exp(largest - top), torch.exp(k[:, t] + first - top)
        outputs.append((old * total + own * v[:, t]) / (old * weight + own))
        top = torch.maximum(largest + fade, k[:, t])
        old, own = torch.exp(largest + fade - top), torch.exp(k[:, t] - top)
        total, weight, largest = old * total + own * v[:, t], old * weight + own, top
    return torch.stack(outputs, dim=1).to(dtype)
