"""A leaf as an element of a chain: what it reads and gives, by its shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import isqrt

from mapper.architecture import RECURRENT_KINDS, Leaf, Place
from mapper.inference.leaf_shapes import weight_shape
from mapper.words import parts

EMBEDDING, CONVOLUTION, RECURRENT, LINEAR = "embedding", "convolution", "recurrent", "linear"
NORM, SLOPES, FORK = "norm", "slopes", "fork"
MAIN = (EMBEDDING, CONVOLUTION, RECURRENT, LINEAR, FORK)  # others stand beside one of these


@dataclass(frozen=True, eq=False)
class Element:
    """One layer of a chain."""

    leaf: Leaf
    group: str  # one of MAIN, NORM, SLOPES
    inputs: int  # channels that it reads; of a grouped convolution those of one group
    outputs: int  # channels that it gives
    kernel: tuple[int, ...] = ()  # extents of a convolution's kernel

    @property
    def is_main(self) -> bool:
        return self.group in MAIN

    @property
    def is_transposed(self) -> bool:
        """Whether it is a transposed convolution."""
        return self.leaf.kind.startswith("ConvTranspose")

    def places_in(self, width: int) -> int:
        """How many places a square map, or one of one axis, has whose channels this layer reads, in a row of this width; 0: it is no such map."""
        places, left = divmod(width, self.inputs)
        is_even = len(self.kernel) == 1 or isqrt(places) ** 2 == places
        return places if not left and is_even else 0

    @property
    def is_bidirectional(self) -> bool:
        return any(name.endswith("_reverse") for name in self.leaf.tensors)

    @cached_property
    def name(self) -> str:
        """Its path in the file."""
        return self.leaf.place.first()


@dataclass(frozen=True, eq=False)
class Fork(Element):
    """Layers side by side that read the same, and whose outputs are concatenated: it goes by the last layer of its first arm."""

    arms: tuple[tuple[Element, ...], ...] = ()
    is_ordered: bool = True  # whether the file or numbers show in which order the outputs stand

    @property
    def is_of_whole(self) -> bool:
        """Whether its arms stand in no folder together."""
        return len({arm[0].leaf.place[:1] for arm in self.arms}) > 1

    def elements(self) -> Iterator[Element]:
        """Every layer of its arms."""
        for arm in self.arms:
            yield from every_layer(arm)


@dataclass(frozen=True, eq=False)
class Scale(Fork):
    """Two layers, its one arm, whose output scales each channel of what they read: it goes by the second."""


def every_layer(elements: Iterable[Element]) -> Iterator[Element]:
    """The layers, those of forks one by one."""
    for element in elements:
        if isinstance(element, Fork):
            yield from element.elements()
        else:
            yield element


def unfolded(leaf: Leaf) -> list[Leaf]:
    """The leaf once for each module that it stands for: each has its own place in the order."""
    choices: list[list[str | tuple[int, ...]]] = [
        [part] if isinstance(part, str) else [(index,) for index in part] for part in leaf.place
    ]
    fixed = tuple(at for at, part in enumerate(leaf.place) if not isinstance(part, str))
    return [
        replace(leaf, place=Place(parts), block=(), role=None, facts={}, fixed=fixed)
        for parts in product(*choices)
    ]


def twice_registered(leaves: Iterable[Leaf], shortcut: Container[str]) -> dict[Place, list[Leaf]]:
    """The numbered lists all of whose layers stand beside them again under names of their own, each with its layers.

    `net.0` beside `conv1`: a class that puts its attributes into a Sequential too has each of them under two names. A list called
    with a `shortcut` word is none: a block may have layers of the same sizes on its way.
    """
    listed: dict[Place, list[Leaf]] = {}
    beside: dict[Place, Counter[str]] = {}
    for leaf in (leaf for leaf in leaves if leaf.place):
        if leaf.place.is_element:
            listed.setdefault(Place(leaf.place[:-1]), []).append(leaf)
        else:
            beside.setdefault(Place(leaf.place[:-1]), Counter())[_shapes(leaf)] += 1
    return {
        folder: found
        for folder, found in listed.items()
        if folder
        and _is_free(folder, shortcut)
        and len(found) > 1
        and not Counter(map(_shapes, found)) - beside.get(Place(folder[:-1]), Counter())
    }


def _is_free(folder: Place, words: Container[str]) -> bool:
    """Whether the last part of a folder has none of these words."""
    return not any(word in words for word in parts(str(folder[-1])))


def _shapes(leaf: Leaf) -> str:
    return repr(sorted((name, info.shape) for name, info in leaf.tensors.items()))


def element_of(leaf: Leaf) -> Element | None:
    """What a leaf reads and gives; None for one that is no layer of a chain."""
    shape = weight_shape(leaf) or ()
    if leaf.kind in RECURRENT_KINDS:
        return _recurrent(leaf)
    if leaf.kind.startswith("Conv") and len(shape) > 2 and 0 not in shape:
        return _convolution(leaf, shape)
    if leaf.kind in ("Linear", "Embedding") and len(shape) == 2:
        inputs, outputs = shape[::-1] if leaf.kind == "Linear" and not leaf.is_transposed else shape
        return Element(leaf, LINEAR if leaf.kind == "Linear" else EMBEDDING, inputs, outputs)
    if leaf.kind == "Bilinear" and len(shape) == 3:  # of two inputs side by side
        return Element(leaf, LINEAR, shape[1] + shape[2], shape[0])
    if leaf.kind.endswith("Norm") and len(shape) == 1:
        return Element(leaf, NORM, shape[0], shape[0])
    if leaf.kind == "LayerNorm" and len(shape) in (2, 3):
        return Element(leaf, NORM, shape[0], shape[0])
    if leaf.kind == "PReLU" and len(shape) == 1:
        return Element(leaf, SLOPES, shape[0], shape[0])
    return None


def _convolution(leaf: Leaf, shape: tuple[int, ...]) -> Element:
    inputs, outputs = (shape[0], shape[1]) if leaf.kind.startswith("ConvTranspose") else (shape[1], shape[0])
    bias = leaf.tensors.get("bias")
    if bias is not None and bias.size and leaf.kind.startswith("ConvTranspose"):
        outputs = bias.shape[0]  # of all groups; the weight has those of one
    return Element(leaf, CONVOLUTION, inputs, outputs, shape[2:])


def _recurrent(leaf: Leaf) -> Element | None:
    end = "" if "weight_ih" in leaf.tensors else "_l0"  # the tensors of a cell have no layer in their names
    first, inner = leaf.tensors.get(f"weight_ih{end}"), leaf.tensors.get(f"weight_hh{end}")
    if first is None or inner is None or len(first.shape) != 2 or len(inner.shape) != 2:
        return None
    sides = 2 if any(name.endswith("_reverse") for name in leaf.tensors) else 1
    return Element(leaf, RECURRENT, first.shape[1], inner.shape[1] * sides)


def shared_folders(one: Leaf, other: Leaf) -> int:
    """How many folders, from the top, two leaves stand in together."""
    pairs = zip(one.place[:-1], other.place[:-1], strict=False)
    return next(
        (at for at, (mine, its) in enumerate(pairs) if mine != its), min(len(one.place), len(other.place)) - 1
    )


def roles_by_number(elements: Iterable[Element]) -> list[str]:
    """`linear_1`, `linear_2`: what each of these is, by its number among those of its group."""
    count: Counter[str] = Counter()
    names = []
    for element in elements:
        count[element.group] += 1
        names.append(f"{element.group}_{count[element.group]}")
    return names
