"""Sequences that get half as long from block to block."""

from __future__ import annotations

import pytest
import torch

from mapper.operations import funnel


def test_the_first_position_stands_with_the_second_pair_by_pair():
    x = torch.arange(5.0)[None, :, None]
    assert funnel.halve_states(x, 1).flatten().tolist() == [0, 1.5, 3]
    assert funnel.halve_states(x, 0) is x
    with pytest.raises(ValueError, match="2 positions before block 2: too few"):
        funnel.halve_states(x[:, :2], 2)


def test_segments_and_masks_are_halved_with_them():
    ids = torch.tensor([[2, 0, 0, 1, 1]])
    assert funnel.halve_segments(ids, 1).tolist() == [[2, 0, 1]]
    assert funnel.halve_mask(torch.tensor([[1, 1, 1, 0, 0]]), 1).tolist() == [[1, 1, 0]]
    assert funnel.halve_mask(None, 1) is None


def test_distances_are_counted_in_positions_of_the_input():
    torch.manual_seed(0)
    kernel, q = torch.randn(8, 2, 4), torch.randn(1, 2, 6, 4)
    fine = funnel.distance_scores_halved(q, q, kernel, 0)
    coarse = funnel.distance_scores_halved(q[:, :, ::2], q[:, :, ::2], kernel, 1)
    torch.testing.assert_close(coarse, fine[:, :, ::2, ::2])
    pairs = torch.cat(
        (q[:, :, :1], q[:, :, 1::2]), dim=2
    )  # a pair stands at the first of its places: 1, 3, 5
    halved = funnel.distance_scores_halved(pairs, q, kernel, 1)
    torch.testing.assert_close(halved[:, :, 1:], fine[:, :, 1::2])
