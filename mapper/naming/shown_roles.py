"""Roles that shapes and what stands beside show where no word of the vocabulary does.

Names are free, structure is not: a feed-forward network of two maps has one up and one down, an attention whose
queries, keys and values are known has one map left, and a map to as many rows as there are words predicts words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise, takewhile

from mapper.architecture import ROW_NORMS, Leaf, Place
from mapper.naming.leaf_groups import (
    BlockPath,
    Shown,
    grouped,
    in_block,
    is_outside,
    layer_of,
    sides_of,
    weight_of,
    with_role,
)
from mapper.naming.shown_around import around_layers, heads_of_decoders
from mapper.naming.shown_heads import heads_of_unwrapped, heads_of_wrapped
from mapper.naming.shown_maps import attentions, counterparts, feed_forwards, lettered, loose_feed_forwards
from mapper.naming.shown_norms import norms_between, norms_of_mixing
from mapper.naming.shown_projections import output_projections
from mapper.naming.towers import SENSES
from mapper.naming.vocabulary import Vocabulary
from mapper.words import parts

NORM_ATTENTION, NORM_FEED_FORWARD = "norm_attention", "norm_feed_forward"
_SUB_LAYERS = {"attention": NORM_ATTENTION, "feed_forward": NORM_FEED_FORWARD, "moe": NORM_FEED_FORWARD}
_NUMBERED_FIRST = re.compile(r"[^\d]+1")  # `ln_1`, `norm1`
_EMBEDDINGS = ("embeddings", None)
_PROJECTOR: BlockPath = (("projector", None),)
_PROJECTING = ("linear", "up", "down", "weight")
_FEED_FORWARD: BlockPath = (("feed_forward", None),)
_LM_HEAD: BlockPath = (("lm_head", None),)
_NO_CLASSIFIER = {
    "token",
    "lm_head",
    "classifier",
    "distilled_classifier",
    "class_head",
    "class_heads",
    "projection",
}


def with_shown_roles(leaves: Iterable[Leaf], vocabulary: Vocabulary) -> list[Leaf]:
    """The leaves; those without a role that their shapes or their neighbours show have it, and say so."""
    leaves = list(leaves)
    for look in _looks(vocabulary):
        shown = {id(leaf): made for leaf, made in look(leaves)}
        leaves = [shown.get(id(leaf), leaf) for leaf in leaves]
    return leaves


def _layer_norms(leaves: Sequence[Leaf], vocabulary: Vocabulary) -> Shown:
    """Of a layer with two sub-layers and two norms: the norm in a sub-layer's folder is that one's, the other the other's."""
    for group in grouped(leaves, layer_of):
        layer = layer_of(group[0])
        parts = {leaf.block[len(layer)][0] for leaf in group if len(leaf.block) > len(layer)}
        own = {leaf.role for leaf in group if leaf.block == layer and leaf.kind in ROW_NORMS and leaf.role}
        left = [
            leaf for leaf in group if leaf.role is None and leaf.kind in ROW_NORMS and _stands_in(leaf, layer)
        ]
        if len(parts) != 2 or not parts <= _SUB_LAYERS.keys() or "attention" not in parts:
            continue
        lacking = {NORM_ATTENTION, NORM_FEED_FORWARD} - own
        if len(own) + len(lacking) == 2 and len(left) == len(lacking):
            yield from _placed(left, lacking, layer)
            yield from _numbered(left, lacking, layer)
            yield from _beside_placed(left, group, layer)
            if known := _beside_last(left, group, layer):
                yield from _last_left(left[0], known, lacking.pop(), vocabulary)


def _placed(left: list[Leaf], lacking: set[str], layer: BlockPath) -> Shown:
    """A folder has to say it: the norm that a word gave a role may be so called for what the other one is."""
    inside = {leaf.block[-1][0]: leaf for leaf in left if leaf.block != layer}
    if len(inside) != 1 or _SUB_LAYERS[next(iter(inside))] not in lacking:
        return
    ((part, first),) = inside.items()
    yield first, with_role(first, layer, _SUB_LAYERS[part], f"the only norm in the folder of the {part}")
    for other in left:
        if other is not first:
            (role,) = lacking - {_SUB_LAYERS[part]}
            yield other, with_role(other, layer, role, "the only norm left in the layer")


