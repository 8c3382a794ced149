"""What points and boxes say of an image, and the masks that are found."""

from __future__ import annotations

import torch

from mapper.operations import prompts
from tests.regions import roi_align

TABLE = torch.tensor([[0.25, 0.0], [0.0, 0.25]])
KINDS = tuple(torch.full((1, 4), float(number)) for number in (10, 20, 30, 40, 50))


def test_waves_of_a_map_are_those_of_the_middles_of_its_places() -> None:
    waves = prompts.map_fourier_features(torch.zeros(1, 4, 1, 2), TABLE)
    assert waves.shape == (1, 2, 4)
    assert torch.allclose(
        waves[0], prompts.point_fourier_features(torch.tensor([[0.25, 0.5], [0.75, 0.5]]), TABLE)
    )


def test_points_get_what_their_label_says() -> None:
    points = torch.full((1, 1, 4, 2), 3.5)  # the middle of an image of 8 pixels
    labels = torch.tensor([[[0, 1, -1, -10]]])
    middle = torch.tensor([0.0, 0.0, 1.0, 1.0])
    x = prompts.prompt_points(points, labels, False, 8, TABLE, KINDS[:3])[0, 0]
    assert torch.allclose(x, torch.stack((middle + 10, middle + 20, torch.full((4,), 30.0), torch.zeros(4))))
    alone = prompts.prompt_points(points, None, True, 8, TABLE, KINDS[:3])[0, 0]
    assert alone.shape == (5, 4) and torch.equal(alone[4], torch.full((4,), 30.0))


def test_boxes_are_two_corners_behind_the_points() -> None:
    x = torch.zeros(2, 4, 8, 8)
    boxes, points = torch.zeros(2, 3, 4), torch.zeros(2, 3, 1, 2)
    assert prompts.prompt_vectors(x, points, None, boxes, 8, TABLE, KINDS).shape == (2, 3, 3, 4)
    assert prompts.prompt_vectors(x, points, None, None, 8, TABLE, KINDS).shape == (2, 3, 2, 4)
    assert prompts.prompt_vectors(x, None, None, None, 8, TABLE, KINDS).shape == (2, 1, 0, 4)
    corners = prompts.prompt_vectors(x, None, None, boxes, 8, TABLE, KINDS)
    assert torch.allclose(corners[..., 1, :] - corners[..., 0, :], torch.tensor(10.0))


def test_what_is_of_an_image_stands_before_each_of_its_prompts() -> None:
    asked = torch.zeros(2, 3, 1, 4)
    assert prompts.for_each_prompt(torch.tensor([[5.0], [6.0]]), asked)[:, 0].tolist() == [5, 5, 5, 6, 6, 6]


def test_boxes_are_cut_into_means_of_what_is_inside() -> None:
    """Small and large boxes, several points to a cell, some outside of the map."""
    x = torch.randn(2, 3, 19, 23, generator=torch.Generator().manual_seed(1))
    boxes = torch.rand(2, 5, 4, generator=torch.Generator().manual_seed(2)) * 1.4 - 0.2
    boxes[0, 0, 2:] = 0
    middle, half = boxes[..., :2], boxes[..., 2:] / 2
    sides = torch.cat((middle - half, middle + half), dim=-1) * torch.tensor([23, 19, 23, 19])
    found = prompts.box_samples(x, boxes, 4)
    assert torch.allclose(found, roi_align(x, list(sides), 4), atol=1e-5)


def test_one_row_more_than_the_real_ones_is_real() -> None:
    labels = torch.tensor([[1, 0, -10], [1, 1, 0]])
    assert prompts.mask_with_row_after(labels != -10).long().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]


def test_prompts_stand_after_the_words_and_so_does_their_mask() -> None:
    words, asked = torch.zeros(2, 2, 1), torch.ones(2, 3, 1)
    mask, labels = torch.tensor([[1, 0], [1, 1]]), torch.tensor([[1, -10], [0, 1]])
    found, both = prompts.with_prompts(words, mask, asked, labels)
    assert found[..., 0].tolist() == [[0, 0, 1, 1, 1]] * 2
    assert both is not None and both.long().tolist() == [[1, 0, 1, 1, 0], [1, 1, 1, 1, 1]]
    _, every = prompts.with_prompts(words, None, asked, None)
    assert every is not None and every.all() and every.shape == (2, 5)
    assert prompts.with_prompts(words, mask, None, labels) == (words, mask)


def test_no_rows_are_none() -> None:
    x = torch.zeros(2, 3, 4)
    assert prompts.some_rows(x) is x
    assert prompts.some_rows(x[:, :0]) is None and prompts.some_rows(None) is None
