"""Feature maps of several sizes, the finest first, as one row of places, and reading between these.

Maps are (B, C, Y, X), L of them; S is the places of all, T queries, H heads, P points of a level that a head reads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.operations.detection import masked_sinusoids, unmasked_positions


def join_levels(maps: list[Tensor]) -> Tensor:
    """The places of all maps in one row. -> (B, S, C)"""
    return torch.cat([x.flatten(2).transpose(1, 2) for x in maps], dim=1)


def level_sizes(maps: list[Tensor]) -> list[tuple[int, int]]:
    """Rows and columns of each map."""
    return [(x.shape[2], x.shape[3]) for x in maps]


def level_points(seen: list[Tensor]) -> Tensor:
    """Where each place stands among the real columns and rows, 0 to 1. -> (B, S, 2)"""
    points = []
    for x in seen:
        down, across = x.cumsum(2, dtype=torch.float32), x.cumsum(3, dtype=torch.float32)
        down = (down - 0.5) / (down[:, :, -1:] + 1e-6)
        across = (across - 0.5) / (across[..., -1:] + 1e-6)
        points.append(torch.cat((across, down), dim=1))
    return join_levels(points)


def level_share(seen: list[Tensor]) -> Tensor:
    """How much of the width and height of each map is real. -> (B, L, 2)"""
    shares = [
        torch.stack((x[:, 0, 0].float().mean(-1), x[:, 0, :, 0].float().mean(-1)), dim=-1) for x in seen
    ]
    return torch.stack(shares, dim=1)


def level_centres(sizes: list[tuple[int, int]], shares: Tensor) -> Tensor:
    """The middle of each place, as x and y in each of the maps, of which shares (B, L, 2) are real.

    -> (B, S, L, 2)
    """
    centres = []
    for level, (rows, columns) in enumerate(sizes):
        down = (torch.arange(rows, device=shares.device) + 0.5) / rows
        across = (torch.arange(columns, device=shares.device) + 0.5) / columns
        grid = torch.stack((across.expand(rows, -1), down[:, None].expand(-1, columns)), dim=-1)
        centres.append(grid.flatten(0, 1) / shares[:, level : level + 1])
    return torch.cat(centres, dim=1)[:, :, None] * shares[:, None]


def spread_levels(table: Tensor, sizes: list[tuple[int, int]]) -> Tensor:
    """The row of a table (L, C) that each place's map has. -> (S, C)"""
    return torch.cat(
        [row.expand(rows * columns, -1) for row, (rows, columns) in zip(table, sizes, strict=True)]
    )


def sampling_points(references: Tensor, offsets: Tensor, sizes: list[tuple[int, int]]) -> Tensor:
    """Where heads read: around points in places of each map, or around boxes in halves of these.

    references (B, T, L, 2) are points, (B, T, L or 1, 4) boxes;
    offsets (B, T, H, L, P, 2) -> (B, T, H, L, P, 2), as x and y between 0 and 1
    """
    middle = references[:, :, None, :, None, :2]
    if references.shape[-1] == 4:
        return middle + offsets / offsets.shape[-2] * references[:, :, None, :, None, 2:] * 0.5
    extents = [[columns, rows] for rows, columns in sizes]
    return middle + offsets / torch.tensor(extents, dtype=offsets.dtype, device=offsets.device)[:, None]


