"""Points and boxes that say what to look for in an image, and the masks that are found."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def point_fourier_features(points: Tensor, table: Tensor) -> Tensor:
    """Sines and cosines of points (..., 2) in 0 to 1 along stored directions (2, F) -> (..., 2 * F)"""
    angles = (2 * points - 1).to(table.dtype) @ table * (2 * math.pi)
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


def map_fourier_features(x: Tensor, table: Tensor) -> Tensor:
    """Waves of where the places of a map stand. x (B, C, Y, X), table (2, F) -> (1, Y * X, 2 * F)"""
    down = (torch.arange(x.shape[2], device=x.device) + 0.5) / x.shape[2]
    across = (torch.arange(x.shape[3], device=x.device) + 0.5) / x.shape[3]
    points = torch.stack(torch.meshgrid(across, down, indexing="xy"), dim=-1)
    return point_fourier_features(points, table).flatten(0, 1)[None]


def prompt_points(
    points: Tensor, labels: Tensor | None, alone: bool, size: int, table: Tensor, kinds: tuple[Tensor, ...]
) -> Tensor:
    """Vectors of points: 1 inside of what is meant, 0 outside, -1 in neither, -10 for padding.

    points (B, P, N, 2) in pixels of an image of size, labels (B, P, N) or None: all inside; alone: one point
    in neither is added; kinds: vectors (1, W) of outside, inside, neither -> (B, P, N or N + 1, W)
    """
    labels = torch.ones_like(points[..., 0]) if labels is None else labels.to(points.dtype)
    points = points + 0.5
    if alone:
        points = torch.cat((points, torch.zeros_like(points[:, :, :1])), dim=2)
        labels = torch.cat((labels, -torch.ones_like(labels[:, :, :1])), dim=2)
    labels = labels[..., None]
    x = torch.where(labels == -1, kinds[2], point_fourier_features(points / size, table))
    x = x.masked_fill(labels == -10, 0.0)
    return x + (labels == 0) * kinds[0] + (labels == 1) * kinds[1]


def prompt_vectors(
    x: Tensor, points: Tensor | None, labels: Tensor | None, boxes: Tensor | None, size: int, table: Tensor,
    kinds: tuple[Tensor, ...],
) -> Tensor:  # fmt: skip
    """Vectors of what is asked for in images x (B, C, Y, X); where nothing is, one prompt without a vector.

    kinds: vectors of points outside, inside and in neither, and of both corners of a box -> (B, P, N, C)
    """
    found = []
    if points is not None:
        found.append(prompt_points(points, labels, boxes is None, size, table, kinds[:3]))
    if boxes is not None:
        corners = (boxes.unflatten(-1, (2, 2)) + 0.5) / size  # of pixels
        found.append(point_fourier_features(corners, table) + torch.cat(kinds[3:]))
    return torch.cat(found, dim=2) if found else x.new_zeros(x.shape[0], 1, 0, x.shape[1])


def for_each_prompt(x: Tensor, prompts: Tensor) -> Tensor:
    """What is of an image, once for each prompt. x (B or 1, ...), prompts (B, P, ...) -> (B * P, ...)"""
    x = x.expand(prompts.shape[0], *x.shape[1:])
    return x[:, None].expand(-1, prompts.shape[1], *[-1] * (x.dim() - 1)).flatten(0, 1)


def some_rows(x: Tensor | None) -> Tensor | None:
    """x (B, N, ...), or None where it has no row at all."""
    return None if x is None or x.shape[1] == 0 else x


def mask_with_row_after(real: Tensor) -> Tensor:
    """Which rows are then real: the first ones, one more than before. real (B, N) -> (B, N + 1)"""
    return torch.arange(real.shape[1] + 1, device=real.device) <= real.sum(1, keepdim=True)


def with_prompts(
    words: Tensor, attention_mask: Tensor | None, prompts: Tensor | None, labels: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Words with prompts after them and a mask of both. The last prompt has no label; -10 is padding.

    words (B, T, W), attention_mask (B, T) or None, prompts (B, N + 1, W) or None: no more than the words,
    labels (B, N) or None: all are real -> (B, T + N + 1, W), (B, T + N + 1)
    """
    if prompts is None:
        return words, attention_mask
    mask = torch.ones_like(words[..., 0], dtype=torch.bool) if attention_mask is None else attention_mask != 0
    real = torch.ones_like(prompts[:, 1:, 0], dtype=torch.bool) if labels is None else labels != -10
    return torch.cat((words, prompts), dim=1), torch.cat((mask, mask_with_row_after(real)), dim=1)


def box_samples(x: Tensor, boxes: Tensor, count: int) -> Tensor:
    """Maps inside of boxes, each cut into count rows and columns of means (RoI align, paper 1703.06870).

    A cell has as many points as whole places begin in it, each the mean of the places around it.
    x (B, C, Y, X), boxes (B, N, 4): centre and size in 0 to 1 -> (B * N, C, count, count)
    """
    middle, half = boxes[..., :2], boxes[..., 2:] / 2
    down = box_weights((middle - half)[..., 1], (middle + half)[..., 1], x.shape[2], count)
    across = box_weights((middle - half)[..., 0], (middle + half)[..., 0], x.shape[3], count)
    return torch.einsum("bniy,bcyx,bnjx->bncij", down.to(x.dtype), x, across.to(x.dtype)).flatten(0, 1)


def box_weights(first: Tensor, last: Tensor, size: int, count: int) -> Tensor:
    """Share of each of size places in each of count parts of a range.

    first, last (B, N) in 0 to 1 -> (B, N, count, size)
    """
    first, last = first * size, last * size
    length = (last - first).clamp(min=1) / count  # of a part, in places
    points = length.ceil()
    index = torch.arange(int(points.max()), device=first.device)
    offset = (index + 0.5) / points[..., None]
    part = torch.arange(count, device=first.device)[:, None] + offset[:, :, None]
    at = first[..., None, None] + part * length[..., None, None]  # (B, N, count, points)
    inside = (at >= -1) & (at <= size) & (index < points[..., None])[:, :, None]
    apart = at.clamp(0, size - 1)[..., None] - torch.arange(size, device=first.device)
    weights = (1 - apart.abs()).clamp(min=0) * inside[..., None]
    return weights.sum(-2) / points[..., None, None]
