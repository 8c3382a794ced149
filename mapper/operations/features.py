"""What other towers saw or heard, among the embeddings of a text."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def place_features(x: Tensor, features: Tensor | None, input_ids: Tensor, place_id: int) -> Tensor:
    """Embeddings x (B, T, W) with features (..., W) where input_ids (B, T) are place_id, in order.

    Without features the embeddings stay. RuntimeError if there are more places than vectors.
    """
    if features is None:
        return x
    return x.masked_scatter((input_ids == place_id).unsqueeze(-1), features.to(x.dtype))


def join_states(states: list[Tensor], layers: tuple[int, ...]) -> Tensor:
    """The outputs of several layers side by side: [(B, T, W), ...] -> (B, T, len(layers) * W)."""
    return torch.cat([states[layer] for layer in layers], dim=-1)


def shuffle_patches(x: Tensor, factor: int) -> Tensor:
    """Squares of factor x factor patches as one vector each: (B, S * S, W) -> (B, (S / factor)^2, W * factor^2)."""
    side = math.isqrt(x.shape[1])
    squares = x.unflatten(1, (side // factor, factor, side // factor, factor))
    return squares.permute(0, 1, 3, 2, 4, 5).flatten(3).flatten(1, 2)


def average_patches(x: Tensor, count: int) -> Tensor:
    """The mean of the patches of each of `count` equal squares: (B, S * S, W) -> (B, count, W)."""
    side, inner = math.isqrt(count), math.isqrt(x.shape[1] // count)
    squares = x.unflatten(1, (side, inner, side, inner))
    return squares.mean((2, 4)).flatten(1, 2)
