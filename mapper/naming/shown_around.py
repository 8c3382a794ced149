"""What stands around layers of torch's own classes, by widths: people put these into modules of their own, in words of their own.

Before the layers stands a map from what is given to their width, and a table of positions; behind them a map, or two
with something between them, that reads that width.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

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
from mapper.naming.vocabulary import Vocabulary
from mapper.words import parts

_PACKED = "in_proj_weight"  # torch's own attention has queries, keys and values in one matrix of this name
_EMBEDDINGS, _TARGETS = ("embeddings", None), ("target_embeddings", None)
_CLASSIFIER: BlockPath = (("classifier", None),)
# roles that words of layers or heads give
_GUESSED = (None, "down", "up", "lm_head", "hidden_projection", "linear")
_ENTRIES = {"projection", "token", "patch"}
_POSITIONS = {"position", "position_table"}
_HEADS = {"classifier", "class_head", "class_heads", "output_projection", "projection_head"}


class _Stack(NamedTuple):
    """The layers of a model that has one stack of them, and how wide they are."""

    tower: BlockPath
    width: int
    words: int  # rows of the table of words; 0 for none


def around_layers(leaves: Sequence[Leaf], vocabulary: Vocabulary) -> Shown:
    """A map or a table before the layers, and what their states go through behind them."""
    if stack := _stack(leaves):
        free = [leaf for leaf in leaves if is_outside(leaf) and leaf.role in _GUESSED]
        roles = {leaf.role for leaf in leaves if is_outside(leaf)}
        yield from _moved(leaves, stack)
        yield from _entry(free, roles, stack)
        yield from _positions(free, roles, stack, vocabulary.words("position"))
        yield from _exit(free, roles, stack)


def heads_of_decoders(leaves: Sequence[Leaf]) -> Shown:
    """The one map outside of an encoder and a decoder with a row for each word that the decoder reads."""
    roles = {*_GUESSED, "classifier"}
    free = [leaf for leaf in leaves if is_outside(leaf) and leaf.role in roles and leaf.kind == "Linear"]
    tables = [leaf for leaf in leaves if leaf.role == "token" and leaf.block == (_TARGETS,)]
    maps = [leaf for leaf in free if weight_of(leaf) in [weight_of(table) for table in tables]]
    if len(tables) == len(maps) == 1 and _is_torchs(leaves) and maps[0].role != "lm_head":
        yield maps[0], with_role(maps[0], (), "lm_head", "its rows: one for each word that the decoder reads")


def _is_torchs(leaves: Sequence[Leaf]) -> bool:
    """Whether layers have torch's own attention."""
    return any(_PACKED in (leaf.place[-1], *leaf.tensors) for leaf in leaves if layer_of(leaf))


def _stack(leaves: Sequence[Leaf]) -> _Stack | None:
    """The one stack of layers of torch's own; None where there is another, or images are read."""
    towers = {leaf.block[:1] for leaf in leaves if layer_of(leaf)}
    norms = [
        leaf for leaf in leaves if leaf.kind in ROW_NORMS and leaf.block and leaf.block == layer_of(leaf)
    ]
    widths = {weight_of(leaf) for leaf in norms}
    if (
        not _is_torchs(leaves)
        or len(towers) != 1
        or len(widths) != 1
        or any("Conv" in leaf.kind for leaf in leaves)
    ):
        return None
    words = [weight_of(leaf)[0] for leaf in leaves if leaf.role == "token" and weight_of(leaf)]
    return _Stack(towers.pop(), widths.pop()[0], words[0] if words else 0)


def _moved(leaves: Sequence[Leaf], stack: _Stack) -> Shown:
    """Tables that stand beside the layers' folder are those of the layers: no other reads them."""
    for leaf in leaves:
        if leaf.block == (_EMBEDDINGS,) and leaf.role:
            yield leaf, with_role(leaf, (*stack.tower, _EMBEDDINGS), leaf.role, leaf.why)


def _entry(free: Sequence[Leaf], roles: set[str | None], stack: _Stack) -> Shown:
    """The one map to the width of the layers, where no words are read."""
    maps = [leaf for leaf in free if _leads(leaf) and sides_of(leaf)[0] == stack.width != sides_of(leaf)[1]]
    if len(maps) == 1 and not roles & _ENTRIES:
        why = "the only map that leads to the width of the layers"
        yield maps[0], with_role(maps[0], (*stack.tower, _EMBEDDINGS), "projection", why)


def _positions(free: Sequence[Leaf], roles: set[str | None], stack: _Stack, words: Set[str]) -> Shown:
    """The one bare table of rows as wide as the layers are: by its word no rows that stand among what is read."""
    tables = [leaf for leaf in free if leaf.role is None and leaf.kind == "Parameter"]
    tables = [leaf for leaf in tables if not parts(str(leaf.place[-1])).isdisjoint(words)]
    tables = [leaf for leaf in tables if _has_rows(leaf, stack.width)]
    if len(tables) == 1 and not roles & _POSITIONS:
        why = "the only table of rows as wide as the layers"
        yield tables[0], with_role(tables[0], (*stack.tower, _EMBEDDINGS), "position_table", why)


def _has_rows(leaf: Leaf, width: int) -> bool:
    """Whether it is one tensor of several rows, and no map's weight under a word that hides it."""
    shapes = [info.shape for info in leaf.tensors.values() if leaf.place[-1] != "weight"]
    return len(shapes) == 1 and len(shapes[0]) in (2, 3) and shapes[0][-1] == width and shapes[0][-2] > 1


def _exit(free: Sequence[Leaf], roles: set[str | None], stack: _Stack) -> Shown:
    """The one map that reads the states, and gives no word; or two of one folder, of which it is the first."""
    maps = [leaf for leaf in free if _leads(leaf) and sides_of(leaf)[0] != stack.width]
    reading = [leaf for leaf in maps if sides_of(leaf)[1] == stack.width]
    if len(reading) != 1 or roles & _HEADS or not 1 <= len(maps) <= 2:
        return
    first, rest = reading[0], [leaf for leaf in maps if leaf is not reading[0]]
    if not rest and sides_of(first)[0] != stack.words:
        yield first, with_role(first, (), "classifier", "the only map behind the layers")
    if rest and sides_of(rest[0])[1] == sides_of(first)[0] and first.place[:-1] == rest[0].place[:-1] != ():
        yield first, with_role(first, _CLASSIFIER, "dense", "the first of two maps behind the layers")
        yield rest[0], with_role(rest[0], _CLASSIFIER, "output", "the second of two maps behind the layers")


def _leads(leaf: Leaf) -> bool:
    """Whether it is a map, and not one of a layer's."""
    return leaf.kind == "Linear" and len(weight_of(leaf)) == 2
