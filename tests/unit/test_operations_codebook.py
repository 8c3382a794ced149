"""Codes by their scores."""

from __future__ import annotations

import math

import torch

from mapper.operations import codebook
from mapper.operations.codebook import best_codes


def test_each_group_gives_its_best_code() -> None:
    scores = torch.tensor([[[0.1, 0.9, 0.8, 0.2], [0.7, 0.3, 0.1, 0.6]]])  # two positions, two groups of two
    codes = torch.tensor([[[1.0], [2.0], [10.0], [20.0]]])
    vectors, _ = best_codes(scores, codes, 2)
    assert vectors.tolist() == [[[2.0, 10.0], [1.0, 20.0]]]


def test_perplexity_is_the_number_of_codes_in_use_where_they_are_used_evenly() -> None:
    codes = torch.randn(1, 6, 5)
    even = torch.eye(3).repeat(1, 2)[None]  # three positions, each another code in both groups
    assert math.isclose(best_codes(even, codes, 2)[1].item(), 6.0, rel_tol=1e-6)
    same = even[:, :1].expand(1, 3, 6)
    assert math.isclose(best_codes(same, codes, 2)[1].item(), 2.0, rel_tol=1e-6)


def test_codes_of_a_sequence_in_a_row_stand_side_by_side_by_moment():
    x = torch.zeros(2, 4)
    side_by_side = torch.arange(12).view(2, 2, 3)
    in_a_row = side_by_side.transpose(1, 2).flatten(0, 1)
    for codes in (side_by_side, in_a_row):
        assert torch.equal(codebook.codes_of_frames(codes, x, 3, 9), side_by_side)
    assert codebook.codes_of_frames(None, x, 3, 9).tolist() == [[[9, 9, 9]]] * 2
