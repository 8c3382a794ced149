"""Pieces of a waveform that overlap: each by itself, by its loudness, and joined again."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def join_pieces(pieces: list[Tensor], step: int) -> Tensor:
    """The sum of pieces that begin a step apart, weighted by how near a sample is to the middle of its own.

    list of (B, C, T), none longer than the first -> (B, C, T')
    """
    first = pieces[0]
    middle = torch.linspace(0, 1, first.shape[-1] + 2, device=first.device, dtype=first.dtype)[1:-1]
    weight = 0.5 - (middle - 0.5).abs()
    total = first.new_zeros(*first.shape[:-1], step * (len(pieces) - 1) + pieces[-1].shape[-1])
    weights = first.new_zeros(total.shape[-1])
    for index, piece in enumerate(pieces):
        at = slice(index * step, index * step + piece.shape[-1])
        total[..., at] += weight[: piece.shape[-1]] * piece
        weights[at] += weight[: piece.shape[-1]]
    return total / weights


def sum_chunks(x: Tensor, step: int) -> Tensor:
    """The sum of chunks that begin a step apart.

    x (B, C, size, chunks) -> (B, C, T)
    """
    size, chunks = x.shape[2:]
    length = (chunks - 1) * step + size
    folded = F.fold(x.flatten(1, 2), (length, 1), (size, 1), stride=(step, 1))
    return folded[..., 0]
