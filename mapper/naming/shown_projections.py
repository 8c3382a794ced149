"""Which maps stand behind the layers and give their states another form, by the widths of tables and layers.

A word that libraries use for what leads into the layers may be another's for what leads out of them: widths tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from mapper.architecture import ROW_NORMS, Leaf
from mapper.naming.leaf_groups import (
    BlockPath,
    Shown,
    is_outside,
    layer_of,
    sides_of,
    weight_of,
    with_role,
)
from mapper.words import parts

_ROLE = "output_projection"
_BEHIND = "it reads the width of the layers, which is that of the words, and gives another"
_SQUARE = "it gives as much as it reads, and no words are there to be predicted"


def output_projections(leaves: Sequence[Leaf]) -> Shown:
    """A map that words take for one before the layers, or for a head of words, and that is neither by its sides."""
    if not any(leaf.role == _ROLE for leaf in leaves):
        yield from _behind_the_layers(leaves)
        yield from _square_heads(leaves)


def _behind_the_layers(leaves: Sequence[Leaf]) -> Shown:
    """A projection of embeddings whose table is as wide as the layers are, and which does not lead to that width."""
    for table in (
        leaf for leaf in leaves if leaf.role == "token" and leaf.block and len(weight_of(leaf)) == 2
    ):
        tower, width = table.block[:1], weight_of(table)[1]
        maps = [leaf for leaf in leaves if leaf.role == "projection" and leaf.block == table.block]
        away = [leaf for leaf in maps if _leads_away(leaf, width) and is_outside(leaf)]
        if len(maps) == len(away) == 1 and _widths(leaves, tower) == {width}:
            yield away[0], with_role(away[0], tower, _ROLE, _BEHIND)


def _leads_away(leaf: Leaf, width: int) -> bool:
    """Whether a map reads a width and gives another."""
    sides = sides_of(leaf)
    return leaf.kind == "Linear" and len(sides) == 2 and sides[1] == width != sides[0]


def _square_heads(leaves: Sequence[Leaf]) -> Shown:
    """An output in a model that has no table of words: it gives as much as it reads, the width of the layers.

    What is called a head may be one over letters, of which there may be as many.
    """
    heads = [leaf for leaf in leaves if leaf.role == "lm_head" and leaf.kind == "Linear" and not leaf.block]
    heads = [leaf for leaf in heads if "head" not in parts(str(leaf.place[-1]))]
    towers = {leaf.block[:1] for leaf in leaves if layer_of(leaf)}
    if len(heads) != 1 or len(towers) != 1 or any(leaf.role == "token" for leaf in leaves):
        return
    tower = towers.pop()
    sides = {*sides_of(heads[0])}
    if len(weight_of(heads[0])) == 2 and len(sides) == 1 and _widths(leaves, tower) == sides:
        yield heads[0], with_role(heads[0], tower, _ROLE, _SQUARE)


def _widths(leaves: Sequence[Leaf], tower: BlockPath) -> set[int]:
    """The lengths of the norms that stand in the layers of a tower themselves."""
    own = (leaf for leaf in leaves if leaf.kind in ROW_NORMS and leaf.block[:1] == tower)
    return {extent for leaf in own if leaf.block == layer_of(leaf) for extent in weight_of(leaf)[:1]}
