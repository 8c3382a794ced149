"""Operations of image encoders: class tokens, left out patches, windows of a map, biases and boxes by place."""

from __future__ import annotations

import torch

from mapper.operations.boxes import patch_box_bias
from mapper.operations.detection import (
    box_sinusoids,
    inverse_sigmoid,
    refine_boxes,
    side_distances,
)
from mapper.operations.grids import grids_of_images, pack_images
from mapper.operations.patches import keep_some
from mapper.operations.positions import image_sinusoids, tile_positions
from mapper.operations.windows import (
    image_bias,
    log_offsets,
    merge_map,
    offset_bias,
    partition_map,
    side_shift,
    square_biases,
)


def test_the_positions_with_the_highest_noise_are_left_out() -> None:
    x, noise = torch.arange(4.0).view(1, 4, 1), torch.tensor([[0.3, 0.1, 0.9, 0.2]])
    kept, left_out, place = keep_some(x, 0.5, noise)
    assert kept.flatten().tolist() == [1, 3]
    assert left_out.tolist() == [[1, 0, 1, 0]]
    assert place.tolist() == [[2, 0, 3, 1]]


def test_a_map_is_cut_and_joined_again() -> None:
    x = torch.randn(2, 5, 7, 3)
    for size in (0, 3):
        assert torch.equal(merge_map(partition_map(x, size), x, size), x)
    assert partition_map(x, 3).shape == (12, 3, 3, 3)


def test_windows_that_span_a_side_are_not_shifted() -> None:
    assert [side_shift(side, 8, 4) for side in (4, 8, 9, 16)] == [0, 0, 4, 4]


def test_the_class_token_has_biases_of_its_own() -> None:
    table = torch.arange(12.0)[:, None]  # (2 * 2 - 1) ** 2 + 3
    bias = image_bias(table, 2, 2)[0, 0]
    assert bias[0].tolist() == [11, 9, 9, 9, 9]
    assert bias[1:, 0].tolist() == [10] * 4
    assert bias[1:, 1:].tolist() == [[4, 3, 1, 0], [5, 4, 2, 1], [7, 6, 4, 3], [8, 7, 5, 4]]


def test_scores_by_vertical_and_horizontal_offset() -> None:
    q, rows, columns = (
        torch.ones(1, 1, 4, 1),
        torch.tensor([[1.0], [2], [3]]),
        torch.tensor([[10.0], [20], [30]]),
    )
    bias = offset_bias(q, rows, columns, torch.zeros(1, 2, 2, 1))[0, 0]
    assert bias[0].tolist() == [22, 12, 21, 11]
    assert bias[3].tolist() == [33, 23, 32, 22]


def test_offsets_on_a_logarithmic_scale() -> None:
    offsets = log_offsets(torch.zeros(1), 2, 0)
    assert offsets.shape == (9, 2)
    torch.testing.assert_close(offsets[-1], torch.full((2,), 9.0).log2() / 3)
    assert log_offsets(torch.zeros(1), 2, 5)[-1, 0] < offsets[-1, 0]


def test_positions_laid_beside_each_other() -> None:
    tiled = tile_positions(torch.arange(4.0).view(1, 4, 1), 3, 5)[0, :, :, 0]
    assert tiled.tolist() == [[0, 1, 0, 1, 0], [2, 3, 2, 3, 2], [0, 1, 0, 1, 0]]


def test_waves_by_column_then_row() -> None:
    x = torch.zeros(1, 6, 4)
    waves = image_sinusoids(x, 2, 3)[0]
    torch.testing.assert_close(waves[5], torch.tensor([2.0, 2.0, 1.0, 1.0]).sin() * torch.tensor([1.0, 0, 1, 0])
                               + torch.tensor([2.0, 2.0, 1.0, 1.0]).cos() * torch.tensor([0.0, 1, 0, 1]))  # fmt: skip


def test_images_of_different_sizes_in_one_row() -> None:
    pixels = torch.zeros(2, 3, 8, 8)
    grid = grids_of_images(pixels, torch.tensor([[8, 4], [4, 8]]), 4)
    assert grid.tolist() == [[1, 2, 1], [1, 1, 2]]
    assert grids_of_images(pixels, None, 4).tolist() == [[1, 2, 2]] * 2
    patches = torch.arange(8.0).view(2, 1, 2, 2)
    assert pack_images(patches, grid).flatten().tolist() == [0, 2, 4, 5]


def test_boxes_around_their_patches() -> None:
    box = patch_box_bias(torch.zeros(1, 6, 3), 2, 3).sigmoid()
    torch.testing.assert_close(box[1], torch.tensor([2 / 3, 1 / 2, 1 / 3, 1 / 2]), atol=1e-3, rtol=0)


def test_boxes_are_moved_before_sigmoid() -> None:
    boxes = torch.tensor([[[0.5, 0.25, 0.75, 0.5]]])
    assert torch.allclose(inverse_sigmoid(boxes).sigmoid(), boxes)
    assert torch.allclose(inverse_sigmoid(torch.tensor([0.0, 1.0]), 0.1), torch.tensor([0.1, 10.0]).log())
    maps = (torch.eye(4), torch.zeros(4), torch.eye(4), torch.zeros(4), torch.eye(4), torch.zeros(4))
    moved = refine_boxes(torch.tensor([[[-1.0, 0.0, 0.0, 2.0]]]), boxes, maps)
    assert torch.allclose(moved, torch.tensor([[[0.5, 0.25, 0.75, torch.tensor(2.0).sigmoid()]]]))


def test_distances_to_the_sides_of_boxes_are_signed_logarithms() -> None:
    """Of rows at 0, 1/2 and columns at 0, 1/4, 1/2, 3/4 from a box of 1/4 to 3/4 across, 0 to 1/2 down."""
    boxes = torch.tensor([[[0.5, 0.25, 0.5, 0.5]]])
    rows, columns = side_distances(boxes, torch.zeros(1, 3, 2, 4))
    quarter, half = torch.tensor(3.0).log2().item() / 3, torch.tensor(5.0).log2().item() / 3
    torch.testing.assert_close(rows[0, 0], torch.tensor([[0.0, -half], [half, 0.0]]))
    wanted = [[-quarter, -torch.tensor(7.0).log2().item() / 3], [0, -half], [quarter, -quarter], [half, 0]]
    torch.testing.assert_close(columns[0, 0], torch.tensor(wanted))


def test_boxes_have_waves_of_their_four_numbers() -> None:
    boxes = torch.tensor([[0.5, 0.5, 0.2, 0.4]])
    assert box_sinusoids(boxes, 6, 10000.0).shape == (1, 24)


def test_biases_of_a_square_are_those_of_rows_and_columns_apart() -> None:
    table = torch.arange(9.0)[None]
    bias = square_biases(table, 2)
    assert bias.shape == (1, 4, 9)
    for query, (row, column) in enumerate([(0, 0), (0, 2), (2, 0), (2, 2)]):
        wanted = [abs(row - y) * 3 + abs(column - x) for y in range(3) for x in range(3)]
        assert bias[0, query].tolist() == wanted
    assert square_biases(table, 1).shape == (1, 9, 9)
