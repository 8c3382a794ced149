"""Maps of an image in several sizes."""

from __future__ import annotations

import torch

from mapper.operations.features import some_states
from mapper.operations.maps import coarsest_first, patches_as_image, sizes_above, whole_patches


def test_patches_stand_as_an_image_without_the_class_token() -> None:
    x = torch.arange(7.0).view(1, 7, 1)
    pixels = torch.zeros(1, 3, 17, 24)
    assert patches_as_image(x, pixels, 8)[0, 0].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert whole_patches(pixels, 8) == (16, 24)


def test_each_map_goes_to_the_size_of_the_next_finer_one() -> None:
    maps = [torch.zeros(1, 2, side, side + 1) for side in (8, 4, 2)]
    assert [map.shape[2] for map in coarsest_first(maps)] == [2, 4, 8]
    assert sizes_above(maps) == [(4, 5), (8, 9), (16, 18)]


def test_some_states_are_taken_by_number() -> None:
    states = [torch.full((1,), float(index)) for index in range(5)]
    assert [state.item() for state in some_states(states, (1, 4))] == [1, 4]
