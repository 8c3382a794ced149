"""Which steps of a spine a block takes: each slot is filled on its own by the step that fits best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from mapper._dataclass import dataclass
from mapper.architecture import Filled
from mapper.errors import listed
from mapper.flows.references import has_role
from mapper.inference.facts import Facts
from mapper.inference.misfits import (
    LACKS,
    OTHER,
    UNKNOWN,
    Misfit,
    condition_faults,
    has_its_ranks,
    lacking,
    misfits,
    untaken,
    untied,
)
from mapper.inference.scopes import Scope
from mapper.rulebook.flows import FlowRule
from mapper.rulebook.index import FlowTable
from mapper.rulebook.pages import Page, Slot, assemble, left_out, step_name

_TRIED = 3  # steps of a slot that none fits, which come nearest
_LACKING = [Misfit(LACKS, "")]  # some role, whichever it is


@dataclass
class Composed:
    """The flow that a block's steps make, or what came near to one."""

    flow: FlowRule | None = None
    look: Callable[[], list[FlowRule]] = list  # gives `near`
    tied: str = ""  # the steps of one slot that fit equally
    slots: list[Filled] = field(default_factory=list)

    @cached_property
    def near(self) -> list[FlowRule]:
        """What came near to a flow: put together only where no other spine fits."""
        return self.look()


def compose(
    scope: Scope,
    pages: Sequence[Page],
    flows: FlowTable,
    facts: Facts,
    assumed: Mapping[str, Any] | None = None,
) -> Composed:
    """The flow of a block's spine; of several spines that of the one that fits.

    `assumed` are values of facts that nobody knows.
    """
    filled = [page for page in pages if all(slot.steps for slot in page.slots)]
    made = [_composed(scope, page, flows, facts, assumed or {}) for page in filled]
    fitting = [one for one in made if one.flow or one.tied]
    if len(fitting) > 1:
        return Composed(tied=listed([one.flow.name for one in fitting if one.flow] or [fitting[0].tied]))
    return fitting[0] if fitting else Composed(look=lambda: _nearest(scope, made) if made else [])


def _nearest(scope: Scope, made: Sequence[Composed]) -> list[FlowRule]:
    """What came near in the spines that leave the fewest roles of a block unread."""

    def spare(one: Composed) -> int:
        return min(len(scope.block.roles.keys() - {*rule.roles, *rule.ignored}) for rule in one.near)

    least = min(map(spare, made))
    return [rule for one in made if spare(one) == least for rule in one.near]


@dataclass
class _Slots:
    """What fills the slots of a spine, in the order in which they are filled."""

    ways: dict[str, list[FlowRule]] = field(
        default_factory=dict
    )  # for each its step, or those that come near
    filled: dict[str, Filled] = field(default_factory=dict)
    tied: str = ""  # the steps of one slot that fit equally
    are_whole: bool = True  # each has a step

    @property
    def first(self) -> dict[str, FlowRule]:
        """One step for each slot."""
        return {name: steps[0] for name, steps in self.ways.items()}


def _composed(
    scope: Scope, page: Page, flows: FlowTable, facts: Facts, assumed: Mapping[str, Any]
) -> Composed:
    """The flow of one spine."""
    slots = _filled(scope, page, facts, assumed)
    if not slots.are_whole:
        return Composed(look=lambda: _near(scope, page, flows, facts, assumed))
    first = slots.first
    whole = assemble(page, page.in_order(first))
    fits = bool(whole.steps) and not any(misfits(scope, whole, facts, tuple(assumed)))
    if not fits or not _give_one_value_each(first.values()):
        return Composed(look=lambda: [whole])
    if slots.tied:
        return Composed(tied=slots.tied)
    order = [slots.filled[slot.name] for slot in page.slots if slot.name in slots.filled]
    return Composed(flows[whole.name], slots=order)


def _filled(
    scope: Scope, page: Page, facts: Facts, assumed: Mapping[str, Any], to_the_end: bool = False
) -> _Slots:
    """Fills the slots of a spine, up to the first that no step fits or to the end."""
    slots = _Slots()
    claimed: set[str] = set()
    ties: dict[str, str] = {}
    for slot in page.centres_first():
        if left_out(slot, slots.first):
            continue
        tied = _tied(slot, ties)
        steps, equal, weaker = _fill(scope, tied, claimed, facts, assumed)
        if not steps and not to_the_end:
            slots.are_whole = False
            break
        slots.are_whole = slots.are_whole and bool(steps)
        steps = steps or _nearest_steps(scope, tied, claimed, facts, assumed)
        slots.ways[slot.name] = steps
        slots.tied = slots.tied or equal
        ties |= steps[0].ties
        slots.filled[slot.name] = Filled(slot.name, step_name(steps[0]), tuple(map(step_name, weaker)))
        claimed |= {*steps[0].roles, *steps[0].ignored} & scope.block.roles.keys()
    return slots


def _near(
    scope: Scope, page: Page, flows: FlowTable, facts: Facts, assumed: Mapping[str, Any]
) -> list[FlowRule]:
    """What comes near to a flow of a spine that no steps make whole."""
    slots = _filled(scope, page, facts, assumed, to_the_end=True)
    first = slots.first
    others = [first, *({**first, name: step} for name, steps in slots.ways.items() for step in steps[1:])]
    tried = [assemble(page, page.in_order(steps)) for steps in others]
    found = [rule for rule in tried if all(rule.when.values())] or tried[:1]
    if not assumed and not any(_answerable(scope, rule, facts) for rule in found):
        found = [*_by_answers(scope, page, flows, facts, tried), *found]
    return list({rule.name: rule for rule in found}.values())