def _numbered(left: list[Leaf], lacking: set[str], layer: BlockPath) -> Shown:
    """Norms of a layer that are called by the same word and a number, or a letter, have the order of the sub-layers."""
    inside = [leaf for leaf in left if leaf.block != layer]
    words = [str(leaf.place[-1]) for leaf in left]
    if inside or len(lacking) != 2 or {word[:-1] for word in words} != {words[0][:-1]}:
        return
    if {word[-1:] for word in words} in ({"1", "2"}, {"0", "1"}, {"a", "b"}):
        first, second = sorted(left, key=lambda leaf: str(leaf.place[-1]))
        yield (
            first,
            with_role(first, layer, NORM_ATTENTION, "the first of two norms in the order of their names"),
        )
        yield (
            second,
            with_role(
                second, layer, NORM_FEED_FORWARD, "the second of two norms in the order of their names"
            ),
        )


def _beside_placed(left: list[Leaf], group: Sequence[Leaf], layer: BlockPath) -> Shown:
    """One norm is left, and the other stands in the folder of its sub-layer."""
    known = next((leaf for leaf in group if leaf.block == layer and leaf.role == NORM_ATTENTION), None)
    folders = [leaf.place[:-1] for leaf in group if leaf.block == (*layer, ("attention", None))]
    folder = [words[0] for words in takewhile(lambda words: len({*words}) == 1, zip(*folders, strict=False))]
    if known is None or len(left) != 1 or left[0].block != layer or len(folder) <= _list_at(known) + 1:
        return
    if known.place.within(Place(folder)) and not left[0].place.within(Place(folder)):
        yield left[0], with_role(left[0], layer, NORM_FEED_FORWARD, "the only norm left in the layer")


def _beside_last(left: list[Leaf], group: Sequence[Leaf], layer: BlockPath) -> Leaf | None:
    """The norm that has a role, where one with the same tensors is left beside it."""
    known = next(
        (leaf for leaf in group if leaf.block == layer and leaf.kind in ROW_NORMS and leaf.role), None
    )
    is_last = known is not None and len(left) == 1 and left[0].block == layer
    return known if is_last and known and left[0].tensors.keys() == known.tensors.keys() else None


def _last_left(last: Leaf, known: Leaf, lacking: str, vocabulary: Vocabulary) -> Shown:
    """The norm that is left beside one that a word calls the first, or that of the feed-forward network."""
    word = str(known.place[-1])
    is_first = not parts(word).isdisjoint(vocabulary.words("first_norm"))
    is_first = is_first or _NUMBERED_FIRST.fullmatch(word) is not None
    is_later = not parts(word).isdisjoint(vocabulary.words("later_norm"))
    if not is_later and (known.role == NORM_FEED_FORWARD or is_first):
        yield last, with_role(last, known.block, lacking, "the only norm left in the layer")
        if known.kind != last.kind and "bias" not in known.tensors:  # a word took it for a layer's only norm
            yield known, replace(known, kind=last.kind)


def _words(leaves: Sequence[Leaf]) -> Shown:
    """The only table without a role, where the model has none of words and looks at neither pictures nor sounds."""
    predicted = [weight_of(leaf) for leaf in leaves if leaf.role == "lm_head"]
    tables = [leaf for leaf in leaves if leaf.role is None and _is_table(leaf, predicted)]
    known = any(leaf.role == "token" for leaf in leaves)
    if known or len(tables) != 1 or any(leaf.kind.startswith("Conv") for leaf in leaves):
        return
    table = tables[0]
    around = table.block[:-1] if table.block[-1:] == (_EMBEDDINGS,) else table.block
    if len(around) <= 1 and is_outside(table):
        made = with_role(table, (*around, _EMBEDDINGS), "token", "the only table without a role")
        yield table, replace(made, kind="Embedding")


