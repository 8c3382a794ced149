"""Vectors from codebooks: the code with the highest score stands for each position."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def best_codes(scores: Tensor, codes: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """One code of each group for every position, and how evenly the codes are used (perplexity).

    Training draws codes at random (paper 2006.11477); this is what evaluation does.
    scores (B, T, G * V), codes (1, G * V, D) -> (B, T, G * D), ()
    """
    best = scores.unflatten(-1, (groups, -1)).argmax(dim=-1)  # (B, T, G)
    table = codes.unflatten(1, (groups, -1))[0]  # (G, V, D)
    used = F.one_hot(best, table.shape[1]).to(codes.dtype).mean(dim=(0, 1))
    perplexity = torch.exp(-torch.xlogy(used, used).sum(dim=-1)).sum()
    return table[torch.arange(groups, device=best.device), best].flatten(2), perplexity


def codes_of_frames(codes: Tensor | None, x: Tensor, count: int, start_id: int) -> Tensor:
    """The codes of each moment side by side; one moment of start_id where none are given.

    codes (B * K, T), a sequence's K in a row, (B, T, K) or None, x (B, ...) -> (B, T, K)
    """
    if codes is None:
        return torch.full((x.shape[0], 1, count), start_id, device=x.device)
    return codes if codes.ndim == 3 else codes.unflatten(0, (-1, count)).transpose(1, 2)
