"""The facts that rules declare: their types, full names and rules, before any block is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from mapper._dataclass import dataclass
from mapper.architecture import Block
from mapper.rulebook.declared import FLOW
from mapper.rulebook.fact_tables import FactRules
from mapper.rulebook.facts import FactRule, types_beside

if TYPE_CHECKING:
    from mapper.inference.evidence import Known
    from mapper.inference.families import Families
    from mapper.rulebook.rulebook import Rulebook


@dataclass(frozen=True)
class DeclaredFacts:
    """What the vocabulary and the families of a reading declare."""

    common: FactRules  # of the vocabulary
    unlisted: FactRules  # of the vocabulary, where no family lists the type
    usual: frozenset[str]  # facts that every class has, so that a family's default counts
    by_class: frozenset[str]  # facts whose default is that of the classes of a family's types
    unassumed: frozenset[str]  # facts whose default says nothing where there is no config
    types: Mapping[str, str]
    apart: Mapping[str, str]  # facts that tell equal elements apart, with the role of their lists
    _full: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def beside(self, families: Families) -> DeclaredFacts:
        """The same with the types of facts that other families declare."""
        types = dict(self.types)
        for family in families.everything:
            types = types_beside({}, family.facts) | types
        return replace(self, types=types, _full={})

    def full_name(self, block: Block, name: str) -> str:
        """`heads` as an attention's flow writes it is the fact attention.heads, if that is declared."""
        key = block.role, block.kind, name
        if key not in self._full:
            words = (f"{prefix}.{name}" for prefix in key[:2])
            self._full[key] = next((word for word in words if word in self.types), name)
        return self._full[key]

    def type(self, name: str) -> str:
        return self.types.get(name, "any")

    def is_convention(self, known: Known, name: str) -> bool:
        """Whether the vocabulary says a value of all types that no family lists."""
        return _is_one_of(known.by, self.unlisted.get(name, ()))

    def is_common(self, known: Known, name: str) -> bool:
        """Whether no family gave a value."""
        return _is_one_of(known.by, self.common.get(name, ()))

    def is_general(self, rule: FactRule) -> bool:
        """Whether a rule is the vocabulary's, not a family's."""
        return any(rule.place == other.place for other in self.common.get(rule.name, ()))


def declared_facts(rulebook: Rulebook, families: Families, named: Iterable[str] = ()) -> DeclaredFacts:
    """What is declared for a reading; `named` are facts that only flows name."""
    words = rulebook.config_vocabulary
    types, apart = dict(words.types), dict(words.facts.apart | words.unlisted.apart)
    for family in families.everything:
        types |= types_beside(types, family.facts)
        apart |= family.facts.apart
    types.setdefault(FLOW, "text")
    for name in named:
        types.setdefault(name, "any")
    unassumed = frozenset[str]() if families.are_known_by_names else words.unassumed
    return DeclaredFacts(words.facts, words.unlisted, words.usual, words.by_class, unassumed, types, apart)


def _is_one_of(by: FactRule | None, rules: Iterable[FactRule]) -> bool:
    """Whether these have an equal rule, of which few stand on the same line."""
    return by is not None and any(rule is by or (rule.line == by.line and rule == by) for rule in rules)
