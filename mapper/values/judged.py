"""What is wrong with a tensor: by its own numbers, and beside the same tensor of other layers.

Nothing is said of buffers and of what no forward reads, nor of integers. A limit here is one that trained weights keep by a factor of ten and more.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from mapper.architecture import BARE, NORMS
from mapper.report.wording import folded
from mapper.values.initialisers import is_usual
from mapper.values.numbers import Numbers
from mapper.values.result import TROUBLES, TensorValues, Trouble
from mapper.values.spots import Spot

STATISTICS = ("running_mean", "running_var")
FEWEST = 3  # layers that tell what is usual
LARGER = 30.0  # times the deviation of other layers' tensors from which on one is exploded
LONE = 1e5  # times the usual size of a tensor's numbers from which on one of them is exploded
HUGE = 1e6  # size of any weight that is exploded whatever stands beside it
REPEATED = 256  # numbers of a tensor that are no coincidence
_SAID = {
    "not_finite": "NaN or infinite",
    "exploded": "far larger than its like",
    "dead": "one number everywhere",
    "repeated": "equal to",
    "fresh": "as an initialiser leaves it, never trained",
}


def judged(
    found: Mapping[str, TensorValues],
    places: Mapping[str, Spot],
    numbers: Numbers,
    config: Mapping[str, Any] | None,
) -> None:
    """Enter the troubles of all tensors."""
    layers = len({spot.layer[:1] for spot in places.values() if spot.layer})
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, spot in places.items():
        if is_judged(spot, found[name]):
            groups[spot.group].append(name)
            _add(found[name], *_own(found[name], spot))
            if found[name].drawn and is_usual(found[name].std, found[name].shape, layers, config):
                _add(found[name], "fresh")
    for names in groups.values():
        _beside(found, [found[name] for name in names])
        _repeated(found, [places[name] for name in names], numbers)
    _fresh_norms(found, places)


def is_judged(spot: Spot, values: TensorValues) -> bool:
    """Whether anything can be wrong with it: a parameter of floats."""
    return spot.is_read and values.dtype[:1] in "FB" and values.dtype != "BOOL"


def _add(values: TensorValues, *troubles: str) -> None:
    said = {*values.troubles, *troubles}
    values.troubles = tuple(kind for kind in TROUBLES if kind in said)


def _own(values: TensorValues, spot: Spot) -> Iterator[str]:
    """What its numbers say alone."""
    if values.nan or (values.inf and not _is_mask(values, spot)):
        yield "not_finite"
    size = max(abs(values.min), abs(values.max))
    if spot.own in STATISTICS:
        return
    if size > HUGE or (values.histogram and size > LONE * _usual(values)):
        yield "exploded"
    # The rows of an embedding with one row are a bias: of token types that a model does not use it is zero.
    is_map = len(values.shape) >= 2 and values.shape[0] > 1 and math.prod(values.shape[1:]) > 1
    if is_map and values.min == values.max and math.prod(values.shape) > values.shape[0]:
        yield "dead"
    if (
        spot.leaf.kind in NORMS
        and spot.own == "weight"
        and values.max == values.min == 0
        and spot.leaf.form != "offset"
    ):
        yield "dead"


def _is_mask(values: TensorValues, spot: Spot) -> bool:
    """Whether infinity is meant: a mask that is added to scores, or where a maximum begins to be looked for.

    A module's own weight and bias are never one: such a tensor that is infinite everywhere is as wrong as in one place.
    """
    is_lone = spot.leaf.kind in BARE or spot.own not in ("weight", "bias")
    return is_lone and not values.min < values.max


def _usual(values: TensorValues) -> float:
    """The width of a bin: half a deviation of the sample, whatever a few numbers are."""
    assert values.histogram is not None
    low, high, counts = values.histogram.low, values.histogram.high, values.histogram.counts
    width = (high - low) / len(counts)
    return max(width, 1e-30)


def _beside(found: Mapping[str, TensorValues], group: list[TensorValues]) -> None:
    """Those of a group that differ in size from the others."""
    sized = [
        values for values in group if len(values.shape) >= 2 and values.std > 0 and math.isfinite(values.std)
    ]
    if len({values.layer for values in sized}) < FEWEST:
        return
    sizes = [math.log(_by_inputs(values)) for values in sized]
    middle = median(sizes)
    usual = max(median(abs(size - middle) for size in sizes), 0.05)
    for values, size in zip(sized, sizes, strict=True):
        values.apart = abs(size - middle) / usual
        if size - middle > math.log(LARGER):
            _add(values, "exploded")


def _by_inputs(values: TensorValues) -> float:
    """The deviation times the root of what one output sums over: what stages of different width have alike."""
    return values.std * math.sqrt(math.prod(values.shape[1:]))


def _repeated(found: Mapping[str, TensorValues], group: list[Spot], numbers: Numbers) -> None:
    """Those that are equal to one of another layer, unless both are one place of the file: tied on purpose."""
    alike: dict[tuple[object, ...], list[Spot]] = defaultdict(list)
    for spot in group:
        values = found[spot.name]
        if (
            spot.layer
            and len(values.shape) >= 2
            and math.prod(values.shape) >= REPEATED
            and values.min < values.max
        ):
            alike[values.shape, values.dtype, values.mean, values.std, values.min, values.max].append(spot)
    for same in alike.values():
        first: dict[bytes, Spot] = {}
        for spot in same if len(same) > 1 else ():
            digest = numbers.content(spot.name, found[spot.name].dtype)
            one = first.setdefault(digest, spot)
            if one is not spot and not _is_one_place(numbers, one.name, spot.name):
                found[spot.name].like = one.name
                _add(found[spot.name], "repeated")


def _is_one_place(numbers: Numbers, one: str, other: str) -> bool:
    first, second = numbers.checkpoint.where(one), numbers.checkpoint.where(other)
    return (
        first is not None and second is not None and (first.path, first.start) == (second.path, second.start)
    )


def _fresh_norms(found: Mapping[str, TensorValues], places: Mapping[str, Spot]) -> None:
    """Norms whose every tensor is as it began, in a model in which some map is, too.

    A norm alone may be fixed at 1, and some are published so; beside maps that were never trained it was not trained either.
    """
    if not any("fresh" in values.troubles for values in found.values()):
        return
    modules: dict[str, list[Spot]] = defaultdict(list)
    for spot in places.values():
        if spot.leaf.kind in NORMS and is_judged(spot, found[spot.name]):
            modules[spot.module].append(spot)
    for module in modules.values():
        if all(found[spot.name].min == found[spot.name].max == _begun(spot) for spot in module):
            for spot in module:
                _add(found[spot.name], "fresh")
                found[spot.name].troubles = tuple(
                    kind for kind in found[spot.name].troubles if kind != "dead"
                )


def _begun(spot: Spot) -> float:
    """What a norm's tensor begins with."""
    is_scale = spot.own in ("weight", "running_var") and spot.leaf.form != "offset"
    return 1.0 if is_scale else 0.0


