"""What was measured of the weights, as rows of a page: a row for each tensor of a reading, equal layers together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from mapper.architecture import Architecture, Leaf
from mapper.report.values import MARKS, bars, number, strip_text
from mapper.values.result import TROUBLES, Histogram, Strip, TensorValues, Values
from mapper.values.spots import spots

_WIDE = 96  # bars of a strip; of more layers and experts several share one


def rows(architecture: Architecture, values: Values) -> Mapping[str, Mapping[str, str]]:
    """Folded name of tensors, as a picture has it -> what is shown of them."""
    known = {tensor.name: tensor for tensor in values.tensors}
    folded: dict[str, list[TensorValues]] = defaultdict(list)
    for name, spot in spots(architecture).items():
        folded[folded_name(spot.leaf, spot.own)].append(known[name])
    return {key: _row(tensors) for key, tensors in folded.items()}


def folded_name(leaf: Leaf, own: str) -> str:
    """`layers.{0..11}.attention.query.weight`."""
    return f"{leaf.place}.{own}" if own and leaf.place else own or str(leaf.place)


def _row(tensors: Sequence[TensorValues]) -> dict[str, str]:
    """What is wrong first, then a strip over depth of several, a histogram, numbers; of several from the least to the largest."""
    wrong = [kind for kind in TROUBLES if any(kind in tensor.troubles for tensor in tensors)]
    row = {"wrong": ", ".join(f"{MARKS[kind]} {kind.replace('_', ' ')}" for kind in wrong)} if wrong else {}
    row |= {"over depth": _strip(tensors)} if len(tensors) > 1 else {}
    row |= {
        "numbers": bars(_together([tensor.histogram for tensor in tensors if tensor.histogram])),
        "deviation": _span([tensor.std for tensor in tensors]),
        "mean": _span([tensor.mean for tensor in tensors]),
    }
    row["range"] = _span([*(tensor.min for tensor in tensors), *(tensor.max for tensor in tensors)])
    row["zeros"] = f"{_span([round(100 * tensor.zeros, 1) for tensor in tensors])} %"
    odd = {"NaN": sum(tensor.nan for tensor in tensors), "infinite": sum(tensor.inf for tensor in tensors)}
    row |= {word: f"{count:,}" for word, count in odd.items() if count}
    norms = [tensor.spectral_norm for tensor in tensors if tensor.spectral_norm is not None]
    return row | ({"spectral norm": _span(norms)} if norms else {})


def _together(found: Sequence[Histogram]) -> tuple[float, ...]:
    """One histogram of several, between the least and the largest that any of them has; a bin is spread over those that it meets."""
    if not found:
        return ()
    edges = np.linspace(
        min(one.low for one in found), max(one.high for one in found), len(found[0].counts) + 1
    )
    below = np.zeros(len(edges))  # how many of all lie below each edge
    for one in found:
        own = np.linspace(one.low, one.high, len(one.counts) + 1)
        below += np.interp(edges, own, np.concatenate([[0], np.cumsum(one.counts)]))
    return tuple(np.diff(below).tolist())


def _span(found: Sequence[float]) -> str:
    low, high = number(min(found)), number(max(found))
    return low if low == high else f"{low} to {high}"


def _strip(tensors: Sequence[TensorValues]) -> str:
    """A bar for each layer, or the mark of what is wrong there."""
    step = -(-len(tensors) // _WIDE)
    parts = [tensors[at : at + step] for at in range(0, len(tensors), step)]
    worst = (
        next((kind for kind in TROUBLES if any(kind in tensor.troubles for tensor in part)), "")
        for part in parts
    )
    return strip_text(
        Strip("", tuple(part[0].layer for part in parts), tuple(part[0].std for part in parts), tuple(worst))
    )
