"""Patches of several images in one row: frames, places, windows, tables stretched over them."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F

from mapper.operations.grids import (
    blocks_from_rows,
    enclose_images,
    end_rows,
    frame_sinusoids,
    mean_of_frames,
    patch_coordinates,
    patch_images,
    patch_windows,
    positions_at_corners,
    positions_nearest,
    positions_smooth,
    same_frame_mask,
    same_piece_mask,
    sampled_positions,
)

GRID = torch.tensor([[1, 4, 2], [2, 2, 2]])  # one image of 4 x 2 patches, one of two frames of 2 x 2
X = torch.zeros(1, 16, 3)


def test_the_image_of_every_patch() -> None:
    image, index = patch_images(X, GRID)
    assert image.tolist() == [0] * 8 + [1] * 8
    assert index.tolist() == [*range(8), *range(8)]


def test_patches_stand_block_by_block() -> None:
    row, column = patch_coordinates(X, torch.tensor([[1, 4, 4]]), 2)
    assert row.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]
    assert column.tolist() == [0, 1, 0, 1, 2, 3, 2, 3] * 2
    row, column = patch_coordinates(X, GRID, 1)
    assert row.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 0, 0, 1, 1]
    assert column.tolist() == [0, 1] * 8


def test_rows_become_blocks() -> None:
    x = torch.arange(24.0)[None, :, None]
    grid = torch.tensor([[1, 4, 2], [2, 2, 4]])
    row, column = patch_coordinates(x, grid, 2)
    first = torch.tensor([0] * 8 + [8] * 8 + [16] * 8)
    width = torch.tensor([2] * 8 + [4] * 16)
    assert torch.equal(blocks_from_rows(x, grid, 2)[0, :, 0], (first + row * width + column).float())


def test_masks_keep_images_and_frames_apart() -> None:
    assert same_piece_mask(patch_images(X, GRID)[0])[0, 0].sum(1).tolist() == [8] * 16
    assert same_frame_mask(X, GRID)[0, 0].sum(1).tolist() == [8] * 8 + [4] * 8


def test_windows_are_put_together() -> None:
    grid = torch.tensor([[1, 2, 8]])
    order = patch_windows(X, grid, 2, 4).argsort(stable=True)
    assert order.tolist() == list(range(16))  # one row of windows: the blocks stand that way already
    grid = torch.tensor([[1, 4, 4]])
    window = patch_windows(X, grid, 1, 2)
    order = window.argsort(stable=True)
    assert order[:8].tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert same_piece_mask(window[order])[0, 0].float().sum(1).tolist() == [4.0] * 16


def test_a_table_of_the_same_size_stays_as_it_is() -> None:
    table = torch.randn(16, 3)
    grid = torch.tensor([[1, 4, 4]])
    for stretched in (positions_at_corners, partial(sampled_positions, mode="bicubic")):
        torch.testing.assert_close(stretched(table, X, grid, 1), table[None], rtol=0, atol=1e-5)


def test_tables_are_stretched_as_images_are() -> None:
    table, x = torch.randn(16, 3), torch.zeros(1, 42, 3)
    image = table.T.reshape(1, 3, 4, 4)
    for mode, corners, stretched in (
        ("bicubic", False, partial(sampled_positions, mode="bicubic")),
        ("bilinear", False, partial(sampled_positions, mode="bilinear")),
        ("bilinear", True, positions_at_corners),
    ):
        wanted = F.interpolate(image, (6, 7), mode=mode, align_corners=corners).flatten(2).transpose(1, 2)
        got = stretched(table, x, torch.tensor([[1, 6, 7]]), 1)
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-5)


def test_a_table_scaled_smoothly() -> None:
    table = torch.randn(36, 3)
    image = table.T.reshape(1, 3, 6, 6)
    grid = torch.tensor([[1, 2, 4], [1, 9, 5]])
    wanted = [
        F.interpolate(image, (h, w), mode="bilinear", antialias=True).flatten(2).transpose(1, 2)
        for _, h, w in grid.tolist()
    ]
    got = positions_smooth(table, torch.zeros(1, 53, 3), grid, 1)
    torch.testing.assert_close(got, torch.cat(wanted, dim=1), rtol=0, atol=1e-5)


def test_frames_have_waves_and_a_mean() -> None:
    x = torch.randn(1, 16, 4)
    waves = frame_sinusoids(x, GRID)[0]
    assert torch.equal(waves[:8], torch.zeros(8, 4))
    assert waves[8].tolist() == [0, 0, 1, 1]
    assert torch.equal(waves[12], waves[15])
    mean = mean_of_frames(x, GRID, 2)
    assert mean.shape == (3, 4, 4)
    torch.testing.assert_close(mean[0], x[0, :4])
    torch.testing.assert_close(mean[2], (x[0, 8:12] + x[0, 12:]) / 2)


def test_rows_end_and_images_are_enclosed() -> None:
    x = torch.arange(1.0, 6)[:, None]
    grid = torch.tensor([[1, 4, 4], [1, 2, 2]])  # 2 x 2 blocks, and one
    rows = end_rows(x, torch.tensor([0.0]), grid, 2)
    assert rows[:, 0].tolist() == [1, 2, 0, 3, 4, 0, 5, 0]
    whole = enclose_images(rows, torch.tensor([7.0]), torch.tensor([8.0]), grid, 2)
    assert whole[:, 0].tolist() == [7, 1, 2, 0, 3, 4, 0, 8, 7, 5, 0, 8]


def test_patches_of_a_strip_are_placed_and_merged() -> None:
    grid = torch.tensor([[1, 4, 2], [1, 2, 2]])
    x = torch.arange(12.0)[None, :, None]
    blocks = mean_of_frames(x, grid, 2).flatten(1)
    assert blocks.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    table = torch.arange(16.0)[:, None]
    assert positions_nearest(table, x, grid).flatten().tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 8, 10]
