"""Attention biased by learned profiles over distances, and short convolutions beside a residual."""

from __future__ import annotations

import torch
from torch import Tensor

from mapper.operations.convolution import conv_causal
from mapper.operations.masks import zero_padding


def profile_bias(x: Tensor, profiles: Tensor) -> Tensor:
    """Profiles over the distance to earlier keys, mixed by each query; nothing beyond the longest.

    x (B, H, T, R), profiles (R, D) -> (B, H, T, T)
    """
    index = torch.arange(x.shape[2], device=x.device)
    distance = index[:, None] - index
    near = (distance >= 0) & (distance < profiles.shape[1])
    places = distance.clamp(0, profiles.shape[1] - 1).expand(*x.shape[:2], -1, -1)
    return (x @ profiles).gather(-1, places) * near


def convolve_beside(x: Tensor, weight: Tensor, attention_mask: Tensor | None) -> Tensor:
    """x and its convolution with what stands before, without padding. x (B, T, C), weight (C, 1, kernel)"""
    return x + conv_causal(zero_padding(x, attention_mask), weight, None)


def joint_weights(logits: Tensor, chosen: Tensor, experts: int) -> Tensor:
    """Sigmoids of the chosen experts and of those behind the first `experts`, which all share, to a sum of 1.

    logits (..., E + S), chosen (..., count) -> (..., count + S)
    """
    scores = torch.cat((logits[..., :experts].gather(-1, chosen), logits[..., experts:]), dim=-1)
    return torch.nn.functional.logsigmoid(scores).softmax(dim=-1)


def each_expert(x: Tensor, weight: Tensor) -> Tensor:
    """What every expert's matrix makes of every position. x (..., I), weight (E, O, I) -> (..., E, O)"""
    return torch.einsum("...i,eoi->...eo", x, weight)


def sum_of_experts(x: Tensor, weight: Tensor) -> Tensor:
    """What the experts' matrices make of their own vectors, added up.

    x (..., E, I), weight (E, O, I) -> (..., O)
    """
    return torch.einsum("...ei,eoi->...o", x, weight)
