"""Letters instead of words: hashed, seen block by block, several read as one (paper 2103.06874)."""

from __future__ import annotations

import torch
from torch import Tensor


def blocks_bias(x: Tensor, attention_mask: Tensor | None, size: int) -> Tensor:
    """A bias that shows each letter those of its block of `size`; in a block of padding alone all are seen.

    x (B, T, W), attention_mask (B, T) or None -> (1 or B, 1, T, T)
    """
    block = torch.arange(x.shape[1], device=x.device) // size
    bias = torch.zeros(1, 1, 1, x.shape[1], dtype=x.dtype, device=x.device)
    if attention_mask is not None:  # the lowest number, which all of a block may share, but not -inf
        bias = bias.masked_fill(attention_mask[:, None, None, :] == 0, torch.finfo(x.dtype).min)
    return bias.masked_fill(block != block[:, None], float("-inf"))
