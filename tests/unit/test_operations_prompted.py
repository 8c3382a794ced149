"""Learned vectors that stand before a text."""

from __future__ import annotations

import torch

from mapper.operations import prompted, relative

IDS = torch.tensor([[0, 7, 8]])


def test_a_prompt_stands_before_the_words_in_a_segment_with_padding():
    assert prompted.prompted_ids(IDS, 20, 2).tolist() == [[20, 21, 0, 7, 8]]
    assert prompted.prompted_segments(IDS, 2).tolist() == [[0, 0, 0, 2, 2]]


def test_two_segments_have_a_bucket_and_one_has_those_of_distances():
    buckets = torch.tensor([[0, 1], [2, 0]])
    found = prompted.segment_buckets(buckets, torch.tensor([[1, 2], [1, 1]]), 10, 4)
    assert found.tolist() == [[[0, 16], [19, 0]], [[0, 1], [2, 0]]]


def test_padding_before_a_text_is_hidden_on_both_sides():
    bias = relative.pair_bias(torch.ones(3, 2), torch.zeros(1, 5, 5, dtype=torch.long))
    seen = prompted.hidden_before(bias, IDS)[0, 0].isfinite().tolist()
    row = [True, True, False, True, True]
    assert seen == [row, row, [False] * 5, row, row]
