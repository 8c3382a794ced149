"""Factors on queries that grow with their positions."""

from __future__ import annotations

import torch

from mapper.operations.convolution import positions_by_convolution
from mapper.operations.positions import (
    crop_positions,
    cut_positions,
    image_sinusoids,
    nearest_positions,
    resize_positions,
    stretch_positions,
    video_sinusoids,
)


def test_positions_are_cut_for_a_smaller_image_and_fitted_to_a_larger_one():
    table = torch.randn(1, 5, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(cut_positions(table, 2, 2), table)
    assert torch.equal(cut_positions(table[0], 1, 2), table[:, :3])
    assert torch.equal(cut_positions(table, 3, 4), resize_positions(table, 1, 3, 4))


def test_cropped_positions_are_those_of_a_square_which_an_image_covers():
    table = torch.arange(16.0).view(1, 16, 1)
    assert crop_positions(table, 4, 4).flatten().tolist() == list(range(16))
    assert crop_positions(table, 4, 2).flatten().tolist() == [0, 1, 4, 5, 8, 9, 12, 13]
    assert crop_positions(table, 1, 2).flatten().tolist() == [2.5, 4.5]


def test_each_place_has_the_nearest_position_of_a_square_and_as_many_places_have_its_rows():
    table = torch.arange(4.0).view(1, 4, 1)
    assert nearest_positions(table, 2, 4).flatten().tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert nearest_positions(table, 1, 4) is table


def test_positions_are_stretched_corner_on_corner():
    table = torch.tensor([9.0, 0.0, 1.0, 2.0, 3.0])[None, :, None]
    got = stretch_positions(table, 1, 2, 3)[0, :, 0]
    torch.testing.assert_close(got, torch.tensor([9.0, 0.0, 0.5, 1.0, 2.0, 2.5, 3.0]))


def test_sinusoids_of_an_image_reach_the_longest_wavelength_where_they_are_to():
    x = torch.zeros(1, 6, 8)
    plain, reaching = (image_sinusoids(x, 2, 3, reaches_last)[0] for reaches_last in (False, True))
    index = torch.tensor([0.0, 1.0, 2.0, 0.0, 1.0, 2.0])
    torch.testing.assert_close(plain[:, 1], (index / 100).sin())
    torch.testing.assert_close(reaching[:, 1], (index / 10000).sin())
    torch.testing.assert_close(plain[:, 0], reaching[:, 0])


def test_sinusoids_of_a_video_go_by_column_row_and_frame():
    waves = video_sinusoids(torch.zeros(1, 12, 14), 2, 3)[0]
    index = torch.arange(12.0)
    torch.testing.assert_close(waves[:, 0], (index % 3).sin())
    torch.testing.assert_close(waves[:, 5], (index // 3 % 2 / 10000).sin())
    torch.testing.assert_close(waves[:, 10], (index // 6).cos())
    assert not waves[:, 12:].any()


def test_a_depthwise_convolution_is_added_behind_the_first_layer_alone() -> None:
    x, weight, bias = torch.arange(8.0).view(1, 2, 2, 2), torch.zeros(2, 1, 3, 3), torch.tensor([0.5, 0.0])
    weight[1, 0, 1, 0] = 2.0  # twice the place to the left
    y = positions_by_convolution(x, weight, bias, 0)
    assert (y - x)[0].tolist() == [[[0.5, 0.0], [0.5, 2.0]], [[0.5, 0.0], [0.5, 10.0]]]
    assert positions_by_convolution(x, weight, bias, 1) is x
