"""Places of an image as several sequences, and back."""

from __future__ import annotations

import pytest
import torch

from mapper.operations.unfolding import fold_patches, unfold_patches


def test_a_sequence_holds_the_places_of_one_offset() -> None:
    x = torch.arange(24.0).view(1, 1, 4, 6)
    y = unfold_patches(x, 2)
    assert y.shape == (4, 6, 1)
    assert y[0, :, 0].tolist() == [0, 2, 4, 12, 14, 16]
    assert y[3, :, 0].tolist() == [7, 9, 11, 19, 21, 23]


def test_joining_undoes_it() -> None:
    x = torch.randn(2, 3, 4, 6)
    assert torch.equal(fold_patches(unfold_patches(x, 2), x, 2), x)


@pytest.mark.parametrize("size", [(5, 6), (4, 3)])
def test_sides_that_are_no_multiple_are_stretched_and_come_back(size: tuple[int, int]) -> None:
    x = torch.ones(2, 3, *size)
    y = fold_patches(unfold_patches(x, 2), x, 2)
    assert y.shape == x.shape
    torch.testing.assert_close(y, x)
