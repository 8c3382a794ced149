"""Which flows come nearest to a block that none fits, in words, and what to ask so that one does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mapper._dataclass import dataclass
from mapper.architecture import Block, Leaf, Place, Unfit
from mapper.errors import cut, joined, shorten
from mapper.inference.asking import Asked
from mapper.inference.facts import Facts
from mapper.inference.misfits import LACKS, OTHER, SPARE, TAKES, UNKNOWN, Misfit, misfits
from mapper.inference.scopes import Scope
from mapper.inference.select import Choice
from mapper.rulebook.flows import FlowRule

_SHOWN = 3  # flows for a block
_NAMED = 3  # roles or leaves in a sentence
_LONG = 60  # characters of what a flow is, or of a name

Values = dict[str, list[Any]]  # of facts that nobody knows: what would do


@dataclass(frozen=True)
class Near:
    """A flow, and all by which it does not fit a block."""

    rule: FlowRule
    faults: tuple[Misfit, ...]
    shared: int  # roles of the block that it has a use for
    assumed: frozenset[str] = frozenset()  # facts that are otherwise than it asks by a default alone

    def of(self, *kinds: str) -> list[Misfit]:
        return [fault for fault in self.faults if fault.kind in kinds]

    @property
    def short(self) -> int:
        """How many roles are too few or too many."""
        return len(self.of(LACKS, SPARE))

    @property
    def is_like(self) -> bool:
        """Whether it is worth naming: more of its roles are there than not."""
        return not self.short or 0 < self.short <= self.shared

    @property
    def asks(self) -> dict[str, tuple[Any, ...]]:
        """The facts, each with its values, that alone are in the way; empty where something else is too."""
        unknown = self.of(UNKNOWN)
        is_all = len(unknown) == len(self.faults) and all(fault.allowed for fault in unknown)
        return {fault.name: fault.allowed for fault in unknown} if is_all else {}

    @property
    def asks_of_defaults(self) -> dict[str, tuple[Any, ...]]:
        """The same where some of these facts are known by a default alone, which is no evidence against a flow."""
        loose = [fault for fault in self.faults if fault.kind == UNKNOWN or fault.name in self.assumed]
        is_all = len(loose) == len(self.faults) and all(fault.allowed for fault in loose)
        return (
            {fault.name: fault.allowed for fault in loose} if is_all and self.assumed and self.shared else {}
        )

    def distance(self) -> tuple[int, bool, int, int, int, int, str]:
        """Roles first, then facts; of equal ones the plainest."""
        facts = len(self.faults) - self.short
        otherwise = facts - len(self.of(UNKNOWN))
        is_whole = not self.rule.steps  # what a page puts together is the usual computation of the block
        return (
            self.short,
            is_whole,
            facts,
            otherwise,
            len(self.rule.when),
            len(self.rule.options),
            self.rule.name,
        )


def nears(scope: Scope, rules: Iterable[FlowRule], facts: Facts) -> list[Near]:
    """The flows, nearest first."""
    roles = scope.block.roles
    found = []
    for rule in rules:
        faults = tuple(misfits(scope, rule, facts))
        shared = sum(role in rule.roles for role in roles)
        found.append(Near(rule, faults, shared, frozenset(_assumed(scope, faults, facts))))
    return sorted(found, key=Near.distance)


def _assumed(scope: Scope, faults: Iterable[Misfit], facts: Facts) -> Iterator[str]:
    """The facts of a type that nobody lists which are otherwise than a flow asks by a default alone."""
    if facts.families.are_vouched_for:
        return
    for fault in faults:
        known = facts.get(scope, fault.name) if fault.kind == OTHER else None
        if known is not None and known.evidence == "default":
            yield fault.name


class Open:
    """The blocks that have no flow and need one: what comes near, and what to ask."""

    def __init__(self, facts: Facts, leaves: Iterable[Leaf], asked: Asked):
        self.facts = facts
        self.idle = [leaf for leaf in leaves if leaf.role is None and leaf.kind != "Buffer"]
        self.asked = asked
        self.unfit: list[Unfit] = []

    def add(self, scope: Scope, choice: Choice) -> None:
        """Note a block without a flow; with one that is like it and lacks the same, it is one."""
        near = nears(scope, choice.considered, self.facts)
        asked = decisive(near, choice) or self._confirming(scope, near)
        if not asked and not self.facts.families.are_vouched_for:
            asked = against_defaults(near)
        for name, values in asked.items():
            doubt = self.facts.doubt(scope, name)  # says which of all values occur with these names
            self.asked.add(scope, name, doubt.among if doubt and doubt.among else values)
        told = tuple(_sentences(scope, choice, near, self._idle_at(scope), asked))
        place = str(scope.block.home)
        for at, other in enumerate(self.unfit):
            if (other.role, other.nearest) == (scope.block.role, told):
                self.unfit[at] = replace(other, places=(*other.places, place))
                return
        several = choice.asks or sum(bool(one.asks) and one.asks.keys() <= asked.keys() for one in near) > 1
        self.unfit.append(Unfit(scope.block.role, (place,), told, tuple(asked) if several else ()))

    def awaits(self, scope: Scope, choice: Choice) -> bool:
        """Whether an answer alone is between a block and a flow: it lacks nothing that others have."""
        return any(near.asks for near in nears(scope, choice.considered, self.facts))

    def _confirming(self, scope: Scope, near: Iterable[Near]) -> Values:
        """Where one flow would do, what it asks for, each fact with its other values: the answer may be another."""
        for one in near:
            others = {name: self._others(scope, name, values) for name, values in one.asks.items()}
            if others and all(others.values()):
                return others
        return {}

    def _others(self, scope: Scope, name: str, values: Sequence[Any]) -> list[Any]:
        """All values of a fact that is a flag, or that a doubt lists; [] of others."""
        if self.facts.declared.types.get(name) == "flag":
            return [*values, *(value for value in (True, False) if value not in values)]
        doubt = self.facts.doubt(scope, name)
        return [*values, *(value for value in doubt.among if value not in values)] if doubt else []

    def _idle_at(self, scope: Scope) -> list[str]:
        """The leaves of a block's folder, not of one further in, that have no role: by their names there."""
        home = scope.block.home
        inner = [other.block.home for other in scope.below() if len(other.block.home) > len(home)]
        found = (leaf.place for leaf in self.idle if leaf.place.within(home))
        return [str(Place(place[len(home) :])) for place in found if not any(map(place.within, inner))]


