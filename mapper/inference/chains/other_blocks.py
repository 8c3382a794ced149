"""Blocks that compute more than their layers one after the other: with one of these a checkpoint is no chain."""

from __future__ import annotations

from mapper.architecture import BLOCK_KINDS, Block
from mapper.inference.leaf_shapes import weight_shape

_OTHER = frozenset(BLOCK_KINDS) - {
    "feed_forward",
    "norm",
    "embedding",
    "convolution",
    "recurrent",
    "head",
    "other",
}


def is_other(block: Block) -> bool:
    """Whether a block computes more than its layers one after the other; one of these may be residual."""
    if block.kind == "layer":
        return not all(
            leaf.kind.startswith("Conv")
            or leaf.kind in ("BatchNorm", "GroupNorm", "PReLU", "Linear", "LayerNorm")
            for leaf in block.leaves()
        )
    is_attention = block.kind == "attention"
    if (
        block.kind == "moe"
    ):  # experts by numbers alone are rows of maps; those with words are feed-forward networks
        inner = [leaf for leaf in block.leaves() if len(leaf.place) > len(block.home) + 1]
        return not all(leaf.kind == "Linear" and isinstance(leaf.place[-1], tuple) for leaf in inner)
    return block.kind in _OTHER and not (
        is_attention and (_is_one_map(block) or _is_gate(block) or _is_of_maps(block))
    )


def _is_one_map(block: Block) -> bool:
    """Whether a block called attention holds no more than maps to one number, or one map: `value_net` may be the value of a state.

    Of a block without layers of its own the name alone says something.
    """
    leaves = list(block.leaves())
    shapes = [weight_shape(leaf) for leaf in leaves if leaf.kind == "Linear"]
    is_score = any(shape and shape[0] == 1 for shape in shapes)
    return len(shapes) == len(leaves) and (len(leaves) < 2 or is_score)


def _is_gate(block: Block) -> bool:
    """Whether a block called attention holds two maps, to fewer channels and back: it weighs channels (1709.01507)."""
    shapes = [weight_shape(leaf) for leaf in block.leaves()]
    extents = {shape[:2] for shape in shapes if len(shape) > 1 and set(shape[2:]) <= {1}}
    return len(shapes) == len(extents) == 2 and extents == {shape[::-1] for shape in extents}


def _is_of_maps(block: Block) -> bool:
    """Whether a block called attention holds convolutions to fewer channels and their norms alone: it weighs places (1804.03999)."""
    kinds = {leaf.kind for leaf in block.leaves()}
    return bool(kinds) and kinds <= {"Conv1d", "Conv2d", "Conv3d", "BatchNorm", "PReLU"}
