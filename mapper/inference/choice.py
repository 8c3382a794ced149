"""Which flow a block takes: those its family names, else the most specific of its topic that fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mapper.errors import RuleError, listed
from mapper.inference.facts import Facts
from mapper.inference.families import Families
from mapper.inference.scopes import Scope, leaves_at
from mapper.inference.sizes import weight_shape
from mapper.rulebook.flows import FlowRule, aligned


@dataclass
class Choice:
    """The flow of one block, or why there is none."""

    flow: FlowRule | None = None
    named: bool = False  # by the family, not found by fit
    reasons: list[str] = field(default_factory=list)  # where it is not that none of `considered` fits
    problem: str = ""  # the field of the config that no flow can be chosen by
    considered: Sequence[FlowRule] = ()  # where there is none: which were tried
    asks: Mapping[str, Sequence[Any]] = field(
        default_factory=dict
    )  # facts that would decide, with their values


LACKS, SPARE, UNKNOWN, OTHER, TAKES = "lacks", "spare", "unknown", "other", "takes"


class Misfit(NamedTuple):
    """One thing by which a flow does not fit a block."""

    kind: str  # LACKS a role, leaves one SPARE, asks for an UNKNOWN fact or an OTHER value, or TAKES no such value
    name: str  # of the role or the fact
    allowed: tuple[Any, ...] = ()  # values of the fact that would do
    value: Any = None  # what it is


def choose(scope: Scope, flows: Mapping[str, FlowRule], families: Families, facts: Facts) -> Choice:
    """The flow for a block."""
    named = named_flows(scope, flows, families)
    if named:
        return _first(scope, named, facts)
    for topic in (scope.block.role, scope.topic):  # cross_attention/* before attention/*
        rules = [rule for rule in flows.values() if rule.topic == topic and not rule.by_name_only]
        if rules:
            return _most_specific(scope, rules, facts)
    return _most_specific(scope, [], facts)


def named_flows(scope: Scope, flows: Mapping[str, FlowRule], families: Families) -> list[FlowRule]:
    """Those that the families name for a block, in the order in which they are tried. Raises RuleError."""
    found = []
    for name in families.flows(scope):
        if name not in flows:
            whose = (
                family
                for family in families.everything
                if any(name in names for names in family.flows.values())
            )
            family = next(whose)
            raise RuleError(f"{family.file}:{family.document.line('flows')}: there is no flow {name!r}")
        found.append(flows[name])
    return found


def _first(scope: Scope, rules: Sequence[FlowRule], facts: Facts) -> Choice:
    fitting = [rule for rule in rules if not any(misfits(scope, rule, facts))]
    for rule in [rule for rule in fitting if has_its_ranks(scope, rule)] or fitting:
        return Choice(rule, named=True)
    return Choice(named=True, problem=_problem(scope, rules, facts), considered=rules)


def _most_specific(scope: Scope, rules: Sequence[FlowRule], facts: Facts) -> Choice:
    fitting = [rule for rule in rules if not any(misfits(scope, rule, facts))]
    fitting.sort(key=specificity, reverse=True)
    fitting = [rule for rule in fitting if has_its_ranks(scope, rule)] or fitting
    if not fitting:
        none = [] if rules else [f"there is no flow for {scope.topic}"]
        return Choice(reasons=none, problem=_problem(scope, rules, facts), considered=rules)
    equal = [rule.name for rule in fitting if specificity(rule) == specificity(fitting[0])]
    if len(equal) > 1:
        return Choice(reasons=[f"{listed(equal)} fit equally; a family must say which"])
    return Choice(fitting[0])


def has_its_ranks(scope: Scope, rule: FlowRule) -> bool:
    """Whether the weights have as many dimensions as a flow says: a map of a row of vectors, or a 1 x 1 convolution."""
    for role, extents in rule.shapes.items():
        for leaf in leaves_at(scope.block, role):
            rank = len(weight_shape(leaf))
            if len(aligned(extents, rank)) != rank:
                return False
    return True


def specificity(rule: FlowRule) -> tuple[int, int, int]:
    """More conditions and needed roles first, then fewer options."""
    return len(rule.when), len(rule.needs), -len(rule.options)


def misfits(scope: Scope, rule: FlowRule, facts: Facts, but: Sequence[str] = ()) -> Iterator[Misfit]:
    """Why a flow does not fit a block, conditions on the facts in `but` aside; nothing where it does."""
    present = scope.block.roles
    yield from (Misfit(LACKS, role) for role in rule.needs if role not in present)
    yield from (Misfit(SPARE, role) for role in present if role not in rule.roles and role not in rule.unread)
    for name, allowed in rule.when.items():
        if name in but:
            continue
        full = facts.full_name(scope, name)
        known = facts.get(scope, full)
        if known is None or known.problem:
            yield Misfit(UNKNOWN, full, allowed)
        elif known.value not in allowed:
            yield Misfit(OTHER, full, allowed, known.value)
    yield from untaken(scope, rule, facts)


def untaken(scope: Scope, rule: FlowRule, facts: Facts) -> Iterator[Misfit]:
    """Facts with values that a flow does not take; some are known only once the sizes of its block are."""
    for name, allowed in rule.values.items():
        full = facts.full_name(scope, name)
        known = facts.get(scope, full)
        if known is not None and not known.problem and not _takes(known.value, allowed):
            yield Misfit(TAKES, full, allowed, known.value)


def _takes(value: object, allowed: Sequence[object]) -> bool:
    """Whether a flow takes a value: of a list, each of its entries."""
    return all(item in allowed for item in value) if isinstance(value, list) else value in allowed


def _problem(scope: Scope, rules: Iterable[FlowRule], facts: Facts) -> str:
    """What is wrong with the first fact, of those that flows are chosen by, that the config holds nonsense for."""
    for rule in rules:
        for name in (*rule.when, *rule.values):
            known = facts.get(scope, facts.full_name(scope, name))
            if known is not None and known.problem:
                return known.problem
    return ""
