"""Boxes of tokens on a page."""

from __future__ import annotations

import torch

from mapper.operations import boxes


def test_waves_say_how_far_corners_are_apart_key_minus_query():
    page = torch.tensor([[[0.0, 1.0, 2.0, 3.0], [4.0, 1.0, 6.0, 3.0]]])
    across, down = torch.tensor([0.5]), torch.tensor([2.0])
    waves = boxes.corner_sinusoids(page, across, down)
    assert waves.shape == (1, 2, 2, 16)
    apart = torch.tensor(4.0) * 0.5
    torch.testing.assert_close(
        waves[0, 0, 1, :4], torch.stack((apart.sin(), apart.cos(), *torch.tensor([0.0, 1.0])))
    )
    torch.testing.assert_close(waves[0, 1, 0, 0], -apart.sin())
    corners = page[..., [0, 1, 2, 1, 2, 3, 0, 3]]
    torch.testing.assert_close(boxes.corner_sinusoids(corners, across, down), waves)
