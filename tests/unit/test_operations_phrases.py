"""Words in phrases, and scores of places by words."""

from __future__ import annotations

import torch

from mapper.operations.levels import level_anchors, unmasked_anchors
from mapper.operations.phrases import phrases_of, word_scores


def test_tokens_up_to_an_end_are_a_phrase() -> None:
    ids = torch.tensor([[9, 5, 6, 9, 7, 9], [5, 9, 6, 7, 5, 6]])
    together, places = phrases_of(ids, (9,))
    wanted = torch.eye(6, dtype=torch.bool).repeat(2, 1, 1)
    wanted[0, 1:4, 1:4] = True  # what the first and the last token end is no phrase
    wanted[1, :2, :2] = True  # what no token ends is none
    assert torch.equal(together[:, 0], wanted)
    assert places.tolist() == [[0, 0, 1, 2, 0, 0], [0, 1, 0, 0, 0, 0]]


def test_scores_are_filled_up_and_padding_is_out_of_reach() -> None:
    x, words = torch.ones(1, 2, 4), torch.tensor([[[1.0] * 4, [2.0] * 4]])
    scores = word_scores(x, words, torch.tensor([[1, 0]]), 3)
    assert scores.tolist() == [[[4.0, -torch.inf, -torch.inf]] * 2]
    scaled = word_scores(x, words, None, 2, torch.tensor(1.0))
    assert scaled.tolist() == [[[3.0, 5.0]] * 2]


def test_anchors_of_what_is_seen() -> None:
    sizes, whole = (
        [(2, 2), (1, 1)],
        [torch.ones(1, 1, 2, 2, dtype=torch.bool), torch.ones(1, 1, 1, 1, dtype=torch.bool)],
    )
    anchors, inside = unmasked_anchors(sizes, whole)
    torch.testing.assert_close(anchors, level_anchors(sizes, torch.zeros(1))[0])
    assert inside.all()
    whole[0][..., 1] = False
    anchors, inside = unmasked_anchors(sizes, whole)
    assert inside[0, :, 0].tolist() == [True, False, True, False, True]
    assert anchors[0, 1].isinf().all() and anchors[0, 0, 0] == 0  # in the middle of the column that is seen
