"""What other towers saw or heard, among the embeddings of a text, and where it stands."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def scatter_features(x: Tensor, features: Tensor | None, input_ids: Tensor, place_id: int) -> Tensor:
    """Embeddings x (B, T, W) with features (..., W) where input_ids (B, T) are place_id, in order.

    Without features, or places, the embeddings stay. ValueError if there is not one vector (W,) a place.
    """
    if features is None:
        return x
    places = input_ids == place_id
    if not torch.compiler.is_compiling():  # a graph has no branches
        count, width = int(places.sum()), x.shape[-1]
        if count and count * width != features.numel():
            raise ValueError(f"{count} places of width {width} for features {tuple(features.shape)}")
    return x.masked_scatter(places.unsqueeze(-1), features.to(x.dtype))


def shuffle_patches(x: Tensor, factor: int) -> Tensor:
    """Squares of factor x factor patches, one vector. (B, S * S, W) -> (B, (S / factor)^2, W * factor^2)"""
    side = math.isqrt(x.shape[1])
    squares = x.unflatten(1, (side // factor, factor, side // factor, factor))
    return squares.permute(0, 1, 3, 2, 4, 5).flatten(3).flatten(1, 2)


def average_patches(x: Tensor, count: int) -> Tensor:
    """The mean of the patches of each of `count` equal squares: (B, S * S, W) -> (B, count, W).

    Where `count` is no square or does not fit, as many squares as fit with sides of whole patches.
    """
    side = math.isqrt(x.shape[1])
    inner = side // math.isqrt(count)
    fit = side // inner
    whole = x.unflatten(1, (side, side))[:, : fit * inner, : fit * inner]
    return whole.unflatten(2, (fit, inner)).unflatten(1, (fit, inner)).mean((2, 4)).flatten(1, 2)


def first_queries(queries: Tensor, x: Tensor, counts: dict[str, int]) -> Tensor:
    """As many of the learned queries as are for so many patches, for each image; KeyError for another number.

    queries (Q, W), x (B, T, V), counts {"T": count} -> (B, count, W)
    """
    return queries[: counts[str(x.shape[1])]].expand(x.shape[0], -1, -1)


def grid_positions(
    token_types: Tensor | None,
    attention_mask: Tensor | None,
    image_grids: Tensor | None,
    video_grids: Tensor | None,
    intervals: list[float] | None,
    merge_size: int,
    past_times: bool = False,
) -> Tensor | None:
    """Frame, row, column of each position of a text with images; words count all three up (paper 2409.12191).

    token_types (B, T) is 0 for words, 1 for images, 2 for videos; grids (images, 3) are frames, rows and
    columns of patches; the frames of a video stand `intervals` apart. -> (3, B, T), or None without an image.
    """
    grids = {1: image_grids, 2: video_grids}
    if token_types is None or (image_grids is None and video_grids is None):
        return None
    left = {kind: [] if grid is None else grid.tolist() for kind, grid in grids.items()}
    steps = [] if intervals is None else list(intervals)
    positions = token_types.new_zeros(3, *token_types.shape)
    for row, types in enumerate(token_types):
        real = torch.ones_like(types).bool() if attention_mask is None else attention_mask[row].bool()
        start, found = 0, []
        for kind, count in zip(*torch.unique_consecutive(types[real], return_counts=True), strict=True):
            if kind == 0:
                found.append(torch.arange(count, device=types.device).expand(3, -1) + start)
                start += int(count)
                continue
            frames, rows, columns = left[int(kind)].pop(0)
            step = steps.pop(0) if kind == 2 and steps else 1
            times = (torch.arange(frames, device=types.device) * step).long()
            sides = [torch.arange(side // merge_size, device=types.device) for side in (rows, columns)]
            found.append(start + torch.cartesian_prod(times, *sides).T)
            start = int(found[-1].max()) + 1 if past_times else start + max(rows, columns) // merge_size
        positions[:, row, real] = torch.cat(found, dim=1)
    return positions


def frame_intervals(video_grids: Tensor | None, seconds: Tensor | None, rate: float) -> list[float] | None:
    """How far apart the frames of each video stand, at `rate` positions a second; by default a second."""
    if video_grids is None:
        return None
    return [rate] * len(video_grids) if seconds is None else (seconds * rate).tolist()


def single_frames(video_grids: Tensor | None) -> Tensor | None:
    """Each frame of a video as a grid of its own: (videos, 3) -> (frames, 3)."""
    if video_grids is None:
        return None
    grids = video_grids.repeat_interleave(video_grids[:, 0], dim=0)
    return torch.cat([torch.ones_like(grids[:, :1]), grids[:, 1:]], dim=1)


def entry(values: tuple[Tensor, ...] | None, index: int) -> Tensor | None:
    """One of several values, or None where there are none."""
    return None if values is None else values[index]


def add_features(x: Tensor, features: Tensor | None, input_ids: Tensor, place_id: int, index: int) -> Tensor:
    """x (B, T, W) plus features[index] (N, W) where input_ids (B, T) are place_id; later layers get none."""
    if features is None or index >= len(features):
        return x
    places = (input_ids == place_id).unsqueeze(-1)
    return x + torch.zeros_like(x).masked_scatter(places, features[index].to(x.dtype))


def some_states(states: list[Tensor], layers: tuple[int, ...]) -> list[Tensor]:
    """The outputs of several layers."""
    return [states[layer] for layer in layers]


def pooled_tokens(x: Tensor, index: Tensor, grids: Tensor | None) -> Tensor:
    """The vectors of places that have a patch. ValueError where rows and columns in grids say another number.

    x (N, W), index (N, K), grids (images, 4): of an image in low resolution and in high, or (videos, 3): with
    frames
    """
    kept = x[(index >= 0).any(dim=-1)]
    if grids is not None:
        sides = grids if grids.shape[1] == 3 else grids.unflatten(1, (2, 2))
        count = int(sides.prod(dim=-1).sum())
        if count != len(kept):
            raise ValueError(f"the grids say {count} vectors, but there are {len(kept)}")
    return kept


def scatter_rows(x: Tensor, rows: Tensor | None, input_ids: Tensor, ids: tuple[int, ...]) -> Tensor:
    """Embeddings x (B, T, W) with one of rows (N, W) wherever input_ids (B, T) are the id of that row."""
    if rows is None:
        return x
    for row, place_id in zip(rows, ids, strict=False):
        x = torch.where((input_ids == place_id)[..., None], row.to(x.dtype), x)
    return x


def scatter_vectors(x: Tensor, vectors: Tensor | None, mask: Tensor | None, places: Tensor) -> Tensor:
    """x (B, T, W) with the vectors (..., W) that mask (...) shows at its places (B, T, 1), in order.

    RuntimeError if there are not as many places as vectors.
    """
    if vectors is None:
        return x
    kept = vectors.flatten(0, -2) if mask is None else vectors[mask.bool()]
    torch._check(int(places.sum()) == kept.shape[0], lambda: "not as many places as vectors")
    return x.masked_scatter(places, kept.to(x.dtype))


def scatter_latents(x: Tensor, vectors: Tensor | None, places: Tensor) -> Tensor:
    """As scatter_vectors; vectors (B, T, W) of as many positions as x has are taken at their own."""
    if vectors is None or vectors.shape[:2] != x.shape[:2]:
        return scatter_vectors(x, vectors, None, places)
    return torch.where(places, vectors.to(x.dtype), x)
