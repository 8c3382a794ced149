"""Series apart into a trend and what moves around it."""

from __future__ import annotations

import torch

from mapper.operations import decomposition


def test_an_average_repeats_the_ends():
    x = torch.tensor([1.0, 2.0, 6.0])[None, :, None]
    torch.testing.assert_close(decomposition.moving_average(x, 3).flatten(), torch.tensor([4, 9, 14]) / 3)


def test_a_series_that_repeats_is_read_one_period_later():
    wave = torch.zeros(1, 1, 8, 1)
    wave[:, :, ::4] = 30.0  # alike after 0 and 4 steps alone: factor 1 takes two delays
    v = torch.arange(8.0)[None, None, :, None]
    y = decomposition.autocorrelation(wave, wave, v, 1)
    torch.testing.assert_close(y, (v + v.roll(-4, dims=2)) / 2)


def test_a_short_past_is_read_as_if_zeros_followed():
    q, k = torch.randn(1, 2, 6, 4), torch.randn(1, 2, 4, 4)
    longer = torch.cat((k, torch.zeros(1, 2, 2, 4)), dim=2)
    cut = torch.cat((q[:, :, :2], torch.zeros(1, 2, 4, 4)), dim=2)
    torch.testing.assert_close(
        decomposition.autocorrelation(q, k, k, 1), decomposition.autocorrelation(cut, longer, longer, 1)
    )
