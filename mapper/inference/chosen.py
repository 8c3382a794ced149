"""The second stage: the flow of each block, and what keeps the others from having one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from mapper._dataclass import dataclass
from mapper.architecture import Block, Unfit
from mapper.errors import ArchitectureError
from mapper.flows.flow import Flow, flow_of, parse_flow
from mapper.flows.references import has_role
from mapper.inference.case import Case, Doubts
from mapper.inference.completeness import LOST
from mapper.inference.facts import Facts
from mapper.inference.misfits import untaken
from mapper.inference.nearest import Open, said_of
from mapper.inference.outline import Outline
from mapper.inference.requirements import Needs
from mapper.inference.roots import choose_root
from mapper.inference.scopes import Scope, add_parts, is_part
from mapper.inference.select import Choice, choose
from mapper.inference.unlike import differing_roles, lacking_roles, lacking_sublayers, lesser_parts


@dataclass
class Chosen:
    """Which flow each block takes."""

    outline: Outline
    choices: dict[int, Choice] = field(default_factory=dict)  # by identity of the scope
    flows: dict[int, Flow] = field(default_factory=dict)
    likely: dict[int, Flow] = field(default_factory=dict)  # those that lack no more than answers to questions
    lacking: list[Scope] = field(default_factory=list)  # the blocks that need a flow and have none
    unfit: list[Unfit] = field(default_factory=list)  # what is said of these
    is_tried: bool = True  # whether a flow was looked for: there may be a reason to have none

    @property
    def is_complete(self) -> bool:
        """Whether each block that a flow calls has one."""
        return self.is_tried and not self.lacking

    def of(self, scope: Scope) -> Flow | None:
        """The flow of a block, or the one that it likely has."""
        return self.flows.get(id(scope)) or self.likely.get(id(scope))

    def is_called(self, scope: Scope) -> bool:
        """Whether a block must have a flow: the one around it calls or lends it, or has none itself."""
        outer = scope.parent
        flow = self.flows.get(id(outer)) if outer else None
        if outer is None or flow is None:
            return outer is None or scope.topic in ("layer", "attention", "feed_forward")
        if scope.block.role in flow.rule.reads_elsewhere:  # a flow further out calls it
            return True
        return scope.block.role in self._needs(outer, flow).bare

    def needs(self) -> list[tuple[Scope, Flow, Needs]]:
        """What each block's flow reads once its guards are decided."""
        called = [(scope, self.of(scope)) for scope in self.outline.every()]
        return [
            (scope, flow, self._needs(scope, flow))
            for scope, flow in called
            if flow is not None and self.is_called(scope)
        ]

    def untaken(self) -> list[str]:
        """What the sizes have shown that a chosen flow does not take."""
        chosen = [
            (scope, self.flows[id(scope)].rule) for scope in self.outline.every() if id(scope) in self.flows
        ]
        return [
            f"{said_of(rule, fault)} at '{scope.block.home}'"
            for scope, rule in chosen
            for fault in untaken(scope, rule, self.outline.facts)
        ]

    def _needs(self, scope: Scope, flow: Flow) -> Needs:
        return Needs(flow, lambda role: has_role(scope.block, role), lookup(self.outline.facts, scope))


def lookup(facts: Facts, scope: Scope) -> Callable[[str], Any]:
    """A function from the short name of a fact of a block to its value; KeyError where nothing is known of it."""

    def value(name: str) -> Any:
        known = facts.get(scope, facts.full_name(scope, name))
        if known is None or known.problem:
            raise KeyError(name)
        return known.value

    return value


def value_of(outline: Outline, block: Block, name: str) -> Any:
    """A fact of a block by its short name, and its field has been read; KeyError where nothing is known of it."""
    scope = next(scope for scope in outline.every() if scope.block is block)
    value = lookup(outline.facts, scope)(name)
    outline.facts.ask(scope, outline.facts.full_name(scope, name))
    return value


def choose_flows(case: Case, outline: Outline, doubts: Doubts) -> Chosen:
    """A flow for every block that fits one."""
    if why := case.refusal or case.refused:
        doubts.missing.append(why)
        return Chosen(outline, is_tried=False)
    chosen = Chosen(outline, _choices(case, outline, doubts))
    for scope in outline.every():
        choice = chosen.choices[id(scope)]
        if choice.flow is not None:
            chosen.flows[id(scope)] = flow_of(case.rulebook, choice.flow.name)
            scope.block.flow, scope.block.slots = choice.flow.name, list(choice.slots)
    for scope in outline.every():
        if id(scope) not in chosen.flows and chosen.is_called(scope):
            chosen.lacking.append(scope)
            if rule := chosen.choices[id(scope)].likely(scope, outline.facts):
                chosen.likely[id(scope)] = parse_flow(rule)
    return chosen


def _choices(case: Case, outline: Outline, doubts: Doubts) -> dict[int, Choice]:
    """The choice for each block, from the outermost on: a flow gives the blocks inside parts without leaves."""
    rules, families, root = case.rulebook.flows, case.families, outline.root
    choice = choose_root(root, rules, families, outline.facts, doubts)
    choices = {id(root): choice}
    add_parts(root, choice.flow)
    for scope in root.below():
        choices[id(scope)] = choice = choose(scope, rules, families, outline.facts)
        add_parts(scope, choice.flow)
    return choices


_OF_A_TYPE = (
    "; if nothing of the file is lost, its layers are of several kinds: --set model_type=TYPE says which"
)


def say_what_lacks(case: Case, chosen: Chosen, doubts: Doubts) -> None:
    """Which flows come nearest where none fits, and what elements of a list lack that others have."""
    outline, choices = chosen.outline, chosen.choices
    every = list(outline.every())
    undecided = Open(outline.facts, outline.leaves, outline.asked)
    remedy = _OF_A_TYPE if outline.facts.config.model_type is None else LOST
    varies = case.families.varies()
    for scope in chosen.lacking:
        if choices[id(scope)].problem:
            raise ArchitectureError(choices[id(scope)].problem)
        if case.judges(scope.block.home) and not undecided.awaits(scope, choices[id(scope)]):
            doubts.gap(lacking_roles(scope, every, varies), remedy)
        undecided.add(scope, choices[id(scope)])
    doubts.findings += differing_roles(every, varies)
    lacking = (*lacking_sublayers(every, varies), *lesser_parts(every, varies))
    doubts.unlike(list(dict.fromkeys(lacking)))
    chosen.unfit = undecided.unfit
    doubts.missing += map(str, undecided.unfit)


def drop_uncalled(chosen: Chosen) -> None:
    """No flow for a block that the one around it only reaches into, to `embeddings.token` say, nor for its parts."""
    for scope in chosen.outline.root.below():
        outer = scope.parent
        if outer is None or chosen.is_called(scope):
            continue
        if is_part(scope.block) or id(outer) in chosen.flows:
            chosen.flows.pop(id(scope), None)
            scope.block.flow = None
