"""Means that fade against their definition."""

from __future__ import annotations

import torch

from mapper.operations.rwkv import token_shift, weighted_key_value


def test_values_are_weighed_by_keys_that_fade() -> None:
    k, v, decay, first = torch.randn(2, 5, 3), torch.randn(2, 5, 3), torch.randn(3), torch.randn(3)
    got = weighted_key_value(k, v, decay, first)
    for t in range(5):
        fades = [k[:, i] - (t - 1 - i) * decay.exp() for i in range(t)]
        weights = torch.stack([*fades, k[:, t] + first], dim=1).exp()
        wanted = (weights * v[:, : t + 1]).sum(1) / weights.sum(1)
        torch.testing.assert_close(got[:, t], wanted, rtol=1e-4, atol=1e-5)


def test_the_first_position_has_none_before_it() -> None:
    x = torch.randn(1, 3, 2)
    got = token_shift(x, torch.full((1, 1, 2), 0.25))
    torch.testing.assert_close(got[:, 0], 0.25 * x[:, 0])
    torch.testing.assert_close(got[:, 2], 0.25 * x[:, 2] + 0.75 * x[:, 1])
