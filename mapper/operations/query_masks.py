"""Masks over an image that queries draw: each is a vector that is compared with that of every place."""

from __future__ import annotations

import torch
from torch import Tensor


def query_masks(x: Tensor, pixels: Tensor) -> Tensor:
    """How well each place fits each query. x (B, Q, C), pixels (B, C, Y, X) -> (B, Q, Y, X)"""
    return torch.einsum("bqc,bcyx->bqyx", x, pixels)
