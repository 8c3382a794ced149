"""Key/value cache: per layer a list of two preallocated (B, K, length, D) tensors, written in place.

Layers that read what an encoder made keep the keys and values of that behind them, once they are known.

A caller makes one with empty_cache and passes it with `start`, the number of positions already in it. Its
shapes never change, so that a step is compiled once. Positions not yet written are hidden by
causal_mask_at.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def empty_cache(
    like: Tensor, batch: int, length: int, sizes: tuple[tuple[int, ...], ...]
) -> list[list[Tensor]]:
    """Caches of `length` positions on the device and in the dtype of a tensor.

    sizes: of each layer (K, D), or (K, D of keys, D of values) -> for each layer two (batch, K, length, D)
    """
    return [
        [like.new_zeros(batch, heads, length, size) for size in (width[0], width[-1])]
        for heads, *width in sizes
    ]


def layer_caches(past: list[list[Tensor]] | None, layers: int) -> list[list[Tensor] | None]:
    """One cache per layer, or None for each where there is no cache."""
    return [None] * layers if past is None else list(past)


def cache_length(x: Tensor, past: list[list[Tensor]] | None) -> int:
    """Number of keys that attention will see: the cache's length, or that of x without one. x (B, T, ...)"""
    return x.shape[1] if past is None else past[0][0].shape[2]


def new_cache_positions(x: Tensor, start: Tensor | int | None) -> Tensor:
    """Where the positions of x stand in the whole sequence: start, start + 1, ... x (B, T, ...) -> (T,)"""
    index = torch.arange(x.shape[1], device=x.device)
    return index if start is None else index + start


def cache_positions(cache_position: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or those of the whole sequence. cache_position (T,) -> (B or 1, T)"""
    return cache_position[None] if position_ids is None else position_ids


def cache_positions_of_mask(cache_position: Tensor, length: int, attention_mask: Tensor | None) -> Tensor:
    """Counts the real keys of a cache from 0; padding gets 0. attention_mask (B, S) covers the first S keys.

    -> (B or 1, length)
    """
    if attention_mask is None:
        return torch.arange(length, device=cache_position.device)[None]
    real = F.pad((attention_mask != 0).long(), (0, length - attention_mask.shape[1]), value=1)
    return (real.cumsum(dim=1) - 1) * real


def extend_cache(
    past: list[Tensor] | None, k: Tensor, v: Tensor, cache_position: Tensor
) -> tuple[Tensor, Tensor]:
    """Writes new keys and values in place and gives all of them; without a cache the new ones.

    past two (B, K, length, D), k and v (B, K, T, D), cache_position (T,) -> two (B, K, length, D)
    """
    if past is None:
        return k, v
    return past[0].index_copy_(2, cache_position, k), past[1].index_copy_(2, cache_position, v)


def cross_attention_cache(
    past: list[list[Tensor]] | None, encoder_hidden_states: Tensor | None
) -> list[list[Tensor]] | None:
    """Caches that hold nothing of an earlier source, unless the caller has what was made of this one."""
    if past is not None and encoder_hidden_states is None:
        for layer_cache in past:
            del layer_cache[2:]
    return past


def cached_keys_values(past: list[Tensor] | None) -> tuple[Tensor, Tensor] | None:
    """Keys and values of the source, two (B, K, S, D), or None while a cache does not hold them."""
    return None if past is None or len(past) < 4 else (past[2], past[3])


def keep_keys_values(past: list[Tensor] | None, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keeps keys and values of the source in a cache, if there is one, and gives them back."""
    if past is not None:
        past[2:] = [k, v]
    return k, v
