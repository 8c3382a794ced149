"""Boxes by distributions over bins, by hand."""

from __future__ import annotations

import torch

from mapper.operations.bins import distances_of_bins
from mapper.operations.levels import sample_points


def certain(bins: list[int], count: int) -> torch.Tensor:
    """Logits that are sure of a bin for each side. -> (1, 1, 4 * count)"""
    return (torch.nn.functional.one_hot(torch.tensor(bins), count) * 100.0).flatten()[None, None]


def test_distances_grow_from_the_middle_bin_on() -> None:
    bound, scale = torch.tensor([0.5]), torch.tensor([4.0])  # 2 in all: bins of -4, -2, 0, 2, 4
    found = distances_of_bins(certain([0, 1, 2, 3], 5), bound, scale)
    assert torch.allclose(found, torch.tensor([[[-4.0, -2.0, 0.0, 2.0]]]))
    even = distances_of_bins(torch.zeros(1, 1, 20), bound, scale)
    assert torch.allclose(even, torch.zeros(1, 1, 4), atol=1e-6)


def test_points_of_each_map() -> None:
    v = torch.tensor([1.0, 2.0, 3.0, 4.0, 10.0]).view(1, 1, 5, 1)  # a map of 2 x 2 and one of a place
    places = torch.tensor([[0.25, 0.25], [0.75, 0.75], [0.5, 0.5]]).view(1, 1, 1, 3, 2)
    weights = torch.tensor([0.5, 0.25, 0.25]).view(1, 1, 1, 3)
    found = sample_points(v, [(2, 2), (1, 1)], places, weights, (2, 1))
    assert torch.allclose(found, torch.tensor(0.5 * 1 + 0.25 * 4 + 0.25 * 10).view(1, 1, 1, 1))
    both = sample_points(v, [(2, 2), (1, 1)], places[..., 1:, :], weights[..., 1:], 1)
    assert torch.allclose(both, torch.tensor(0.25 * 4 + 0.25 * 10).view(1, 1, 1, 1))
