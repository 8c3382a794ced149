"""Boxes by the distances of their sides, each a distribution over bins (D-FINE, paper 2410.13842).

Corners are logits (B, Q, 4 * N), N bins for each side of a box: left, top, right, bottom.
"""

from __future__ import annotations

import torch
from torch import Tensor


def distances_of_bins(corners: Tensor, bound: Tensor, scale: Tensor) -> Tensor:
    """The mean of the bins' distances, which grow from the middle on; bound, scale (1,). -> (B, Q, 4)"""
    side = corners.shape[-1] // 8  # bins on either side of the middle
    reach = bound.abs() * scale.abs()
    steps = (reach + 1) ** (torch.arange(1, side, device=corners.device) / (side - 1))
    right = torch.cat((steps - 1, 2 * reach))
    distances = torch.cat((-right.flip(0), torch.zeros_like(reach), right))
    return corners.unflatten(-1, (4, -1)).softmax(-1) @ distances.to(corners.dtype)
