"""Streams that each say a word further ahead, beside the one that reads (ProphetNet, paper 2001.04063).

A main stream of T positions comes first, then N more as long as it: x (B, (1 + N) * T, W).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.operations.relative import bucket_logarithmic


def attend_ngram(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, mask: Tensor | None, streams: int, max_distance: int
) -> Tensor:
    """Each stream sees the main one as far as it is ahead, and of itself its own position.

    Stream n of N sees what stands n or more before, and always the first position. Biases by distance are
    what rows (B, (1 + N) * T, buckets * H) say for their query, those of the streams in another order, as the
    published code reads them. q, k, v (B, H, (1 + N) * T, D), mask (B, 1, 1, T) or None
    """
    heads, length = q.shape[1], q.shape[2] // (1 + streams)
    place = torch.arange(length, device=q.device)
    rows = rows.unflatten(-1, (-1, heads)).unflatten(1, (1 + streams, -1))  # (B, 1 + N, T, buckets, H)
    main = rows[:, :1].permute(0, 1, 4, 2, 3)  # (B, 1, H, T, buckets)
    ahead = rows[:, 1:].permute(0, 2, 1, 4, 3)  # read as if it stood in this order
    ahead = ahead.reshape(-1, streams, *main.shape[2:])
    rows = torch.cat((main, ahead), dim=1)
    main_k, main_v = k[:, :, :length], v[:, :, :length]
    seen = torch.ones_like(place, dtype=torch.bool) if mask is None else mask
    parts = []
    for stream in range(1 + streams):
        own = slice(stream * length, (stream + 1) * length)
        apart = place - place[:, None]  # key minus query
        keys, values, shown = main_k, main_v, seen & (apart <= 0)
        if stream:
            keys = torch.cat((main_k, k[:, :, own]), dim=2)
            values = torch.cat((main_v, v[:, :, own]), dim=2)
            shown = seen & ((apart <= 1 - stream) | (place == 0))
            itself = (apart == 0).expand(*shown.shape[:-2], -1, -1)
            shown = torch.cat((shown, itself), dim=-1)
            apart = torch.cat((apart - 1, torch.zeros_like(apart)), dim=-1)
        buckets = bucket_logarithmic((-apart).clamp(min=0), rows.shape[-1], max_distance)
        bias = rows[:, stream].gather(-1, buckets.expand(*q.shape[:2], -1, -1))
        bias = bias.masked_fill(~shown, torch.finfo(q.dtype).min)
        parts.append(F.scaled_dot_product_attention(q[:, :, own], keys, values, attn_mask=bias))
    return torch.cat(parts, dim=2)
