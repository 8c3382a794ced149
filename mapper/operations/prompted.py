"""Learned vectors that stand before a text, with biases and masks of what is read behind (CPM-Ant)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def hidden_before(bias: Tensor, input_ids: Tensor) -> Tensor:
    """A bias that hides padding, which stands before a text and behind its prompt, as query and as key.

    Word 0 is padding: of T words, the last are read, as many as are not 0. A query that is hidden sees none.
    bias (B, H, P + T, P + T), input_ids (B, T)
    """
    length = input_ids.shape[1]
    place = torch.arange(length, device=input_ids.device)
    seen = place >= length - (input_ids != 0).sum(dim=1, keepdim=True)
    seen = F.pad(seen, (bias.shape[-1] - length, 0), value=True)
    return bias.masked_fill(~(seen[:, None, :, None] & seen[:, None, None, :]), float("-inf"))
