"""Learned vectors that stand before a text, with biases and masks of what is read behind (CPM-Ant)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def prompted_ids(input_ids: Tensor, first: int, count: int) -> Tensor:
    """Rows first, first + 1, ... of the word embedding, then the words. (B, T) -> (B, count + T)"""
    prompt = torch.arange(first, first + count, device=input_ids.device)
    return torch.cat((prompt.expand(input_ids.shape[0], -1), input_ids.long()), dim=1)


def prompted_segments(input_ids: Tensor, count: int) -> Tensor:
    """Segment 2 for words, 0 for the prompt and for padding, which is word 0. (B, T) -> (B, count + T)"""
    return F.pad((input_ids != 0).long() * 2, (count, 0))


def segment_buckets(buckets: Tensor, segments: Tensor, count: int, kinds: int) -> Tensor:
    """Buckets of distances within a segment; behind these `count`, one for each two segments.

    buckets (T, T), segments (B, T), of which there are so many kinds -> (B, T, T), queries down
    """
    query, key = segments[:, :, None], segments[:, None, :]
    return torch.where(query == key, buckets, query * kinds + key + count)


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
