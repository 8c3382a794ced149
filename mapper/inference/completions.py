"""What modules that no word knows may be to the block around them: the roles with which some flow reads all that is there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import islice, product
from typing import Any

from mapper._dataclass import dataclass
from mapper.architecture import Leaf, Place
from mapper.errors import ArchitectureError
from mapper.inference.case import Case
from mapper.inference.facts import Facts
from mapper.inference.leaf_shapes import weight_shape
from mapper.inference.nearest import nears
from mapper.inference.scopes import Scope, is_part
from mapper.inference.select import choose
from mapper.inference.sizes import Sizes
from mapper.inference.tables import TABLE, is_table
from mapper.rulebook.flows import FlowRule, aligned
from mapper.rulebook.index import FlowTable
from mapper.words import normal

_Supposed = dict[tuple[str, Place], tuple[Leaf, Scope]]  # by role and module: it as it would be, in its block
_TRIES = 32  # of all ways in which several modules could have roles


@dataclass(frozen=True)
class Way:
    """One way to read a block: the roles of its modules, and the flow that reads it then."""

    leaves: Mapping[str, Leaf]  # by role, with the kind that they have in it
    flow: FlowRule
    asks: Mapping[str, Sequence[Any]]  # facts that must be known for it, with their values

    @property
    def roles(self) -> dict[Place, str]:
        return {leaf.place: role for role, leaf in self.leaves.items()}


def ways(case: Case, scope: Scope, facts: Facts, idle: Sequence[Leaf], is_needed: bool) -> list[Way]:
    """Every way in which a flow reads the block with all of its modules.

    The one module of a block that lacks something may be of a shape that no flow says, if no other role fits; of the
    whole model, which has a role for nearly everything, shapes are all that is known.
    """
    found = _ways(case, scope, facts, idle, says_shape=True)
    if not found and is_needed and len(idle) == 1 and scope.parent is not None:
        found = _ways(case, scope, facts, idle, says_shape=False)
    return [way for way in found if are_in_order(way)]


def _ways(case: Case, scope: Scope, facts: Facts, idle: Sequence[Leaf], says_shape: bool) -> list[Way]:
    found: list[Way] = []
    for taken in islice(_assignments(case, scope, facts, idle, says_shape), _TRIES):
        way = {role: _as(case, scope, role, leaf) for role, leaf in zip(taken, idle, strict=True)}
        with _having(scope, way, facts):
            found += [
                Way(way, flow, asks)
                for flow, asks in _flows(case, scope, facts)
                if not way.keys() - {*flow.roles} and is_possible(scope, flow, facts, [*way.values()])
            ]
    return found


def _as(case: Case, scope: Scope, role: str, leaf: Leaf) -> Leaf:
    """The leaf as what it is in a role: a table looks like a map, and maps are stored as those beside them."""
    known = [item for item in scope.block.roles.values() if isinstance(item, Leaf) and item.kind == leaf.kind]
    if leaf.kind != "Linear":
        return leaf
    if leaf.tensors.keys() == {"weight"} and is_table(case.rulebook, scope.block.role, role):
        return replace(leaf, kind=TABLE)
    is_turned = bool(known) and all(item.is_transposed for item in known)
    return replace(leaf, form=known[0].form) if is_turned else leaf


@contextmanager
def _having(scope: Scope, way: Mapping[str, Leaf], facts: Facts) -> Iterator[None]:
    """As long as this lasts, these leaves have these roles in the block: facts of others may rest on that."""
    roles = scope.block.roles
    before = dict(roles)
    roles.update(way)
    try:
        with facts.supposing(scope, {}):
            yield
    finally:
        roles.clear()
        roles.update(before)


def _with(scope: Scope, role: str, leaf: Leaf) -> Scope:
    """A block in which one leaf has this role, too."""
    block = replace(scope.block, roles={**scope.block.roles, role: leaf})
    return Scope(block, scope.parent, scope.words, scope.tower, scope.children, dict(scope.solved))


def is_possible(scope: Scope, rule: FlowRule, facts: Facts, new: Sequence[Leaf]) -> bool:
    """Whether the shapes of a block can be those of a flow, some leaves being new in it."""
    try:
        return Sizes(scope, rule, facts).are_possible(new)
    except ArchitectureError:  # of another rank
        return False


def _assignments(
    case: Case, scope: Scope, facts: Facts, idle: Sequence[Leaf], says_shape: bool
) -> Iterator[tuple[str, ...]]:
    """A role for each module: of the topic's flows and steps those count that lack nothing which no module could be."""
    rules = list(_known(case.rulebook.flows, scope))
    made: _Supposed = {}
    while True:
        roles = [
            [*dict.fromkeys(_may_be(case, scope, rules, facts, leaf, says_shape, made))] for leaf in idle
        ]
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


def _may_be(
    case: Case,
    scope: Scope,
    rules: Sequence[FlowRule],
    facts: Facts,
    leaf: Leaf,
    says_shape: bool,
    made: _Supposed,
) -> Iterator[str]:
    """The roles that a block lacks and that a leaf of this kind and shape may have."""
    for rule in rules:
        for role in (*rule.needs, *rule.options):
            if role in scope.block.roles or not is_read_as(rule, role, leaf):
                continue
            if role in rule.shapes:
                if (role, leaf.place) not in made:  # one block for all rules: what is asked of it is kept
                    one = _as(case, scope, role, leaf)
                    made[role, leaf.place] = one, _with(scope, role, one)
                one, block = made[role, leaf.place]
                if _is_of_shape(block, rule, facts, role, one):
                    yield role
            elif not says_shape and role in rule.needs and len(weight_shape(leaf)) > 1:
                yield role


