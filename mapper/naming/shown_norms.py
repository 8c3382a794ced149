"""Which sub-layer a norm is of, where its word says what stands before it and not what it is for.

`post_attention_norm` is a norm of what attention gives, or that of the feed-forward network behind the sum: the other
norms of the layer tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mapper.architecture import ROW_NORMS, Leaf
from mapper.naming.leaf_groups import Shown, grouped, layer_of, with_role

_ATTENTION, _FEED_FORWARD = "norm_attention", "norm_feed_forward"
_ORDER = ("attention", "cross_attention", "feed_forward")  # of the sub-layers
_ALIKE = {"moe": "feed_forward", "feed_forward": "feed_forward"}
_BETWEEN = "a norm for each sub-layer, and the one before has its own"
_MIXING = "the only norm left in a layer that mixes positions without weights"


def norms_between(leaves: Sequence[Leaf]) -> Shown:
    """The norm behind a sub-layer that has one before it, too, is that of the next one, where that has no other."""
    for group in grouped(leaves, layer_of):
        layer = layer_of(group[0])
        inside = {leaf.block[len(layer)][0] for leaf in group if len(leaf.block) > len(layer)}
        there = {_ALIKE.get(name, name) for name in inside}
        own = {leaf.role: leaf for leaf in group if leaf.block == layer and leaf.kind in ROW_NORMS}
        if not there <= set(_ORDER) or len(own) != len(there) or None in own:
            continue
        for first, second in pairwise(name for name in _ORDER if name in there):
            before, after, lacking = f"norm_{first}", f"norm_after_{first}", f"norm_{second}"
            if before in own and after in own and lacking not in own and f"norm_after_{second}" not in own:
                yield own[after], with_role(own[after], layer, lacking, _BETWEEN)


def norms_of_mixing(leaves: Sequence[Leaf]) -> Shown:
    """In a layer of a feed-forward network, its norm and one norm more in a folder: that of what mixes positions (FNet)."""
    for group in grouped(leaves, layer_of):
        layer = layer_of(group[0])
        inside = {leaf.block[len(layer)][0] for leaf in group if len(leaf.block) > len(layer)}
        own = [leaf for leaf in group if leaf.block == layer]
        left = [leaf for leaf in own if leaf.role is None and isinstance(leaf.place[-2], str)]
        known = [leaf.role for leaf in own if leaf not in left]
        is_norm = len(left) == 1 and left[0].kind in ROW_NORMS
        if inside == {"feed_forward"} and known == [_FEED_FORWARD] and is_norm:
            yield left[0], with_role(left[0], layer, _ATTENTION, _MIXING)
