"""Each role over depth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median

from mapper.checkpoint import COUNTER
from mapper.values.result import TROUBLES, Strip, TensorValues
from mapper.values.spots import Spot

FEWEST = 2  # layers of a strip


def strips(found: Mapping[str, TensorValues], places: Mapping[str, Spot]) -> list[Strip]:
    """A strip for each weight that several layers have; of experts one number for all of a layer."""
    groups: dict[str, dict[tuple[int, ...], list[TensorValues]]] = defaultdict(lambda: defaultdict(list))
    for name, spot in places.items():
        if spot.layer and found[name].std == found[name].std and spot.own not in ("bias", COUNTER):
            own = "" if spot.own in ("weight", "") else f".{spot.own}"
            groups[spot.role + own][_depth(spot)].append(found[name])
    return [_strip(role, layers) for role, layers in groups.items() if len(layers) >= FEWEST]


def _depth(spot: Spot) -> tuple[int, ...]:
    """The number of the layer, without that of the expert in it."""
    lists = [name for name, numbers in spot.leaf.block if numbers is not None]
    return spot.layer[:-1] if lists[-1:] == ["experts"] and len(spot.layer) > 1 else spot.layer


def _strip(role: str, layers: Mapping[tuple[int, ...], list[TensorValues]]) -> Strip:
    order = sorted(layers)
    return Strip(
        role,
        tuple(order),
        tuple(median(values.std for values in layers[at]) for at in order),
        tuple(_worst(kind for values in layers[at] for kind in values.troubles) for at in order),
    )


def _worst(kinds: Iterable[str]) -> str:
    said = set(kinds)
    return next((kind for kind in TROUBLES if kind in said), "")
