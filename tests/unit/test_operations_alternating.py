"""Streams of which a layer computes one."""

from __future__ import annotations

import torch
from torch import nn

from mapper.operations import alternating


def test_sizes_are_matched_and_directions_kept():
    y, x = torch.tensor([[3.0, 4.0]]), torch.tensor([[10.0, 0.0]])
    torch.testing.assert_close(alternating.match_size(y, x), torch.tensor([[6.0, 8.0]]))


def test_parted_streams_merge_to_their_mean():
    x, maps = torch.randn(2, 3, 4), nn.ModuleList([nn.Identity(), nn.Identity()])
    streams = alternating.part_streams(x, maps)
    assert streams.shape == (3, 2, 3, 4)
    torch.testing.assert_close(alternating.merge_streams(streams, maps), x)


def test_without_weights_streams_stay_and_each_gets_the_gain():
    x, y = torch.randn(3, 2, 5, 4), torch.randn(2, 5, 4)
    assert torch.equal(alternating.predict_streams(x, torch.zeros(2, 5, 9)), x)
    torch.testing.assert_close(alternating.correct_streams(x, y, torch.zeros(2, 5, 3)), x + (y - x[0]))
    one = torch.zeros(2, 5, 9)
    one[..., 1] = 2.0  # the first row's second: twice the second stream for the first
    torch.testing.assert_close(alternating.predict_streams(x, one)[0], x[0] + 2 * x[1])


def test_all_streams_but_the_first_take_more():
    x = alternating.add_to_others(torch.zeros(3, 1, 1, 2), torch.ones(1, 1, 2))
    assert x[:, 0, 0, 0].tolist() == [0, 1, 1]


def test_about_a_share_of_normal_values_becomes_nothing():
    x = torch.randn(4, 5000, generator=torch.Generator().manual_seed(0))
    kept = (alternating.keep_largest(x, 0.9) > 0).float().mean().item()
    assert abs(kept - 0.1) < 0.01


def test_ids_without_a_row_read_the_first():
    assert alternating.in_table(torch.tensor([[0, 4, 5, -1]]), 5).tolist() == [[0, 4, 0, 0]]
