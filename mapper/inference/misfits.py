"""By what a flow does not fit a block: roles that it lacks or leaves, facts that are unknown or other than it asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any, NamedTuple

from mapper.architecture import Leaf
from mapper.flows.references import has_one, has_role
from mapper.inference.facts import Facts
from mapper.inference.leaf_shapes import weight_shape
from mapper.inference.scopes import Scope, is_part, leaves_at
from mapper.rulebook.flows import EITHER, FlowRule, aligned

LACKS, SPARE, UNKNOWN, OTHER, TAKES = "lacks", "spare", "unknown", "other", "takes"
_MIXING = ("attention", "cross_attention")  # what has several maps
_TIED = {"head.tied": True, "head.biased": False}  # with other values a map needs tensors of its own


class Misfit(NamedTuple):
    """One thing by which a flow does not fit a block."""

    kind: str  # LACKS a role, leaves one SPARE, asks for an UNKNOWN fact or an OTHER value, or TAKES no such value
    name: str  # of the role or the fact
    allowed: tuple[Any, ...] = ()  # values of the fact that would do
    value: Any = None  # what it is


def has_its_ranks(scope: Scope, rule: FlowRule) -> bool:
    """Whether the weights have as many dimensions as a flow says: a map of a row of vectors, or a 1 x 1 convolution."""
    for role, extents in rule.shapes.items():
        for leaf in leaves_at(scope.block, role):
            rank = len(weight_shape(leaf))
            if len(aligned(extents, rank)) != rank:
                return False
    return True


def misfits(scope: Scope, rule: FlowRule, facts: Facts, but: Sequence[str] = ()) -> Iterator[Misfit]:
    """Why a flow does not fit a block, conditions on the facts in `but` aside; nothing where it does."""
    present = scope.block.roles
    yield from lacking(scope, rule, present.keys())
    yield from _alone(scope, rule)
    spare = (role for role in present if role not in rule.roles and role not in rule.ignored)
    yield from (Misfit(SPARE, role) for role in spare if not is_part(present[role]))
    yield from condition_faults(scope, rule, facts, but)
    yield from untaken(scope, rule, facts)
    yield from untied(scope, rule, facts)


def lacking(scope: Scope, rule: FlowRule, present: Set[str]) -> Iterator[Misfit]:
    """Roles that are needed and neither there nor tied to what is."""
    absent = [role for role in rule.needs if role not in present]
    tied = _tied(scope, rule) if absent else []
    yield from (Misfit(LACKS, role) for role in absent if role not in tied)
    yield from (Misfit(LACKS, role) for role in _MIXING if role in rule.needs and _is_one_map(scope, role))


def _is_one_map(scope: Scope, role: str) -> bool:
    """Whether a linear layer alone stands where attention should: what is left of one, whose other maps are lost."""
    value = scope.block.roles.get(role)
    return isinstance(value, Leaf) and value.kind == "Linear"


def _alone(scope: Scope, rule: FlowRule) -> Iterator[Misfit]:
    """What a flow or a step stands beside, one of several as it may be, and is not there."""
    absent = (paths for paths in rule.beside if not has_one(scope.block, paths))
    yield from (Misfit(LACKS, " or ".join(paths.split(EITHER))) for paths in absent)


def untied(scope: Scope, rule: FlowRule, facts: Facts) -> Iterator[Misfit]:
    """Roles without tensors of which it is not known that they have those of another one."""
    for role in _tied(scope, rule):
        for name, wanted in _TIED.items():
            full = facts.full_name(scope, name)
            known = facts.get(scope, full)
            if known is None or known.problem:
                yield Misfit(UNKNOWN, full, (wanted,))
            elif known.value is not wanted:
                yield Misfit(LACKS, role)
                break


def _tied(scope: Scope, rule: FlowRule) -> list[str]:
    """The needed roles without tensors that could have those of another one."""
    roles = scope.block.roles
    return [
        role
        for role in rule.needs
        if role not in roles and role in rule.ties and has_role(scope.block, rule.ties[role])
    ]


def condition_faults(scope: Scope, rule: FlowRule, facts: Facts, but: Sequence[str] = ()) -> Iterator[Misfit]:
    """Facts that are unknown, or otherwise than a flow or a step asks for."""
    for name, allowed in rule.when.items():
        if name in but:
            continue
        full = facts.full_name(scope, name)
        known = facts.get(scope, full)
        if known is None and set(allowed) == {None} and (formula := facts.formula_ahead(scope, full)):
            yield Misfit(OTHER, full, allowed, formula)
        elif known is None or known.problem:
            yield Misfit(UNKNOWN, full, allowed)
        elif known.value not in allowed:
            yield Misfit(OTHER, full, allowed, known.value)


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
