"""Time series: scales, lags, patches."""

from __future__ import annotations

import torch

from mapper.operations.series import (
    series_patch_scale,
    series_patches,
    series_quantiles,
    series_running_scale,
)


def test_patches_are_filled_in_front() -> None:
    patches, absent = series_patches(torch.tensor([[1.0, 2.0, -1.0]]), 4, 2, -1.0)
    assert patches.tolist() == [[[0.0, 1.0], [2.0, 0.0]]]
    assert absent.tolist() == [[[1.0, 0.0], [0.0, 1.0]]]


def test_the_scale_is_that_of_the_first_patch_with_three_values() -> None:
    patches = torch.tensor([[[0.0, 0.0, 5.0], [1.0, 2.0, 3.0]]])
    absent = torch.tensor([[[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]])
    mean, deviation = series_patch_scale(patches, absent)
    assert mean.tolist() == [2.0]
    torch.testing.assert_close(deviation, torch.tensor([(2 / 3) ** 0.5]))


def test_running_scales_are_those_of_all_values_so_far() -> None:
    patches = torch.randn(2, 3, 4)
    mean, deviation = series_running_scale(patches, torch.zeros_like(patches))
    for n in range(3):
        values = patches[:, : n + 1].flatten(1)
        torch.testing.assert_close(mean[:, n], values.mean(1))
        torch.testing.assert_close(deviation[:, n], values.std(1, unbiased=False))


def test_quantiles_stand_around_the_forecast() -> None:
    y = torch.tensor([[[1.0, 0.0, 2.0]]])
    assert series_quantiles(y, torch.tensor([[[0.0, 5.0, 8.0]]]), 1).tolist() == [[[1.0, 0.0, 3.0]]]