def _is_table(leaf: Leaf, predicted: Sequence[tuple[int, ...]]) -> bool:
    """A table by its name, or by its shape: that of the map that predicts words."""
    return leaf.kind == "Embedding" or (weight_of(leaf) in predicted and leaf.tensors.keys() == {"weight"})


def _widths(leaves: Sequence[Leaf]) -> Shown:
    """The one map outside of the layers that leads from the width of the words to that of the layers."""
    words = [leaf for leaf in leaves if leaf.role == "token" and len(weight_of(leaf)) == 2 and leaf.block]
    if len(words) != 1 or any(leaf.role == "projection" for leaf in leaves):
        return
    tower, narrow = words[0].block[:1], weight_of(words[0])[1]
    width = _width(leaves, tower[0][0])
    left = [leaf for leaf in leaves if leaf.role is None and leaf.block[:1] == tower and is_outside(leaf)]
    maps = [leaf for leaf in left if leaf.kind == "Linear" and sides_of(leaf) == (width, narrow)]
    if width != narrow and len(maps) == 1:
        why = "it leads from the width of the words to that of the layers"
        yield maps[0], with_role(maps[0], words[0].block, "projection", why)


def _final_norms(leaves: Sequence[Leaf]) -> Shown:
    """The only norm in the folder of a text's layers, the words being elsewhere, stands behind them."""
    for word in (leaf for leaf in leaves if leaf.role == "token" and leaf.block):
        own = [leaf for leaf in leaves if leaf.block[:1] == word.block[:1]]
        folders = {leaf.place[: _list_at(leaf) - 1] for leaf in own if layer_of(leaf) and _list_at(leaf)}
        left = [leaf for leaf in own if leaf.role is None and leaf.kind in ROW_NORMS and is_outside(leaf)]
        left = [leaf for leaf in left if {leaf.place[:-1]} == folders]
        widths = [(_width(leaves, word.block[0][0]),)]
        known = any(leaf.role == "final_norm" for leaf in own) or word.place[:-1] in folders
        if not known and len(left) == 1 and [weight_of(left[0])] == widths:
            why = "the only norm in the folder of the layers"
            yield left[0], with_role(left[0], word.block[:1], "final_norm", why)


def _list_at(leaf: Leaf) -> int:
    """Where in its name the last number stands before its own word."""
    numbers = [at for at, word in enumerate(leaf.place[:-1]) if isinstance(word, tuple)]
    return numbers[-1] if numbers else 0


def _heads(leaves: Sequence[Leaf]) -> Shown:
    """What stands behind the layers and ends in as many rows as there are words predicts words."""
    words = [weight_of(leaf) for leaf in leaves if leaf.role == "token" and len(weight_of(leaf)) == 2]
    if len(words) != 1 or any(leaf.role == "lm_head" for leaf in leaves):
        return
    rows, width = words[0]
    known = [leaf for leaf in leaves if leaf.block == _LM_HEAD and leaf.role]
    left = [leaf for leaf in leaves if leaf.role is None and _is_behind(leaf)]
    if known:
        roles = {leaf.role for leaf in known}
        if {"decoder", "decoder_bias"} & roles and "dense" not in roles:
            yield from _before_last(leaves, left, known, width)
        else:
            yield from _rest_of_head(left, roles, rows, width)
        return
    last = [leaf for leaf in left if leaf.kind == "Linear" and _ends(leaf, rows, width)]
    if len(last) == 1:
        yield from _head_behind(last[0], [leaf for leaf in left if leaf not in last], width)


