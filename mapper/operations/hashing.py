"""Attention in chunks of positions, as they stand or sorted by hashes (Reformer, paper 2001.04451).

Constants take the place of hidden scores, as in the published model: where nothing is seen, a plain mean.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def pad_to_chunks(
    x: Tensor, attention_mask: Tensor | None, sizes: list[int | None]
) -> tuple[Tensor, Tensor | None]:
    """Zeros behind positions until they fill chunks of each size, where there are more than one chunk has.

    x (B, T, D), attention_mask (B, T) -> x (B, U, D), whether a position is seen (B, U), None: all are
    """
    seen = None if attention_mask is None else attention_mask != 0
    lengths = [size for size in sizes if size is not None]
    missing = -x.shape[1] % math.lcm(*lengths)
    if missing == 0 or x.shape[1] <= min(lengths):
        return x, seen
    if seen is None:
        seen = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    return F.pad(x, (0, 0, 0, missing)), F.pad(seen, (0, missing), value=False)


def chunks_around(x: Tensor, chunks: tuple[int, int, int]) -> Tensor:
    """Each chunk with those before and after it; the first and the last are neighbours.

    x (B, H, S, ...), chunks: length, before, after -> (B, H, S / length, (before + 1 + after) * length, ...)
    """
    size, before, after = chunks
    x = x.unflatten(2, (-1, size))
    around = [torch.cat((x[:, :, step:], x[:, :, :step]), dim=2) for step in range(-before, after + 1)]
    return torch.cat(around, dim=3)


def chunk_scores(
    q: Tensor, k: Tensor, places: Tensor, seen: Tensor | None, chunks: tuple[int, int, int], is_causal: bool
) -> tuple[Tensor, Tensor]:
    """Scores of each row for the rows of its chunk and those around, and whether a row is scored for itself.

    q, k (B, H, S, D), places: of the rows (B, H, S), seen (B, T) -> twice (B, H, S / length, length, M)
    """
    rows = places.unflatten(2, (-1, chunks[0]))[..., None]
    around = chunks_around(places, chunks)
    columns = around[..., None, :]
    scores = (
        q.unflatten(2, (-1, chunks[0])) @ chunks_around(k, chunks).transpose(-1, -2) * q.shape[-1] ** -0.5
    )
    hidden = rows < columns if is_causal else torch.zeros_like(scores, dtype=torch.bool)
    if seen is not None:
        batch = torch.arange(len(seen), device=seen.device)[:, None, None, None]
        hidden = hidden | ~seen[batch, around][..., None, :]
    lowest = -1e4 if scores.dtype == torch.float16 else -1e9
    return scores.masked_fill(hidden, lowest), rows == columns


def attend_chunked(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, chunks: tuple[int, int, int], is_causal: bool
) -> Tensor:
    """Attention of each chunk to itself and to those around it; to everything where one chunk has it all.

    q, k, v (B, H, T, D), seen (B, T), chunks: length, before, after -> (B, H, T, D)
    """
    chunks = (q.shape[2], 0, 0) if q.shape[2] <= chunks[0] else chunks
    places = torch.arange(q.shape[2], device=q.device).expand(q.shape[:3])
    scores, _ = chunk_scores(q, k, places, seen, chunks, is_causal)
    return (scores.softmax(dim=-1) @ chunks_around(v, chunks)).flatten(2, 3)


def rotation_buckets(
    q: Tensor, seen: Tensor | None, rounds: int, sizes: tuple[int, ...], seed: int
) -> Tensor:
    """Hashes of queries: which axis each is nearest to behind random rotations; padding has one of its own.

    q (B, H, T, D), seen (B, T) -> (B, H, rounds, T), numbered on from round to round
    """
    halves = [size // 2 for size in sizes]
    generator = torch.Generator().manual_seed(seed)
    rotations = torch.randn(q.shape[1], q.shape[3], rounds, sum(halves), generator=generator, dtype=q.dtype)
    parts = torch.einsum("bhtd,hdrn->bhrtn", q, rotations.to(q.device)).split(halves, dim=-1)
    buckets, count = torch.zeros_like(parts[0][..., 0], dtype=torch.long), 1
    for part, size in zip(parts, sizes, strict=True):
        buckets = buckets + count * torch.cat((part, -part), dim=-1).argmax(dim=-1)
        count = count * size
    if seen is not None:
        buckets = torch.where(seen[:, None, None], buckets, count)
    return buckets + (count + 1) * torch.arange(rounds, device=q.device)[:, None]


def attend_sorted(
    q: Tensor, v: Tensor, places: Tensor, seen: Tensor | None, chunks: tuple[int, int, int], is_causal: bool
) -> tuple[Tensor, Tensor]:
    """Attention in chunks of rows in the order of places; one sees itself only where it sees nothing else.

    Keys are the queries at unit length.
    q, v (B, H, T, D), places (B, H, S) -> (B, H, S, D), the logarithm of the sum of exponents (B, H, S, 1)
    """
    q, v = (part.gather(2, places[..., None].expand(-1, -1, -1, part.shape[-1])) for part in (q, v))
    k = F.rms_norm(q, (q.shape[-1],), eps=1e-6)
    scores, own = chunk_scores(q, k, places, seen, chunks, is_causal)
    scores = scores.masked_fill(own, -1e3 if scores.dtype == torch.float16 else -1e5)
    total = scores.logsumexp(dim=-1, keepdim=True)
    y = (scores - total).exp() @ chunks_around(v, chunks)
    return y.flatten(2, 3), total.flatten(2, 3)


def attend_hashed(
    q: Tensor, v: Tensor, seen: Tensor | None, chunks: tuple[int, int, int], buckets: Tensor, is_causal: bool
) -> Tensor:
    """Attention in chunks of positions sorted by bucket; rounds are averaged by their sums of exponents.

    q, v (B, H, T, D), seen (B, T), chunks: length, before, after, buckets (B, H, R, T) -> (B, H, T, D)
    """
    if q.shape[2] <= chunks[0]:
        places = torch.arange(q.shape[2], device=q.device).expand(q.shape[:3])
        return attend_sorted(q, v, places, seen, (q.shape[2], 0, 0), is_causal)[0]
    order = buckets.flatten(2).argsort(dim=-1, stable=True)
    y, total = attend_sorted(q, v, order % q.shape[2], seen, chunks, is_causal)
    back = order.argsort(dim=-1)[..., None]
    y = y.gather(2, back.expand(y.shape)).unflatten(2, buckets.shape[2:])
    weights = total.gather(2, back).unflatten(2, buckets.shape[2:]).softmax(dim=2)
    return (y * weights).sum(dim=2)
