"""Images in tiles: which tiling an image gets, and how the vectors of its tiles become rows of one map."""

from __future__ import annotations

import torch

from mapper.operations.tiles import (
    best_size,
    bounded_map,
    image_tiles,
    join_tiles,
    join_tiles_first,
    states_read,
    tile_grids,
    tile_mask,
    without_border,
)

SIZES = [[8, 16], [16, 8], [16, 16]]


def test_the_size_that_shows_most_of_an_image_wins() -> None:
    assert best_size([10, 40], SIZES) == [8, 16]
    assert best_size([16, 16], SIZES) == [16, 16]
    assert best_size([4, 4], SIZES) == [8, 16]  # all show it whole: the first of the smallest


def test_images_beside_others_are_not_cut() -> None:
    sizes = torch.tensor([[10, 40], [16, 16], [16, 16]])
    assert tile_grids(sizes, SIZES, 8) == [(1, 2), (2, 2), (2, 2)]
    assert tile_grids(sizes, SIZES, 8, torch.tensor([1, 2])) == [(1, 2), (0, 0), (0, 0)]


def test_padding_among_tiles_is_left_out() -> None:
    pixels = torch.arange(10.0).reshape(2, 5, 1, 1, 1)
    assert image_tiles(pixels, [(1, 2), (0, 0)]).flatten().tolist() == [0, 1, 2, 5]
    assert image_tiles(pixels[0], [(1, 2)]) is not None


def test_a_border_is_cut_off() -> None:
    x = torch.arange(24.0).reshape(1, 4, 6)
    assert torch.equal(without_border(x, [10, 30]), x[:, 1:3])
    assert torch.equal(without_border(x, [20, 10]), x[:, :, 2:4])


def test_a_map_is_bounded() -> None:
    x = torch.randn(2, 8, 8)
    assert bounded_map(x, 64) is x
    assert bounded_map(x, 16).shape == (2, 4, 4)


def test_rows_of_tiles_end_with_a_line_end() -> None:
    whole, left, right = torch.zeros(4), torch.tensor([1.0, 2, 5, 6]), torch.tensor([3.0, 4, 7, 8])
    x = torch.stack((whole, left, right))[..., None]
    found = join_tiles(x, torch.tensor([[2, 4]]), [(1, 2)], torch.tensor([9.0]), 2)
    assert found.flatten().tolist() == [0, 0, 0, 0, 1, 2, 3, 4, 9, 5, 6, 7, 8, 9]
    alone = join_tiles(x[:1], torch.tensor([[2, 4]]), [(0, 0)], torch.tensor([9.0]), 2)
    assert alone.flatten().tolist() == [0, 0, 0, 0, 9]


def test_padding_of_tiles_is_hidden_from_padding_alone() -> None:
    mask = tile_mask(torch.zeros(1, 2, 3, 4), torch.tensor([[1, 0]]), 2)
    hidden = (mask[0, 0] < 0).tolist()
    assert hidden[0] == hidden[1] == [False] * 6
    assert hidden[2] == hidden[4] == [False, False, True, True, True, True]


def test_a_layer_that_reads_images_reads_nothing_without_any() -> None:
    x = torch.ones(1)
    assert states_read(x, None, True) is None
    assert states_read(x, None, False) is x


def test_tiles_stand_before_the_whole_and_each_row_has_an_end() -> None:
    wholes = torch.arange(8.0).reshape(2, 4, 1)
    tiles = torch.arange(10.0, 18.0).reshape(2, 4, 1)  # side by side
    line, end = torch.tensor([-1.0]), torch.tensor([-2.0])
    got = join_tiles_first(wholes, tiles, torch.tensor([2, 0]), torch.tensor([[2, 1], [1, 1]]), line, end)
    first = [10, 11, 14, 15, -1, 12, 13, 16, 17, -1, 0, 1, -1, 2, 3, -1, -2]
    assert got.flatten().tolist() == [*first, 4, 5, -1, 6, 7, -1, -2]
    alone = join_tiles_first(wholes[1:], None, None, None, line, end)
    assert alone.flatten().tolist() == [4, 5, -1, 6, 7, -1, -2]
