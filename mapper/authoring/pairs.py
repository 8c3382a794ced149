"""Flows in which the steps of a page stand beside each other, every two that can: what `rules check` reads and runs.

A page of attention has some hundred steps and thousands of such flows: sets of names are numbers here, a bit a name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mapper.rulebook.flows import FlowRule
from mapper.rulebook.pages import Page, assemble, is_empty


def pairs(page: Page) -> Iterator[FlowRule]:
    """Flows of a spine in which every two steps that can stand together do so at least once; of one slot, every step."""
    numbered = _Numbered()
    slots = [[_Traits(step, numbered) for step in slot.steps] for slot in page.slots]
    names = {step.bit: step.rule.name for steps in slots for step in steps}
    open_pairs: dict[int, int] = defaultdict(int)  # a step -> those of later slots
    for at, steps in enumerate(slots):
        for one in steps:
            joint = _Joint([one])
            takes = [other for later in slots[at + 1 :] for other in later if joint.takes(other)]
            open_pairs[one.bit] |= _joined(other.bit for other in takes)
    if len(slots) == 1:
        open_pairs = {step.bit: step.bit for step in slots[0]}
    found = [(one, other) for one, others in open_pairs.items() for other in names if other & others]
    for first, second in sorted(found, key=lambda pair: (names[pair[0]], names[pair[1]])):
        if not open_pairs[first] & second:
            continue
        taken = _around(page, slots, first | second, open_pairs)
        open_pairs[first] &= ~second
        for at, one in enumerate(taken):
            open_pairs[one.bit] &= ~_joined(other.bit for other in taken[at + 1 :])
        if taken and _complete(taken):
            yield assemble(page, [step.rule for step in taken])


class _Numbered(dict[str, int]):
    """A bit for each name."""

    def __call__(self, *names: str) -> int:
        return _joined(self.setdefault(name, 1 << len(self)) for name in names)


def _joined(bits: Iterable[int]) -> int:
    found = 0
    for bit in bits:
        found |= bit
    return found


def _layers(bits: Iterable[int]) -> list[int]:
    """Bits of which some come again, in as many numbers as one of them comes."""
    layers: list[int] = []
    for bit in bits:
        _lay(layers, bit)
    return layers


def _lay(layers: list[int], bit: int) -> None:
    for at, layer in enumerate(layers):
        if not layer & bit:
            layers[at] |= bit
            return
    layers.append(bit)


class _Traits:
    """What decides beside which others a step can stand, put together once."""

    def __init__(self, step: FlowRule, numbered: _Numbered):
        self.rule, self.bit, self.is_empty = step, numbered(step.name), is_empty(step)
        self.needs, self.claims_twice = numbered(*step.needs), len(set(step.needs)) < len(step.needs)
        self.when = {fact: frozenset(values) for fact, values in step.when.items()}
        several = [path.split(" | ") for path in step.beside]
        read_by_others = [paths[0] for paths in several if not set(paths) & set(step.options)]
        roles = [path.partition(".")[0] for path in read_by_others]  # of `tower.embeddings.token` the tower
        self.beside = _layers(numbered(role) for role in roles)


def _around(
    page: Page, slots: Sequence[Sequence[_Traits]], pair: int, wanted: dict[int, int]
) -> list[_Traits]:
    """A step for each slot, two of which are given; the others are those that make most of the pairs that are wanted."""
    by_slot = dict(zip((slot.name for slot in page.slots), slots, strict=True))
    given = {
        name: step
        for name, steps in by_slot.items()
        for step in steps
        if step.bit & pair and not step.is_empty
    }
    there = {slot.around for slot in page.slots if slot.name in given}
    taken: dict[str, _Traits] = {}
    joint = _Joint(given.values())
    for slot in page.centres_first:
        if slot.around in taken and taken[slot.around].is_empty:  # it is left out with that one
            continue
        fitting = [
            step
            for step in by_slot[slot.name]
            if joint.takes(step) and not (step.is_empty and slot.name in there)
        ]
        if slot.name not in given and not fitting:
            return []
        taken[slot.name] = given.get(slot.name) or max(fitting, key=_worth(joint, wanted))
        joint.add(taken[slot.name])
    return [taken[name] for name in by_slot if name in taken]


def _worth(joint: _Joint, wanted: dict[int, int]) -> Callable[[_Traits], tuple[int, int, int]]:
    """How well a step goes with those that are chosen: what it reads that they stand beside, and what it stands beside."""
    lacks, asked, chosen = ~joint.claimed, joint.beside & ~joint.claimed, joint.chosen

    def worth(step: _Traits) -> tuple[int, int, int]:
        later = wanted.get(step.bit, 0)
        lacking = sum([(lacks & bits).bit_count() for bits in step.beside])
        return (
            (asked & step.needs).bit_count(),
            -lacking,
            sum([(later & bits).bit_count() for bits in chosen]),
        )

    return worth


class _Joint:
    """Steps that are of one flow, and which others can be: no role is claimed twice, their conditions allow a value."""

    def __init__(self, steps: Iterable[_Traits]):
        self.bits = self.claimed = self.beside = 0
        self.chosen: list[int] = []  # the steps, as often as they were added
        self.when: dict[str, frozenset[Any]] = {}
        self.is_one = True
        for step in steps:
            self.add(step)

    def add(self, step: _Traits) -> None:
        """Takes a step along."""
        if not step.bit & self.bits:
            self.is_one &= not step.claims_twice and not self.claimed & step.needs
        self.bits |= step.bit
        _lay(self.chosen, step.bit)
        self.claimed |= step.needs
        self.beside |= _joined(step.beside)
        for fact, values in step.when.items():
            self.when[fact] = self.when.get(fact, values) & values
            self.is_one &= bool(self.when[fact])

    def takes(self, step: _Traits) -> bool:
        """Whether a step can stand with these."""
        if not self.is_one or (self.claimed & step.needs and not step.bit & self.bits):
            return False
        for fact, values in step.when.items():
            if not values or (fact in self.when and values.isdisjoint(self.when[fact])):
                return False
        return True


def _complete(steps: Sequence[_Traits]) -> bool:
    """Whether what stands beside a step is read by another."""
    there = _joined(step.needs for step in steps)
    return not any(bits & ~there for step in steps for bits in step.beside)
