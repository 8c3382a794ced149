"""Numbers picked by index, put by index, sorted and searched. https://onnx.ai/onnx/operators/"""

from __future__ import annotations

import torch
from torch import Tensor

from mapper.graphs.operators import operator
from mapper.graphs.operators.common import axis_in, ints, wide


@operator("Gather")
def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return x[(slice(None),) * axis_in(axis, x.dim()) + (indices.to(torch.int64),)]


def from_front(indices: Tensor, size: int) -> Tensor:
    """Indices counted from the front."""
    return torch.where(indices < 0, indices + size, indices).to(torch.int64)


@operator("GatherElements", since=11)
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return x.gather(axis, from_front(indices, x.shape[axis]))


@operator("GatherND", since=11)
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    batch = x.shape[:batch_dims]
    flat_x = x.reshape(-1, *x.shape[batch_dims:])
    flat = indices.reshape(flat_x.shape[0], -1, indices.shape[-1])
    rows = torch.arange(flat_x.shape[0], device=x.device)[:, None]
    at = (rows, *flat.unbind(-1))
    found = flat_x[at]
    return found.reshape(*batch, *indices.shape[batch_dims:-1], *found.shape[2:])


@operator("ScatterElements", since=11)
def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    at = from_front(indices, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, at, updates)
    kind = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[reduction]
    return x.scatter_reduce(axis, at, updates, kind)


@operator("Scatter", since=9, until=10)
def scatter(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0) -> Tensor:
    return scatter_elements(x, indices, updates, axis=axis)


@operator("ScatterND", since=11)
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """Slices of a copy replaced, or joined with what is there."""
    depth = indices.shape[-1]
    flat = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=x.device)
    for axis in range(depth):
        flat = flat * x.shape[axis] + from_front(indices[..., axis], x.shape[axis])
    rows = x.reshape(-1, *x.shape[depth:]).clone()
    flat, slices = flat.reshape(-1), updates.reshape(-1, *x.shape[depth:])
    if reduction == "none":
        rows[flat] = slices
    else:
        kind = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[reduction]
        at = flat.reshape(-1, *(1,) * (slices.dim() - 1)).expand(slices.shape)
        rows = rows.scatter_reduce(0, at, slices, kind)
    return rows.reshape(x.shape)


