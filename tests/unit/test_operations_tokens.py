"""Vectors of tokens before positions are added."""

from __future__ import annotations

import torch

from mapper.operations.convolution import convolve_by_position
from mapper.operations.tokens import token_dropout


def test_masked_tokens_are_zero_and_the_rest_makes_up_for_them() -> None:
    x, ids = torch.ones(2, 4, 3), torch.tensor([[5, 9, 6, 7], [9, 9, 6, 1]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    y = token_dropout(x, ids, mask, 9)
    assert y[0, 1].tolist() == [0.0] * 3
    torch.testing.assert_close(y[0, 0], torch.full((3,), 0.88 / (1 - 1 / 4)))
    torch.testing.assert_close(y[1, 2], torch.full((3,), 0.88 / (1 - 2 / 3)))
    torch.testing.assert_close(token_dropout(x, ids, None, 9)[1, 2], torch.full((3,), 0.88 / 0.5))


def test_neighbours_are_weighed_by_each_position_and_head() -> None:
    x = torch.randn(2, 5, 6)
    weights = torch.randn(2, 5, 3 * 3)
    y = convolve_by_position(x, weights, 2)
    shares = weights[1, 2].view(3, 3).softmax(-1)
    wanted = torch.cat([shares[head] @ x[1, 1:4, 2 * head : 2 * head + 2] for head in range(3)])
    torch.testing.assert_close(y[1, 2], wanted)
    first = weights[0, 0].view(3, 3).softmax(-1)[0]
    torch.testing.assert_close(y[0, 0, :2], first[1] * x[0, 0, :2] + first[2] * x[0, 1, :2])
