"""Flows in which the steps of a page stand beside each other, every two that can: what `rules check` reads and runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mapper.rulebook.flows import FlowRule
from mapper.rulebook.pages import Page, assemble, is_empty, left_out, merged_key


def pairs(page: Page) -> Iterator[FlowRule]:
    """Flows of a spine in which every two steps that can stand together do so at least once; of one slot, every step."""
    open_pairs = {
        (one.name, other.name)
        for at, slot in enumerate(page.slots)
        for one in slot.steps
        for later in page.slots[at + 1 :]
        for other in later.steps
        if _Joint([one]).takes(other)
    }
    if len(page.slots) == 1:
        open_pairs = {(step.name, step.name) for step in page.slots[0].steps}
    for first in sorted(open_pairs):
        if first not in open_pairs:
            continue
        steps = _around(page, first, open_pairs)
        covered = {(one.name, other.name) for at, one in enumerate(steps) for other in steps[at + 1 :]}
        open_pairs -= {first, *covered}
        if steps and _complete(steps):
            yield assemble(page, steps)


def _around(page: Page, pair: tuple[str, str], wanted: set[tuple[str, str]]) -> list[FlowRule]:
    """A step for each slot, two of which are given; the others are those that make most of the pairs that are wanted."""
    given = {
        slot.name: step
        for slot in page.slots
        for step in slot.steps
        if step.name in pair and not is_empty(step)
    }
    there = {slot.around for slot in page.slots if slot.name in given}
    taken: dict[str, FlowRule] = {}
    for slot in page.centres_first():
        if left_out(slot, taken):
            continue
        chosen = [*taken.values(), *given.values()]
        joint = _Joint(chosen)
        fitting = [
            step for step in slot.steps if joint.takes(step) and not (is_empty(step) and slot.name in there)
        ]
        if slot.name not in given and not fitting:
            return []
        taken[slot.name] = given.get(slot.name) or max(fitting, key=_worth(chosen, wanted))
    return page.in_order(taken)


def _worth(
    chosen: Sequence[FlowRule], wanted: set[tuple[str, str]]
) -> Callable[[FlowRule], tuple[int, int, int]]:
    """How well a step goes with those that are chosen: what it reads that they stand beside, and what it stands beside."""
    there = {role for one in chosen for role in one.needs}
    asked = {role for one in chosen for role in _beside(one)} - there

    def worth(step: FlowRule) -> tuple[int, int, int]:
        lacking = sum(role not in there for role in _beside(step))
        return len(asked.intersection(step.needs)), -lacking, sum(_key(step, one) in wanted for one in chosen)

    return worth


def _key(one: FlowRule, other: FlowRule) -> tuple[str, str]:
    return one.name, other.name


class _Joint:
    """Steps that are of one flow, and which others can be: no role is claimed twice, their conditions allow a value."""

    def __init__(self, steps: Sequence[FlowRule]):
        self.steps = {step.name: step for step in steps}
        self.claimed = {role for step in self.steps.values() for role in step.needs}
        self.when = merged_key("when", steps)
        claims = sum(len(step.needs) for step in self.steps.values())
        self.is_one = claims == len(self.claimed) and all(self.when.values())

    def takes(self, step: FlowRule) -> bool:
        """Whether a step can stand with these."""
        if not self.is_one or (step.name not in self.steps and not self.claimed.isdisjoint(step.needs)):
            return False
        return all(
            values and (name not in self.when or not set(values).isdisjoint(self.when[name]))
            for name, values in step.when.items()
        )


def _complete(steps: Sequence[FlowRule]) -> bool:
    """Whether what stands beside a step is read by another."""
    there = {role for step in steps for role in step.needs}
    return all(role in there for step in steps for role in _beside(step))


def _beside(step: FlowRule) -> list[str]:
    """The roles of the block itself that stand beside a step, of `tower.embeddings.token` the tower."""
    return [path.partition(".")[0] for path in step.beside]