@operator("TensorScatter", since=24)
def tensor_scatter(
    x: Tensor, update: Tensor, write_indices: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """An update written into a cache of each row of a batch, from an index on, and around its end where it is circular."""
    along = axis_in(axis, x.dim())
    batch, count, size = x.shape[0], update.shape[along], x.shape[along]
    start = torch.zeros(batch, dtype=torch.int64, device=x.device) if write_indices is None else write_indices
    at = start[:, None] + torch.arange(count, device=x.device)
    at = at % size if mode == "circular" else at
    found = x.movedim(along, 1).clone()
    found[torch.arange(batch, device=x.device)[:, None], at] = update.movedim(along, 1)
    return found.movedim(1, along)


@operator("Compress", since=9)
def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    x = x.reshape(-1) if axis is None else x
    return x.index_select(axis or 0, condition.nonzero().reshape(-1))


@operator("NonZero", since=9)
def non_zero(x: Tensor) -> Tensor:
    return x.nonzero().T if x.dim() else x.reshape(1).nonzero().T[:0]


@operator("TopK", since=10)
def top_k(
    x: Tensor, k: int | Tensor, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Tensor, Tensor]:
    """The largest numbers and where they are; of equal ones the first."""
    values, at = wide(x).sort(dim=axis, descending=bool(largest), stable=True)
    count = ints(k)[0]
    return values.narrow(axis, 0, count).to(x.dtype), at.narrow(axis, 0, count)


@operator("TopK", until=9)
def top_k_1(x: Tensor, *, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
    return top_k(x, k, axis=axis)


@operator("Unique", since=11)
def unique(x: Tensor, *, axis: int | None = None, sorted: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Different numbers or slices: themselves, where each is first, which each is, and how many."""
    flat = x.reshape(-1) if axis is None else x
    along = 0 if axis is None else axis
    values, which, counts = flat.unique(dim=along, return_inverse=True, return_counts=True)
    first = torch.full((counts.shape[0],), flat.shape[along], dtype=torch.int64, device=x.device)
    first = first.scatter_reduce(0, which, torch.arange(which.shape[0], device=x.device), "amin")
    if not sorted:
        order = first.argsort()
        rank = order.argsort()
        values, first, which, counts = (
            values.index_select(along, order),
            first[order],
            rank[which],
            counts[order],
        )
    return values, first, which, counts


@operator("NonMaxSuppression", since=10)
def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_boxes_per_class: int | Tensor = 0,
    iou_threshold: Tensor | float = 0.0,
    score_threshold: Tensor | None = None,
    *,
    center_point_box: int = 0,
) -> Tensor:
    """Boxes that overlap no better one too much. boxes (B, N, 4), scores (B, C, N) -> (found, 3): batch, class, box"""
    limit, share = ints(max_output_boxes_per_class)[0], float(iou_threshold)
    found: list[list[int]] = []
    for batch, of_class in ((b, c) for b in range(scores.shape[0]) for c in range(scores.shape[1])):
        points = corners(boxes[batch], center_point_box)
        score = scores[batch, of_class]
        kept: list[int] = []
        for at in score.argsort(descending=True, stable=True).tolist():
            if len(kept) >= limit:
                break
            if score_threshold is not None and not bool(score[at] > score_threshold.reshape(-1)[0]):
                continue
            if all(overlap(points[at], points[other]) <= share for other in kept):
                kept.append(at)
        found += [[batch, of_class, at] for at in kept]
    return torch.tensor(found, dtype=torch.int64, device=boxes.device).reshape(-1, 3)


def corners(boxes: Tensor, center_point_box: int) -> Tensor:
    """Boxes by their least and greatest coordinates. (N, 4) -> (N, 4)"""
    if center_point_box:
        center, size = boxes[:, :2], boxes[:, 2:]
        return torch.cat([center - size / 2, center + size / 2], 1)
    return torch.cat(
        [torch.minimum(boxes[:, :2], boxes[:, 2:]), torch.maximum(boxes[:, :2], boxes[:, 2:])], 1
    )


def overlap(a: Tensor, b: Tensor) -> float:
    """Intersection over union of two boxes."""
    inner = (torch.minimum(a[2:], b[2:]) - torch.maximum(a[:2], b[:2])).clamp(min=0).prod()
    both = (a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - inner
    return float(inner / both) if both > 0 else 0.0


@operator("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(
    x: Tensor,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int],
    weights: list[float] | None = None,
) -> Tensor:
    """How often each of a pool of n-grams occurs, its words up to `max_skip_count` apart. x (B, T) -> (B, pool)"""
    rows = x.reshape(1, -1).tolist() if x.dim() < 2 else x.tolist()
    grams: dict[tuple[int, ...], int] = {}
    ends = [*ngram_counts[1:], len(pool_int64s)]
    for length, (start, end) in enumerate(zip(ngram_counts, ends, strict=True), 1):
        for at in range(start, end, length):
            grams[tuple(pool_int64s[at : at + length])] = len(grams)
    found = torch.zeros(len(rows), max(ngram_indexes) + 1)
    for row, words in enumerate(rows):
        for length in range(min_gram_length, max_gram_length + 1):
            for gap in range(1, (max_skip_count + 1 if length > 1 else 1) + 1):
                for start in range(len(words) - gap * (length - 1)):
                    place = grams.get(tuple(words[start : start + gap * length : gap][:length]))
                    if place is not None:
                        found[row, ngram_indexes[place]] += 1
    scale = torch.ones(found.shape[1])
    for place, weight in enumerate(weights or []):
        scale[ngram_indexes[place]] = weight
    counted = (found > 0).to(found.dtype) if mode == "IDF" else found
    counted = counted if mode == "TF" else counted * scale
    return counted[0] if x.dim() < 2 else counted
