"""Tables as text: each token stands in a cell, of a row and a column that are counted from 1 (TAPAS, paper 2004.02349)."""

from __future__ import annotations

import torch
from torch import Tensor


def cell_average(x: Tensor, cells: Tensor, count: int) -> Tensor:
    """Means over the tokens of each of `count` cells, 0 where there are none.

    x and cells (B, T) -> (B, count)
    """
    means = torch.zeros(x.shape[0], count, dtype=torch.float32, device=x.device)
    return means.scatter_reduce(1, cells, x.float(), "mean", include_self=False).to(x.dtype)


def select_cells(
    x: Tensor,
    of_columns: Tensor,
    types: Tensor,
    attention_mask: Tensor | None,
    sides: list[int],
    may_be_empty: bool,
) -> Tensor:
    """Each token's mean over its cell, far below 0 but for cells of the best column (TAPAS).

    x and of_columns (B, T), what speaks for a token and for its column; types (B, T, 7), in which
    1 is the column and 2 the row, from 1 on; sides of the largest table, rows first -> (B, T)
    """
    rows, columns = sides
    real = torch.ones_like(x) if attention_mask is None else attention_mask.to(x.dtype)
    cells = types[..., 2].clamp(max=rows - 1) * columns + types[..., 1].clamp(max=columns - 1)
    real = cell_average(real, cells, rows * columns).unflatten(1, sides)
    speaks = cell_average(of_columns, cells, rows * columns).unflatten(1, sides) * real
    there = real.sum(1)
    scores = speaks.sum(1) / (there + 1e-10)
    number = torch.arange(columns, device=x.device)
    scores = scores + -10000.0 * ((there < 0.5) & (number != 0)).to(x.dtype)
    if not may_be_empty:
        scores = scores + -10000.0 * (number == 0).to(x.dtype)
    chosen = (number == scores.argmax(-1, keepdim=True)) & (number != 0)
    kept = (real * chosen[:, None].to(x.dtype)).flatten(1)
    return (cell_average(x, cells, rows * columns) + -10000.0 * (1.0 - kept)).gather(1, cells)
