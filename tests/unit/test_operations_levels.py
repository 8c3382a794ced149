"""Feature maps of several sizes in one row, against values made by hand."""

from __future__ import annotations

import torch

from mapper.operations.detection import unmasked_positions
from mapper.operations.levels import (
    join_levels,
    level_anchors,
    level_centres,
    level_points,
    level_rows,
    level_share,
    level_sinusoids,
    level_sizes,
    sample_levels,
    sampling_points,
    select_rows,
    spread_levels,
)

MAPS = [torch.arange(8.0).view(1, 1, 2, 4), 10 + torch.arange(2.0).view(1, 1, 1, 2)]


def test_maps_in_one_row() -> None:
    assert join_levels(MAPS).flatten().tolist() == [*range(8), 10, 11]
    assert level_sizes(MAPS) == [(2, 4), (1, 2)]
    table = torch.tensor([[1.0], [2.0]])
    assert spread_levels(table, level_sizes(MAPS)).flatten().tolist() == [1.0] * 8 + [2.0] * 2
    assert select_rows(join_levels(MAPS), torch.tensor([[9, 0]])).flatten().tolist() == [11.0, 0.0]


def test_places_among_those_with_pixels() -> None:
    mask = torch.ones(1, 2, 4)
    mask[..., 2:] = 0
    seen = [unmasked_positions(MAPS[0], mask)[:, None]]
    assert seen[0].flatten().tolist() == [True, True, False, False] * 2
    assert level_share(seen).tolist() == [[[0.5, 1.0]]]
    torch.testing.assert_close(level_points(seen)[0, :2], torch.tensor([[0.25, 0.25], [0.75, 0.25]]))
    centres = level_centres([(2, 4)], level_share(seen))
    torch.testing.assert_close(centres[0, 1, 0], torch.tensor([0.375, 0.25]))


def test_reading_in_the_middle_of_places() -> None:
    v = join_levels(MAPS)[:, None]  # one head
    offsets = torch.zeros(1, 1, 1, 2, 1, 2)
    offsets[..., 0, 0, 0] = 1.0  # a place to the right in the finer map
    references = torch.tensor([0.125, 0.25]).expand(1, 1, 2, 2).clone()
    references[:, :, 1] = torch.tensor([0.75, 0.5])
    points = sampling_points(references, offsets, level_sizes(MAPS))
    weights = torch.tensor([0.5, 0.5]).view(1, 1, 1, 2, 1)
    torch.testing.assert_close(
        sample_levels(v, level_sizes(MAPS), points, weights), torch.full((1, 1, 1, 1), 6.0)
    )


def test_offsets_in_halves_of_a_box() -> None:
    offsets = torch.ones(1, 1, 1, 1, 2, 2)
    boxes = torch.tensor([0.5, 0.5, 0.4, 0.2]).view(1, 1, 1, 4)
    points = sampling_points(boxes, offsets, [(1, 1)])
    torch.testing.assert_close(points[0, 0, 0, 0], torch.tensor([[0.6, 0.55], [0.6, 0.55]]))


def test_anchors_around_places() -> None:
    anchors, inside = level_anchors([(1, 2), (1, 1)], torch.zeros(1))
    wanted = torch.tensor([[0.25, 0.5, 0.05, 0.05], [0.75, 0.5, 0.05, 0.05], [0.5, 0.5, 0.1, 0.1]])
    torch.testing.assert_close(anchors[0].sigmoid(), wanted)
    assert inside.all()


def test_rows_and_sinusoids_of_each_map() -> None:
    maps = [torch.randn(2, 4, 3, 5), torch.randn(2, 4, 1, 2)]
    table = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 9.0]])
    rows = level_rows(maps, table)
    assert torch.equal(rows[0][1, 7], maps[0][1, :, 1, 2] + table[0])
    assert torch.equal(rows[1][:, 1, 3], maps[1][:, 3, 0, 1] + 9)
    found = level_sinusoids(maps, 10000.0)
    assert [part.shape for part in found] == [(2, 15, 4), (2, 2, 4)]
    ends = torch.tensor(2 * torch.pi).expand(2)  # the last row and the last column are a whole turn
    assert torch.allclose(found[0][0, -1], torch.stack((ends.sin(), ends.cos()), dim=-1).flatten(), atol=1e-5)