def _is_of_shape(scope: Scope, rule: FlowRule, facts: Facts, role: str, leaf: Leaf) -> bool:
    """Whether a leaf has the shape of a role, beside those that the rule itself reads."""
    rank = len(weight_shape(leaf))
    own = {
        name: rule.shapes[name] for name in rule.roles if name in rule.shapes and name in scope.block.roles
    }
    if len(aligned(rule.shapes[role], rank)) != rank:
        return False
    return is_possible(scope, replace(rule, shapes=own), facts, [leaf])


def is_read_as(rule: FlowRule, role: str, leaf: Leaf) -> bool:
    """Whether a flow reads a role as what the leaf is: a module that is called, or a bare tensor.

    What is passed on whole, to an operation, may be either.
    """
    is_module = _is_module("\n".join((rule.body, *rule.outputs.values())), role)
    is_norm = leaf.kind.endswith("Norm") and "norm" in role.split("_")
    return is_module is ("" not in leaf.tensors) or is_norm


@lru_cache(maxsize=2**14)
def _is_module(body: str, role: str) -> bool:
    """Whether a body calls what has a role, or reads its weight."""
    return role in body and re.search(rf"(?<![\w.]){re.escape(role)}(\(|\.weight)", body) is not None


def _flows(case: Case, scope: Scope, facts: Facts) -> Iterator[tuple[FlowRule, Mapping[str, Sequence[Any]]]]:
    """The flow of a block, or those that only unknown facts keep from fitting, with these facts."""
    choice = choose(scope, case.rulebook.flows, case.families, facts)
    if choice.flow is not None:
        yield choice.flow, {}
        return
    for near in nears(scope, choice.answerable, facts):
        if near.asks:
            yield near.rule, near.asks


def decided(found: Sequence[Way]) -> Way | None:
    """The way where all have the same roles, or one that names spell out; where one flow reads all, that names speak for."""
    by_roles = {tuple(sorted(way.roles.items(), key=str)): way for way in found}
    spelt = [way for way in by_roles.values() if all(_spells(*named) for named in way.roles.items())]
    if len(spelt) == 1 or len(by_roles) < 2:
        return next(iter(spelt or by_roles.values()), None)
    if len({frozenset(way.roles.values()) for way in found}) > 1:
        return None
    first, second, *_ = sorted(by_roles.values(), key=likeness, reverse=True)
    return first if likeness(first) > likeness(second) else None


def likeness(way: Way) -> int:
    """How many words of the roles occur in the modules' names, as they are or cut short: the q of `query_bias` in `q_bias`."""
    return sum(_shared(place, role) for place, role in way.roles.items())


def is_like_each_row(way: Way) -> bool:
    """Whether each bare row of numbers has a name like its role: that another module has one says nothing of it."""
    bare = ((leaf.place, role) for role, leaf in way.leaves.items() if "" in leaf.tensors)
    return all(_shared(place, role) for place, role in bare)


def are_in_order(way: Way) -> bool:
    """Whether modules whose names differ in a number alone have roles of one kind, in the order in which they are read."""
    stems: dict[Place, list[tuple[str, str]]] = {}
    for place, role in way.roles.items():
        stem = re.sub(r"\d+", "#", str(place[-1]))
        if isinstance(place[-1], str) and "#" in stem:
            stems.setdefault(Place((*place[:-1], stem)), []).append((str(place[-1]), role))
    return all(_is_row(sorted(named), way.flow) for named in stems.values() if len(named) > 1)


def _is_row(named: Sequence[tuple[str, str]], flow: FlowRule) -> bool:
    """`ls1` and `ls2` are scales of attention and of what comes after it, not a scale and something else."""
    roles = [role for _, role in named]
    read = [re.search(rf"(?<![\w.]){re.escape(role)}\b", flow.body) for role in roles]
    at = [found.start() for found in read if found]
    return len({role.partition("_")[0] for role in roles}) == 1 and at == sorted(at)


def _words(place: Place) -> list[str]:
    word = next((part for part in reversed(place) if isinstance(part, str)), "")
    return [piece for piece in normal(word).split("_") if piece]


def _shared(place: Place, role: str) -> int:
    pieces = _words(place)
    return sum(any(_is_short_for(piece, part) for piece in pieces) for part in role.split("_"))


def _spells(place: Place, role: str) -> bool:
    """Whether a name is the role's, each word as it is or cut short, in any order: `norm_k` for `key_norm`."""
    pieces, rest = _words(place), role.split("_")
    for piece in pieces:
        said = next((part for part in rest if _is_short_for(piece, part)), None)
        if said is None:
            return False
        rest.remove(said)
    return not rest


def _is_short_for(piece: str, word: str) -> bool:
    """`q` and `norm` for `query` and `normalization`, `layernorm` for `norm`."""
    return word.startswith(piece) or piece.endswith(word)
