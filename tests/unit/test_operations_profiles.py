"""Profiles over distances, convolutions beside a residual, experts that all positions share."""

from __future__ import annotations

import torch

from mapper.operations.profiles import (
    profile_bias,
)


def test_profiles_reach_back_so_far() -> None:
    bias = profile_bias(torch.ones(1, 1, 4, 1), torch.tensor([[1.0, 2.0]]))
    assert bias[0, 0].tolist() == [[1, 0, 0, 0], [2, 1, 0, 0], [0, 2, 1, 0], [0, 0, 2, 1]]
