"""Factors on queries that grow with their positions."""

from __future__ import annotations

import torch

from mapper.operations.positions import query_temperature_smooth


def test_a_smooth_temperature_is_a_power_of_how_often_a_length_has_been_seen():
    positions = torch.tensor([[0, 7, 23]])
    factors = query_temperature_smooth(torch.zeros(1, 3, 2), positions, 0.5, 8)
    torch.testing.assert_close(factors.flatten(), (1 + (positions[0] + 1) / 8) ** 0.5)
    assert factors.shape == (1, 1, 3, 1)
