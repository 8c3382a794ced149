"""Sequences that get half as long from block to block, their first position apart (paper 2006.03236).

The others are read in pairs: of T positions (T + 1) // 2 are left. Block 0 is as long as the input.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.operations.positions import sinusoids


def halve_states(x: Tensor, block: int) -> Tensor:
    """The mean of each pair, for all blocks but the first.

    x (B, T, W). Raises ValueError for two positions or one
    """
    if block == 0:
        return x
    if x.shape[1] < 3:
        raise ValueError(f"{x.shape[1]} positions before block {block}: too few to be halved")
    pairs = torch.cat((x[:, :1], x[:, :-1]), dim=1).transpose(1, 2)
    return F.avg_pool1d(pairs, 2, ceil_mode=True).transpose(1, 2)


def halve_segments(segments: Tensor, block: int) -> Tensor:
    """The segment of the first position, then of the first of each pair behind it. (B, T)"""
    return segments if block == 0 else torch.cat((segments[:, :1], segments), dim=1)[:, :-1:2]


def halve_mask(attention_mask: Tensor | None, block: int) -> Tensor | None:
    """Of each pair, whether both are no padding. (B, T) or None"""
    if attention_mask is None or block == 0:
        return attention_mask
    pairs = torch.cat((attention_mask[:, :1], attention_mask[:, :-1]), dim=1).float()
    return -F.max_pool1d(-pairs[:, None], 2, ceil_mode=True)[:, 0]


def distance_scores_halved(q: Tensor, k: Tensor, relative_key: Tensor, block: int) -> Tensor:
    """Scores of queries by how far keys are before them, both counted in positions of the input.

    Where there are fewer queries than keys, queries are of this block and keys of the one before.
    q (B, H, T, D), k (B, H, S, D), relative_key (W, H, D) -> (B, H, T, S)
    """
    length, count = q.shape[2], k.shape[2]
    halved = int(length != count)
    spacing = 2 ** (block - halved)  # of keys, in positions of the input
    query, key = torch.arange(length, device=q.device), torch.arange(count, device=q.device)
    apart = query[:, None] * (1 + halved) - key
    every = torch.arange(1 - count, (1 + halved) * (length - 1) + 1, device=q.device)
    waves = sinusoids(q, (every - halved) * spacing, relative_key.shape[0], shift=0)  # (N, W)
    scores = q @ torch.einsum("nw,whd->hdn", waves, relative_key)
    return scores.gather(-1, (apart + count - 1).expand(*scores.shape[:2], -1, -1))
