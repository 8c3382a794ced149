"""What the lengths of weights in a block show of its facts."""

from __future__ import annotations

from math import isqrt

from mapper.inference.leaf_shapes import weight_shape
from mapper.inference.scopes import Scope, leaves_at


def is_as_long(scope: Scope, path: str, other: str) -> bool:
    """Whether the weight of one role has as many rows as that of another, in the block itself."""
    lengths = [{weight_shape(leaf)[:1] for leaf in leaves_at(scope.block, role)} for role in (path, other)]
    return lengths[0] == lengths[1] and len(lengths[0]) == 1


def is_square(scope: Scope, path: str) -> bool:
    """Whether the table of a role has as many rows as a square has places: none is left for a token before them."""
    shapes = [
        next((info.shape for info in leaf.tensors.values()), ()) for leaf in leaves_at(scope.block, path)
    ]
    rows = {shape[-2] for shape in shapes if len(shape) > 1}
    return len(shapes) == len(rows) == 1 and isqrt(min(rows)) ** 2 == min(rows) > 1
