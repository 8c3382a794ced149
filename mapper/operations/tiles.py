"""Images cut into square tiles of one size, behind a small copy of the whole (LLaVA-NeXT; paper 2408.03326).

`sizes` are the heights and widths in pixels to which an image may be scaled, `side` that of a tile.
image_sizes (N, 2) are heights and widths of the images as they came; one keeps its shape and gets a border.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def best_size(size: list[int], sizes: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """The entry of `sizes` that shows most of an image's pixels, of several such the smallest."""
    scales = [min(height / size[0], width / size[1]) for height, width in sizes]  # at which it fits into them
    shown = [min(int(size[1] * scale) * int(size[0] * scale), size[0] * size[1]) for scale in scales]
    return max(zip(shown, sizes, strict=True), key=lambda row: (row[0], -row[1][0] * row[1][1]))[1]


def tile_grids(
    image_sizes: Tensor, sizes: tuple[tuple[int, int], ...], side: int, images: Tensor | None = None
) -> list[tuple[int, int]]:
    """Rows and columns of tiles of each image; none, (0, 0), of those that share a text.

    images (B,) says how many images each text has; by default every one stands alone.
    """
    lone = [True] * len(image_sizes)
    if images is not None:
        lone = [count == 1 for count in images.tolist() for _ in range(count)]
    best = [
        best_size(size, sizes) if alone else (0, 0)
        for size, alone in zip(image_sizes.tolist(), lone, strict=True)
    ]
    return [(-(-height // side), -(-width // side)) for height, width in best]


def image_tiles(pixels: Tensor, grids: list[tuple[int, int]]) -> Tensor:
    """The whole and the tiles of every image, without padding. (N, P, C, Y, X) -> (tiles, C, Y, X)"""
    if pixels.ndim == 4:
        return pixels
    counts = [rows * columns + 1 for rows, columns in grids]
    return torch.cat([image[:count] for image, count in zip(pixels, counts, strict=True)])


def without_border(x: Tensor, size: list[int]) -> Tensor:
    """What an image of `size` covers of a map x (C, Y, X) in whose middle it stands."""
    height, width = x.shape[1:]
    if size[1] / size[0] > width / height:
        border = (height - int(round(size[0] * (width / size[1]), 7))) // 2
        return x[:, border : height - border]
    border = (width - int(round(size[1] * (height / size[0]), 7))) // 2
    return x[:, :, border : width - border]


def bounded_map(x: Tensor, most: int) -> Tensor:
    """A map x (C, Y, X) made smaller where it has over 1.21 * most places."""
    ratio = (x.shape[1] * x.shape[2] / most) ** 0.5
    if ratio <= 1.1:
        return x
    size = [int(x.shape[1] // ratio), int(x.shape[2] // ratio)]
    return F.interpolate(x[None], size, mode="bilinear")[0]


def join_tiles(
    x: Tensor,
    image_sizes: Tensor,
    grids: list[tuple[int, int]],
    line_end: Tensor,
    side: int,
    most: int | None = None,
) -> Tensor:
    """The vectors of all images: of the whole, then of its tiles row by row, each row with a line's end.

    x (tiles * T, W), line_end (W,), side: patches along that of a tile; most: tiles as large as a map may be.
    -> (vectors, W)
    """
    counts = [rows * columns + 1 for rows, columns in grids]
    found = []
    x = x.reshape(sum(counts), -1, x.shape[-1])
    for tiles, grid, size in zip(x.split(counts), grids, image_sizes.tolist(), strict=True):
        found.append(tiles[0])
        if len(tiles) == 1:
            found.append(line_end[None])
            continue
        whole = tiles[1:].reshape(*grid, side, side, -1).permute(4, 0, 2, 1, 3).flatten(3, 4).flatten(1, 2)
        whole = without_border(whole, size)
        if most is not None:
            whole = bounded_map(whole, most * side * side)
        ends = line_end[:, None, None].expand(-1, whole.shape[1], 1)
        found.append(torch.cat((whole, ends), dim=2).flatten(1).t())
    return torch.cat(found)


def join_tiles_first(
    wholes: Tensor,
    tiles: Tensor | None,
    counts: Tensor | None,
    grids: Tensor | None,
    line_end: Tensor,
    image_end: Tensor,
) -> Tensor:
    """Vectors of all images: of tiles, then of the whole, each row with a line's end, and an image's end.

    wholes (B, S * S, W), tiles (N, s * s, W), counts (B,) of each image's, grids (B, 2) columns and rows of
    these, line_end (W,), image_end (W,) -> (vectors, W)
    """
    found = []
    parts = wholes.new_zeros(0, 1, wholes.shape[2]) if tiles is None else tiles
    held = [0] * len(wholes) if counts is None or tiles is None else counts.tolist()
    for at, own in enumerate(parts.split(held)):
        pages = [wholes[at].unflatten(0, (math.isqrt(wholes.shape[1]), -1))]
        if grids is not None and len(own):
            columns, rows = grids[at].tolist()
            side = math.isqrt(own.shape[1])
            page = own.reshape(rows, columns, side, side, -1).transpose(1, 2)
            pages = [page.flatten(2, 3).flatten(0, 1), *pages]
        found += [torch.cat((page, line_end.expand(len(page), 1, -1)), dim=1).flatten(0, 1) for page in pages]
        found.append(image_end[None])
    return torch.cat(found)


def tile_mask(x: Tensor, mask: Tensor, places: int) -> Tensor:
    """What is added to scores over all tiles of an image: padding alone is hidden, and from padding alone.

    x (N, tiles, T, W), of which `places` of T are real, mask (..., tiles) of N images
    -> (N, 1, tiles * T, tiles * T)
    """
    real = (mask != 0).reshape(x.shape[0], -1, 1) & (torch.arange(x.shape[2], device=x.device) < places)
    padding = ~real.flatten(1)
    hidden = padding[:, :, None] & padding[:, None]
    return (hidden * torch.finfo(x.dtype).min)[:, None].to(x.dtype)


def states_read(x: Tensor, states: Tensor | None, reads_images: bool) -> Tensor | None:
    """What a layer reads: the states of images, which may be none, or its own input."""
    return states if reads_images else x
