"""Vectors of tokens before positions are added."""

from __future__ import annotations

import torch

from mapper.operations.tokens import token_dropout


def test_masked_tokens_are_zero_and_the_rest_makes_up_for_them() -> None:
    x, ids = torch.ones(2, 4, 3), torch.tensor([[5, 9, 6, 7], [9, 9, 6, 1]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    y = token_dropout(x, ids, mask, 9)
    assert y[0, 1].tolist() == [0.0] * 3
    torch.testing.assert_close(y[0, 0], torch.full((3,), 0.88 / (1 - 1 / 4)))
    torch.testing.assert_close(y[1, 2], torch.full((3,), 0.88 / (1 - 2 / 3)))
    torch.testing.assert_close(token_dropout(x, ids, None, 9)[1, 2], torch.full((3,), 0.88 / 0.5))
