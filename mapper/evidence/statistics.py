"""Statistics of trained weights, each with a score for every value that a fact could have.

A statistic takes samples, one for each instance of a block: the weights of its leaves by what the rule calls them, as
[outputs, inputs]; the candidates; and facts of the block that are known. It gives scores by what they rest on: several
that rest on different tensors must not contradict each other. Scores grow with how sure they are, 1 is chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Sample = Mapping[str, Array]
Scores = dict[str, dict[Any, float]]  # what they rest on -> candidate -> score
Statistic = Callable[[Sequence[Sample], Sequence[Any], Mapping[str, Any]], Scores]

INPUTS = 1024  # of a row, at most: cosines of longer ones are as good from a sample of them
_TINY = 1e-12
_NEGATIVE = 0.05  # share of the scales of a norm below zero, from which on they are those of 1 + weight
_POSITIVE = 0.001  # share up to which they are plain, if they lie about 1
_ABOUT_ONE = (0.7, 1.4)  # where the median of plain scales lies that training has not moved far


def head_blocks(samples: Sequence[Sample], candidates: Sequence[Any], known: Mapping[str, Any]) -> Scores:
    """How much of the likeness of channels is explained by heads: `values` [key/value channels, in], `outputs` [out, channels].

    Training makes the channels of one head more alike than others, or less. Where keys and values are shared, those of
    one group in the same place of their heads read one value: they are a class of their own.
    """
    sums: dict[str, dict[Any, list[float]]] = {}
    for sample in samples:
        channels = sample["outputs"].shape[1]
        shared = sample["values"].shape[0] if "values" in sample else channels
        tables = {"outputs": likeness(sample["outputs"].T)}
        if "values" in sample:
            tables["values"] = likeness(sample["values"])
        for heads in candidates:
            if channels % heads or shared % (channels // heads):
                continue
            size = channels // heads
            for name, table in tables.items():
                group = max(channels // shared, 1) if name == "outputs" else 1
                score = explained(table, size, group)
                sums.setdefault(name, {}).setdefault(heads, []).append(score)
    return {
        name: {value: float(np.sqrt(np.mean(found))) for value, found in by_value.items()}
        for name, by_value in sums.items()
    }


def likeness(rows: Array) -> Array:
    """Squared cosines of rows [n, m] with each other, [n, n]; 0 for a row with itself."""
    rows = unit(rows[:, :: -(-rows.shape[1] // INPUTS)])
    table: Array = np.square(rows @ rows.T)
    np.fill_diagonal(table, 0)
    return table


def unit(rows: Array) -> Array:
    """Rows of length 1."""
    found: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _TINY)
    return found


def explained(table: Array, size: int, group: int = 1) -> float:
    """Sum of squares between classes of pairs over the variance of one pair; about the number of classes by chance.

    Classes of a table [n, n]: both in one block of `size` channels, both in one group of so many blocks and in the same
    place there, both in one group otherwise, the rest.
    """
    count = len(table) // size
    if count < 2 or size < 2:
        return 0.0
    blocks = table.reshape(count, size, count, size).transpose(0, 2, 1, 3)
    sums = blocks.sum((2, 3), dtype=np.float64)
    same_place = np.trace(blocks, axis1=2, axis2=3).astype(np.float64)
    head = np.eye(count, dtype=bool)
    near = (np.arange(count)[:, None] // group == np.arange(count) // group) & ~head
    far = ~(near | head)
    pairs = (
        (sums[head].sum(), head.sum() * size * (size - 1)),
        (same_place[near].sum(), near.sum() * size),
        ((sums - same_place)[near].sum(), near.sum() * size * (size - 1)),
        (sums[far].sum(), far.sum() * size * size),
    )
    total, number = sum(total for total, _ in pairs), sum(number for _, number in pairs)
    mean = total / number
    variance = max(float(np.square(table, dtype=np.float64).sum()) / number - mean**2, _TINY)
    between = sum(number * (total / number - mean) ** 2 for total, number in pairs if number)
    return float(between / variance / 2)  # each pair stands in the table twice


def rotary_pairs(samples: Sequence[Sample], candidates: Sequence[Any], known: Mapping[str, Any]) -> Scores:
    """Whether `query` and `key` [channels, in] meet in planes that turn, and which channels are one: halves or neighbours.

    A rotary embedding sees the two channels a and b of a plane as one complex number: what query a has in common with
    key b is what query b has in common with key a, with the other sign. Without it, they have the same sign or none.
    """
    size = known.get("head_dim")
    if not isinstance(size, int) or size % 2:
        return {}
    meetings = [meeting for sample in samples for meeting in _meetings(sample, size)]
    if not meetings:
        return {}
    found = {name: max(turning(np.stack(meetings), *way), 1.0) for name, way in _planes(size).items()}
    is_flag = True in candidates
    return {"planes": {True: max(found.values()), False: 1.0} if is_flag else found}


def rotary_width(samples: Sequence[Sample], candidates: Sequence[Any], known: Mapping[str, Any]) -> Scores:
    """How many of the first channels of a head turn, as a number or as a share: planes of a wrong width do not turn."""
    size = known.get("head_dim")
    if not isinstance(size, int):
        return {}
    meetings = [meeting for sample in samples for meeting in _meetings(sample, size)]
    widths = {value: round(value * size) if isinstance(value, float) else value for value in candidates}
    scores = {
        value: max(turning(np.stack(meetings), *way) for way in _planes(width).values())
        for value, width in widths.items()
        if meetings and 0 < width <= size and width % 2 == 0
    }
    return {"planes": {value: max(score, 1.0) for value, score in scores.items()}}


def _planes(size: int) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The two channels of each plane of the first `size`, by how they are paired."""
    places = np.arange(size)
    return {"half": (places[: size // 2], places[size // 2 :]), "interleaved": (places[0::2], places[1::2])}


def turning(meetings: Array, first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """How far [heads, size, size] products of queries with keys turn the planes of two channels each.

    The correlation of one channel's query with the other's key, and the other way round with the other sign, in
    standard deviations from none.
    """
    there, back = meetings[:, first, second].reshape(-1), -meetings[:, second, first].reshape(-1)
    if min(there.std(), back.std()) < _TINY:
        return 0.0
    return float(np.corrcoef(there, back)[0, 1] * np.sqrt(there.size))


def _meetings(sample: Sample, size: int) -> Iterator[Array]:
    """Cosines of each head's query channels with its key channels, [size, size]; none where keys read other states."""
    query, key = sample["query"], sample["key"]
    is_whole = not (query.shape[0] % size or key.shape[0] % size or query.shape[0] % key.shape[0])
    if not is_whole or query.shape[1] != key.shape[1]:
        return
    queries, keys = (unit(rows).reshape(-1, size, rows.shape[1]) for rows in (query, key))
    for head, rows in enumerate(queries):
        yield rows @ keys[head // (len(queries) // len(keys))].T


def centre(samples: Sequence[Sample], candidates: Sequence[Any], known: Mapping[str, Any]) -> Scores:
    """Whether scales of norms lie about 0, those of 1 + weight, or about 1: in how many of each hundred norms."""
    votes = [_vote(next(iter(sample.values()))) for sample in samples]
    share = {value: 100 * votes.count(value) / len(votes) for value in (True, False)}
    return {"scales": {value: max(share[value], 1.0) for value in candidates if value in share}}


def _vote(scales: Array) -> bool | None:
    """What the scales [channels] of one norm speak for; None where it could be either."""
    negative = float((scales < 0).mean())
    if negative >= _NEGATIVE:
        return True
    low, high = _ABOUT_ONE
    return False if negative <= _POSITIVE and low <= float(np.median(scales)) <= high else None


STATISTICS: Mapping[str, Statistic] = {
    "head_blocks": head_blocks,
    "rotary_pairs": rotary_pairs,
    "rotary_width": rotary_width,
    "centre": centre,
}
