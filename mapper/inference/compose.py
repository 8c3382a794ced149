"""Which steps of a spine a block takes: each slot is filled on its own by the step that fits best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from mapper._dataclass import dataclass
from mapper.architecture import Filled
from mapper.errors import listed
from mapper.flows.references import has_one
from mapper.inference.facts import Facts
from mapper.inference.misfits import (
    LACKS,
    UNKNOWN,
    Misfit,
    condition_faults,
    has_its_ranks,
    lacking,
    misfits,
    untaken,
    untied,
)
from mapper.inference.scopes import Scope, is_part
from mapper.rulebook.flows import EITHER, FlowRule
from mapper.rulebook.index import FlowTable
from mapper.rulebook.pages import Page, Slot, left_out

_TRIED = 3  # steps of a slot that none fits, which come nearest


@dataclass
class Composed:
    """The flow that a block's steps make, or what came near to one."""

    flow: FlowRule | None = None
    look: Callable[[], list[FlowRule]] = list  # gives `near`
    is_open: Callable[[], bool] = bool  # whether nothing but answers keeps some of `near` from fitting
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
    return compose_each(scope, pages, flows, facts, [assumed or {}])[0]


def compose_each(
    scope: Scope,
    pages: Sequence[Page],
    flows: FlowTable,
    facts: Facts,
    assumptions: Iterable[Mapping[str, Any]],
) -> list[Composed]:
    """The same with one assumption after another: a slot that none of them is about is filled once."""
    filled = [page for page in pages if all(slot.steps for slot in page.slots)]
    block = _Block(scope, flows, facts)
    made = [[_composed(block, page, assumed) for page in filled] for assumed in assumptions]
    block.filled.clear()  # what comes near is looked for later, when more may be known
    return [_of_spines(scope, spines) for spines in made]


def _of_spines(scope: Scope, made: Sequence[Composed]) -> Composed:
    """The flow of the spine that fits."""
    fitting = [one for one in made if one.flow or one.tied]
    if len(fitting) > 1:
        return Composed(tied=listed([one.flow.name for one in fitting if one.flow] or [fitting[0].tied]))
    if fitting:
        return fitting[0]
    return Composed(
        look=lambda: _nearest(scope, made) if made else [], is_open=lambda: any(one.is_open() for one in made)
    )


def _nearest(scope: Scope, made: Sequence[Composed]) -> list[FlowRule]:
    """What came near in the spines that leave the fewest roles of a block unread."""

    def spare(one: Composed) -> int:
        return min(len(scope.block.roles.keys() - {*rule.roles, *rule.ignored}) for rule in one.near)

    least = min(map(spare, made))
    return [rule for one in made if spare(one) == least for rule in one.near]


class _Fill(NamedTuple):
    """The step of a slot, those that fit equally, and the weaker ones that fit.

    No step where none fits, or an unknown fact could speak for a stronger one.
    """

    steps: list[FlowRule]
    equal: str
    weaker: list[FlowRule]


@dataclass
class _Block:
    """A block whose slots are filled, and what has filled those that were: for as long as nothing more is known of it."""

    scope: Scope
    flows: FlowTable
    facts: Facts
    filled: dict[Any, tuple[Slot, _Fill]] = field(default_factory=dict)
    nearest: dict[Any, tuple[Slot, list[FlowRule]]] = field(default_factory=dict)  # likewise, what comes near
    lacks: dict[Any, tuple[Slot, list[int]]] = field(default_factory=dict)  # how many roles each step lacks


@dataclass
class _Slots:
    """What fills the slots of a spine, in the order in which they are filled."""

    ways: dict[str, list[FlowRule]] = field(
        default_factory=dict
    )  # for each its step, or those that come near
    filled: dict[str, Filled] = field(default_factory=dict)
    tied: str = ""  # the steps of one slot that fit equally
    are_whole: bool = True  # each has a step
    are_lost: bool = False  # all that comes near to one lacks roles: no answer helps

    @property
    def first(self) -> dict[str, FlowRule]:
        """One step for each slot."""
        return {name: steps[0] for name, steps in self.ways.items()}


