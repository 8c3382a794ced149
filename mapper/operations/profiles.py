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


def joint_weights(logits: Tensor, chosen: Tensor, experts: int) -> Tensor:
    """Sigmoids of the chosen experts and of those behind the first `experts`, which all share, to a sum of 1.

    logits (..., E + S), chosen (..., count) -> (..., count + S)
    """
    scores = torch.cat((logits[..., :experts].gather(-1, chosen), logits[..., experts:]), dim=-1)
    return torch.nn.functional.logsigmoid(scores).softmax(dim=-1)
