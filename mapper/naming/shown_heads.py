"""A head behind a whole model, whatever it is called: people keep a published model in a module of their own, and maps behind it.

The model is all that one folder at the top holds; beside that folder stand one map that reads what it gives, or two of
which the second reads what the first gives, maybe with a batch norm between in one list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mapper.architecture import NORMS, Leaf
from mapper.naming.leaf_groups import BlockPath, Shown, is_outside, sides_of, weight_of, with_role
from mapper.words import parts

_CLASSIFIER: BlockPath = (("classifier", None),)
# roles that words of layers, decoders or projections give, which say nothing of a map behind a whole model
_GUESSED = (None, "down", "up", "lm_head", "first", "second")
_WORDS = {"lm", "vocab", "ctc"}  # of a map that gives words
# of a map of what is given beside the words, or of what no class is
_OTHERS = {
    "in", "input", "inputs", "time", "step", "condition", "cond", "film", "feature", "features", "latent",
}  # fmt: skip


class _Wrapped(NamedTuple):
    """A model in a folder, and what stands beside it."""

    model: Sequence[Leaf]
    beside: Sequence[Leaf]
    why: str


def heads_of_wrapped(leaves: Sequence[Leaf]) -> Shown:
    """Maps behind a whole model are its head, whatever they are called."""
    found = _wrapped(leaves)
    if found is None or not all(map(_is_guessed, found.beside)):
        return
    maps = [leaf for leaf in found.beside if leaf.kind == "Linear" and len(weight_of(leaf)) == 2]
    norms = [leaf for leaf in found.beside if leaf not in maps]
    order = _in_order(maps, _widths(found.model))
    if len(order) == 1 and not norms and not _gives_words(order[0], found.model):
        yield order[0], with_role(order[0], (), "classifier", f"the only map {found.why}")
    if len(order) == 2 and _stand_between(norms, order):
        yield order[0], with_role(order[0], _CLASSIFIER, "dense", f"the first of two maps {found.why}")
        yield order[1], with_role(order[1], _CLASSIFIER, "output", f"the second of two maps {found.why}")
        for norm in norms:
            yield (
                norm,
                with_role(norm, _CLASSIFIER, "dense_norm", "the norm between the two maps of the head"),
            )


def heads_of_unwrapped(leaves: Sequence[Leaf]) -> Shown:
    """The one map at the top that no word knows, where words say what all else there is: it reads what the layers give."""
    tops = [leaf for leaf in leaves if is_outside(leaf)]
    unknown = [leaf for leaf in tops if leaf.role is None]
    if len(unknown) != 1 or len(unknown[0].place) != 1 or len(tops) == len(leaves):
        return
    (found,) = unknown
    is_map = found.kind == "Linear" and len(weight_of(found)) == 2 and len(set(sides_of(found))) == 2
    is_map = is_map and _OTHERS.isdisjoint(parts(str(found.place[0])))
    known = {leaf.role for leaf in tops if leaf.block == ()}
    if (
        not is_map
        or not _is_guessed(found)
        or not any(map(_is_token, tops))
        or known & {"classifier", "lm_head"}
    ):
        return
    widths = {weight_of(leaf)[0] for leaf in tops if leaf.kind in NORMS and leaf.role == "final_norm"}
    if sides_of(found)[1] in widths and not _gives_words(found, leaves):
        yield found, with_role(found, (), "classifier", "the only map at the top that no word knows")


def _is_token(leaf: Leaf) -> bool:
    return leaf.role == "token" and _is_entry(leaf)


def _is_guessed(leaf: Leaf) -> bool:
    """Whether no word says what it is: `output` alone may be of words or of classes, `lm_head` is of words."""
    return leaf.role in _GUESSED and _WORDS.isdisjoint(parts(str(leaf.place[-1])))


def _wrapped(leaves: Sequence[Leaf]) -> _Wrapped | None:
    """The one folder at the top that holds all lists of layers and what stands before them, and what is beside it."""
    tops: dict[object, list[Leaf]] = {}
    for leaf in leaves:
        tops.setdefault(leaf.place[0] if leaf.place else "", []).append(leaf)
    deep = [top for top, own in tops.items() if not all(map(is_outside, own))]
    if len(deep) != 1 or len(tops) == 1:
        return None
    model = tops.pop(deep[0])
    if not any(_is_entry(leaf) for leaf in model) or any(leaf.role == "classifier" for leaf in model):
        return None
    return _Wrapped(
        model, [leaf for own in tops.values() for leaf in own], f"behind the model in '{deep[0]}'"
    )


def _is_entry(leaf: Leaf) -> bool:
    """Whether it is of the embeddings."""
    return is_outside(leaf) and bool(leaf.block) and leaf.block[-1][0] == "embeddings"


def _widths(model: Iterable[Leaf]) -> set[int]:
    """How wide what a model gives may be: as its norms, or what a pooler or projection makes of it; without norms any."""
    leaves = [leaf for leaf in model if weight_of(leaf)]
    ends = [leaf for leaf in leaves if leaf.kind in NORMS or (is_outside(leaf) and leaf.kind == "Linear")]
    has_norms = any(leaf.kind in NORMS for leaf in leaves)
    return {weight_of(leaf)[0] for leaf in (ends if has_norms else leaves)}


def _in_order(maps: Sequence[Leaf], widths: set[int]) -> Sequence[Leaf]:
    """One map that reads what a model gives, or two one after the other, where sizes or numbers allow that alone.

    Where the second could read the model, too, they may be two heads: but for elements of one list.
    """
    if len(maps) == 1:
        return maps if sides_of(maps[0])[1] in widths else ()
    if len(maps) != 2:
        return ()
    ways = [
        (one, two)
        for one, two in (maps, maps[::-1])
        if sides_of(one)[1] in widths
        and sides_of(two)[1] == sides_of(one)[0]
        and (sides_of(two)[1] not in widths or _are_in_turn(one, two))
    ]
    return ways[0] if len(ways) == 1 else ()


def _gives_words(head: Leaf, model: Iterable[Leaf]) -> bool:
    """Whether a map has a row for each word of a table."""
    return any(leaf.role == "token" and weight_of(leaf)[:1] == weight_of(head)[:1] for leaf in model)


def _stand_between(norms: Sequence[Leaf], order: Sequence[Leaf]) -> bool:
    """Whether what is no map is one batch norm of what the first map gives, behind it in one list; or nothing is."""
    if not norms:
        return True
    norm, first = norms[0], order[0]
    return (
        len(norms) == 1
        and norm.kind == "BatchNorm"
        and weight_of(norm) == sides_of(first)[:1]
        and norm.place[:-1] == first.place[:-1] != ()
        and _number(norm) == _number(first) + 1
    )


def _are_in_turn(one: Leaf, two: Leaf) -> bool:
    """Whether two stand in one list, the second behind the first."""
    return one.place[:-1] == two.place[:-1] != () and -1 < _number(one) < _number(two)


def _number(leaf: Leaf) -> int:
    """The number of an element of a list; -9 for none."""
    last = leaf.place[-1]
    word = str(last[0]) if isinstance(last, tuple) else str(last)
    return int(word) if word.isdigit() else -9