def _head_behind(last: Leaf, rest: Sequence[Leaf], width: int) -> Shown:
    """A map that gives a number for each word, with a map and a norm before it or by itself."""
    has_weight = "weight" in last.tensors
    why = "its rows: one for each word"
    if not rest:
        yield last, with_role(last, (), "lm_head" if has_weight else "lm_head_bias", why)
        return
    inner = [leaf for leaf in rest if leaf.kind == "Linear" and weight_of(leaf) == (width, width)]
    norms = [leaf for leaf in rest if leaf.kind in ROW_NORMS and weight_of(leaf) == (width,)]
    if len(inner) == 1 and len(norms) <= 1 and len(rest) == 1 + len(norms):
        yield last, with_role(last, _LM_HEAD, "decoder" if has_weight else "decoder_bias", why)
        for leaf, role in ((inner[0], "dense"), *((norm, "norm") for norm in norms)):
            yield leaf, with_role(leaf, _LM_HEAD, role, "it stands before the map that predicts words")


def _word_heads(leaves: Sequence[Leaf]) -> Shown:
    """A map that words call a classifier, of the shape of the table of words: it predicts these."""
    words = [weight_of(leaf) for leaf in leaves if leaf.role == "token" and len(weight_of(leaf)) == 2]
    maps = [leaf for leaf in leaves if leaf.role == "classifier" and leaf.kind == "Linear" and not leaf.block]
    known = any(leaf.role == "lm_head" or leaf.block == _LM_HEAD for leaf in leaves)
    if len(words) == len(maps) == 1 and weight_of(maps[0]) == words[0] and not known:
        yield maps[0], with_role(maps[0], (), "lm_head", "its rows: one for each word")


def _rest_of_head(left: Sequence[Leaf], roles: set[str | None], rows: int, width: int) -> Shown:
    """What a head lacks that has a map before its last: the norm that is left in it, the map with a row for each word."""
    norms = [
        leaf
        for leaf in left
        if leaf.block[-1:] == _LM_HEAD and leaf.kind in ROW_NORMS and weight_of(leaf) == (width,)
    ]
    last = [leaf for leaf in left if leaf.kind == "Linear" and _ends(leaf, rows, width)]
    if "dense" in roles and "norm" not in roles and len(norms) == 1:
        yield norms[0], with_role(norms[0], _LM_HEAD, "norm", "the only norm of the head")
    if "dense" in roles and not {"decoder", "decoder_bias"} & roles and len(last) == 1:
        role = "decoder" if "weight" in last[0].tensors else "decoder_bias"
        yield last[0], with_role(last[0], _LM_HEAD, role, "its rows: one for each word")


def _before_last(leaves: Sequence[Leaf], left: Sequence[Leaf], known: Sequence[Leaf], width: int) -> Shown:
    """The one square map behind the layers, and the norm in its folder, before a known map that predicts words."""
    maps = [leaf for leaf in left if leaf.kind == "Linear" and weight_of(leaf) == (width, width)]
    norms = [leaf for leaf in leaves if leaf.kind in ROW_NORMS and weight_of(leaf) == (width,)]
    own = [leaf for leaf in norms if len(maps) == 1 and leaf.place[:-1] == maps[0].place[:-1]]
    taken = [leaf for leaf in own if leaf.role == "final_norm"]  # by its word: the final norm is the one left
    rest = [leaf for leaf in left if leaf in norms and leaf not in own]
    others = [leaf for leaf in leaves if leaf.role == "final_norm" and leaf.block and leaf not in taken]
    if len(maps) != 1 or len(own) > 1 or len(taken) not in (len(rest), len(rest) + bool(others)):
        return
    for leaf, role in ((maps[0], "dense"), *((norm, "norm") for norm in own)):
        yield leaf, with_role(leaf, _LM_HEAD, role, "it stands before the map that predicts words")
    for leaf in rest:
        yield leaf, with_role(leaf, taken[0].block, "final_norm", "the only norm left behind the layers")
    for leaf in known:
        if leaf.role == "decoder" and "weight" not in leaf.tensors:
            yield leaf, with_role(leaf, leaf.block, "decoder_bias", "the bias of a map that is tied")