def _composed(block: _Block, page: Page, assumed: Mapping[str, Any]) -> Composed:
    """The flow of one spine."""
    slots = _filled(block, page, assumed)
    if not slots.are_whole:
        return Composed(
            look=lambda: _near(block, page, assumed), is_open=lambda: bool(_open(block, page, assumed))
        )
    first = slots.first
    whole = page.made_of(first)
    fits = bool(whole.steps) and not any(misfits(block.scope, whole, block.facts, tuple(assumed)))
    if not fits or not _give_one_value_each(first.values()):
        return Composed(look=lambda: [whole], is_open=lambda: _answerable(block, whole))
    if slots.tied:
        return Composed(tied=slots.tied)
    order = [slots.filled[slot.name] for slot in page.slots if slot.name in slots.filled]
    return Composed(block.flows[whole.name], slots=order)


def _filled(
    block: _Block, page: Page, assumed: Mapping[str, Any], to_the_end: bool = False, only_open: bool = False
) -> _Slots:
    """Fills the slots of a spine, up to the first that no step fits or to the end; or as long as answers may make a flow."""
    slots = _Slots()
    claimed: set[str] = set()
    ties: dict[str, str] = {}
    for slot in page.centres_first:
        if slot.around and left_out(slot, slots.first):
            continue
        tied = slot.tied(ties)
        steps, equal, weaker = _fill(block, tied, claimed, assumed)
        if not steps and not to_the_end:
            slots.are_whole = False
            break
        slots.are_whole = slots.are_whole and bool(steps)
        if not steps:
            steps = _nearest_steps(block, tied, claimed, assumed)
            slots.are_lost = slots.are_lost or all(_lacks_for_good(block, page, step) for step in steps)
            if slots.are_lost and only_open:
                break
        slots.ways[slot.name] = steps
        slots.tied = slots.tied or equal
        ties |= steps[0].ties
        slots.filled[slot.name] = Filled(slot.name, steps[0].short, tuple([step.short for step in weaker]))
        claimed |= {*steps[0].roles, *steps[0].ignored} & block.scope.block.roles.keys()
    return slots


def _open(block: _Block, page: Page, assumed: Mapping[str, Any]) -> list[FlowRule]:
    """Of what comes near that which nothing but answers keeps from fitting: no other is put together where all lack roles."""
    if assumed and _filled(block, page, assumed, to_the_end=True, only_open=True).are_lost:
        return []
    if not assumed and not _may_answer(block, page):
        return []
    return [rule for rule in _near(block, page, assumed) if _answerable(block, rule)]


def _near(block: _Block, page: Page, assumed: Mapping[str, Any]) -> list[FlowRule]:
    """What comes near to a flow of a spine that no steps make whole."""
    slots = _filled(block, page, assumed, to_the_end=True)
    first = slots.first
    others = [first, *({**first, name: step} for name, steps in slots.ways.items() for step in steps[1:])]
    tried = [page.made_of(steps) for steps in others]
    found = [rule for rule in tried if all(rule.when.values())] or tried[:1]
    if not assumed and not any(_answerable(block, rule) for rule in found) and _may_answer(block, page):
        found = [*_by_answers(block, page, tried), *found]
    return list({rule.name: rule for rule in found}.values())


def _give_one_value_each(steps: Iterable[FlowRule]) -> bool:
    """Whether no two steps say otherwise of one output: a pooler's vector is not the first position's, too."""
    given = {pair for step in steps for pair in step.outputs.items()}
    return len(given) == len({name for name, _ in given})


def _answerable(block: _Block, rule: FlowRule) -> bool:
    """Whether nothing but answers keeps a flow from fitting; none does where its steps are for different values of a fact."""
    return all(rule.when.values()) and all(
        fault.kind == UNKNOWN for fault in misfits(block.scope, rule, block.facts)
    )


