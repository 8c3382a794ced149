"""Every tensor of a checkpoint read once, and what its numbers are."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mapper.architecture import Architecture
from mapper.checkpoint import FLOATS, TensorInfo
from mapper.errors import SourceError
from mapper.values.judged import judged, notes, whole_troubles
from mapper.values.moments import Moments, evenly
from mapper.values.numbers import Numbers
from mapper.values.result import TensorValues, Values
from mapper.values.spectrum import FRESH, LARGEST, fresh_shape, spectral_norm
from mapper.values.spots import Spot, spots
from mapper.values.strips import strips

MAPS = ("Linear", "LSTM", "GRU", "RNN")  # leaves whose matrices have a spectral norm that says something
DRAWN = (
    *MAPS,
    "Embedding",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
)
_FLOATS = (*FLOATS, "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")


def measure(architecture: Architecture, tell: Callable[[float], None] = lambda part: None) -> Values:
    """The numbers of all tensors, and what is wrong with them; `tell` hears which part of all bytes is read.

    Memory is that of one tensor, at most LARGEST numbers of it where it can be read in pieces. Raises SourceError for what has no weights.
    """
    checkpoint = architecture.checkpoint
    if checkpoint.read is None:
        raise SourceError(
            f"{checkpoint.source}: has no weights here, so there are no values; name a folder or a file that has them"
        )
    start, seen = time.monotonic(), 0
    total = sum(info.bytes for info in checkpoint.tensors.values()) or 1

    def count(size: int) -> None:
        nonlocal seen
        seen += size
        tell(min(seen / total, 1.0))

    with Numbers(checkpoint, count) as numbers:
        places = spots(architecture)
        found = {name: _measured(numbers, spot, checkpoint.tensors[name]) for name, spot in places.items()}
        size = seen
        judged(found, places, numbers, checkpoint.config)
    values = Values(checkpoint.source, size, time.monotonic() - start, list(found.values()))
    values.strips = strips(found, places)
    values.troubles = whole_troubles(found, places)
    values.notes = notes(found)
    return values


def _measured(numbers: Numbers, spot: Spot, info: TensorInfo) -> TensorValues:
    width = info.shape[-1] if info.shape else 1
    moments, matrix = Moments(info.size, width), None
    if spot.leaf.kind in MAPS and len(info.shape) == 2 and 0 < info.size <= LARGEST and info.dtype in _FLOATS:
        matrix = numbers.whole(spot.name, info.dtype, info.size)
        for at in range(0, info.size, 2**18):
            moments.add(matrix[at : at + 2**18])
    else:
        for piece in numbers.pieces(spot.name, info.dtype):
            moments.add(piece)
    is_any, is_finite = moments.count > 0, not (moments.nan or moments.inf)
    values = TensorValues(
        spot.name,
        spot.role,
        spot.layer,
        tuple(info.shape),
        info.dtype,
        moments.mean if is_any else math.nan,
        moments.std,
        moments.min if is_any else math.nan,
        moments.max if is_any else math.nan,
        moments.zeros / moments.seen if moments.seen else 0.0,
        moments.nan,
        moments.inf,
        histogram=moments.histogram(),
    )
    if matrix is not None and is_finite:
        norm = spectral_norm(matrix.reshape(info.shape))
        values.spectral_norm = norm if math.isfinite(norm) else None
    if is_finite and moments.std > 0 and _could_be_drawn(spot, info):
        values.drawn = fresh_shape(_part(numbers, spot, info, matrix))
    return values


def _could_be_drawn(spot: Spot, info: TensorInfo) -> bool:
    return spot.leaf.kind in DRAWN and len(info.shape) >= 2 and info.dtype in _FLOATS and info.size > 0


def _part(numbers: Numbers, spot: Spot, info: TensorInfo, matrix: Any) -> Any:
    """At most FRESH rows and columns of a weight as [outputs, inputs]; an embedding without its rows of zeros."""
    rows, width = info.shape[0], info.size // info.shape[0]
    wanted, across = evenly(rows, FRESH), evenly(width, FRESH)
    if matrix is not None:
        return matrix.reshape(rows, width)[np.ix_(wanted, across)]
    part = numbers.rows(spot.name, info.dtype, wanted.tolist(), width)[:, across]
    return part[np.any(part != 0, axis=1)] if spot.leaf.kind == "Embedding" else part
