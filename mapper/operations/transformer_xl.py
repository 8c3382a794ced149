"""Attention by relative position with maps of their own (Transformer-XL, paper 1901.02860; conformers)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def relative_shift(scores: Tensor) -> Tensor:
    """Scores by distance, T - 1 first, as scores by key. (B, H, T, 2 T - 1) -> (B, H, T, T)"""
    B, H, T, D = scores.shape
    shifted = F.pad(scores, (1, 0)).view(B, H, D + 1, T)[:, :, 1:].reshape(B, H, T, D)
    return shifted[..., :T]


def segment_scores(q: Tensor, table: Tensor, token_type_ids: Tensor | None) -> Tensor:
    """How well each query goes with a key of its own segment, or of another; zeros without segments.

    q (B, H, T, D), table (2, H, D), token_type_ids (B, T) -> (B, H, T, T) or (B, H, T, 1)
    """
    if token_type_ids is None:
        return torch.zeros_like(q[..., :1])
    scores = torch.einsum("bhtd,shd->bhts", q, table)
    differ = (token_type_ids[:, None, :, None] != token_type_ids[:, None, None, :]).long()
    return scores.gather(-1, differ.expand(-1, q.shape[1], -1, -1))
