"""What the maps of a feed-forward network and of an attention are, by their shapes alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from mapper.architecture import ROW_NORMS, Leaf
from mapper.naming.leaf_groups import (
    BlockPath,
    Shown,
    grouped,
    in_block,
    layer_of,
    sides_of,
    weight_of,
    with_role,
)
from mapper.words import normal

_FEED_FORWARD = ("feed_forward", None)
_THREE = ("query", "key", "value")
_TURNED = ("up", "down")
_WIDER = "its shape: the wider side of a feed-forward network is inside"
_FUSED = "its shape: twice as wide as the map behind it reads"
_TWO = "its shape: one of two maps side by side, of which one is the gate"


def feed_forwards(leaves: Sequence[Leaf]) -> Shown:
    """The maps of each feed-forward network: two, two of which one is fused with a gate, or three."""
    for group in grouped(
        leaves, lambda leaf: in_block(leaf, "feed_forward") or in_block(leaf, "shared_expert")
    ):
        yield from _network(group)


def loose_feed_forwards(leaves: Sequence[Leaf]) -> Shown:
    """Two maps of a layer, to a wider side and back, are its feed-forward network: in one folder, or one in a network's."""
    for group in grouped(leaves, layer_of):
        layer = layer_of(group[0])
        alone = list(_alone(group, layer))
        are_near = len({leaf.place[:-1] for leaf in alone}) == 1 or any(leaf.block != layer for leaf in alone)
        if len(alone) == 2 and are_near:
            made = dict(zip(map(id, alone), _up_and_down(alone), strict=False))
            for leaf in alone if made else ():
                yield leaf, with_role(leaf, (*layer, _FEED_FORWARD), made[id(leaf)], _WIDER)


def counterparts(leaves: Sequence[Leaf]) -> Shown:
    """The one map of a layer without a role that leads the other way than the only known map of its network."""
    for group in grouped(leaves, layer_of):
        network = (*layer_of(group[0]), _FEED_FORWARD)
        known = [leaf for leaf in group if leaf.block == network and leaf.role]
        left = [leaf for leaf in group if leaf.role is None and leaf.kind == "Linear"]
        if len(known) != 1 or known[0].role not in _TURNED or len(left) != 1:
            continue
        roles = _up_and_down([left[0], known[0]])
        if left[0].place[:-1] == known[0].place[:-1] and roles[1:] == [known[0].role]:
            yield left[0], with_role(left[0], network, roles[0], _WIDER)


def lettered(leaves: Sequence[Leaf]) -> Shown:
    """Three maps in one folder, whose names are one word with the letter q, k or v in it, are query, key and value."""
    why = "one of three names that differ by the letters q, k and v"
    for group in grouped(leaves, lambda leaf: in_block(leaf, "attention")):
        left = [leaf for leaf in group if leaf.role is None and leaf.kind == "Linear"]
        named = {(leaf.place[:-1], normal(str(leaf.place[-1]))): leaf for leaf in left}
        for (folder, word), leaf in named.items():
            for role in (role for role in _THREE if role[0] in word):
                if all((folder, word.replace(role[0], other[0], 1)) in named for other in _THREE):
                    yield leaf, with_role(leaf, leaf.block, role, why)


def attentions(leaves: Sequence[Leaf]) -> Shown:
    """The one map that is left beside queries, keys and values, and the one of all three before the output."""
    for group in grouped(leaves, lambda leaf: in_block(leaf, "attention")):
        roles = {leaf.role: leaf for leaf in group}
        left = [leaf for leaf in group if leaf.role is None and leaf.kind == "Linear"]
        first = roles.get("qkv") or (roles.get("query") if {"key", "value"} <= roles.keys() else None)
        if first is not None and "output" not in roles and _is_alone(left, group):
            yield from _output(left[0], first)
        elif "output" in roles and {*_THREE} & roles.keys() and _is_alone(left, group):
            yield from _third(left[0], roles)
        elif first is None and not {"query", "key", "value"} & roles.keys():
            yield from _fused(left, roles.get("output"))


def _alone(group: Sequence[Leaf], layer: BlockPath) -> Iterator[Leaf]:
    """Maps without a role in the layer itself, or each alone in what a word took for a network."""
    known = {leaf.block for leaf in group if leaf.role is not None}
    lists = sum(indices is not None for _, indices in layer)
    for leaf in group:
        if sum(isinstance(word, tuple) for word in leaf.place[:-1]) != lists:
            continue  # it stands in a list that is no layer's
        inner = leaf.block[len(layer) :]
        is_network = len(inner) == 1 and inner[0][0].startswith("feed_forward") and leaf.block not in known
        if leaf.role is None and leaf.kind == "Linear" and (not inner or is_network):
            yield leaf


def _network(group: Sequence[Leaf]) -> Shown:
    """The maps of one network; norms beside them say nothing."""
    maps = [leaf for leaf in group if leaf.kind == "Linear"]
    others = [leaf for leaf in group if leaf.kind != "Linear"]
    if any(leaf.is_transposed for leaf in maps) or any(leaf.kind not in ROW_NORMS for leaf in others):
        return
    roles = {2: _of_two, 3: _of_three}.get(len(maps), _none)(maps)
    for leaf, (role, why) in zip(maps, roles, strict=False):
        if leaf.role != role:
            yield leaf, with_role(leaf, leaf.block, role, why)


