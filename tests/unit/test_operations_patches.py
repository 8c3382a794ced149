"""Patches in a row and as images: tokens, positions, windows."""

from __future__ import annotations

import torch

from mapper.operations.patches import (
    fold_neighbours,
    image_coordinates,
    mask_patches,
    prepend_token,
    random_patches,
    real_patches,
    spread_positions,
)
from mapper.operations.positions import resize_positions


def test_a_token_of_any_rank_stands_before_every_sequence():
    x = torch.randn(3, 5, 4)
    for token in (torch.randn(4), torch.randn(1, 1, 4)):
        y = prepend_token(token, x)
        assert y.shape == (3, 6, 4)
        assert torch.equal(y[:, 0], token.reshape(1, 4).expand(3, 4))
        assert torch.equal(y[:, 1:], x)


def test_neighbours_are_folded_by_rows_and_columns_before_frames():
    x = torch.arange(8.0).reshape(1, 2, 2, 2, 1)
    assert fold_neighbours(x, 1).shape == x.shape
    squares = fold_neighbours(x, 4)
    assert squares.shape == (1, 2, 1, 1, 4)
    assert squares.flatten().tolist() == list(range(8))
    assert torch.equal(fold_neighbours(squares, 8), fold_neighbours(x, 8))
    grid = torch.arange(16.0).reshape(1, 1, 4, 4, 1)
    assert fold_neighbours(grid, 4)[0, 0, 0, 1].tolist() == [2, 3, 6, 7]


def test_each_row_of_patches_has_an_order_of_its_own_behind_the_first_positions():
    x = torch.arange(40.0).reshape(1, 20, 2).expand(3, -1, -1)
    torch.manual_seed(0)
    y = random_patches(x, 1)
    assert torch.equal(y[:, 0], x[:, 0])
    assert torch.equal(y.sort(dim=1).values, x)
    assert not torch.equal(y[0], y[1])
    torch.manual_seed(0)
    assert torch.equal(random_patches(x, 1), y)


def test_masked_patches_become_the_token():
    x, token = torch.randn(2, 6, 4), torch.randn(1, 4)
    masked = torch.arange(12).reshape(2, 6) % 3 == 0
    y = mask_patches(x, token, masked)
    assert torch.equal(y[masked], token.expand(4, 4))
    assert torch.equal(y[~masked], x[~masked])


def test_patches_side_by_side_are_masked_row_by_row():
    x, token = torch.randn(2, 2, 3, 4), torch.randn(1, 1, 4)
    masked = torch.arange(12).reshape(2, 6) % 2 == 0
    y = mask_patches(x, token, masked)
    assert torch.equal(y.flatten(1, 2), mask_patches(x.flatten(1, 2), token, masked))


def test_no_mask_changes_nothing():
    x = torch.randn(2, 6, 4)
    assert mask_patches(x, torch.randn(4), None) is x


def test_a_table_that_is_no_square_stays_as_it_is():
    table = torch.randn(1, 1 + 2 * 3, 4)
    assert torch.equal(resize_positions(table, 1, 2, 3), table)


def test_patches_of_images_that_are_padding_are_left_out():
    pixels = torch.randn(2, 2, 3, 4, 4)
    pixels[1, 0] = 0
    mask = torch.ones(2, 2, 4, 4, dtype=torch.bool)
    mask[0, 1, 3] = False
    for whole, last in ((True, [False, False]), (False, [True, True])):
        seen = real_patches(pixels, mask, 2, whole)
        assert seen.shape == (3, 2, 2)
        assert seen[1].tolist() == [[True, True], last]
    assert real_patches(pixels, None, 2, True) is None


def test_positions_of_a_square_are_spread_over_other_shapes():
    table, patches = torch.arange(16.0)[:, None], torch.zeros(1, 1, 2, 4)
    assert spread_positions(table, patches, None).flatten().tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    seen = torch.tensor([[[True, True, False, False], [True, True, False, False]]])
    assert spread_positions(table, patches, seen).flatten().tolist() == [0, 2, 0, 0, 8, 10, 0, 0]


def test_rows_and_columns_of_an_image() -> None:
    rows, columns = image_coordinates(torch.zeros(1, 3, 9, 12), 4)
    assert rows.tolist() == [0, 0, 0, 1, 1, 1]
    assert columns.tolist() == [0, 1, 2, 0, 1, 2]
