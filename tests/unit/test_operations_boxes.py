"""Boxes of tokens on a page."""

from __future__ import annotations

import torch

from mapper.operations import boxes


def test_waves_say_how_far_corners_are_apart_key_minus_query():
    page = torch.tensor([[[0.0, 1.0, 2.0, 3.0], [4.0, 1.0, 6.0, 3.0]]])
    across, down = torch.tensor([0.5]), torch.tensor([2.0])
    waves = boxes.corner_waves(page, across, down)
    assert waves.shape == (1, 2, 2, 16)
    apart = torch.tensor(4.0) * 0.5
    torch.testing.assert_close(
        waves[0, 0, 1, :4], torch.stack((apart.sin(), apart.cos(), *torch.tensor([0.0, 1.0])))
    )
    torch.testing.assert_close(waves[0, 1, 0, 0], -apart.sin())
    corners = page[..., [0, 1, 2, 1, 2, 3, 0, 3]]
    torch.testing.assert_close(boxes.corner_waves(corners, across, down), waves)


def test_scores_of_pairs_are_scaled_products():
    q, pairs = torch.randn(2, 3, 4, 8), torch.randn(2, 4, 5, 8)
    scores = boxes.pair_scores(q, pairs)
    torch.testing.assert_close(scores[1, 2, 3, 4], (q[1, 2, 3] @ pairs[1, 3, 4]) * 8**-0.5)
