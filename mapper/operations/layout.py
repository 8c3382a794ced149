"""Texts and images of pages: each word with the patch that it stands on (UDOP, paper 2212.02623)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def join_page(
    words: Tensor, patches: Tensor, bbox: Tensor, attention_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Words with the patches that they stand on, then the patches where no word is; where all of them are.

    Words without a place (all four numbers 0, or 1) have no patch; zeros follow the last patch, hidden if
    there is a mask. words (B, T, W), patches (B, N * N, W), bbox (B, T, 4), left, top, right, bottom as
    shares of the page, attention_mask (B, T) or None
    -> (B, T + N * N, W), (B, T + N * N, 4) float64, (B, T + N * N) or None
    """
    side = math.isqrt(patches.shape[1])
    middle = ((bbox[..., :2] + bbox[..., 2:]) / 2.0 * side).floor().long().clamp(0, side - 1)
    place = middle[..., 0] + middle[..., 1] * side
    bbox = bbox.double()  # cells and distances are cut from numbers of this size
    mean = bbox.mean(dim=-1, keepdim=True)
    nowhere = (mean == 0) | (mean == 1)
    below = patches.gather(1, place[..., None].expand(-1, -1, patches.shape[-1]))
    free = torch.ones_like(patches[..., 0], dtype=torch.bool).scatter(1, place, False)
    order = (~free).long().argsort(dim=1, stable=True)[..., None]  # those without a word first
    free = free.gather(1, order[..., 0])
    rest = patches.gather(1, order.expand_as(patches)) * free[..., None].to(patches.dtype)
    edges = torch.arange(side + 1, dtype=torch.float32, device=patches.device) / side
    down, across = (
        torch.arange(side**2, device=patches.device) // side,
        torch.arange(side**2, device=patches.device) % side,
    )
    corners = torch.stack((edges[across], edges[down], edges[across + 1], edges[down + 1]), dim=-1).double()
    boxes = corners[order[..., 0]] * free[..., None]
    if attention_mask is not None:
        attention_mask = torch.cat((attention_mask, free.to(attention_mask.dtype)), dim=1)
    states = torch.cat((words + below.masked_fill(nowhere, 0.0), rest), dim=1)
    return states, torch.cat((bbox, boxes), dim=1), attention_mask


def boxes_and_patches(bbox: Tensor, pixels: Tensor, size: int) -> Tensor:
    """Boxes of words, of the whole page, and of its patches, in thousandths (LayoutLMv3).

    bbox (B, T, 4), pixels (B, C, Y, X), size the side of a patch -> (B, T + 1 + Y // size * (X // size), 4)
    """
    rows, columns = pixels.shape[2] // size, pixels.shape[3] // size
    down = torch.arange(rows + 1, device=bbox.device) * 1000 // rows
    across = torch.arange(columns + 1, device=bbox.device) * 1000 // columns
    top, left = torch.meshgrid(down[:-1], across[:-1], indexing="ij")
    bottom, right = torch.meshgrid(down[1:], across[1:], indexing="ij")
    patches = torch.stack((left, top, right, bottom), dim=-1).flatten(0, 1)
    boxes = F.pad(patches, (0, 0, 1, 0), value=1)
    boxes[0, 2:] = 999
    return torch.cat((bbox, boxes.expand(bbox.shape[0], -1, -1).to(bbox.dtype)), dim=1)
