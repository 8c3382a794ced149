"""Stretches of keys packed into one each."""

from __future__ import annotations

import torch

from mapper.operations import rotary, windowed


def test_only_the_last_channels_turn_and_turn_back():
    x, angles = torch.randn(1, 2, 3, 6), torch.randn(1, 1, 3, 2)
    y = windowed.apply_rotary_last(x, angles.cos(), angles.sin())
    assert torch.equal(y[..., :2], x[..., :2])
    torch.testing.assert_close(
        y[..., 2:], rotary.apply_rotary_interleaved(x[..., 2:], angles.cos(), angles.sin())
    )
    torch.testing.assert_close(windowed.apply_rotary_last(y, angles.cos(), -angles.sin()), x)


def test_windows_that_are_not_full_are_dropped():
    x = torch.arange(7.0).view(1, 7, 1)
    assert (torch.arange(x.shape[1] // 3, device=x.device) * 3)[None].tolist() == [[0, 3]]
    assert windowed.in_groups(x, 3).flatten().tolist() == [0, 1, 2, 3, 4, 5]
    assert windowed.in_groups(x, 8).shape == (1, 0, 8, 1)


def test_overlapping_windows_take_in_the_one_before():
    x = torch.stack((torch.arange(4.0) * 100, torch.arange(4.0)), dim=-1)[None]
    packed = windowed.pack_overlapping(x, torch.zeros_like(x), torch.zeros(2, 2))
    assert packed.flatten().tolist() == [0.5, (0 + 100 + 2 + 3) / 4]