def decisive(near: Iterable[Near], choice: Choice) -> Values:
    """The facts that decide between flows which nothing else keeps from fitting, with two values or more.

    A flow that asks for more than another one does not add to what is asked: the answer leaves it open.
    """
    if choice.asks:
        return {name: list(values) for name, values in choice.asks.items()}
    wanted = [one.asks for one in near if one.asks]
    fewest = [asks for asks in wanted if not any(other.keys() < asks.keys() for other in wanted)]
    values: Values = {name: [] for asks in fewest for name in asks}
    for asks in wanted:
        for name in values.keys() & asks.keys():
            values[name] += [value for value in asks[name] if value not in values[name]]
    return {name: found for name, found in values.items() if len(found) > 1}


def against_defaults(near: Iterable[Near]) -> Values:
    """What keeps flows that read all roles from fitting, where nothing or a default alone speaks against them: it is asked for.

    Of those against which defaults speak, what steps make counts before flows that are written out for one architecture;
    then those count that ask for the fewest facts.
    """
    open_ones = [one for one in near if one.asks_of_defaults]
    usual = [one for one in open_ones if one.rule.steps] or open_ones
    wanted = [one.asks for one in near if one.asks] or [one.asks_of_defaults for one in usual]
    fewest = [asks for asks in wanted if len(asks) == min(map(len, wanted))]
    values: Values = {}
    for asks in fewest:
        for name, allowed in asks.items():
            found = values.setdefault(name, [])
            found += [value for value in allowed if value not in found]
    return values


def _sentences(
    scope: Scope, choice: Choice, near: Sequence[Near], idle: Sequence[str], asked: Mapping[str, Any]
) -> Iterator[str]:
    """What comes near, at most three, or why there is nothing."""
    yield from choice.reasons
    decided = [one for one in near if one.asks and one.asks.keys() <= asked.keys()]
    for one in decided[:_SHOWN]:
        values = [f"{name} = {_either(values)}" for name, values in one.asks.items()]
        yield f"{_name(one.rule)} if {_listed(values)}"
    if len(decided) > 1:
        return
    fewest = [one.asks.keys() for one in near if one.asks]
    like = [
        one
        for one in near
        if one.is_like
        and (one.short or (not any(asks < one.asks.keys() for asks in fewest) if one.asks else not fewest))
    ]
    for one in [one for one in like if one not in decided][: _SHOWN - len(decided)]:
        yield f"{_name(one.rule)} {', '.join(_faults(scope, one, idle, asked))}"
    if near and not like:
        roles = list(scope.block.roles)
        yield f"none of the {len(near)} for it comes near: {_what_it_has(roles, idle)}"


