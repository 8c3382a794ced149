"""Attention biased by learned profiles over distances, and short convolutions beside a residual."""

from __future__ import annotations

import torch
from torch import Tensor


def profile_bias(x: Tensor, profiles: Tensor) -> Tensor:
    """Profiles over the distance to earlier keys, mixed by each query; nothing beyond the longest.

    x (B, H, T, R), profiles (R, D) -> (B, H, T, T)
    """
    index = torch.arange(x.shape[2], device=x.device)
    distance = index[:, None] - index
    near = (distance >= 0) & (distance < profiles.shape[1])
    places = distance.clamp(0, profiles.shape[1] - 1).expand(*x.shape[:2], -1, -1)
    return (x @ profiles).gather(-1, places) * near