def sample_levels(v: Tensor, sizes: list[tuple[int, int]], places: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of what is read between the places of all maps; zeros outside (paper 2010.04159).

    v (B, H, S, D), places (B, T, H, L, P, 2), weights (B, T, H, L, P) that sum to 1 -> (B, H, T, D)
    """
    read = []
    parts = v.split([rows * columns for rows, columns in sizes], dim=2)
    for level, (x, (rows, columns)) in enumerate(zip(parts, sizes, strict=True)):
        x = x.transpose(2, 3).unflatten(-1, (rows, columns)).flatten(0, 1)
        grid = 2 * places[:, :, :, level].transpose(1, 2).flatten(0, 1).to(x.dtype) - 1
        read.append(F.grid_sample(x, grid, align_corners=False))  # (B * H, D, T, P)
    shares = weights.transpose(1, 2).flatten(3).flatten(0, 1)[:, None]
    y = (torch.cat(read, dim=-1) * shares).sum(-1)
    return y.unflatten(0, (v.shape[0], -1)).transpose(2, 3)


def level_anchors(sizes: list[tuple[int, int]], x: Tensor) -> tuple[Tensor, Tensor]:
    """A box around each place, twice as wide from map to map, before a sigmoid; and which are in the image.

    -> (1, S, 4) as x, y, width, height, with the largest number where they are not; (1, S, 1)
    """
    middles = level_centres(sizes, x.new_ones(1, len(sizes), 2))[:, :, :1].flatten(2)
    sides = x.new_tensor([[0.05 * 2.0**level] * 2 for level in range(len(sizes))])
    boxes = torch.cat((middles, spread_levels(sides, sizes)[None]), dim=-1)
    inside = ((boxes > 0.01) & (boxes < 0.99)).all(-1, keepdim=True)
    logits = torch.log(boxes / (1 - boxes)).masked_fill(~inside, torch.finfo(x.dtype).max)
    return logits.to(x.dtype), inside


def select_rows(x: Tensor, best: Tensor) -> Tensor:
    """What stands at some places. x (B, S, C), best (B, T) -> (B, T, C)"""
    return x.gather(1, best[..., None].expand(-1, -1, x.shape[-1]))


def level_sinusoids(maps: list[Tensor], temperature: float) -> list[Tensor]:
    """Sines and cosines of where each place stands in its map. -> [(B, Y * X, C), ...]"""
    return [masked_sinusoids(x, unmasked_positions(x, None), temperature) for x in maps]


def unmasked_anchors(sizes: list[tuple[int, int]], seen: list[Tensor]) -> tuple[Tensor, Tensor]:
    """level_anchors of what is seen (B, 1, Y, X) of each map, infinite elsewhere. -> (B, S, 4), (B, S, 1)"""
    shares = level_share(seen)
    middles = level_centres(sizes, shares) / shares[:, None]
    sides = shares.new_tensor([[0.05 * 2.0**level] * 2 for level in range(len(sizes))])
    of_places = spread_levels(sides, sizes).expand(len(shares), -1, -1)
    boxes = torch.cat((middles[:, :, 0], of_places), dim=-1)
    inside = ((boxes > 0.01) & (boxes < 0.99)).all(-1, keepdim=True) & join_levels(seen)
    return torch.log(boxes / (1 - boxes)).masked_fill(~inside, torch.inf), inside


def level_rows(maps: list[Tensor], table: Tensor) -> list[Tensor]:
    """The places of each map, with the row of a table (L, C) that the map has. -> [(B, Y * X, C), ...]"""
    return [x.flatten(2).transpose(1, 2) + row for x, row in zip(maps, table, strict=True)]


def sample_points(
    v: Tensor, sizes: list[tuple[int, int]], places: Tensor, weights: Tensor, counts: int | tuple[int, ...]
) -> Tensor:
    """The same of so many points of each map, side by side: counts for each map, or one for all.

    v (B, H, S, D), places (B, T, H, P, 2), weights (B, T, H, P) that sum to 1 -> (B, H, T, D)
    """
    of_levels = [counts] * len(sizes) if isinstance(counts, int) else list(counts)
    read = []
    parts = v.split([rows * columns for rows, columns in sizes], dim=2)
    for x, (rows, columns), points in zip(parts, sizes, places.split(of_levels, dim=3), strict=True):
        x = x.transpose(2, 3).unflatten(-1, (rows, columns)).flatten(0, 1)
        grid = 2 * points.transpose(1, 2).flatten(0, 1).to(x.dtype) - 1
        read.append(F.grid_sample(x, grid, align_corners=False))  # (B * H, D, T, P)
    y = (torch.cat(read, dim=-1) * weights.transpose(1, 2).flatten(0, 1)[:, None]).sum(-1)
    return y.unflatten(0, (v.shape[0], -1)).transpose(2, 3)
