"""What stands in for an input that the caller leaves out."""

from __future__ import annotations

import torch
from torch import Tensor


def segment_ids(input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
    """The caller's segments, or the first segment everywhere. (B, T)"""
    return torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def position_indices_of_mask(x: Tensor, position_ids: Tensor | None, attention_mask: Tensor | None) -> Tensor:
    """The caller's positions, or those of the real tokens, counted from 0; padding gets -1 (OPT).

    x (B, T, ...), attention_mask (B, T) or None -> (B or 1, T)
    """
    if position_ids is not None or attention_mask is None:
        return position_indices(x, position_ids)
    real = (attention_mask != 0).long()
    return real.cumsum(dim=1) * real - 1