def _none(maps: Sequence[Leaf]) -> list[tuple[str, str]]:
    return []


def _of_two(maps: Sequence[Leaf]) -> list[tuple[str, str]]:
    """`up` and `down`, or `gate_up` and `down` where the one gives twice what the other reads."""
    roles = _up_and_down(maps)
    if roles:
        agree = all(leaf.role in (None, role) for leaf, role in zip(maps, roles, strict=True))
        return [(role, _WIDER) for role in roles] if agree else []
    wide, back = sorted(maps, key=lambda leaf: -weight_of(leaf)[0] if weight_of(leaf) else 0)
    if wide.role not in (None, "up") or back.role not in (None, "down"):
        return []
    if any(len(weight_of(leaf)) != 2 for leaf in maps):  # or a bias alone
        return []
    if weight_of(wide) != (2 * weight_of(back)[-1], weight_of(back)[0]):
        return []
    return [("gate_up" if leaf is wide else "down", _FUSED) for leaf in maps]


def _up_and_down(maps: Sequence[Leaf]) -> list[str]:
    """The role of each of two maps to a wider side and back; [] where they are none."""
    shapes = [weight_of(leaf) for leaf in maps]
    if any(len(shape) != 2 for shape in shapes) or shapes[0] != shapes[1][::-1] or len(set(shapes[0])) == 1:
        return []
    return ["up" if shape[0] > shape[1] else "down" for shape in shapes]


def _of_three(maps: Sequence[Leaf]) -> list[tuple[str, str]]:
    """`down` is the one turned round; a word may say which of the others is the gate, else they are `first` and `second`."""
    shapes = [weight_of(leaf) for leaf in maps]
    back = [leaf for leaf, shape in zip(maps, shapes, strict=True) if shapes.count(shape[::-1]) == 2]
    if any(len(shape) != 2 or shape[0] == shape[1] for shape in shapes) or len(back) != 1:
        return []
    pair = [leaf for leaf in maps if leaf is not back[0]]
    said = [None if _is_numbered(leaf) and None in (one.role for one in pair) else leaf.role for leaf in pair]
    counted = all(map(_is_numbered, maps)) and back[0].role != "down"
    if counted:  # numbers are an order, and shapes say that it is another one than words take it for
        said = [None, None]
    if (
        (back[0].role not in (None, "down") and not counted)
        or {*said} - {None, "gate", "up"}
        or said in (["up"] * 2, ["gate"] * 2)
    ):
        return []
    if said == [None, None] and maps[0].block[-1] != _FEED_FORWARD:
        return []  # which is the gate is asked for in a layer's own network alone
    names = {"gate": "up", "up": "gate"}
    known = next((role for role in said if role), None)
    made = dict(zip(map(id, pair), ("first", "second"), strict=True))
    if known:
        made = {id(leaf): role or names[known] for leaf, role in zip(pair, said, strict=True)}
    return [(made.get(id(leaf), "down"), _TWO if id(leaf) in made else _WIDER) for leaf in maps]


def _is_numbered(leaf: Leaf) -> bool:
    """Whether a map is called `w1`: which of two is the gate that says only beside the other's name."""
    return re.fullmatch(r"w_?\d", str(leaf.place[-1])) is not None


def _is_alone(left: Sequence[Leaf], group: Sequence[Leaf]) -> bool:
    """Whether one map is all that has no role in a block."""
    return len(left) == 1 and sum(leaf.role is None for leaf in group) == 1


def _output(leaf: Leaf, first: Leaf) -> Shown:
    inside, outside = weight_of(first), weight_of(leaf)
    if len(inside) == len(outside) == 2 and sides_of(leaf)[0] == sides_of(first)[1]:
        yield leaf, with_role(leaf, leaf.block, "output", "the only map left beside query, key and value")


def _third(leaf: Leaf, roles: Mapping[str | None, Leaf]) -> Shown:
    """The map that is left beside two of query, key and value, and the output: keys are as wide as values, queries as the output."""
    lacking = [role for role in _THREE if role not in roles]
    if len(lacking) != 1 or len(weight_of(leaf)) != 2 or len(weight_of(roles["output"])) != 2:
        return
    twin = roles.get({"key": "value", "value": "key"}.get(lacking[0], lacking[0]))
    known = roles.get("query") or roles["key"]
    rows = sides_of(twin)[0] if twin else sides_of(roles["output"])[1]
    if sides_of(leaf) == (rows, sides_of(known)[1]):
        yield leaf, with_role(leaf, leaf.block, lacking[0], "the only map left in the attention")


def _fused(left: Sequence[Leaf], output: Leaf | None) -> Shown:
    """Of two maps in an attention the one gives queries, keys and values, and the other reads as many as queries are."""
    maps = [*left, *([output] if output else [])]
    if len(maps) != 2 or any(len(weight_of(leaf)) != 2 for leaf in maps):
        return
    qkv, back = sorted(maps, key=lambda leaf: -sides_of(leaf)[0])
    (rows, width), (outside, inside) = sides_of(qkv), sides_of(back)
    if qkv is output or width != outside or rows <= inside or (rows - inside) % 2:
        return
    yield (
        qkv,
        with_role(qkv, qkv.block, "qkv", "its shape: more rows than the map behind the attention reads"),
    )
    if output is None:
        yield back, with_role(back, back.block, "output", "the only map left beside queries, keys and values")