def _classifiers(leaves: Sequence[Leaf]) -> Shown:
    """Of a model that reads images and no words: the one map left outside of the layers, which reads what these give."""
    maps = [leaf for leaf in leaves if leaf.kind == "Linear" and leaf.role is None and is_outside(leaf)]
    roles = {leaf.role for leaf in leaves} | {leaf.block[-1][0] for leaf in leaves if leaf.block}
    if len(maps) != 1 or roles & _NO_CLASSIFIER or len(maps[0].place) > 2 or len(sides_of(maps[0])) != 2:
        return
    towers = {leaf.block[0][0] for leaf in leaves if layer_of(leaf)}
    kinds = ROW_NORMS if "patch" in roles and len(towers) == 1 else ()
    inner = [
        leaf for leaf in leaves if layer_of(leaf) and (leaf.kind.startswith("Conv") or leaf.kind in kinds)
    ]
    if any(weight_of(leaf)[:1] == sides_of(maps[0])[1:] for leaf in inner):
        yield maps[0], with_role(maps[0], (), "classifier", "the only map behind the layers")


def _projectors(leaves: Sequence[Leaf]) -> Shown:
    """One map or two in a folder that lead from the width of a tower that sees or hears to that of words."""
    towers = {leaf.block[0][0] for leaf in leaves if leaf.block}
    senses = [tower for tower in SENSES if tower in towers]
    words = [weight_of(leaf) for leaf in leaves if leaf.role == "token"]
    has_map = any(leaf.block == _PROJECTOR and leaf.role in _PROJECTING for leaf in leaves)
    if has_map or len(senses) != 1 or len(words) != 1 or not (seen := _width(leaves, senses[0])):
        return
    left = [leaf for leaf in leaves if leaf.role is None and leaf.block in ((), _PROJECTOR, _FEED_FORWARD)]
    maps = [leaf for leaf in left if leaf.kind == "Linear"]
    chains = [_in_order(inside, seen, words[0][-1]) for inside in _by_folder(maps)]
    norms = [leaf for leaf in left if leaf.kind in ROW_NORMS and weight_of(leaf)[0] % seen == 0]
    if sum(map(bool, chains)) != 1 or len(norms) > 1:
        return
    order = next(chain for chain in chains if chain)
    roles = dict(zip(order, ("linear",) if len(order) == 1 else ("up", "down"), strict=True))
    why = f"it leads from the width of the {senses[0]} tower to that of words"
    for leaf in (*maps, *norms):
        if leaf.place in roles or leaf in norms:
            yield leaf, with_role(leaf, _PROJECTOR, roles.get(leaf.place, "norm"), why)


def _by_folder(leaves: Iterable[Leaf]) -> list[list[Leaf]]:
    """The leaves that stand in one folder together; each of those at the top by itself."""
    folders: dict[tuple[object, ...], list[Leaf]] = {}
    for leaf in leaves:
        folders.setdefault(leaf.place[:-1] or leaf.place, []).append(leaf)
    return list(folders.values())


def _projector_maps(leaves: Sequence[Leaf]) -> Shown:
    """What a projector is made of that no word names: one map or two, one behind the other, and at most one norm."""
    for group in grouped(leaves, lambda leaf: in_block(leaf, "projector")):
        yield from _taken_apart(leaves, group)
        maps = [leaf for leaf in group if leaf.kind == "Linear"]
        norms = [leaf for leaf in group if leaf.kind in ROW_NORMS]
        if any(leaf.role for leaf in maps) or len(maps) + len(norms) != len(group) or len(norms) > 1:
            continue
        roles = _linked(maps)
        for leaf in maps if roles else ():
            yield (
                leaf,
                with_role(leaf, leaf.block, roles[leaf.place], "the maps of the projector, by their shapes"),
            )
        for leaf in norms if roles else ():
            if leaf.role is None:
                yield leaf, with_role(leaf, leaf.block, "norm", "the only norm of the projector")


