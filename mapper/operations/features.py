"""What other towers saw or heard, among the embeddings of a text."""

from __future__ import annotations

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
