"""Which rules speak about a fact of a block: those of the families, and of the vocabulary's what they leave open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from mapper.inference.declared_facts import DeclaredFacts
from mapper.inference.evidence import Known
from mapper.inference.leaf_conditions import leaves_fit
from mapper.inference.scopes import Scope
from mapper.rulebook.facts import TYPE, FactRule
from mapper.rulebook.values import is_number

if TYPE_CHECKING:
    from mapper.inference.config import Config
    from mapper.inference.families import Families
    from mapper.inference.names import Names

Lookup = Callable[[Scope, str], "Known | None"]  # what is known of a fact of a block, by its full name


class Speaking:
    """Chooses among the rules of a fact; what their conditions ask of other facts is looked up."""

    def __init__(
        self, declared: DeclaredFacts, families: Families, config: Config, names: Names, get: Lookup
    ):
        self.declared, self.families, self.config, self.names, self.get = (
            declared,
            families,
            config,
            names,
            get,
        )

    def rules(self, scope: Scope, name: str) -> list[FactRule]:
        """Those that hold here, those of the families first."""
        unlisted = self._unlisted(scope, name)  # of most facts none
        first = [rule for rule in unlisted if self._applies(rule, scope, None)] if unlisted else []
        if any(rule.is_constant for rule in first):
            return first
        silent = any(rule.silent for rule in first)
        said: list[FactRule] = []
        common = self.declared.common.get(name, ())
        for model_type, level in (*self.families.facts(scope, name), (None, common)):
            rules = [rule for rule in level if rule.is_everywhere or self._applies(rule, scope, model_type)]
            if not rules:
                continue
            if silent or any(rule.is_about_fields and self._is_heard(rule, scope) for rule in said):
                rules = [rule if rule.at else rule.without_fields for rule in rules]
            if level is not common and self._is_in_common_field(scope, name):
                rules = [rule for rule in rules if not rule.is_constant or not is_number(rule.value)]
            said += rules
            if any(rule.is_constant for rule in rules):
                break  # a constant: no config is asked
        return first + said

    def every(self, scope: Scope, name: str) -> Iterator[FactRule]:
        """The same with those that do not hold here."""
        yield from self._unlisted(scope, name)
        for _, level in self.families.facts(scope, name):
            yield from level
        yield from self.declared.common.get(name, ())

    def holds(self, rule: FactRule, scope: Scope) -> bool:
        """Whether what a rule of the vocabulary asks of other facts is so for a block."""
        return self._applies(rule, scope, self.config.model_type)

    def doubt(self, scope: Scope, rules: Iterable[FactRule]) -> FactRule | None:
        """The first of these rules that says why its fact is unknown here."""
        return next((rule for rule in rules if rule.doubt and self.has_names(rule, scope)), None)

    def has_names(self, rule: FactRule, scope: Scope) -> bool:
        """Whether the names that a rule asks for are there: what a tower holds says nothing about another."""
        tower = scope.tower
        around = (tower.block.home, tower.towers_inside) if tower else ()
        return self.names.fit(rule.has, rule.lacks, *around)

    def knows_all(self, scope: Scope, names: Iterable[str]) -> bool:
        """Whether all these facts, as a rule writes them, are known here."""
        return all(self.get(scope, self.declared.full_name(scope.block, name)) for name in names)

    def _applies(self, rule: FactRule, scope: Scope, model_type: str | None) -> bool:
        """Whether a rule holds for a block; `model_type` is what its family goes by, None for the vocabulary's."""
        if rule.is_everywhere:
            return True
        if not scope.is_below(rule.at):
            return False
        if not leaves_fit(rule, scope):
            return False
        for name, allowed in rule.when.items():
            if name == TYPE and model_type in allowed:
                continue
            known = self.get(scope, self.declared.full_name(scope.block, name))
            if known is None or known.problem or known.value not in allowed:
                return False
        return True

    def _is_heard(self, rule: FactRule, scope: Scope) -> bool:
        """Whether it says which fields speak: a family that names alone show does not, where the config has none of its own."""
        is_known = not rule.config or not self.config.is_of_a_class or not self.families.are_of_names(scope)
        return is_known or bool(self.config.find(rule, scope))

    def _is_in_common_field(self, scope: Scope, name: str) -> bool:
        """Whether a config of another class than the family's says what every class has, in a field that is common to most."""
        if name not in self.declared.usual or not self.config.is_of_a_class:
            return False
        common = self.declared.common.get(name, ()) if self.families.are_of_names(scope) else ()
        return any(self.config.find(rule, scope) for rule in common if rule.config)

    def _unlisted(self, scope: Scope, name: str) -> Sequence[FactRule]:
        """What holds for a type that no family lists, before what a family says whose names alone fit.

        A tower of a listed type has only what the whole says of all of it, and how it reads the tower. One of a type that
        nobody lists has, beside what the family of its names says, what is known where such a tower stands.
        """
        rules = self.declared.unlisted.get(name, ())
        if not rules or not self.families.speak_for(scope):
            return rules
        if self.families.goes_by_names(scope):
            return rules
        if self.families.is_in_stranger(scope) and scope.parent is None:
            return rules
        if self.families.is_in_part_of_stranger(scope) and self._is_of_whole(name, rules):
            return rules
        if self.families.stranger(scope):
            return tuple(rule for rule in rules if rule.at or name not in self.declared.common)
        if not self.families.are_vouched_for:
            return tuple(rule for rule in rules if rule.by_whole)
        return ()

    def _is_of_whole(self, name: str, rules: Iterable[FactRule]) -> bool:
        """Whether the top of a config says a fact, wherever it holds."""
        every = (*rules, *self.declared.common.get(name, ()))
        return any(field.startswith("/") for rule in every for field in rule.config)
