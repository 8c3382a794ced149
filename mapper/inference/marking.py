"""Which fields of a config count as read, once the model depends on a fact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mapper.inference.computed import sources
from mapper.inference.entries import from_field, is_named, is_unknown, mapped
from mapper.inference.fields import Found
from mapper.inference.scopes import Scope
from mapper.rulebook.facts import FactRule

if TYPE_CHECKING:
    from mapper.inference.facts import Facts


def mark(facts: Facts, scope: Scope, name: str, seen: set[str], beaten: bool = False) -> None:
    """The fields that speak about a fact, or about what it follows from or depends on, have been read.

    `beaten`: it would give another value to what is asked for than that has.
    """
    key = (
        f"{name} beaten" if beaten else name
    )  # what is beaten may be marked as such, and later as what holds
    if key in seen:
        return
    seen.add(key)
    if told := facts.hints.told(scope, name):
        facts.hints.heard.add(told.source)
    speaking: dict[str, list[FactRule]] | None = None  # by place: to compare each rule with each takes long
    for rule in facts.speaking.every(scope, name):
        others = sources(rule)
        has_field = facts.config.may_have(rule)
        if not (has_field or others or rule.when):
            continue  # nothing was read for it
        if speaking is None and (has_field or others):
            speaking = _by_place(facts.rules(scope, name))
        speaks = speaking is not None and rule in speaking.get(rule.place, ())
        if speaks or (rule.when and scope.is_below(rule.at)):
            if has_field:
                facts.config.use(_heeded(facts, rule, scope, speaks, beaten))
            loses = beaten or (speaks and _loses(facts, rule, scope))
            for other in (*others, *rule.when):
                full = facts.full_name(scope, other)
                mark(facts, scope, other if full == name else full, seen, loses)
    facts.config.use(_repeated(facts, scope, name))


def _by_place(rules: Iterable[FactRule]) -> dict[str, list[FactRule]]:
    found: dict[str, list[FactRule]] = {}
    for rule in rules:
        found.setdefault(rule.place, []).append(rule)
    return found


def _heeded(facts: Facts, rule: FactRule, scope: Scope, speaks: bool, beaten: bool) -> Iterator[Found]:
    """The fields of a rule of which it knows the word; what a published network has otherwise, only where it is so here."""
    for item in facts.config.find(rule, scope):
        if is_unknown(rule, item.value) or (item.by_form and not speaks):
            continue
        if facts.config.is_of_layer(item.name) and (
            beaten or (speaks and _is_overruled(facts, rule, item, scope))
        ):
            continue
        yield item


def _loses(facts: Facts, rule: FactRule, scope: Scope) -> bool:
    """Whether a fact has another value than a rule calculates."""
    said = facts.by_rules.calculated(rule, scope) if sources(rule) else None
    known = facts.get(scope, rule.name) if said and not said.problem else None
    return said is not None and known is not None and said.value != known.value


def _is_overruled(facts: Facts, rule: FactRule, item: Found, scope: Scope) -> bool:
    """Whether something stronger than a field gives its fact another value."""
    known = facts.get(scope, rule.name)
    said = from_field(rule, item, scope, facts.declared.type(rule.name))
    return known is not None and not said.problem and said.value is not None and said.value != known.value


def _repeated(facts: Facts, scope: Scope, name: str) -> Iterator[Found]:
    """Words that say once more what is known of a fact, by a rule that need not hold here."""
    every = (*facts.declared.unlisted.get(name, ()), *facts.declared.common.get(name, ()))
    rules = [rule for rule in every if rule.map and facts.config.may_have(rule)]
    known = facts.get(scope, name) if rules else None
    if known is None or known.value is None:
        return
    for rule in rules:
        for item in facts.config.find(rule, scope):
            if is_named(rule, item.value) and mapped(rule, item.value) == known.value:
                yield item
