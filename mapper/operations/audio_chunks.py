"""Sounds of different lengths in one row, cut into chunks that are read apart from each other.

lengths (N,): frames of each sound. A chunk has as many as it may, the last of a sound what is left; a
convolution then halves the frames of each.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def chunk_lengths(lengths: Tensor, size: int) -> Tensor:
    """The frames of every chunk of every sound. -> (chunks,)"""
    counts = (lengths + size - 1) // size
    sizes = torch.full((int(counts.sum()),), size, device=lengths.device)
    sizes[counts.cumsum(0) - 1] = lengths - (counts - 1) * size
    return sizes


def split_into_chunks(x: Tensor, lengths: Tensor, size: int) -> Tensor:
    """Every chunk a row of its own, padded with zeros. x (M, frames) -> (chunks, M, longest)"""
    pieces = x.t().split(chunk_lengths(lengths, size).tolist())
    return nn.utils.rnn.pad_sequence(pieces, batch_first=True).transpose(1, 2)


def mean_of_sound_pairs(x: Tensor, lengths: Tensor) -> Tensor:
    """Two halved frames of a sound become one; one that is left over is dropped. x (1, T, C) -> (pairs, C)"""
    counts = (lengths + 1) // 2
    pairs = counts // 2
    first = torch.repeat_interleave(counts.cumsum(0) - counts, pairs)
    number = torch.arange(len(first), device=x.device)
    number = number - torch.repeat_interleave(pairs.cumsum(0) - pairs, pairs)
    return (x[0, first + 2 * number] + x[0, first + 2 * number + 1]) / 2
