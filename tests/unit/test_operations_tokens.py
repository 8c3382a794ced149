"""Vectors of tokens before positions are added."""

from __future__ import annotations

import torch

from mapper.operations import features, positions
from mapper.operations.convolution import convolve_by_position
from mapper.operations.inputs import boxes_of_tokens
from mapper.operations.tokens import with_neighbours, without_masked_tokens


def test_masked_tokens_are_zero_and_the_rest_makes_up_for_them() -> None:
    x, ids = torch.ones(2, 4, 3), torch.tensor([[5, 9, 6, 7], [9, 9, 6, 1]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    y = without_masked_tokens(x, ids, mask, 9)
    assert y[0, 1].tolist() == [0.0] * 3
    torch.testing.assert_close(y[0, 0], torch.full((3,), 0.88 / (1 - 1 / 4)))
    torch.testing.assert_close(y[1, 2], torch.full((3,), 0.88 / (1 - 2 / 3)))
    torch.testing.assert_close(without_masked_tokens(x, ids, None, 9)[1, 2], torch.full((3,), 0.88 / 0.5))


def test_neighbours_stand_beside_every_position() -> None:
    x = torch.arange(1.0, 4.0)[None, :, None]
    assert with_neighbours(x)[0].tolist() == [[2.0, 1.0, 0.0], [3.0, 2.0, 1.0], [0.0, 3.0, 2.0]]


def test_boxes_are_zero_unless_given() -> None:
    ids = torch.ones(2, 3, dtype=torch.long)
    assert boxes_of_tokens(ids, None).shape == (2, 3, 4)
    given = torch.ones(2, 3, 4, dtype=torch.long)
    assert boxes_of_tokens(ids, given) is given


def test_neighbours_are_weighed_by_each_position_and_head() -> None:
    x = torch.randn(2, 5, 6)
    weights = torch.randn(2, 5, 3 * 3)
    y = convolve_by_position(x, weights, 2)
    shares = weights[1, 2].view(3, 3).softmax(-1)
    wanted = torch.cat([shares[head] @ x[1, 1:4, 2 * head : 2 * head + 2] for head in range(3)])
    torch.testing.assert_close(y[1, 2], wanted)
    first = weights[0, 0].view(3, 3).softmax(-1)[0]
    torch.testing.assert_close(y[0, 0, :2], first[1] * x[0, 0, :2] + first[2] * x[0, 1, :2])


def test_rows_of_positions_are_fitted_to_a_length():
    table = torch.tensor([[[[0.0], [1.0]]]])
    assert positions.resize_rows(table, 2)[0, :, 0].tolist() == [0.0, 1.0]
    assert positions.resize_rows(table, 4)[0, :, 0].tolist() == [0.0, 0.25, 0.75, 1.0]


def test_vectors_stand_where_a_mask_says_so():
    x, image = torch.zeros(1, 3, 1), torch.tensor([[[5.0], [6.0]]])
    assert features.place_features_at(x, image, None) is x
    assert features.place_features_at(x, image, torch.tensor([[1, 0, 1]]))[0, :, 0].tolist() == [
        5.0,
        0.0,
        6.0,
    ]
