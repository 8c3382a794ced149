"""Learned vectors that stand before a text."""

from __future__ import annotations

import torch

from mapper.operations import prompted

IDS = torch.tensor([[0, 7, 8]])


def test_padding_before_a_text_is_hidden_on_both_sides():
    bias = torch.ones(1, 2, 5, 5)
    seen = prompted.hidden_before(bias, IDS)[0, 0].isfinite().tolist()
    row = [True, True, False, True, True]
    assert seen == [row, row, [False] * 5, row, row]