def whole_troubles(found: Mapping[str, TensorValues], places: Mapping[str, Spot]) -> list[Trouble]:
    """What is wrong, the worst first, equal things of one kind together; layers of which all maps repeat another's are one."""
    troubles: list[Trouble] = []
    for kind in TROUBLES:
        names = [name for name, values in found.items() if kind in values.troubles]
        if kind == "repeated":
            troubles += _repeated_layers(found, places, names)
        elif names:
            troubles.append(Trouble(kind, tuple(names), f"{_listed(names)}: {_SAID[kind]}"))
    return troubles


def notes(found: Mapping[str, TensorValues]) -> list[str]:
    """Weights in which nothing shows that they learned, though no initialiser that is known leaves them so: unused, or only shrunk by weight decay."""
    by_shape: dict[str, list[str]] = defaultdict(list)
    for name, values in found.items():
        if values.drawn and not values.troubles:
            by_shape[values.drawn].append(name)
    return [
        f"{_listed(names)}: looks like numbers drawn from a {shape} distribution; nothing shows that training reached it"
        for shape, names in by_shape.items()
    ]


def _repeated_layers(
    found: Mapping[str, TensorValues], places: Mapping[str, Spot], names: list[str]
) -> Iterator[Trouble]:
    """For each two layers what they have alike."""
    pairs: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = defaultdict(list)
    for name in names:
        pairs[places[name].layer, places[found[name].like].layer].append(name)
    for (layer, other), alike in pairs.items():
        text = (
            f"{_listed(alike)}: equal to those of layer {'.'.join(map(str, other))}"
            if len(alike) > 1
            else f"{alike[0]}: equal to {found[alike[0]].like}"
        )
        maps = [name for name, spot in places.items() if spot.layer == layer and len(found[name].shape) >= 2]
        if len(alike) == len(maps) > 1:
            text = f"layer {'.'.join(map(str, layer))}: every map is equal to that of layer {'.'.join(map(str, other))}"
        yield Trouble("repeated", tuple(alike), text)


def _listed(names: list[str]) -> str:
    short = folded(names)
    more = f" and {len(short) - 2} more" if len(short) > 3 else ""
    return ", ".join(short[: 2 if more else 3]) + more
