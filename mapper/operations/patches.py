"""Patches of an image as a sequence: tokens that stand before them or in their place."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def prepend_token(token: Tensor, x: Tensor) -> Tensor:
    """One learned vector before each sequence. token (..., W), x (B, T, W) -> (B, 1 + T, W)"""
    return torch.cat((token.expand(x.shape[0], 1, -1), x), dim=1)


def fold_neighbours(x: Tensor, width: int) -> Tensor:
    """Neighbouring places of squares in frames side by side, to a width: rows and columns first, then frames.

    x (N, T, Y, Y, W) -> (N, T / t, Y / n, Y / n, width), width = t * n * n * W; t is 1 unless n is Y
    """
    count = width // x.shape[-1]
    side = min(math.isqrt(count), x.shape[2])
    frames = count // side**2
    cut = x.unflatten(3, (-1, side)).unflatten(2, (-1, side)).unflatten(1, (-1, frames))
    return cut.permute(0, 1, 3, 5, 2, 4, 6, 7).flatten(4)


def random_patches(x: Tensor, kept: int) -> Tensor:
    """The first positions, then the others in an order drawn anew for each row. x (B, T, W) -> like x"""
    chances = torch.ones(x.shape[1] - kept)  # on the processor, so that a seed draws the same everywhere
    order = torch.stack([torch.multinomial(chances, len(chances)) for _ in range(len(x))]).to(x.device)
    return torch.cat((x[:, :kept], x[:, kept:].gather(1, order[..., None].expand(-1, -1, x.shape[2]))), dim=1)


def mask_patches(x: Tensor, token: Tensor, masked: Tensor | None) -> Tensor:
    """Puts the token where `masked` is true; None masks nothing.

    x (B, T, W) or (B, Y, X, W), token (..., W), masked (B, T) with T = Y * X -> like x
    """
    return x if masked is None else torch.where(masked.bool().reshape(x.shape[:-1])[..., None], token, x)


def keep_some(x: Tensor, share: float, noise: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Leaves out a share of the positions, those with the highest noise (MAE, paper 2111.06377).

    x (B, T, W), noise (B, T), drawn if None -> the rest (B, N, W), 1 where a position is left out (B, T),
    and the place of each position in the order of the noise (B, T)
    """
    if noise is None:
        noise = torch.rand(x.shape[:2], device=x.device)
    order = noise.argsort(dim=1)
    place = order.argsort(dim=1)
    count = int(x.shape[1] * (1 - share))
    kept = x.gather(1, order[:, :count, None].expand(-1, -1, x.shape[2]))
    return kept, (place >= count).to(x.dtype), place


def real_patches(pixels: Tensor, mask: Tensor | None, side: int, whole: bool) -> Tensor | None:
    """Which patches of the real images are read: those all of whose pixels are, or else any of them.

    pixels (B, N, C, Y, X), mask (B, N, Y, X), 1 where a pixel is read -> (images, Y / side, X / side)
    """
    if mask is None:
        return None
    masks = mask.flatten(0, 1)[(pixels != 0).flatten(2).any(dim=2).flatten()]
    squares = masks.unfold(1, side, side).unfold(2, side, side).bool().flatten(3)
    return squares.all(dim=3) if whole else squares.any(dim=3)


def spread_positions(table: Tensor, patches: Tensor, seen: Tensor | None) -> Tensor:
    """Learned places of a square image for an image of any shape: those on which its patches would fall.

    table (N * N, W), patches (B, W, Y, X), seen (B, Y, X): the patches of an image, the rest is padding
    -> (B, Y * X, W)
    """
    side = math.isqrt(table.shape[0])
    if seen is None:
        seen = torch.ones_like(patches[:, 0], dtype=torch.bool)
    rows = spread_patches(seen[:, :, 0], side)
    columns = spread_patches(seen[:, 0], side)
    places = rows[:, :, None] * side + columns[:, None]
    return F.embedding(torch.where(seen, places, 0).flatten(1), table)


def spread_patches(seen: Tensor, side: int) -> Tensor:
    """Places on a line of `side` for those of a line of another length, of which seen (B, T) are read."""
    edges = torch.arange(1 / side, 1.0, 1 / side, device=seen.device)
    step = 1.0 / seen.sum(dim=1, keepdim=True)
    shares = torch.arange(seen.shape[1], device=seen.device).float() * step
    return torch.bucketize(shares.clamp(max=1.0 - 1e-6), edges, right=True)


def image_coordinates(pixels: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Row and column of every patch of size x size pixels, row by row. pixels (B, C, Y, X) -> two (T,)"""
    rows = torch.arange(pixels.shape[2] // size, device=pixels.device)
    columns = torch.arange(pixels.shape[3] // size, device=pixels.device)
    return rows.repeat_interleave(len(columns)), columns.repeat(len(rows))
