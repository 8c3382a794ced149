"""Streams of which a layer computes one."""

from __future__ import annotations

import torch

from mapper.operations import altup


def test_sizes_are_matched_and_directions_kept():
    y, x = torch.tensor([[3.0, 4.0]]), torch.tensor([[10.0, 0.0]])
    torch.testing.assert_close(altup.match_size(y, x), torch.tensor([[6.0, 8.0]]))


def test_about_a_share_of_normal_values_becomes_nothing():
    x = torch.randn(4, 5000, generator=torch.Generator().manual_seed(0))
    kept = (altup.gaussian_topk(x, 0.9) > 0).float().mean().item()
    assert abs(kept - 0.1) < 0.01
