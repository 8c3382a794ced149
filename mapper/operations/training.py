"""What only training does."""

from __future__ import annotations

import torch
from torch import Tensor


def drop_path(x: Tensor, rate: float, training: bool) -> Tensor:
    """Some rows of a batch as zeros, others larger to keep the mean (paper 1603.09382). Any shape"""
    if not training or rate == 0.0:
        return x
    kept = torch.rand(x.shape[0], *[1] * (x.dim() - 1), device=x.device) >= rate
    return x * kept.to(x.dtype) / (1 - rate)
