"""Alternating updates: of several streams, a layer computes one and corrects all (paper 2301.13310)."""

from __future__ import annotations

from statistics import NormalDist

import torch.nn.functional as F
from torch import Tensor


def match_size(y: Tensor, x: Tensor) -> Tensor:
    """y as large as x: with its root mean square. (..., W), (..., W) -> (..., W)"""
    own = (y**2).mean(dim=-1, keepdim=True).clamp(min=1e-5).sqrt()
    return y * (x**2).mean(dim=-1, keepdim=True).sqrt() / own


def gaussian_topk(x: Tensor, share: float) -> Tensor:
    """What values have above the bound that a share of them would not reach, were they normal. (..., W)"""
    bound = NormalDist().inv_cdf(share)  # of the distribution whose mean is 0 and whose deviation is 1
    return F.relu(x - x.mean(dim=-1, keepdim=True) - bound * x.std(dim=-1, keepdim=True, correction=0))
