"""Masks over an image that queries draw: each is a vector that is compared with that of every place."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def query_masks(x: Tensor, pixels: Tensor) -> Tensor:
    """How well each place fits each query. x (B, Q, C), pixels (B, C, Y, X) -> (B, Q, Y, X)"""
    return torch.einsum("bqc,bcyx->bqyx", x, pixels)


def positions_in_masks(masks: Tensor, size: tuple[int, int]) -> Tensor:
    """Which places of a map, of S, the masks cover; all, where one covers none.

    masks (B, Q, Y, X), size in rows and columns -> (B, 1, Q, S)
    """
    covered = F.interpolate(masks, size=size, mode="bilinear").sigmoid().flatten(2) >= 0.5
    return (covered | ~covered.any(dim=-1, keepdim=True))[:, None]
