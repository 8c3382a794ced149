"""Places for images and videos among the words of a text."""

from __future__ import annotations

import pytest
import torch

from mapper.operations import features

IDS = torch.tensor([[3, 9, 9, 7, 9, 8, 9], [7, 9, 9, 8, 3, 3, 5]])  # 9: a place, 7 begins a video, 8 ends it


def test_places_between_marks_are_for_videos() -> None:
    kinds = features.span_kinds(IDS, 9, 7, 8)
    assert kinds.tolist() == [[0, 1, 1, 0, 2, 0, 1], [0, 2, 2, 0, 0, 0, 0]]


def test_blank_places_have_the_first_word() -> None:
    assert features.blank_places(IDS, 9, 5).tolist() == [[3, 0, 0, 7, 0, 8, 0], [7, 0, 0, 8, 3, 3, 0]]


def test_vectors_are_added_to_words_at_places() -> None:
    x = torch.ones(2, 7, 1)
    found = features.add_at_places(x, torch.arange(1.0, 7)[:, None], IDS, 9)
    assert found[..., 0].tolist() == [[1, 2, 3, 1, 4, 1, 5], [1, 6, 7, 1, 1, 1, 1]]
    assert features.add_at_places(x, None, IDS, 9) is x


def test_places_pool_the_patches_that_they_have() -> None:
    index = torch.tensor([[0, 3], [2, -1], [-1, -1]])
    patches = features.gather_patches(torch.arange(1.0, 5).view(2, 2, 1), index)
    assert patches[..., 0].tolist() == [[1, 4], [3, 0], [0, 0]]
    assert features.mean_of_patches(patches, index).flatten().tolist() == [2.5, 3, 0]
    assert features.pooled_mask(index)[:, 0, 0].tolist() == [[True, True], [True, False], [True, True]]
    kept = features.pooled_tokens(torch.arange(3.0)[:, None], index, torch.tensor([[1, 1, 1, 1]]))
    assert kept.flatten().tolist() == [0, 1]
    with pytest.raises(ValueError, match="the grids say 6 vectors, but there are 2"):
        features.pooled_tokens(kept, index[:2], torch.tensor([[1, 2, 3]]))


def test_words_behind_a_video_are_behind_its_last_frame() -> None:
    kinds = features.place_kinds(torch.tensor([[3, 9, 9, 9, 9, 3]]), 8, 9)
    assert kinds.tolist() == [[0, 2, 2, 2, 2, 0]]
    grids = torch.tensor([[2, 2, 4]])
    for function, last in ((features.grid_positions, 3), (features.timed_positions, 7)):
        found = function(kinds, None, None, grids, [5.0], 2)
        assert found[0, 0].tolist() == [0, 1, 1, 6, 6, last]
        assert found[2, 0].tolist() == [0, 1, 2, 1, 2, last]


def test_rows_stand_where_their_ids_are() -> None:
    x, rows = torch.zeros(1, 4, 2), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    ids = torch.tensor([[7, 9, 5, 7]])
    assert features.place_rows(x, rows, ids, [7, 9])[0].tolist() == [[1, 2], [3, 4], [0, 0], [1, 2]]
    assert features.place_rows(x, None, ids, [7, 9]) is x
