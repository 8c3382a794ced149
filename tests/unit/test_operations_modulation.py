"""Operations of diffusion transformers."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from mapper.operations.modulation import (
    centred_positions,
    centred_sinusoids,
    image_of_patches,
    map_of_patches,
    map_positions,
    middle_positions,
    modulated,
    rotary_tables_of_axes,
)
from mapper.operations.positions import sinusoids


def test_rows_are_normalised_scaled_and_shifted():
    x, shift, scale = torch.randn(2, 3, 4), torch.randn(2, 4), torch.randn(2, 4)
    normal = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-6).sqrt()
    wanted = normal * (1 + scale)[:, None] + shift[:, None]
    torch.testing.assert_close(modulated(x, shift, scale), wanted)


def test_each_axis_turns_its_own_channels():
    cos, sin = rotary_tables_of_axes(torch.tensor([[0.0, 3.0], [2.0, 1.0]]), (2, 4), 10000.0)
    angles = torch.tensor([[0.0, 3.0, 0.03], [2.0, 1.0, 0.01]])
    torch.testing.assert_close(cos[0, 0], angles.cos())
    torch.testing.assert_close(sin[0, 0], angles.sin())


def test_the_middle_of_a_table_is_taken():
    table = torch.arange(16.0).view(1, 16, 1)
    assert middle_positions(table, 2, 2).flatten().tolist() == [5, 6, 9, 10]


def test_places_of_a_map_are_in_the_order_of_its_rows():
    places = map_positions(torch.zeros(2, 5, 1, 2, 2))
    assert places.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]]


def test_places_of_images_are_counted_from_their_middle_and_words_come_behind():
    places = centred_positions(torch.tensor([[1, 3, 2], [1, 1, 1]]), 2)
    assert places[:2].tolist() == [[1, 1, 1], [2, 2, 2]]
    assert places[2:].tolist() == [
        [0, -2, -1], [0, -2, 0], [0, -1, -1], [0, -1, 0], [0, 0, -1], [0, 0, 0], [1, -1, -1]
    ]  # fmt: skip


def test_columns_come_before_rows_in_sinusoids_of_places():
    table = centred_sinusoids(torch.zeros(1), 2, 4, 8, 4)[0]
    row, column = 2.0, 3.0  # of the last of two rows and four columns, counted as if there were four of each
    wanted = [math.sin(column), math.sin(column / 100), math.cos(column), math.cos(column / 100)]
    torch.testing.assert_close(table[-1, :4], torch.tensor(wanted))
    assert math.isclose(float(table[-1, 4]), math.sin(row), rel_tol=1e-5)


def test_patches_are_the_places_of_a_map_again():
    image = torch.randn(2, 3, 4, 6)
    rows = F.unfold(image, 2, stride=2).transpose(1, 2).unflatten(2, (3, 4)).transpose(2, 3).flatten(2)
    assert torch.equal(image_of_patches(rows, 2, 3, 2), image)


def test_timesteps_may_have_cosines_first_and_reach_the_last_frequency():
    x, steps = torch.zeros(1), torch.tensor([2.5])
    found = sinusoids(x, steps, 4, True, 1)[0]
    wanted = [math.cos(2.5), math.cos(2.5e-4), math.sin(2.5), math.sin(2.5e-4)]
    torch.testing.assert_close(found, torch.tensor(wanted))
    assert math.isclose(float(sinusoids(x, steps, 4, False, 0)[0, 1]), math.sin(0.025), rel_tol=1e-5)


def test_patches_of_a_video_come_back_to_their_places():
    video = torch.randn(2, 3, 4, 6, 4)
    cut = video.unfold(2, 2, 2).unfold(3, 3, 3).unfold(4, 1, 1)  # (B, C, 2, 2, 4, 2, 3, 1)
    rows = cut.permute(0, 2, 3, 4, 5, 6, 7, 1).flatten(4).flatten(1, 3)
    torch.testing.assert_close(map_of_patches(rows, (2, 2, 4), (4, 6, 4)), video, rtol=0, atol=0)
