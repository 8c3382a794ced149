"""What is done to the vectors of tokens before positions are added."""

from __future__ import annotations

import torch
from torch import Tensor


def token_dropout(x: Tensor, input_ids: Tensor, attention_mask: Tensor | None, mask_id: int) -> Tensor:
    """Sets masked tokens to zero and scales the rest, for a training that masks 0.15 * 0.8 of them (ESM).

    x (B, T, W), input_ids (B, T), attention_mask (B, T) or None -> (B, T, W)
    """
    masked = input_ids == mask_id
    length = input_ids.shape[1] if attention_mask is None else attention_mask.sum(-1)
    share = masked.sum(-1).float() / length
    return (x.masked_fill(masked[..., None], 0.0) * (1 - 0.15 * 0.8) / (1 - share)[:, None, None]).to(x.dtype)


def pad_features(input_ids: Tensor, places: list[int | None], padding: int) -> Tensor:
    """Reads ids that keep a place for something else as padding. (B, T) -> (B, T)"""
    kept = torch.tensor([place for place in places if place is not None], device=input_ids.device)
    return torch.where((input_ids[..., None] == kept).any(dim=-1), padding, input_ids)
