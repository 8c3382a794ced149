"""Residuals in streams: weights that sum to one, sub-layers between."""

from __future__ import annotations

import torch

from mapper.operations.hyper_connections import (
    sinkhorn,
    stream_weights,
)


def test_rows_and_columns_sum_to_one() -> None:
    torch.manual_seed(0)
    weights = sinkhorn(torch.randn(2, 5, 3, 3), 50, 1e-6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5, 3), rtol=0, atol=1e-4)
    torch.testing.assert_close(weights.sum(-2), torch.ones(2, 5, 3), rtol=0, atol=1e-4)


def test_weights_that_say_nothing_read_and_write_all_streams_alike() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 4)
    streams = x[:, :, None].expand(-1, -1, 3, -1)
    inner, write, mixing = stream_weights(
        streams, torch.zeros(15, 12), torch.zeros(15), torch.zeros(3), 20, 1e-6, 1e-5
    )
    torch.testing.assert_close(inner, 1.5 * x, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(write, torch.ones(2, 5, 3))
    mixed = write[..., None] * x[:, :, None] + mixing.transpose(-1, -2) @ streams
    torch.testing.assert_close(mixed, 2 * streams, rtol=1e-4, atol=1e-5)
