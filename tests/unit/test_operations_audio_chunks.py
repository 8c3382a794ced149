"""Sounds in one row, cut into chunks."""

from __future__ import annotations

import torch

from mapper.operations.audio_chunks import (
    chunk_lengths,
    mean_of_sound_pairs,
    split_into_chunks,
)

LENGTHS = torch.tensor([5, 4, 3])


def test_the_last_chunk_of_a_sound_has_what_is_left() -> None:
    assert chunk_lengths(LENGTHS, 4).tolist() == [4, 1, 4, 3]
    x = torch.arange(1.0, 13)[None]
    chunks = split_into_chunks(x, LENGTHS, 4)
    assert chunks[:, 0].tolist() == [[1, 2, 3, 4], [5, 0, 0, 0], [6, 7, 8, 9], [10, 11, 12, 0]]


def test_pairs_are_of_one_sound() -> None:
    x = torch.arange(7.0).view(1, 7, 1)
    assert mean_of_sound_pairs(x, LENGTHS)[:, 0].tolist() == [0.5, 3.5, 5.5]
