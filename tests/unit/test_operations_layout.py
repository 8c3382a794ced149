"""Words and patches of a page."""

from __future__ import annotations

import torch

from mapper.operations import layout


def test_words_have_their_patch_and_patches_without_a_word_follow():
    words, patches = torch.zeros(1, 3, 1), torch.tensor([1.0, 2.0, 3.0, 4.0])[None, :, None]
    boxes = torch.tensor([[[0.6, 0.1, 0.8, 0.2], [0.0, 0.0, 0.0, 0.0], [0.5, 0.0, 1.0, 0.4]]])
    states, places, seen = layout.join_page(words, patches, boxes, torch.tensor([[1, 1, 0]]))
    assert states.flatten().tolist() == [
        2,
        0,
        2,
        3,
        4,
        0,
        0,
    ]  # the second stands nowhere, in the first patch's place
    assert seen.tolist() == [[1, 1, 0, 1, 1, 0, 0]]
    assert places[0, 3:].tolist() == [[0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert layout.join_page(words, patches, boxes, None)[2] is None


def test_boxes_of_words_the_page_and_its_patches():
    words = torch.tensor([[[1, 2, 3, 4]]])
    boxes = layout.boxes_and_patches(words, torch.zeros(1, 3, 16, 24), 8)
    assert boxes.shape == (1, 8, 4)
    assert boxes[0, :3].tolist() == [[1, 2, 3, 4], [1, 1, 999, 999], [0, 0, 333, 500]]
    assert boxes[0, -1].tolist() == [666, 500, 1000, 1000]
