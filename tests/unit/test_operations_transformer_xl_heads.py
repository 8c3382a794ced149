"""Attention by distance and segment, with heads kept apart, against the formulas written out."""

from __future__ import annotations

import torch

from mapper.operations import transformer_xl as xl


def test_heads_that_a_weight_keeps_apart() -> None:
    x, weight = torch.randn(2, 5, 6), torch.randn(6, 3, 4)
    y = xl.project_heads(x, weight)
    assert y.shape == (2, 3, 5, 4)
    torch.testing.assert_close(y[:, 1], x @ weight[:, 1])
    torch.testing.assert_close(
        xl.project_from_heads(y, weight), y.transpose(1, 2).flatten(2) @ weight.flatten(1).t()
    )


def test_padding_sees_itself() -> None:
    mask = xl.mask_but_self(torch.zeros(1, 3, 2), torch.tensor([[0, 1, 1]]))
    assert mask is not None
    assert mask[0, 0].tolist() == [[True, True, True], [False, True, True], [False, True, True]]
    assert xl.mask_but_self(torch.zeros(1, 3, 2), None) is None


def test_segments_are_the_same_or_not() -> None:
    q, table = torch.randn(1, 2, 3, 4), torch.randn(2, 2, 4)
    scores = xl.segment_scores(q, table, torch.tensor([[0, 1, 0]]))
    torch.testing.assert_close(scores[0, 1, 0, 2], q[0, 1, 0] @ table[0, 1])
    torch.testing.assert_close(scores[0, 1, 0, 1], q[0, 1, 0] @ table[1, 1])
    assert not xl.segment_scores(q, table, None).any()


def test_a_part_by_distance_is_scaled_as_the_rest_is() -> None:
    q, k, v = torch.randn(3, 1, 2, 3, 4).unbind(0)
    bias, content = torch.randn(1, 2, 3, 3), torch.randn(2, 4)
    scores = ((q + content[:, None]) @ k.transpose(-1, -2) + bias) / 2
    torch.testing.assert_close(xl.attend_distances(q, k, v, bias, None, content), scores.softmax(-1) @ v)


def test_waves_for_distances_are_the_references() -> None:
    from transformers import XLNetConfig, XLNetModel

    model = XLNetModel(XLNetConfig(vocab_size=9, d_model=8, n_layer=1, n_head=2, d_inner=8))
    expected = model.relative_positional_encoding(5, 5)[1:, 0]  # theirs begins one distance further
    torch.testing.assert_close(xl.distance_waves_split(torch.zeros(1, 5), 8)[0], expected)
