"""Which flow a block takes: those its family names, else the most specific of its topic that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from mapper._dataclass import dataclass
from mapper.architecture import Filled
from mapper.errors import ArchitectureError, RuleError, listed
from mapper.inference.compose import compose
from mapper.inference.facts import Facts
from mapper.inference.families import Families
from mapper.inference.misfits import (
    UNKNOWN,
    Misfit,
    has_its_ranks,
    misfits,
)
from mapper.inference.scopes import Scope, is_part
from mapper.inference.sizes import Sizes
from mapper.rulebook.declared import FLOW
from mapper.rulebook.flows import FlowRule
from mapper.rulebook.index import Flows, FlowTable


@dataclass
class Choice:
    """The flow of one block, or why there is none."""

    flow: FlowRule | None = None
    named: bool = False  # by the family, not found by fit
    reasons: list[str] = field(default_factory=list)  # where it is not that none of `considered` fits
    look: Callable[[], str] = str  # gives `problem`
    slots: Sequence[Filled] = ()  # of a flow that was put together: what fills each
    tried: Callable[[], Sequence[FlowRule]] = tuple  # gives `considered`
    written: Callable[[], Sequence[FlowRule]] = tuple  # of `considered` what no steps make
    is_open: Callable[[], bool] = lambda: (
        True
    )  # whether answers alone keep some of what steps make from fitting
    asks: Mapping[str, Sequence[Any]] = field(
        default_factory=dict
    )  # facts that would decide, with their values

    @cached_property
    def considered(self) -> Sequence[FlowRule]:
        """Where there is none: which were tried, and what steps make that comes near."""
        return self.tried()

    @property
    def answerable(self) -> Sequence[FlowRule]:
        """All of `considered` that nothing but answers keeps from fitting, and others."""
        return self.considered if self.is_open() else self.written()

    @cached_property
    def problem(self) -> str:
        """The field of the config that no flow can be chosen by: looked for only where there is no flow in the end."""
        return self.look()

    def likely(self, scope: Scope, facts: Facts) -> FlowRule | None:
        """The first of those put together that only unknown facts keep from fitting: what it reads is asked for, too."""
        for rule in (rule for rule in self.considered if rule.steps):
            if all(fault.kind == UNKNOWN for fault in misfits(scope, rule, facts)):
                return rule
        return None


def choose(scope: Scope, flows: FlowTable, families: Families, facts: Facts) -> Choice:
    """The flow for a block."""
    told = facts.hints.stated(scope, FLOW)
    if told and {flows[told.value].topic, *flows[told.value].also_for} & {scope.block.role, scope.topic}:
        facts.ask(scope, FLOW)
        return _first(scope, [flows[told.value]], facts)
    named = named_flows(scope, flows, families)
    if named:
        return _first(scope, named, facts)
    for topic in (scope.block.role, scope.topic):  # cross_attention/* before attention/*
        rules = flows.of_topic(topic)
        if rules or topic in flows.spines:
            choice = _most_specific(scope, rules, facts)
            return choice if choice.flow else _composed(scope, topic, flows, facts, choice)
    return _most_specific(scope, flows.named(()), facts)


def _composed(scope: Scope, topic: str, flows: FlowTable, facts: Facts, choice: Choice) -> Choice:
    """What the steps of the topic's page make, where no flow that is written out fits."""
    is_tie = bool(choice.reasons) and not choice.considered
    if topic not in flows.spines or (is_tie and flows.of_topic(topic)):
        return choice
    made = compose(scope, flows.pages(topic), flows, facts)
    if made.flow or made.tied:
        reasons = [f"{made.tied} fit equally"] if made.tied else []
        return Choice(made.flow, reasons=reasons, slots=made.slots)
    return Choice(
        look=lambda: choice.problem or _problem(scope, _names(made.near), facts),
        tried=lambda: [*choice.considered, *made.near],
        written=lambda: choice.considered,
        is_open=made.is_open,
    )


def named_flows(scope: Scope, flows: FlowTable, families: Families) -> list[FlowRule]:
    """Those that the families name for a block, in the order in which they are tried. Raises RuleError."""
    found = []
    for name in families.flows(scope):
        if flows.get(name) is None:  # written out, or put together from steps
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
    return Choice(named=True, look=lambda: _problem(scope, _names(rules), facts), tried=lambda: rules)


def _names(rules: Iterable[FlowRule]) -> list[str]:
    """The facts by which flows are chosen or refused."""
    return [name for rule in rules for name in (*rule.when, *rule.values)]


def _most_specific(scope: Scope, rules: Flows, facts: Facts) -> Choice:
    fitting = fitting_flows(scope, rules, facts)
    fitting.sort(key=specificity, reverse=True)
    fitting = [rule for rule in fitting if has_its_ranks(scope, rule)] or fitting
    if not fitting:
        none = [] if rules else [f"there is no flow for {scope.topic}"]
        return Choice(reasons=none, look=lambda: _problem(scope, rules.facts(), facts), tried=lambda: rules)
    tied = [rule for rule in fitting if specificity(rule) == specificity(fitting[0])]
    if len(tied) > 1:
        tied = [rule for rule in tied if _has_its_shapes(scope, rule, facts)] or tied
    equal = [rule.name for rule in tied]
    if len(equal) > 1:
        tie = f"{listed(equal)} fit equally; a family must say which"
        return Choice(reasons=[tie], asks={} if scope.block.role == "root" else {FLOW: equal})
    return Choice(tied[0])


def _has_its_shapes(scope: Scope, rule: FlowRule, facts: Facts) -> bool:
    """Whether the shapes of a block can be those of a flow."""
    try:
        return Sizes(scope, rule, facts).are_possible()
    except ArchitectureError:  # of another rank
        return False


def fitting_flows(scope: Scope, rules: Flows, facts: Facts, but: Sequence[str] = ()) -> list[FlowRule]:
    """Those that fit a block, conditions on the facts in `but` aside. The files of others are not read."""

    def holds(name: str, allowed: Sequence[Any]) -> bool:
        known = None if name in but else facts.get(scope, facts.full_name(scope, name))
        return name in but or (known is not None and not known.problem and known.value in allowed)

    likely = rules.with_use_for(_read(scope)).where(holds)
    return [rule for rule in likely if not any(misfits(scope, rule, facts, but))]


def _read(scope: Scope) -> dict[str, bool]:
    """The roles of a block, each with whether a flow must read it."""
    return {role: not is_part(value) for role, value in scope.block.roles.items()}


def rivals(scope: Scope, chosen: FlowRule, flows: FlowTable, facts: Facts) -> Iterator[list[Misfit]]:
    """What keeps each flow of the same topic as the chosen one from fitting, where that is only what nobody knows."""
    for rule in flows.of_topic(chosen.topic).with_use_for(_read(scope)):
        faults = list(misfits(scope, rule, facts))
        if rule is not chosen and faults and all(fault.kind == UNKNOWN for fault in faults):
            yield faults


def specificity(rule: FlowRule) -> tuple[int, int, int]:
    """More conditions and needed roles first, then fewer options."""
    return len(rule.when), len(rule.needs), -len(rule.options)


def _problem(scope: Scope, names: Iterable[str], facts: Facts) -> str:
    """What is wrong with the first fact, of those that flows are chosen by, that the config holds nonsense for."""
    for name in names:
        known = facts.get(scope, facts.full_name(scope, name))
        if known is not None and known.problem:
            return known.problem
    return ""
