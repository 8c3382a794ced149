"""Key/value cache: per layer one pair of preallocated (B, K, length, D) tensors, written in place.

A caller makes one with empty_cache and passes it with `start`, the number of positions already in it. Its
shapes never change, so that a step is compiled once. Positions not yet written are hidden by
causal_mask_at.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def empty_cache(
    like: Tensor, batch: int, length: int, sizes: list[tuple[int, int]]
) -> list[tuple[Tensor, Tensor]]:
    """Caches of `length` positions on the device and in the dtype of a tensor. sizes: (K, D) of each layer.

    -> for each layer two (batch, K, length, D)
    """
    shapes = [(batch, heads, length, size) for heads, size in sizes]
    return [(like.new_zeros(shape), like.new_zeros(shape)) for shape in shapes]


def layer_caches(past: list[tuple[Tensor, Tensor]] | None, layers: int) -> list[tuple[Tensor, Tensor] | None]:
    """One cache per layer, or None for each where there is no cache."""
    return [None] * layers if past is None else list(past)


def cache_length(x: Tensor, past: list[tuple[Tensor, Tensor]] | None) -> int:
    """Number of keys that attention will see: the cache's length, or that of x without one. x (B, T, ...)"""
    return x.shape[1] if past is None else past[0][0].shape[2]


def cache_slots(x: Tensor, start: Tensor | int | None) -> Tensor:
    """Where the positions of x stand in the whole sequence: start, start + 1, ... x (B, T, ...) -> (T,)"""
    index = torch.arange(x.shape[1], device=x.device)
    return index if start is None else index + start


def cache_positions(slots: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or where the new ones stand in the whole sequence. slots (T,) -> (B or 1, T)"""
    return slots[None] if position_ids is None else position_ids


def cache_positions_of_ids(
    input_ids: Tensor, slots: Tensor, position_ids: Tensor | None, padding_id: int
) -> Tensor:
    """The caller's positions, or those of the real tokens behind slots[0] earlier ones. (B, T)

    Counted from padding_id + 1; padding gets padding_id.
    """
    if position_ids is not None:
        return position_ids
    real = (input_ids != padding_id).long()
    return (real.cumsum(dim=1) + slots[0]) * real + padding_id


def cache_positions_of_mask(slots: Tensor, length: int, attention_mask: Tensor | None) -> Tensor:
    """Counts the real keys of a cache from 0; padding gets 0. attention_mask (B, S) covers the first S keys.

    -> (B or 1, length)
    """
    if attention_mask is None:
        return torch.arange(length, device=slots.device)[None]
    real = F.pad((attention_mask != 0).long(), (0, length - attention_mask.shape[1]), value=1)
    return (real.cumsum(dim=1) - 1) * real


def cache_positions_seen(
    slots: Tensor, length: int, position_ids: Tensor | None, attention_mask: Tensor | None
) -> Tensor:
    """The caller's positions, or those of the real keys of a cache, at slots (T,). -> (B or 1, T)"""
    if position_ids is not None:
        return position_ids
    return cache_positions_of_mask(slots, length, attention_mask)[:, slots]


def extend(past: tuple[Tensor, Tensor] | None, k: Tensor, v: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
    """Writes new keys and values at slots, in place, and gives all of them; without a cache the new ones.

    past two (B, K, length, D), k and v (B, K, T, D), slots (T,) -> two (B, K, length, D)
    """
    if past is None:
        return k, v
    return past[0].index_copy_(2, slots, k), past[1].index_copy_(2, slots, v)
