"""What the rules that speak about a fact say of a block: by fields of the config, names that are there, constants, defaults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from mapper.inference.computed import INDEX, calculate, follows, sources
from mapper.inference.entries import from_field, goes_by_form, is_silent
from mapper.inference.evidence import Known, named, origin, weakest
from mapper.inference.leaf_conditions import counted
from mapper.inference.scopes import Scope
from mapper.inference.speaking import Speaking
from mapper.rulebook.facts import UNSET, FactRule
from mapper.rulebook.values import checked


class Trial(NamedTuple):
    """A family that is tried on a config which may not have its fields."""

    has_defaults: bool  # else a config that is silent about what could be switched on has not switched it on


class ByRules:
    """Asks rules, each in the order of its evidence."""

    def __init__(self, speaking: Speaking, denied: set[tuple[Scope, str]], trial: Trial | None):
        self.speaking, self.denied, self.trial = speaking, denied, trial
        self.config, self.declared = speaking.config, speaking.declared

    def said(self, rules: Sequence[FactRule], scope: Scope) -> Iterator[Known]:
        """All that rules say of a block, the strongest first."""
        if not rules:
            return
        yield from self.in_config(rules, scope)
        yield from self._shown(rules, scope)
        is_open = False  # what a family calculates it from is unknown: what holds in general may be wrong
        for rule in rules:
            if is_open and self.declared.is_general(rule):
                return
            if rule.is_constant:
                yield Known(rule.value, "rule", origin(rule), rule=rule.place, by=rule)
            elif sources(rule):
                known = self.calculated(rule, scope)
                if known:
                    yield known
                is_open = is_open or not (known or self._may_be_unknown(rule, scope))
        yield from self._defaults(rules, scope, is_open)

    def in_config(self, rules: Iterable[FactRule], scope: Scope) -> Iterator[Known]:
        """What the file says by any of the rules, then what its type has by default."""
        asked = [rule for rule in rules if (rule.config or rule.towers) and not rule.doubt]
        if not asked:
            return
        found = [(rule, item) for rule in asked for item in self.config.find(rule, scope)]
        found = [
            (rule, item)
            for rule, item in found
            if not (rule.per and item.value == []) and not is_silent(rule, item.value)
        ]  # left to the default
        is_said = False
        for rule, item in sorted(found, key=lambda pair: bool(pair[1].default_of)):
            if is_said and goes_by_form(rule):
                continue  # a network's name says what its kind has, a field beside it what this one has
            if not item.default_of or (scope, rule.name) not in self.denied:
                is_said = True
                yield from_field(rule, item, scope, self.declared.type(rule.name))

    def look_up(self, rules: Iterable[FactRule], scope: Scope) -> None:
        """Note which fields of the config speak here, though a stronger one may settle it."""
        for rule in rules:
            if rule.config or rule.towers:
                self.config.find(rule, scope)

    def calculated(self, rule: FactRule, scope: Scope) -> Known | None:
        """What a rule's arithmetic over other facts gives; None where one of these is unknown."""
        values: dict[str, Any] = {}
        evidences = ["rule"]
        for name in sources(rule):
            if name == INDEX:
                values[name] = scope.number_at(rule.at)
                continue
            known = self._operand(rule, scope, name)
            if known is None or known.problem:
                return known  # nothing follows from a field that holds nonsense
            values[name] = known.value
            evidences.append(known.evidence)
        try:
            value = checked(calculate(rule, values, scope.index_of(rule.over)), self.declared.type(rule.name))
        except ValueError:
            return None  # does not divide: the sizes report it with its keys
        return follows(rule, values, value, weakest(evidences))

    def has_bases(self, rule: FactRule, scope: Scope) -> bool:
        """Whether all that a rule calculates from is known, though no value comes of it."""
        return self.speaking.knows_all(scope, sources(rule))

    def _operand(self, rule: FactRule, scope: Scope, name: str) -> Known | None:
        """A fact that a rule calculates from."""
        full = self.declared.full_name(scope.block, name)
        known = self.speaking.get(scope, name if full == rule.name else full)
        if known and known.problem and rule.shared and scope.tower:
            return self.speaking.get(scope.tower, full)  # equal elements that differ have nothing in common
        return known

    def _shown(self, rules: Sequence[FactRule], scope: Scope) -> Iterator[Known]:
        """What names that are there say, and extents of tensors."""
        for rule in rules:
            if rule.by_names and self.speaking.has_names(rule, scope):
                evidence = "shape" if rule.as_long or rule.square else "name"
                yield Known(rule.value, evidence, named(rule), rule=rule.place, by=rule)
        for rule in rules:
            if rule.is_counted:
                yield from counted(rule, scope, self.speaking.names)

    def _defaults(self, rules: Sequence[FactRule], scope: Scope, is_open: bool) -> Iterator[Known]:
        """What holds where nothing is said; `is_open`: of the families' rules alone."""
        if not self.config.data and rules[0].name in self.declared.unassumed:
            return  # a default is of a config that leaves a field out, not of none
        is_off = self.trial is not None and not self.trial.has_defaults
        is_off = is_off and any(rule.config or rule.towers for rule in rules)
        for rule in rules:
            if not is_open and (known := self._of_classes(rule, scope, is_off)):
                yield known
            if rule.default is UNSET or (is_off and rule.default not in (None, False)):
                continue
            if not (is_open and self.declared.is_general(rule)) and not self._is_of_another_class(
                rule, scope
            ):
                yield Known(rule.default, "default", origin(rule), rule=rule.place, by=rule)

    def _of_classes(self, rule: FactRule, scope: Scope, is_off: bool) -> Known | None:
        """What a field has by default in the classes of all types that the block's family lists, where the config has none.

        A listed type's config has its class's defaults already, unless it is part of a whole that no class reads.
        """
        if rule.name not in self.declared.by_class or not self.declared.is_general(rule):
            return None
        if not (rule.config or rule.towers) or self.config.find(rule, scope):
            return None
        types = self.speaking.families.types_at(scope)
        found = [one for name in types for one in self.config.of_type(name).find(rule, scope)[:1]]
        if not types or len(found) < len(types) or any(one.value != found[0].value for one in found):
            return None
        known = from_field(rule, found[0], scope, self.declared.type(rule.name))
        is_another = rule.name not in self.declared.usual and self._is_of_names(scope)
        return None if known.value not in (None, False) and (is_off or is_another) else known

    def _may_be_unknown(self, rule: FactRule, scope: Scope) -> bool:
        """Whether other rules may say what a rule could not calculate."""
        return self.trial is not None or self.declared.is_general(rule) or self.has_bases(rule, scope)

    def _is_of_another_class(self, rule: FactRule, scope: Scope) -> bool:
        """Whether a default switches on what the config of a type that no family lists has no field for.

        A class that has the option has its field; the family that names alone show speaks of another one.
        """
        if rule.name in self.declared.usual or not (rule.config or rule.towers):
            return False
        if rule.default in (None, False) or self.declared.is_general(rule):
            return False
        return self._is_of_names(scope)

    def _is_of_names(self, scope: Scope) -> bool:
        """Whether a class wrote the config, and names alone show the family of a block."""
        is_read = self.config.is_of_a_class and self.trial is None
        return is_read and self.speaking.families.are_of_names(scope)
