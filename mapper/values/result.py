"""The result as data: what a table, a page or a program shows."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

TROUBLES = (
    "not_finite",  # NaN or infinity
    "exploded",  # far larger than the same tensor of other layers, or one number far larger than all others
    "dead",  # all zeros, or one number everywhere
    "repeated",  # equal, byte for byte, to the same tensor of another layer
    "fresh",  # as an initialiser leaves it: never trained
)  # the worst first


@dataclass(frozen=True)
class Histogram:
    """How many of a sample of the numbers lie in each of equal bins from `low` to `high`; the outer bins hold what lies outside."""

    low: float
    high: float
    counts: tuple[int, ...]


@dataclass
class TensorValues:
    """One tensor. Mean, deviation, least and largest are of its finite numbers; NaN where there are none."""

    name: str
    role: str  # "layers.attention.query"; "" where nothing says
    layer: tuple[int, ...]  # the numbers of the lists that it is in, outermost first; () in none
    shape: tuple[int, ...]
    dtype: str
    mean: float
    std: float
    min: float
    max: float
    zeros: float  # share of all, 0 to 1
    nan: int
    inf: int
    spectral_norm: float | None = (
        None  # of a map of moderate size: the largest factor by which it stretches, from below
    )
    histogram: Histogram | None = None
    drawn: str = ""  # the distribution that its numbers look drawn from, each by itself: "uniform", "normal", "truncated normal"
    troubles: tuple[str, ...] = ()  # of TROUBLES
    like: str = ""  # of one that is repeated: the tensor that it repeats
    apart: float = 0.0  # how unlike the same tensor of other layers its size is, in usual differences


@dataclass(frozen=True)
class Strip:
    """One role over depth: the deviation of each layer's tensor, and what is wrong there."""

    role: str
    layers: tuple[tuple[int, ...], ...]
    std: tuple[float, ...]
    troubles: tuple[str, ...]  # the worst of each layer, "" for none


@dataclass(frozen=True)
class Trouble:
    """One thing that is wrong, with every tensor that it is wrong with."""

    kind: str  # one of TROUBLES
    tensors: tuple[str, ...]
    text: str  # in words, with the first of them


@dataclass
class Values:
    """All tensors in the order of the file, strips in that of their first tensor, the worst trouble first."""

    source: str
    bytes_read: int
    seconds: float
    tensors: list[TensorValues]
    strips: list[Strip] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # no trouble, but worth knowing

    def as_data(self) -> dict[str, Any]:
        """Plain lists, texts and numbers; what is not finite is None."""
        return _plain(asdict(self))

    def to_json(self) -> str:
        """One JSON document."""
        return json.dumps(self.as_data(), allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
