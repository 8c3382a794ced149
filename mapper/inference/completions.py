"""What modules that no word knows may be to the block around them: the roles with which some flow reads all that is there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product

from mapper._dataclass import dataclass
from mapper.architecture import Block, Leaf, Place
from mapper.errors import ArchitectureError
from mapper.inference.case import Case
from mapper.inference.facts import Facts
from mapper.inference.leaf_shapes import weight_shape
from mapper.inference.misfits import UNKNOWN
from mapper.inference.nearest import nears
from mapper.inference.scopes import Scope, is_part
from mapper.inference.select import choose
from mapper.inference.sizes import Sizes
from mapper.naming.words import normal
from mapper.rulebook.flows import FlowRule, aligned
from mapper.rulebook.index import FlowTable

_TRIES = 32  # of all ways in which several modules could have roles


@dataclass(frozen=True)
class Way:
    """One way to read a block: the roles of its modules, and the flow that reads it then."""

    roles: Mapping[Place, str]
    flow: FlowRule
    is_whole: bool  # whether nothing more must be known for it


def ways(case: Case, scope: Scope, facts: Facts, idle: Sequence[Leaf]) -> list[Way]:
    """Every way in which a flow reads the block with all of its modules."""
    found = []
    for taken in islice(_assignments(case.rulebook.flows, scope, facts, idle), _TRIES):
        way = dict(zip(taken, idle, strict=True))
        tried = with_roles(scope, way)
        found += [
            Way({leaf.place: role for role, leaf in way.items()}, flow, is_whole)
            for flow, is_whole in _flows(case, tried, facts)
            if not way.keys() - {*flow.roles} and is_possible(tried, flow, facts)
        ]
    return found


def with_roles(scope: Scope, way: Mapping[str, Leaf]) -> Scope:
    """A block as it is where these leaves have these roles, too."""
    roles: dict[str, Leaf | Block | list[Leaf] | list[Block]] = {**scope.block.roles, **way}
    return Scope(replace(scope.block, roles=roles), scope.parent, scope.words, scope.tower, scope.children)


def is_possible(scope: Scope, rule: FlowRule, facts: Facts) -> bool:
    """Whether the shapes of a block can be those of a flow."""
    try:
        return Sizes(scope, rule, facts).are_possible()
    except ArchitectureError:  # of another rank
        return False


def _assignments(
    flows: FlowTable, scope: Scope, facts: Facts, idle: Sequence[Leaf]
) -> Iterator[tuple[str, ...]]:
    """A role for each module: of the topic's flows and steps those count that lack nothing which no module could be."""
    rules = list(_known(flows, scope))
    while True:
        roles = [list(dict.fromkeys(_may_be(scope, rules, facts, leaf))) for leaf in idle]
        could_be = {role for each in roles for role in each}
        kept = [rule for rule in rules if _is_reached(scope, rule, could_be, len(idle))]
        if len(kept) == len(rules):
            break
        rules = kept
    yield from (taken for taken in product(*roles) if len({*taken}) == len(taken))


def _known(flows: FlowTable, scope: Scope) -> Iterator[FlowRule]:
    """The flows of a block's topic, and the steps of its spines with the shapes that stand for all of them."""
    for topic in dict.fromkeys((scope.block.role, scope.topic)):
        rules, pages = flows.of_topic(topic), flows.pages(topic)
        if rules or pages:
            read = {role for role, value in scope.block.roles.items() if not is_part(value)}
            yield from (rule for rule in rules if not read - {*rule.roles, *rule.ignored})
            for page in pages:
                usual = page.base.shapes if page.base else {}
                yield from (replace(step, shapes={**usual, **step.shapes}) for step in page.steps)
            return


def _is_reached(scope: Scope, rule: FlowRule, could_be: set[str], count: int) -> bool:
    """Whether so many modules could give a flow or a step all that it lacks."""
    lacking = [role for role in rule.needs if role not in scope.block.roles and role not in rule.ties]
    return len(lacking) <= count and could_be.issuperset(lacking)


def _may_be(scope: Scope, rules: Sequence[FlowRule], facts: Facts, leaf: Leaf) -> Iterator[str]:
    """The roles that a block lacks and that a leaf of this kind and shape may have."""
    rank = len(weight_shape(leaf))
    for rule in rules:
        for role in (*rule.needs, *rule.options):
            extents = rule.shapes.get(role)
            if role in scope.block.roles or extents is None or not is_read_as(rule, role, leaf):
                continue
            if len(aligned(extents, rank)) == rank:
                only = replace(rule, shapes={role: extents})
                if is_possible(with_roles(scope, {role: leaf}), only, facts):
                    yield role


def is_read_as(rule: FlowRule, role: str, leaf: Leaf) -> bool:
    """Whether a flow reads a role as what the leaf is: a module that is called, or a bare tensor."""
    is_module = re.search(rf"(?<![\w.]){re.escape(role)}(\(|\.weight)", rule.body) is not None
    return is_module is ("" not in leaf.tensors)


def _flows(case: Case, scope: Scope, facts: Facts) -> Iterator[tuple[FlowRule, bool]]:
    """The flow of a block, or those that only unknown facts keep from fitting."""
    choice = choose(scope, case.rulebook.flows, case.families, facts)
    if choice.flow is not None:
        yield choice.flow, True
        return
    for near in nears(scope, choice.considered, facts):
        if near.faults and all(fault.kind == UNKNOWN for fault in near.faults):
            yield near.rule, False


def decided(found: Sequence[Way]) -> Way | None:
    """The way where all have the same roles; where one flow reads all, the one that names speak for."""
    ways_by_roles = {tuple(sorted(way.roles.items(), key=str)): way for way in found}
    if len(ways_by_roles) < 2:
        return next(iter(ways_by_roles.values()), None)
    if len({frozenset(way.roles.values()) for way in found}) > 1:
        return None
    first, second, *_ = sorted(ways_by_roles.values(), key=likeness, reverse=True)
    return first if likeness(first) > likeness(second) else None


def likeness(way: Way) -> int:
    """How many words of the roles occur in the modules' names, as they are or cut short: the q of `query_bias` in `q_bias`."""
    return sum(_shared(place, role) for place, role in way.roles.items())


def _shared(place: Place, role: str) -> int:
    word = next((part for part in reversed(place) if isinstance(part, str)), "")
    pieces = [piece for piece in normal(word).split("_") if piece]
    return sum(any(_is_short_for(piece, part) for piece in pieces) for part in role.split("_"))


def _is_short_for(piece: str, word: str) -> bool:
    """`q` and `norm` for `query` and `normalization`, `layernorm` for `norm`."""
    return word.startswith(piece) or piece.endswith(word)
