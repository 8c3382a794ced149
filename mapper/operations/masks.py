"""Masks: boolean, True where a key is seen, (1 or B, 1, 1 or T, S). Built once per forward.

attention_mask is what a caller gives, (B, S) with 1 for real positions and 0 for padding, or None.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def causal_mask(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Hides later keys and padded ones. x (B, T, ...), attention_mask (B, T) or None -> (1 or B, 1, T, T)"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = (index <= index[:, None])[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def sliding_mask(x: Tensor, attention_mask: Tensor | None, window: int, after: int = 0) -> Tensor:
    """Shows each query itself, the window - 1 keys before it and `after` behind. Shapes as in causal_mask"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = ((index <= index[:, None] + after) & (index > index[:, None] - window))[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def causal_mask_at(cache_position: Tensor, length: int, attention_mask: Tensor | None) -> Tensor:
    """A causal mask over a cache of `length` keys for queries that stand at `cache_position` (T,).

    attention_mask (B, S) covers the first S <= length keys. -> (1 or B, 1, T, length)
    """
    index = torch.arange(length, device=cache_position.device)
    mask = (index <= cache_position[:, None])[None, None]
    if attention_mask is None:
        return mask
    seen = F.pad(attention_mask != 0, (0, length - attention_mask.shape[1]), value=True)
    return mask & seen[:, None, None, :]


def chunked_mask_at(cache_position: Tensor, length: int, attention_mask: Tensor | None, size: int) -> Tensor:
    """A chunked mask over a cache of `length` keys for queries that stand at `cache_position` (T,)."""
    index = torch.arange(length, device=cache_position.device)
    mask = causal_mask_at(cache_position, length, attention_mask)
    if attention_mask is None:
        return mask & (cache_position[:, None] // size == index // size)
    first = (attention_mask.cumsum(dim=-1) == 0).sum(dim=-1)[:, None]  # keys of padding before it
    chunk = (cache_position - first).div(size, rounding_mode="floor")
    return mask & (chunk[:, :, None] == (index - first).div(size, rounding_mode="floor")[:, None])[:, None]


def image_blocks(token_type_ids: Tensor | None) -> Tensor | None:
    """A number for each run of positions of type 1, -1 elsewhere. (B, T)"""
    if token_type_ids is None:
        return None
    inside = token_type_ids == 1
    starts = inside & ~F.pad(inside, (1, 0))[:, :-1]
    return torch.where(inside, starts.long().cumsum(1) - 1, -1)


def block_mask(x: Tensor, attention_mask: Tensor | None, blocks: Tensor | None) -> Tensor:
    """A causal mask whose positions also see all of their own block, by numbers from 0 in blocks (B, T)."""
    mask = causal_mask(x, None)
    if blocks is not None:
        same = (blocks[:, None, :] == blocks[:, :, None]) & (blocks[:, None, :] >= 0)
        mask = mask | same[:, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def zero_padding(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Sets padded positions to zero. x (B, T, C), attention_mask (B, T) or None -> (B, T, C)"""
    return x if attention_mask is None else x * (attention_mask != 0).unsqueeze(-1).to(x.dtype)


def short_enough(x: Tensor, length: int) -> Tensor:
    """x, of at most `length` positions: with more, its attention would be sparse, which is not done here.

    x (B, T, C). Raises ValueError.
    """
    if x.shape[1] > length:
        raise ValueError(
            f"{x.shape[1]} positions: beyond {length}, attention is sparse, which is not done here"
        )
    return x


def indexed_mask(q: Tensor, k: Tensor, weights: Tensor, mask: Tensor | None, count: int) -> Tensor:
    """A mask, causal if None, that shows of its keys the `count` with the best scores (DeepSeek-V3.2).

    A score is the weighted sum over heads of what is positive in q @ k.
    q (B, H, T, D), k (B, 1, T, D), weights (B, T, H) -> (B, 1, T, T)
    """
    if mask is None:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()[None, None]
    scores = (q.float() @ k.float().transpose(-1, -2) * q.shape[-1] ** -0.5).relu()  # (B, H, T, T)
    weights = weights.float() * q.shape[1] ** -0.5
    total = (
        (weights[:, :, None] @ scores.transpose(1, 2)).squeeze(2)[:, None].masked_fill(~mask, float("-inf"))
    )
    best = total.topk(min(count, total.shape[-1]), dim=-1).indices
    return mask & torch.zeros_like(total, dtype=torch.bool).scatter(-1, best, True)


def grouped_mask(
    q: Tensor,
    k: Tensor,
    gates: Tensor,
    places: Tensor,
    weights: Tensor,
    attention_mask: Tensor | None,
    count: int,
) -> Tensor:
    """A mask that shows the latest positions, and groups of neighbours with the best scores: `count` keys.

    Groups of G are counted from the first real position; their keys are weighted sums, by gates. A group is
    seen when its last position is; what is behind the last whole group always is. Padding sees everything.
    q (B, H, T, D), k and gates (B, T, D), places (G, D), weights (B, T, H) -> (B, 1, T, T)
    """
    length, size = k.shape[1], places.shape[0]
    real = torch.ones_like(k[..., 0]).bool() if attention_mask is None else attention_mask.bool()
    index = torch.arange(length, device=k.device)
    behind = index - real.long().argmax(-1, keepdim=True)  # the first real position; below 0: padding
    group = behind.div(size, rounding_mode="floor")
    groups = length // size  # what is left over is no whole group
    member = group[:, None] == torch.arange(groups, device=k.device)[:, None]
    member = member & real[:, None]  # (B, groups, T)
    whole = member.sum(-1) == size
    place = places[behind % size]
    logits = (gates.float() + place.float())[:, None].masked_fill(~member[..., None], float("-inf"))
    keys = (logits.softmax(dim=2).nan_to_num().to(k.dtype) * k[:, None]).sum(dim=2)  # (B, groups, D)
    scores = (q.float() @ keys.float().transpose(-1, -2)[:, None] * q.shape[-1] ** -0.5).relu()
    total = (weights.float()[:, :, None] * q.shape[1] ** -0.5 @ scores.transpose(1, 2)).squeeze(2)
    last = (member * index).amax(-1)
    open_groups = whole[:, None] & (last[:, None] <= index[:, None])  # (B, T, groups)
    best = total.masked_fill(~open_groups, float("-inf")).topk(min(count // size, groups), dim=-1).indices
    chosen = open_groups & torch.zeros_like(open_groups).scatter(-1, best, True)
    seen = (chosen.float() @ member.float()) > 0
    visible = real[:, None] & (index <= index[:, None])
    rest = visible & (group[:, None] == visible.sum(-1, keepdim=True).div(size, rounding_mode="floor"))
    return ((seen | rest) | ~real[..., None])[:, None]


def with_source_mask(mask: Tensor | None, source_mask: Tensor | None, x: Tensor, source: Tensor) -> Tensor:
    """A causal mask over T keys and, beside it, which of S states of an encoder are seen: all if None.

    x (B, T, W), source (B, S, W), source_mask (B, 1, 1, S) -> (B, 1, T, T + S)
    """
    own = causal_mask(x, None) if mask is None else mask
    seen = torch.ones(1, dtype=torch.bool, device=x.device) if source_mask is None else source_mask
    shape = (x.shape[0], 1, x.shape[1])
    return torch.cat((own.expand(*shape, -1), seen.expand(*shape, source.shape[1])), dim=-1)
