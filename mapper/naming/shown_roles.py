"""Roles that shapes show where no word of the vocabulary does: the two maps of a feed-forward network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from mapper.architecture import Leaf

_FEED_FORWARD = "feed_forward"
_WHY = "its shape: the wider side of a feed-forward network is inside"


def with_shown_roles(leaves: Iterable[Leaf]) -> list[Leaf]:
    """The leaves; of a feed-forward network that has two maps and no role for either, the maps up and down.

    One maps from a narrower side to a wider one, the other back: no other reading has the two alone.
    """
    leaves = list(leaves)
    inside: dict[object, list[Leaf]] = defaultdict(list)
    for leaf in leaves:
        if leaf.block and leaf.block[-1][0].startswith(_FEED_FORWARD):
            inside[leaf.block].append(leaf)
    shown = {id(leaf): made for group in inside.values() for leaf, made in _two_maps(group)}
    return [shown.get(id(leaf), leaf) for leaf in leaves]


def _two_maps(group: list[Leaf]) -> list[tuple[Leaf, Leaf]]:
    """Each of two maps with its role; nothing where there are others, or where the shapes do not say."""
    if len(group) != 2 or any(leaf.role is not None or leaf.kind != "Linear" for leaf in group):
        return []
    sides = [leaf.tensors["weight"].shape if "weight" in leaf.tensors else () for leaf in group]
    if len(sides[0]) != 2 or sides[0] != sides[1][::-1] or len(set(sides[0])) == 1:
        return []
    if any(leaf.is_transposed for leaf in group):
        return []
    return [
        (leaf, replace(leaf, role="up" if shape[0] > shape[1] else "down", why=_WHY, fixed=_numbers(leaf)))
        for leaf, shape in zip(group, sides, strict=True)
    ]


def _numbers(leaf: Leaf) -> tuple[int, ...]:
    """The number that a map has as its name: `ffn.0` is no element of a list."""
    last = len(leaf.place) - 1
    return (last,) if isinstance(leaf.place[last], tuple) else ()