def _what_it_has(roles: Sequence[str], idle: Sequence[str]) -> str:
    """What is too little for any flow: the only roles there are, and what no word gives one."""
    known = [f"all that is known in it is {_listed(roles)}"] if roles else []
    have = "has no role" if len(idle) == 1 else "have no role"
    unknown = [f"{_quoted(idle)} {have}"] if idle else []
    return "; ".join([*known, *unknown]) or "nothing in it has a role"


def _name(rule: FlowRule) -> str:
    """`attention/causal (every position sees itself and those before)`."""
    clause = rule.doc.partition(";")[0].strip()
    words = next((text for text in (clause, clause.partition(",")[0]) if len(text) <= _LONG), "")
    return f"{rule.name} ({words})" if words else rule.name


def _faults(scope: Scope, near: Near, idle: Sequence[str], asked: Mapping[str, Any]) -> Iterator[str]:
    lacks = [fault.name for fault in near.of(LACKS)]
    if lacks:
        yield f"lacks {_listed(lacks)}{_without_role(idle)}"
    spare = [_with_place(scope, fault.name) for fault in near.of(SPARE)]
    if spare:
        yield f"has no use for {_listed(spare)}"
    torn = [fault.name for fault in near.of(UNKNOWN) if not fault.allowed]
    if torn:
        yield f"has steps that are for different values of {_listed(torn)}"
    unknown = (fault for fault in near.of(UNKNOWN) if fault.allowed)
    open_facts = [f"{fault.name} = {_either(fault.allowed)}" for fault in unknown]
    if open_facts:
        verb = "asks for" if near.short else "would do with"
        yield f"{verb} {_listed(open_facts)}, which nothing shows{_how_to_say(near, asked)}"
    for fault in near.of(OTHER, TAKES):
        yield _otherwise(fault)


def _how_to_say(near: Near, asked: Mapping[str, Any]) -> str:
    """The answer, where only one would do and so nothing is asked."""
    sets = [f"--set {name}={_value(values[0])}" for name, values in near.asks.items() if name not in asked]
    return f" (if so: {' '.join(sets)})" if sets else ""


def said_of(rule: FlowRule, fault: Misfit) -> str:
    """What a flow that was chosen does not take."""
    return f"{rule.name} {_otherwise(fault)}"


def _otherwise(fault: Misfit) -> str:
    if not fault.allowed:
        return f"has steps that go with no {fault.name} together"
    is_for = "takes" if fault.kind == TAKES else "is for"
    return f"{is_for} {fault.name} = {_either(fault.allowed)}, not {_seen(fault.value)}"


def _without_role(idle: Sequence[str]) -> str:
    """What may be what is lacking: `: only 'wo' has no role`."""
    if not idle:
        return ""
    if len(idle) > _NAMED:
        return f": {len(idle)} modules have no role"
    return f": only {_quoted(idle)} {'has' if len(idle) == 1 else 'have'} no role"


def _with_place(scope: Scope, role: str) -> str:
    """`gate (self_attn.gate_proj)`: a role with the module that has it, where that is another word."""
    value = scope.block.roles[role]
    first = value[0] if isinstance(value, list) else value
    place = first.home if isinstance(first, Block) else first.place
    name = str(Place(place[len(scope.block.home) :]))
    return f"{role} ({cut(name, _LONG)})" if name and name != role else role


def _quoted(names: Iterable[str]) -> str:
    return _listed([f"'{cut(name, _LONG)}'" for name in names])


def _listed(items: Sequence[str]) -> str:
    return joined(items, _NAMED)


def _either(values: Sequence[Any]) -> str:
    return " or ".join(map(_value, values))


def _seen(value: Any) -> str:
    """As Python writes it: a config may hold anything."""
    if isinstance(value, (bool, int)) or value is None:
        return "none" if value is None else json.dumps(value)
    return shorten(value) if isinstance(value, str) else cut(repr(value), _LONG)


def _value(value: Any) -> str:
    """As `--set` takes it."""
    return value if isinstance(value, str) else json.dumps(value)
