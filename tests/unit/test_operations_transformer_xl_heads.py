"""Attention by distance and segment, with heads kept apart, against the formulas written out."""

from __future__ import annotations

import torch

from mapper.operations import transformer_xl as xl


def test_segments_are_the_same_or_not() -> None:
    q, table = torch.randn(1, 2, 3, 4), torch.randn(2, 2, 4)
    scores = xl.segment_scores(q, table, torch.tensor([[0, 1, 0]]))
    torch.testing.assert_close(scores[0, 1, 0, 2], q[0, 1, 0] @ table[0, 1])
    torch.testing.assert_close(scores[0, 1, 0, 1], q[0, 1, 0] @ table[1, 1])
    assert not xl.segment_scores(q, table, None).any()
