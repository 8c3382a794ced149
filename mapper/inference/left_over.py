"""Modules that no word knows, by what the block around them lacks.

A block may have all that a flow reads but one map, and beside it one module whose name means nothing: where its shape
is that of the map that is lacking, it is that map. Only of types that nobody lists: a listed one has its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from mapper.architecture import Block, Leaf, Place
from mapper.errors import ArchitectureError
from mapper.inference.chosen import Chosen
from mapper.inference.facts import Facts
from mapper.inference.leaf_shapes import weight_shape
from mapper.inference.misfits import LACKS, UNKNOWN
from mapper.inference.nearest import Near, nears
from mapper.inference.scopes import Scope
from mapper.inference.sizes import Sizes
from mapper.naming.leaf_groups import NORMS, BlockPath, Taken
from mapper.rulebook.flows import FlowRule

_MOST = 2  # modules of a block that may be taken so: of more, shapes alone are no evidence


def left_over(chosen: Chosen) -> dict[Place, Taken]:
    """The modules without a role that are all that blocks without a flow lack, each with its role."""
    found: dict[Place, Taken] = {}
    for scope in chosen.lacking:
        path = _path(scope)
        idle = [leaf for leaf in chosen.outline.read if leaf.role is None and _is_of(leaf, scope, path)]
        if not 0 < len(idle) <= _MOST or any(leaf.kind == "Buffer" for leaf in idle):
            continue
        if all(_is_as_wide(leaf, _widths(chosen, path)) for leaf in idle):
            why = f"of its shape, and all that the {scope.topic} lacks"
            found |= {place: Taken(path, role, why) for place, role in _only(scope, chosen, idle).items()}
    return found


def _path(scope: Scope) -> BlockPath:
    steps = [(one.block.role, one.block.indices) for one in scope.up() if one.parent is not None]
    return tuple(reversed(steps))


def _is_of(leaf: Leaf, scope: Scope, path: BlockPath) -> bool:
    """Whether a leaf is a block's: said so, or in the folder that is the block's alone."""
    home, around = scope.block.home, scope.parent.block.home if scope.parent else ()
    if leaf.block == path:
        return True
    has_folder = len(home) > len(around) and leaf.block == path[:-1]
    return has_folder and leaf.place.within(home) and len(leaf.place) == len(home) + 1


def _widths(chosen: Chosen, path: BlockPath) -> set[int]:
    """The lengths of the norms around a block: of the states that it reads and gives."""
    around = (leaf for leaf in chosen.outline.read if leaf.block[: len(path) - 1] == path[:-1])
    return {extent for leaf in around if leaf.kind in NORMS for extent in weight_shape(leaf)[:1]}


def _is_as_wide(leaf: Leaf, widths: set[int]) -> bool:
    """Whether a module reads or gives such states, as far as a width is known."""
    return not widths or not widths.isdisjoint(weight_shape(leaf))


def _only(scope: Scope, chosen: Chosen, idle: Sequence[Leaf]) -> dict[Place, str]:
    """The roles of the modules where all flows that they would complete agree; {} where some flow does without them."""
    near = nears(scope, chosen.choices[id(scope)].considered, chosen.outline.facts)
    open_ones = [
        one for one in near if one.faults and {fault.kind for fault in one.faults} <= {LACKS, UNKNOWN}
    ]
    if any(not one.of(LACKS) for one in open_ones):
        return {}  # answers would make a model without them
    ways = [way for one in open_ones for way in _ways(scope, one, chosen.outline.facts, idle)]
    return ways[0] if ways and all(way == ways[0] for way in ways) else {}


def _ways(scope: Scope, near: Near, facts: Facts, idle: Sequence[Leaf]) -> Iterator[dict[Place, str]]:
    """How the modules can be what a flow lacks, by their kinds and shapes."""
    lacking = [fault.name for fault in near.of(LACKS)]
    if len(lacking) != len(idle):
        return
    for roles in permutations(lacking):
        way = dict(zip(roles, idle, strict=True))
        if all(_may_be(scope, near.rule, role, leaf) for role, leaf in way.items()) and _fits(
            scope, near.rule, facts, way
        ):
            yield {leaf.place: role for role, leaf in way.items()}


def _may_be(scope: Scope, rule: FlowRule, role: str, leaf: Leaf) -> bool:
    """Whether a flow says of what shape a role is, and reads it as what the leaf is: a module, or a bare tensor.

    Which of several norms of one kind one is, no shape tells.
    """
    known = (item for item in scope.block.roles.values() if isinstance(item, Leaf))
    is_one_of_several = leaf.kind in NORMS and any(item.kind == leaf.kind for item in known)
    is_module = re.search(rf"(?<![\w.]){re.escape(role)}(\(|\.weight)", rule.body) is not None
    return role in rule.shapes and is_module is ("" not in leaf.tensors) and not is_one_of_several


def _fits(scope: Scope, rule: FlowRule, facts: Facts, way: Mapping[str, Leaf]) -> bool:
    block = scope.block
    roles: dict[str, Leaf | Block | list[Leaf] | list[Block]] = {**block.roles, **way}
    tried = Scope(replace(block, roles=roles), scope.parent, scope.words, scope.tower, scope.children)
    try:
        return Sizes(tried, rule, facts).are_possible()
    except ArchitectureError:  # of another rank
        return False