def _tied(slot: Slot, ties: Mapping[str, str]) -> Slot:
    """A slot whose steps know what earlier ones say of the roles that they need: a head is tied to what stands before it."""

    def told(step: FlowRule) -> FlowRule:
        more = {role: path for role, path in ties.items() if role in step.needs and role not in step.ties}
        return replace(step, ties={**step.ties, **more}) if more else step

    return replace(slot, steps=tuple(map(told, slot.steps))) if ties else slot


def _give_one_value_each(steps: Iterable[FlowRule]) -> bool:
    """Whether no two steps say otherwise of one output: a pooler's vector is not the first position's, too."""
    given = {pair for step in steps for pair in step.outputs.items()}
    return len(given) == len({name for name, _ in given})


def _answerable(scope: Scope, rule: FlowRule, facts: Facts) -> bool:
    """Whether nothing but answers keeps a flow from fitting."""
    return all(fault.kind == UNKNOWN for fault in misfits(scope, rule, facts))


def _by_answers(
    scope: Scope, page: Page, flows: FlowTable, facts: Facts, tried: Sequence[FlowRule]
) -> list[FlowRule]:
    """The flows that each answer leads to, where one fact chooses the steps of several slots at once."""
    faults = [fault for rule in tried for fault in condition_faults(scope, rule, facts)]
    unknown = dict.fromkeys(fault.name for fault in faults if fault.kind == UNKNOWN)
    answers = [{name: value} for name in unknown for value in page.allowed(name)]
    made = [_composed(scope, page, flows, facts, answer) for answer in answers]
    found = [rule for one in made for rule in ([one.flow] if one.flow else one.near)]
    return list({rule.name: rule for rule in found if _answerable(scope, rule, facts)}.values())


def _fill(
    scope: Scope, slot: Slot, claimed: set[str], facts: Facts, assumed: Mapping[str, Any]
) -> tuple[list[FlowRule], str, list[FlowRule]]:
    """The step of a slot, those that fit equally, and the weaker ones that fit.

    No step where none fits, or an unknown fact could speak for a stronger one.
    """
    free = scope.block.roles.keys() - claimed
    faults = {step.name: _decisive_faults(scope, step, free, facts, assumed) for step in slot.steps}
    fitting = [step for step in slot.steps if not faults[step.name]]
    fitting = [step for step in fitting if has_its_ranks(scope, step)] or fitting
    strongest = max((_strength(scope, step) for step in fitting), default=(-1, -1))
    open_steps = [
        step
        for step in slot.steps
        if faults[step.name]
        and all(fault.kind == UNKNOWN for fault in faults[step.name])
        and _strength(scope, step) > strongest
    ]
    best = [step for step in fitting if _strength(scope, step) == strongest]
    if best and not open_steps:
        weaker = [step for step in fitting if step not in best]
        return best[:1], listed([step.name for step in best]) if len(best) > 1 else "", weaker
    return [], "", []


def _nearest_steps(
    scope: Scope, slot: Slot, claimed: set[str], facts: Facts, assumed: Mapping[str, Any]
) -> list[FlowRule]:
    """The steps that come near to filling a slot."""
    free = scope.block.roles.keys() - claimed
    near = sorted(slot.steps, key=lambda step: _distance([*_faults(scope, step, free, facts, assumed)]))
    return near[:_TRIED]


def _strength(scope: Scope, step: FlowRule) -> tuple[int, int]:
    """The step that claims more roles wins, then the one with more conditions; what is tied has no tensors to claim."""
    roles = (*step.stored, *(role for role in step.needs if role in step.ties and role in scope.block.roles))
    return len(roles) + len(step.beside), len(step.when)


def _faults(
    scope: Scope, step: FlowRule, free: set[str], facts: Facts, assumed: Mapping[str, Any]
) -> Iterator[Misfit]:
    """Why a step does not fit, of the roles that no other has; roles first, as these need no looking up."""
    is_lacking = False
    for fault in _lacks(scope, step, free, assumed):
        is_lacking = True
        yield fault
    if not is_lacking:
        yield from condition_faults(scope, step, facts, tuple(assumed))
        yield from untaken(scope, step, facts)
        yield from untied(scope, step, facts)


def _lacks(scope: Scope, step: FlowRule, free: set[str], assumed: Mapping[str, Any]) -> Iterator[Misfit]:
    yield from lacking(scope, step, free)
    yield from (Misfit(LACKS, role) for role in step.beside if not has_role(scope.block, role))
    for name, value in assumed.items():
        if value not in step.when.get(name, (value,)):
            yield Misfit(OTHER, name)


def _decisive_faults(
    scope: Scope, step: FlowRule, free: set[str], facts: Facts, assumed: Mapping[str, Any]
) -> list[Misfit]:
    """The faults up to the first that no answer removes: further facts are not looked up."""
    if not (step.ties or free.issuperset(step.needs)):
        return _LACKING  # so are most steps of a slot, and no generator is needed to see it
    found: list[Misfit] = []
    for fault in _faults(scope, step, free, facts, assumed):
        found.append(fault)
        if fault.kind != UNKNOWN:
            break
    return found


def _distance(faults: Sequence[Misfit]) -> tuple[int, int, int]:
    roles = sum(fault.kind == LACKS for fault in faults)
    return roles, sum(fault.kind != UNKNOWN for fault in faults) - roles, len(faults)