def _may_answer(block: _Block, page: Page) -> bool:
    """Whether answers could make a flow of a spine: nothing bars some step of each slot, and these read all roles.

    Of the roles that one slot alone has a use for, one of its steps reads all.
    """
    scope, base = block.scope, page.base
    if base is None or _is_otherwise(block, base):
        return False
    parts = {role for role, value in scope.block.roles.items() if is_part(value)}
    left = scope.block.roles.keys() - {*parts, *base.roles, *base.ignored}
    read: list[list[set[str]]] = []  # by each step of a slot that nothing bars
    for slot in page.slots:
        steps = [step for step in slot.steps if not _is_hopeless(block, page, step)]
        if not steps and not slot.around:
            return False
        read.append([left.intersection((*step.roles, *step.ignored)) for step in steps])
    slots = [set().union(*steps) for steps in read]
    of_one = {role for role, count in Counter(chain.from_iterable(slots)).items() if count == 1}
    is_read = all(
        not own & of_one or any(step >= own & of_one for step in steps)
        for own, steps in zip(slots, read, strict=True)
    )
    return is_read and left <= set().union(*slots)


def _is_hopeless(block: _Block, page: Page, step: FlowRule) -> bool:
    """Whether no answer removes what keeps a step out of any flow: a role that is not there, or a fact that is otherwise."""
    return _lacks_for_good(block, page, step) or _is_otherwise(block, step)


def _lacks_for_good(block: _Block, page: Page, step: FlowRule) -> bool:
    """Whether a step needs a role that is neither there nor may be another's."""
    roles = block.scope.block.roles
    return any(role not in roles and role not in page.tied for role in step.needs)


def _is_otherwise(block: _Block, step: FlowRule) -> bool:
    """Whether a fact is known to have another value than a step asks for or takes."""
    for name, allowed in step.when.items():
        known = block.facts.get(block.scope, block.facts.full_name(block.scope, name))
        if known is not None and not known.problem and known.value not in allowed:
            return True
    return bool(step.values) and any(untaken(block.scope, step, block.facts))


def _by_answers(block: _Block, page: Page, tried: Sequence[FlowRule]) -> list[FlowRule]:
    """The flows that each answer leads to, where one fact chooses the steps of several slots at once."""
    faults = [fault for rule in tried for fault in condition_faults(block.scope, rule, block.facts)]
    unknown = dict.fromkeys(fault.name for fault in faults if fault.kind == UNKNOWN)
    answers = [{name: value} for name in unknown for value in page.allowed(name)]
    made = [_composed(block, page, answer) for answer in answers]
    found = [rule for one in made for rule in ([one.flow] if one.flow else one.near if one.is_open() else ())]
    return list({rule.name: rule for rule in found if _answerable(block, rule)}.values())


def _fill(block: _Block, slot: Slot, claimed: set[str], assumed: Mapping[str, Any]) -> _Fill:
    """What fills a slot, of the roles that no other has: the same for the same roles that its steps need."""
    free = block.scope.block.roles.keys() - claimed
    key, needed = _asked(slot, free, assumed)
    if key not in block.filled:
        block.filled[key] = slot, _filling(block, slot.with_needs(needed, key[2]), free, assumed)
    return block.filled[key][1]


def _asked(slot: Slot, free: set[str], assumed: Mapping[str, Any]) -> tuple[Any, frozenset[str]]:
    """What the steps that fit a slot depend on, for a block; and the roles among it."""
    about = tuple([(name, value) for name, value in assumed.items() if name in slot.facts])
    needed = frozenset(free & slot.needs)
    return (id(slot), needed, about), needed


