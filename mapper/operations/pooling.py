"""One vector per sequence, and lengths after convolutions. x (B, T, W) -> (B, W)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def pool_mean(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Mean over real positions. x (B, T, W), attention_mask (B, T) or None -> (B, W)"""
    if attention_mask is None:
        return x.mean(dim=1)
    real = (attention_mask != 0).unsqueeze(-1).to(x.dtype)
    return (x * real).sum(dim=1) / real.sum(dim=1).clamp(min=1e-9)


def pool_at(x: Tensor, index: Tensor) -> Tensor:
    """The position of each sequence that index names. x (B, T, W), index (B,) -> (B, W)"""
    return x[torch.arange(x.shape[0], device=x.device), index]


def pool_last(x: Tensor, input_ids: Tensor, padding_id: int) -> Tensor:
    """The last position that is not padding, on whichever side that is.

    x (B, T, W), input_ids (B, T) -> (B, W)
    """
    index = torch.arange(x.shape[1], device=x.device)
    return pool_at(x, (index * (input_ids != padding_id)).argmax(dim=-1))


def pool_last_seen(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The last position whose mask is 1. x (B, T, W), attention_mask (B, T) or None -> (B, W)"""
    if attention_mask is None:
        return x[:, -1]
    index = torch.arange(x.shape[1], device=x.device)
    return pool_at(x, (index * (attention_mask != 0)).argmax(dim=-1))


def pool_highest_id(x: Tensor, input_ids: Tensor) -> Tensor:
    """The first position with the highest id, where CLIP's end token is the last of its vocabulary.

    -> (B, W)
    """
    return pool_at(x, input_ids.argmax(dim=-1))


def pool_first_id(x: Tensor, input_ids: Tensor, token_id: int) -> Tensor:
    """The first position that holds token_id; the first of all where none does. x (B, T, W) -> (B, W)"""
    return pool_at(x, (input_ids == token_id).long().argmax(dim=-1))


def pool_last_id(x: Tensor, input_ids: Tensor, token_id: int) -> Tensor:
    """The last position that holds token_id; the first of all where none does. x (B, T, W) -> (B, W)"""
    index = torch.arange(x.shape[1], device=x.device)
    return pool_at(x, (index * (input_ids == token_id)).argmax(dim=-1))


def lengths_after(lengths: Tensor, kernels: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """Lengths after unpadded convolutions, one after another. lengths (B,) -> (B,)"""
    for kernel, stride in zip(kernels, strides, strict=True):
        lengths = (lengths - kernel) // stride + 1
    return lengths


def frame_mask(
    x: Tensor, attention_mask: Tensor | None, kernels: tuple[int, ...], strides: tuple[int, ...]
) -> Tensor | None:
    """Mask of the frames that convolutions made of real samples.

    x (B, T, W), attention_mask (B, samples) -> (B, T)
    """
    if attention_mask is None:
        return None
    lengths = lengths_after(attention_mask.sum(dim=-1), kernels, strides)
    return torch.arange(x.shape[1], device=x.device) < lengths[:, None]


def halved_mask(x: Tensor, mask: Tensor | None, times: int) -> Tensor | None:
    """Mask of the frames that padded convolutions of stride 2, `times` of them, made of real ones.

    x (B, T, W), mask (B, frames) -> (B, T)
    """
    if mask is None:
        return None
    lengths = mask.sum(dim=-1)
    for _ in range(times):
        lengths = (lengths - 1) // 2 + 1
    return torch.arange(x.shape[1], device=x.device) < lengths[:, None]


def zero_frames(x: Tensor, mask: Tensor | None, times: int) -> Tensor:
    """Zeros in the rows of an image of sound that halved_mask hides. x (B, C, T, F), mask (B, frames)"""
    real = halved_mask(x[:, 0], mask, times)
    return x if real is None else x * real[:, None, :, None].to(x.dtype)


def mean_of_pairs(x: Tensor) -> Tensor:
    """The mean of each two neighbours; an odd one at the end is left out. x (B, T, W) -> (B, T // 2, W)"""
    return x[:, : x.shape[1] // 2 * 2].unflatten(1, (-1, 2)).mean(dim=2)


def stack_frames(x: Tensor, count: int) -> Tensor:
    """Each `count` neighbours as one frame, the last filled up with zeros.

    x (B, T, C) -> (B, T / count, count * C)
    """
    B, T, C = x.shape
    return F.pad(x, (0, 0, 0, -T % count)).reshape(B, -1, count * C)


def unstack_frames(x: Tensor, count: int) -> Tensor:
    """Each frame as `count` neighbours. x (B, T, count * C) -> (B, count * T, C)"""
    return x.reshape(x.shape[0], x.shape[1] * count, -1)


def stacked_mask(mask: Tensor | None, count: int) -> Tensor | None:
    """The mask of stacked frames: that of the first of each. mask (B, T) or None"""
    return None if mask is None else mask[:, ::count] != 0
