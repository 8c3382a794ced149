"""Masks that queries draw, by hand."""

from __future__ import annotations

import torch

from mapper.operations.query_masks import query_masks


def test_a_mask_is_how_well_each_place_fits() -> None:
    pixels = torch.tensor([[[[1.0, 0.0]], [[2.0, 3.0]]]])  # (1, 2, 1, 2)
    found = query_masks(torch.tensor([[[1.0, 1.0], [0.0, -1.0]]]), pixels)
    assert found.tolist() == [[[[3.0, 3.0]], [[-2.0, -3.0]]]]
