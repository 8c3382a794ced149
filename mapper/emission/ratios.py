"""Widths that are the same multiple, or part, of another in every stage: one ratio of the Config stands for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from mapper.architecture import Block, Fact
from mapper.words import unnumbered

_SCALED = ("intermediate_size", "inner_size", "reduced_size")
_BASES = ("input_size", "hidden_size")  # of a block, or of the one around it, which is what it is scaled from
_LEAST = 3  # widths that have to agree: two numbers have some ratio by chance


@dataclass(frozen=True)
class Scaled:
    """A width as a multiple, or a part, of another."""

    name: str  # "intermediate_size"
    base: Fact
    ratio: Fact
    is_part: bool  # base // ratio, not ratio * base


def ratios(stages: list[Block]) -> dict[int, Scaled]:
    """By the identity of each fact that is such a width in a stack of stages, what it is."""
    groups: dict[tuple[str, str], list[tuple[Fact, list[dict[str, Fact]]]]] = {}
    for stage in stages:
        for around, block in _pairs(stage):
            for fact in block.facts.values():
                if fact.name.endswith(_SCALED) and type(fact.value) is int:
                    key = (_kind(block), fact.name)
                    groups.setdefault(key, []).append((fact, [block.facts, around.facts]))
    found: dict[int, Scaled] = {}
    for (role, _), group in groups.items():
        for word in _BASES:
            if scaled := _scaled(role, group, word):
                found |= scaled
                break
    return found | _within(stages, found)


def _within(stages: list[Block], found: dict[int, Scaled]) -> dict[int, Scaled]:
    """Channels of the parts of a block that are such a width of it, and no other."""
    parts: dict[int, Scaled] = {}
    for around, block in (pair for stage in stages for pair in _pairs(stage)):
        sizes = [fact for fact in around.facts.values() if type(fact.value) is int]
        own = {fact.value: found.get(id(fact)) for fact in sizes if _last(fact) in _SCALED}
        others = {fact.value for fact in sizes if _last(fact) not in _SCALED}
        for fact in block.facts.values():
            scaled = own.get(fact.value) if type(fact.value) is int else None
            if scaled and fact.name.endswith("channels") and fact.value not in others:
                parts[id(fact)] = scaled
    return parts


def _kind(block: Block) -> str:
    """What a block is called among others: every kind of layer is a layer."""
    topic = (block.flow or "").partition("/")[0]
    return topic if topic == "layer" else unnumbered(block.role)


def _pairs(stage: Block) -> Iterable[tuple[Block, Block]]:
    """Every block of a stage with the one around it."""
    for value in stage.roles.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Block):
                yield stage, item
                yield from _pairs(item)


def _scaled(role: str, group: list[tuple[Fact, list[dict[str, Fact]]]], word: str) -> dict[int, Scaled]:
    """The widths of one name in terms of the base of that name; nothing unless all have the same ratio to it."""
    bases = [_base(facts, word) for _, facts in group]
    known = [(fact, base) for (fact, _), base in zip(group, bases, strict=True) if base is not None]
    is_known = len(known) == len(group)
    # of a layer without such a part it is the base itself
    known = [(fact, base) for fact, base in known if fact.value != base.value] or known
    shares = {Fraction(fact.value, base.value) for fact, base in known}
    if not is_known or len(shares) != 1 or len({base.value for _, base in known}) < _LEAST:
        return {}
    share = shares.pop()
    if share == 1 or 1 not in (share.numerator, share.denominator):
        return {}
    first, is_part = group[0][0], share < 1
    name = f"{role}.{'reduction' if is_part else 'expansion'}"
    value = share.denominator if is_part else share.numerator
    ratio = Fact(
        name, value, first.at, first.evidence, f"{first.source} and {len(group) - 1} more", first.rule
    )
    return {id(fact): Scaled(_last(fact), base, ratio, is_part) for fact, base in known}


def _base(blocks: list[dict[str, Fact]], word: str) -> Fact | None:
    """The width of that name of the first block that has it."""
    own = (fact for facts in blocks for fact in facts.values())
    return next((fact for fact in own if _last(fact) == word and type(fact.value) is int), None)


def _last(fact: Fact) -> str:
    return fact.name.rpartition(".")[2]
