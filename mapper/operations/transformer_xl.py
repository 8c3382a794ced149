"""Attention by relative position with maps of their own (Transformer-XL, paper 1901.02860; conformers)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.operations.attention import attend_scaled_biased
from mapper.operations.positions import sinusoids_interleaved, sinusoids_split


def distance_waves(x: Tensor, size: int) -> Tensor:
    """Waves for the distances T - 1 down to 1 - T of a query to a key.

    x (B, T, ...) -> (1, 2 T - 1, size)
    """
    distances = torch.arange(x.shape[1] - 1, -x.shape[1], -1, device=x.device)[None]
    return sinusoids_interleaved(x, distances, size)


def shift_distances(scores: Tensor) -> Tensor:
    """Scores by distance, T - 1 first, as scores by key. (B, H, T, 2 T - 1) -> (B, H, T, T)"""
    B, H, T, D = scores.shape
    shifted = F.pad(scores, (1, 0)).view(B, H, D + 1, T)[:, :, 1:].reshape(B, H, T, D)
    return shifted[..., :T]


def clipped_distances(x: Tensor, left: int, right: int) -> Tensor:
    """Rows of a table of distances, key minus query, from -left to right. x (B, T, ...) -> (T, T)"""
    index = torch.arange(x.shape[1], device=x.device)
    return (index - index[:, None]).clamp(-left, right) + left


def distance_scores(q: Tensor, table: Tensor) -> Tensor:
    """How well each query goes with the vector of each distance.

    q (B, H, T, D), table (T, S, D) -> (B, H, T, S)
    """
    return torch.einsum("bhtd,tsd->bhts", q, table)


def distance_waves_split(x: Tensor, size: int) -> Tensor:
    """distance_waves with all sines before all cosines (XLNet). x (B, T, ...) -> (1, 2 T - 1, size)"""
    distances = torch.arange(x.shape[1] - 1, -x.shape[1], -1, device=x.device)[None]
    return sinusoids_split(x, distances, size)


def project_heads(x: Tensor, weight: Tensor) -> Tensor:
    """A map to heads whose weight keeps them apart. x (B, T, W), weight (W, H, D) -> (B, H, T, D)"""
    return torch.einsum("btw,whd->bhtd", x, weight)


def project_from_heads(x: Tensor, weight: Tensor) -> Tensor:
    """A map from heads whose weight keeps them apart. x (B, H, T, D), weight (W, H, D) -> (B, T, W)"""
    return torch.einsum("bhtd,whd->btw", x, weight)


def mask_but_self(x: Tensor, attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query but their own. attention_mask (B, T) or None -> (B, 1, T, T)"""
    if attention_mask is None:
        return None
    own = torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
    return (attention_mask[:, None, None, :] != 0) | own


def segment_scores(q: Tensor, table: Tensor, token_type_ids: Tensor | None) -> Tensor:
    """How well each query goes with a key of its own segment, or of another; zeros without segments.

    q (B, H, T, D), table (2, H, D), token_type_ids (B, T) -> (B, H, T, T) or (B, H, T, 1)
    """
    if token_type_ids is None:
        return torch.zeros_like(q[..., :1])
    scores = torch.einsum("bhtd,shd->bhts", q, table)
    differ = (token_type_ids[:, None, :, None] != token_type_ids[:, None, None, :]).long()
    return scores.gather(-1, differ.expand(-1, q.shape[1], -1, -1))


def attend_distances(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None, content_bias: Tensor
) -> Tensor:
    """Attention whose scores have a part by distance, scaled as the rest is. content_bias (H, D)"""
    scale = q.shape[-1] ** -0.5
    return attend_scaled_biased(q + content_bias[:, None], k, v, bias * scale, mask, scale)
