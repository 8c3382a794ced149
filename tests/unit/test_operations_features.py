"""Places for images and videos among the words of a text."""

from __future__ import annotations

import pytest
import torch

from mapper.operations import features

IDS = torch.tensor([[3, 9, 9, 7, 9, 8, 9], [7, 9, 9, 8, 3, 3, 5]])  # 9: a place, 7 begins a video, 8 ends it


def test_places_without_patches_are_left_out() -> None:
    index = torch.tensor([[0, 3], [2, -1], [-1, -1]])
    kept = features.pooled_tokens(torch.arange(3.0)[:, None], index, torch.tensor([[1, 1, 1, 1]]))
    assert kept.flatten().tolist() == [0, 1]
    with pytest.raises(ValueError, match="the grids say 6 vectors, but there are 2"):
        features.pooled_tokens(kept, index[:2], torch.tensor([[1, 2, 3]]))


def test_words_behind_a_video_are_behind_its_last_frame() -> None:
    kinds = torch.tensor([[0, 2, 2, 2, 2, 0]])
    grids = torch.tensor([[2, 2, 4]])
    for past_times, last in ((False, 3), (True, 7)):
        found = features.grid_positions(kinds, None, None, grids, [5.0], 2, past_times=past_times)
        assert found[0, 0].tolist() == [0, 1, 1, 6, 6, last]
        assert found[2, 0].tolist() == [0, 1, 2, 1, 2, last]


def test_rows_stand_where_their_ids_are() -> None:
    x, rows = torch.zeros(1, 4, 2), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    ids = torch.tensor([[7, 9, 5, 7]])
    assert features.scatter_rows(x, rows, ids, [7, 9])[0].tolist() == [[1, 2], [3, 4], [0, 0], [1, 2]]
    assert features.scatter_rows(x, None, ids, [7, 9]) is x


@pytest.mark.parametrize(("side", "count"), [(8, 16), (7, 4), (6, 5)])
def test_squares_of_patches_are_as_many_as_fit(side: int, count: int) -> None:
    x = torch.randn(2, side * side, 3, generator=torch.Generator().manual_seed(0))
    inner = side // int(count**0.5)
    wanted = torch.nn.functional.avg_pool2d(x.mT.unflatten(2, (side, side)), inner, inner).flatten(2).mT
    assert torch.allclose(features.average_patches(x, count), wanted, atol=1e-6)


def test_as_many_queries_are_taken_as_are_for_so_many_patches():
    queries = torch.randn(4, 3)
    taken = features.first_queries(queries, torch.zeros(2, 9, 3), {"16": 4, "9": 2})
    assert torch.equal(taken, queries[:2].expand(2, 2, 3))


@pytest.mark.parametrize("tokens", [1, 3])
def test_features_have_a_token_each(tokens: int) -> None:
    ids = torch.tensor([[7, 9, 9, 9]]) if tokens == 3 else torch.tensor([[7, 9, 7, 7]])
    x, vectors = torch.zeros(1, 4, 2), torch.ones(1, 2, 2)
    with pytest.raises(ValueError, match=f"{tokens} places of width 2 for features"):
        features.scatter_features(x, vectors, ids, 9)
    found = features.scatter_features(x, vectors, torch.tensor([[7, 9, 9, 7]]), 9)
    assert found[0, :, 0].tolist() == [0, 1, 1, 0]


def test_features_of_another_width_have_no_places() -> None:
    x, ids = torch.zeros(1, 4, 2), torch.tensor([[7, 9, 9, 7]])
    with pytest.raises(ValueError, match=r"of width 2 for features \(1, 1, 5\)"):
        features.scatter_features(x, torch.ones(1, 1, 5), ids, 9)
    in_a_row = features.scatter_features(x, torch.ones(1, 4), ids, 9)
    assert in_a_row.sum() == 4
