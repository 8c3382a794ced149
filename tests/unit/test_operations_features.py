"""Places for images and videos among the words of a text."""

from __future__ import annotations

import torch

from mapper.operations import features

IDS = torch.tensor([[3, 9, 9, 7, 9, 8, 9], [7, 9, 9, 8, 3, 3, 5]])  # 9: a place, 7 begins a video, 8 ends it


def test_places_between_marks_are_for_videos() -> None:
    kinds = features.span_kinds(IDS, 9, 7, 8)
    assert kinds.tolist() == [[0, 1, 1, 0, 2, 0, 1], [0, 2, 2, 0, 0, 0, 0]]


def test_blank_places_have_the_first_word() -> None:
    assert features.blank_places(IDS, 9, 5).tolist() == [[3, 0, 0, 7, 0, 8, 0], [7, 0, 0, 8, 3, 3, 0]]
