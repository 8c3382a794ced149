"""Maps of an image in several sizes."""

from __future__ import annotations

import torch

from mapper.operations.convolution import smooth_halved
from mapper.operations.features import some_states
from mapper.operations.maps import (
    last_of_sizes,
    map_of_width,
    squared_difference,
)
from mapper.operations.positions import resize_between
from mapper.operations.tubelets import (
    apply_rotary_by_axis,
    at_least_frames,
)


def of_sides(*sides: int) -> list[torch.Tensor]:
    return [torch.full((1, at + 1, side, side), float(at)) for at, side in enumerate(sides)]


def test_the_last_map_of_each_size_stays() -> None:
    assert [map.shape[1] for map in last_of_sizes(of_sides(8, 8, 4, 2, 2))] == [2, 3, 5]


def test_the_map_of_a_width_is_the_coarsest_of_that_width() -> None:
    assert map_of_width(of_sides(8, 4, 2), 2).shape[2] == 4


def test_features_of_two_images_are_compared_as_unit_vectors() -> None:
    x = torch.tensor([[3.0, 4.0], [0.0, 2.0]])[:, :, None, None]
    torch.testing.assert_close(squared_difference(x)[0, :, 0, 0], torch.tensor([0.36, 0.04]))


def test_some_states_are_taken_by_number() -> None:
    states = [torch.full((1,), float(index)) for index in range(5)]
    assert [state.item() for state in some_states(states, (1, 4))] == [1, 4]


def test_positions_between_others_are_fitted_and_the_others_stay() -> None:
    table = torch.randn(2, 1, 1 + 6 + 2, 4)
    same = resize_between(table, 1, 2, (16, 24), torch.zeros(1, 3, 17, 30), 8)
    torch.testing.assert_close(same, table)
    other = resize_between(table, 1, 2, (16, 24), torch.zeros(1, 3, 32, 8), 8)
    assert other.shape == (2, 1, 1 + 4 + 2, 4)
    assert torch.equal(other[:, :, :1], table[:, :, :1]) and torch.equal(other[:, :, -2:], table[:, :, -2:])


PLACES = torch.tensor([[0] * 4 + [1] * 4, [0, 0, 1, 1] * 2, [0, 1] * 4])  # times, rows, columns of 2 x 2


def test_patches_of_a_video_are_turned_by_time_row_and_column() -> None:
    x = torch.randn(1, 2, 8, 20)
    turned = apply_rotary_by_axis(x, PLACES)
    assert torch.equal(turned[:, :, 0], x[:, :, 0])  # the first place turns nothing
    assert torch.equal(turned[..., 18:], x[..., 18:])
    assert at_least_frames(torch.zeros(1, 1, 3, 4, 4), 2).shape[1] == 2


def test_a_head_too_small_for_three_parts_is_not_turned() -> None:
    x = torch.randn(1, 2, 8, 5)
    assert torch.equal(apply_rotary_by_axis(x, PLACES), x)


def test_a_map_is_halved_by_binomial_weights_of_three_places():
    x = torch.zeros(1, 2, 4, 4)
    x[0, 0, 0, 0], x[0, 1, 2, 2] = 16.0, 16.0
    mirrored, beside_zeros = smooth_halved(x, "reflect"), smooth_halved(x, "constant")
    assert mirrored[0, 0].tolist() == [[4.0, 0.0], [0.0, 0.0]]
    assert mirrored[0, 1].tolist() == [[0.0, 0.0], [0.0, 4.0]]
    assert torch.equal(smooth_halved(torch.ones(1, 1, 4, 4), "reflect"), torch.ones(1, 1, 2, 2))
    assert beside_zeros[0, 0].tolist() == [[4.0, 0.0], [0.0, 0.0]]
    assert smooth_halved(torch.ones(1, 1, 4, 4), "constant")[0, 0].tolist() == [[0.5625, 0.75], [0.75, 1.0]]