def _taken_apart(leaves: Sequence[Leaf], group: Sequence[Leaf]) -> Shown:
    """Two maps in the folder of a projector that words took for a feed-forward network beside it."""
    folders = {leaf.place[:-1] for leaf in group}
    network = (*group[0].block[:-1], *_FEED_FORWARD)
    maps = [leaf for leaf in leaves if leaf.block == network and leaf.place[:-1] in folders]
    known = {leaf.role for leaf in group}
    roles = _linked(maps) if len(maps) == 2 and not known & {"linear", "up", "down"} else {}
    for leaf in maps if roles else ():
        yield (
            leaf,
            with_role(leaf, group[0].block, roles[leaf.place], "the maps in the folder of the projector"),
        )


def _linked(maps: Sequence[Leaf]) -> dict[Place, str]:
    """`linear`, or `up` and `down`: what the first gives the second reads, or half of it, where a gate is fused with it."""
    sides = [sides_of(leaf) for leaf in maps]
    if any(len(side) != 2 for side in sides) or len(maps) not in (1, 2):
        return {}
    if len(maps) == 1:
        return {maps[0].place: "linear"}
    for first, second in (maps, [*reversed(maps)]):
        if sides_of(first)[0] in (sides_of(second)[1], 2 * sides_of(second)[1]):
            return {first.place: "up", second.place: "down"}
    return {}


def _in_order(maps: Sequence[Leaf], seen: int, wanted: int) -> list[Place]:
    """The maps one behind the other; of two that fit in either order the one that is named first goes first."""
    for first, *rest in ([*maps], [*reversed(maps)]):
        sides = [sides_of(leaf) for leaf in (first, *rest)]
        fits = all(inner[1] == outer[0] for outer, inner in pairwise(sides))
        if len(sides) <= 2 and fits and sides[0][1] % seen == 0 and sides[-1][0] == wanted:
            return [first.place, *(leaf.place for leaf in rest)]
    return []


def _width(leaves: Sequence[Leaf], tower: str) -> int:
    """The width of a tower's states, by the norms in its layers; 0 where these differ or there are none."""
    norms = [leaf for leaf in leaves if leaf.role == NORM_ATTENTION and leaf.block[0][0] == tower]
    widths = {weight_of(leaf) for leaf in norms if weight_of(leaf)}
    return widths.pop()[0] if len(widths) == 1 else 0


def _ends(leaf: Leaf, rows: int, width: int) -> bool:
    """Whether a map gives a score for each word; of one that is tied the bias alone is stored."""
    bias = leaf.tensors.get("bias")
    if "weight" in leaf.tensors:
        return weight_of(leaf) == (rows, width)
    return bias is not None and bias.shape == (rows,)


def _stands_in(leaf: Leaf, layer: BlockPath) -> bool:
    """In the layer itself, or in the folder of one of its sub-layers."""
    inner = leaf.block[len(layer) :]
    return not inner or (len(inner) == 1 and inner[0][0] in _SUB_LAYERS)


def _is_behind(leaf: Leaf) -> bool:
    """Whether it may stand behind the layers: in none of them, and in no block but a head."""
    inner = [step for step in leaf.block if step != _LM_HEAD[0]]
    return len(inner) <= 1 and is_outside(leaf)


def _looks(vocabulary: Vocabulary) -> tuple[Callable[[Sequence[Leaf]], Shown], ...]:
    """What is looked for, one after the other: each sees the roles that those before it gave."""
    return (
        loose_feed_forwards,
        counterparts,
        feed_forwards,
        lettered,
        attentions,
        norms_between,
        norms_of_mixing,
        partial(_layer_norms, vocabulary=vocabulary),
        _words,
        _widths,
        output_projections,
        _final_norms,
        _heads,
        _word_heads,
        _classifiers,
        partial(around_layers, vocabulary=vocabulary),
        heads_of_decoders,
        heads_of_wrapped,
        heads_of_unwrapped,
        _projector_maps,
        _projectors,
    )
