"""Streams that say words further ahead."""

from __future__ import annotations

import torch

from mapper.operations import ngram_streams as hyper_connections


def seen(stream: int, mask: torch.Tensor | None) -> list[list[bool]]:
    """Which of 4 positions of the main stream, and behind them of its own, each of a stream sees: two streams ahead."""
    q = torch.zeros(1, 1, 12, 8)
    v = torch.zeros(1, 1, 12, 8)
    v[0, 0, :4, :4], v[0, 0, stream * 4 : stream * 4 + 4, 4:] = torch.eye(4), torch.eye(4)
    out = hyper_connections.attend_ngram(q, q, v, torch.zeros(1, 12, 6), mask, 2, 8)
    return [(row > 0).tolist() for row in out[0, 0, stream * 4 : stream * 4 + 4]]


def test_a_stream_sees_what_it_is_ahead_of_the_first_and_itself():
    rows = seen(2, None)
    assert [row[:4] for row in rows] == [
        [True, False, False, False],
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
    ]
    assert [row[4:] for row in rows] == torch.eye(4).bool().tolist()


def test_padding_of_the_main_stream_is_hidden():
    mask = torch.tensor([False, True, True, True])[None, None, None]
    assert seen(1, mask)[3] == [False, True, True, True, False, False, False, True]