def _filling(block: _Block, steps: Sequence[FlowRule], free: set[str], assumed: Mapping[str, Any]) -> _Fill:
    scope = block.scope
    fitting: list[FlowRule] = []
    unsure: list[FlowRule] = []  # which only answers keep from fitting
    for step in steps:
        kind = _decisive_fault(scope, step, free, block.facts, assumed)
        if kind in (None, UNKNOWN):
            (unsure if kind else fitting).append(step)
    fitting = [step for step in fitting if has_its_ranks(scope, step)] or fitting
    strengths = [_strength(scope, step) for step in fitting]
    strongest = max(strengths, default=(-1, -1))
    best = [step for step, its in zip(fitting, strengths, strict=True) if its == strongest]
    if best and not any(_strength(scope, step) > strongest for step in unsure):
        weaker = [step for step, its in zip(fitting, strengths, strict=True) if its != strongest]
        return _Fill(best[:1], listed([step.name for step in best]) if len(best) > 1 else "", weaker)
    return _Fill([], "", [])


def _nearest_steps(
    block: _Block, slot: Slot, claimed: set[str], assumed: Mapping[str, Any]
) -> list[FlowRule]:
    """The steps that come near to filling a slot."""
    free = block.scope.block.roles.keys() - claimed
    key, needed = _asked(slot, free, assumed)
    if key in block.nearest:
        return block.nearest[key][1]
    if (id(slot), needed) not in block.lacks:
        counts = [sum(1 for _ in _lacks(block.scope, step, free)) for step in slot.steps]
        block.lacks[id(slot), needed] = slot, counts

    def distance(at: int) -> tuple[int, int, int]:
        step, lacks = slot.steps[at], block.lacks[id(slot), needed][1][at]
        others = sum(value not in step.when.get(name, (value,)) for name, value in key[2])
        if lacks or others:  # roles first, as these need no looking up
            return lacks, others, lacks + others
        return _distance([*_faults_of_facts(block.scope, step, block.facts, assumed)])

    nearest = sorted(range(len(slot.steps)), key=distance)[:_TRIED]
    block.nearest[key] = slot, [slot.steps[at] for at in nearest]
    return block.nearest[key][1]


def _strength(scope: Scope, step: FlowRule) -> tuple[int, int]:
    """The step that claims more roles wins, then the one with more conditions.

    What is tied has no tensors to claim, and `own | other` beside it is there wherever its own role is.
    """
    tied = (
        [role for role in step.needs if role in step.ties and role in scope.block.roles] if step.ties else ()
    )
    beside = [paths for paths in step.beside if not set(paths.split(EITHER)) & set(step.needs)]
    return len(step.stored) + len(tied) + len(beside), len(step.when)


def _faults_of_facts(
    scope: Scope, step: FlowRule, facts: Facts, assumed: Mapping[str, Any]
) -> Iterator[Misfit]:
    if step.when:
        yield from condition_faults(scope, step, facts, tuple(assumed))
    if step.values:
        yield from untaken(scope, step, facts)
    if step.ties:
        yield from untied(scope, step, facts)


def _lacks(scope: Scope, step: FlowRule, free: set[str]) -> Iterator[str]:
    """The roles that keep a step from fitting, of those that no other has."""
    yield from (fault.name for fault in lacking(scope, step, free))
    yield from (role for role in step.beside if not has_one(scope.block, role))


def _decisive_fault(
    scope: Scope, step: FlowRule, free: set[str], facts: Facts, assumed: Mapping[str, Any]
) -> str | None:
    """The kind of the first fault that no answer removes: further facts are not looked up.

    UNKNOWN where answers remove all, None where there is none.
    """
    if _is_barred(scope, step, free):
        return LACKS
    found = None
    for fault in _faults_of_facts(scope, step, facts, assumed):
        found = fault.kind
        if found != UNKNOWN:
            break
    return found


def _is_barred(scope: Scope, step: FlowRule, free: set[str]) -> bool:
    """Whether `_lacks` has anything: so it is of most steps of a slot, and no list is needed to see it."""
    if not free.issuperset(step.needs) and (not step.ties or any(lacking(scope, step, free))):
        return True
    return bool(step.beside) and not all(has_one(scope.block, role) for role in step.beside)


def _distance(faults: Sequence[Misfit]) -> tuple[int, int, int]:
    roles = sum(fault.kind == LACKS for fault in faults)
    return roles, sum(fault.kind != UNKNOWN for fault in faults) - roles, len(faults)
