"""What the listed types whose names a checkpoint has make of its facts.

A family that was recognised by its names alone vouches for none of its constants: a type that no family lists may
differ from those that are listed as these do from each other. Where they differ, the fact is a question.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mapper.errors import listed
from mapper.inference.choice import choose
from mapper.inference.derived import sources
from mapper.inference.families import TYPE, Families, Part, gather
from mapper.inference.gaps import lacking_kept_roles, lacking_names
from mapper.inference.known import Known
from mapper.inference.matching import FamilyMatch, is_recognised
from mapper.inference.names import ends, words_of
from mapper.inference.part import Home, home_of
from mapper.naming.vocabulary import pattern_words

if TYPE_CHECKING:
    from mapper.architecture import Leaf
    from mapper.inference.facts import Facts
    from mapper.inference.names import Names
    from mapper.inference.scopes import Scope
    from mapper.rulebook.families import Family
    from mapper.rulebook.rulebook import Rulebook

_TELLING = ("layer", "attention", "moe", "feed_forward")  # blocks by which types of other names would be told
_NAMED = 8  # types in a note
_WEAK = (
    "name",
    "rule",
    "default",
)  # evidence that a type alone could overrule: no shape, field or hint shows it
OFFSET = "norm.offset"  # the fact that a family may also say as the form of leaves


@dataclass(frozen=True)
class Twin:
    """A listed type, and the facts as they would be if the checkpoint were of it."""

    model_type: str
    family: Family
    home: Home
    facts: Facts
    said: Facts  # the same without defaults of fields that a config has
    fields: frozenset[tuple[str, ...]]  # of a config, that its family reads; names of one together


class Twins:
    """The listed types that a checkpoint without one could be of, for the whole and for each tower of its own."""

    def __init__(self, facts: Facts, rulebook: Rulebook | None, names: Names, root: Scope):
        self.facts, self.rulebook, self.names, self.root = facts, rulebook, names, root
        self.unasked = rulebook.config_vocabulary.unasked if rulebook else frozenset()
        whole = facts.families.whole
        self.home = home_of(whole, names) if whole else None
        self.asked: set[str] = set()
        self._of: dict[str | None, list[Twin]] = {}

    def differ(self, scope: Scope, name: str, known: Known | None, leaf: Leaf | None = None) -> list[Any]:
        """The values that they give a fact that nothing here shows, if several; what is known of it first.

        A listed type whose field the config lacks says nothing by its default: what has the option has the field.
        """
        if known is not None and (name in self.unasked or self._is_shown(scope, name, known)):
            return []
        is_off = known is not None and (known.evidence != "default" or known.value in (None, False))
        without = is_off and bool(self.facts.config.data)
        answers = [_value(twin, scope, name, leaf, without) for twin in self.of(scope)]
        found = [answer.value for answer in answers if answer is not None and not answer.problem]
        if known is None:
            return list(_distinct(found))
        if self.facts.is_convention(known, name) and (known.value in found or not found):
            return []
        values = list(_distinct([known.value, *found]))
        if len(values) < 2:
            return []
        self.asked.add(name)
        return values

    def _is_shown(self, scope: Scope, name: str, known: Known) -> bool:
        """Whether the checkpoint, its config or the user say it: by what it follows from, too."""
        if known.problem or known.shown or known.evidence not in _WEAK:
            return True
        common = self.facts.is_common(known, name)
        if known.evidence == "name":
            return common
        bases = self._bases(scope, name, known, common)
        return bool(bases) and not any(self._is_open(scope, base) for base in bases)

    def _bases(self, scope: Scope, name: str, known: Known, common: bool) -> list[str]:
        """The facts that a value follows from; a rule of all types also follows from the conditions of those before it."""
        if known.by is None or known.evidence == "default":
            return []
        everyone = common or self.facts.is_convention(known, name)
        rules = self.facts.common.get(name, ()) if common else (known.by,)
        conditions = [other for rule in rules for other in rule.when] if everyone else []
        full = [self.facts.full_name(scope, other) for other in (*sources(known.by), *conditions)]
        return [other for other in dict.fromkeys(full) if other not in (name, TYPE)]

    def _is_open(self, scope: Scope, name: str) -> bool:
        """Whether listed types differ in a fact, or know it where nothing here does."""
        known = self.facts.get(scope, name)
        values = self.differ(scope, name, known)
        return bool(values) if known else any(value is not None for value in values)

    def of(self, scope: Scope) -> list[Twin]:
        """The twins of the part that a block is in; none where its type is listed."""
        families = self.facts.families
        if self.rulebook is None or families.vouch(scope):
            return []
        tower = families.stranger(scope)
        if tower not in self._of:
            self._of[tower] = list(self._plausible(list(self._twins(tower))))
        place = scope.block.home
        return [twin for twin in self._of[tower] if twin.home == self.home or twin.home.surrounds(place)]

    def notes(self) -> list[str]:
        """What to say beside the questions: which types are told apart by them, and that one of them answers all."""
        if not self.asked:
            return []
        types = sorted({twin.model_type for twins in self._of.values() for twin in twins})
        more = f" and {len(types) - _NAMED} more" if len(types) > _NAMED else ""
        named = f"{', '.join(types[:_NAMED])}{more}"
        what = listed(sorted(self.asked))
        return [
            f"listed types with these names differ in {what}: {named}; --set model_type=TYPE answers as one of them"
        ]

    def _twins(self, tower: str | None) -> Iterator[Twin]:
        assert self.rulebook is not None
        families = self.facts.families
        part = families.strangers[tower] if tower is not None else None
        names = self.names.within(part.region) if part else self.names
        for family, model_type in self._candidates(names, within_tower=part is not None):
            if part:
                own = Part(part.tower, part.folder, model_type, family, part.region)
                others = tuple(other for other in families.parts if other.tower != part.tower)
                made = Families(families.match, (*others, own))
            else:
                match = FamilyMatch(family, True, model_type)
                made = gather(match, self.facts.config, self.rulebook, self.names)
            fields = frozenset(_fields(family, model_type))
            home = home_of(family, names)
            facts, said = self.facts.as_of(made), self.facts.as_of(made, defaults=False)
            if self._explains(home, made, facts):
                yield Twin(model_type, family, home, facts, said, fields)

    def _explains(self, home: Home, families: Families, facts: Facts) -> bool:
        """Whether every block that has a flow would have one if the checkpoint were of a twin's type."""
        assert self.rulebook is not None
        flows = self.rulebook.flows
        blocks = [scope for scope in self.root.below() if scope.block.flow and scope.topic in _TELLING]
        inside = [scope for scope in blocks if home.surrounds(scope.block.home)]
        return all(choose(scope, flows, families, facts).flow for scope in inside)

    def _plausible(self, twins: list[Twin]) -> Iterator[Twin]:
        """Those of which the config has at least half of the fields that set them apart from most others."""
        config = self.facts.config
        counted = Counter(names for twin in twins for names in twin.fields)
        for twin in twins:
            own = [names for names in twin.fields if counted[names] * 2 <= len(twins)]
            there = [names for names in own if any(map(config.mentions, names))]
            if not config.data or len(there) * 2 >= len(own):
                yield twin

    def _candidates(self, names: Names, within_tower: bool) -> Iterator[tuple[Family, str]]:
        assert self.rulebook is not None
        every = (self.root, *self.root.below())
        towers = {scope.tower_name for scope in every}
        for family in self.rulebook.families:
            fits = not family.towers if within_tower else towers.issuperset(family.towers)
            if not fits or not is_recognised(family, names):
                continue
            if lacking_kept_roles(family, () if within_tower else every):
                continue
            for model_type in family.model_types:
                if not lacking_names(family, names, model_type):
                    yield family, model_type


def _fields(family: Family, model_type: str) -> Iterator[tuple[str, ...]]:
    """The fields of a config by which a family knows facts of one of its types."""
    for rules in family.facts.values():
        for rule in rules:
            if rule.config and model_type in rule.when.get(TYPE, (model_type,)):
                yield rule.config


def _distinct(values: Iterable[Any]) -> Iterable[Any]:
    return {json.dumps(value, sort_keys=True, default=str): value for value in values}.values()


def _value(twin: Twin, scope: Scope, name: str, leaf: Leaf | None, without_defaults: bool) -> Known | None:
    """What one twin says of a fact; the form of a norm stands beside the facts."""
    if name == OFFSET and leaf is not None and _is_offset(twin.facts.families.everything, leaf):
        return Known(True, "rule", twin.family.file)
    return (twin.said if without_defaults else twin.facts).get(scope, name)


def _is_offset(families: Iterable[Family], leaf: Leaf) -> bool:
    words = words_of(leaf.place)
    forms = [
        (len(pattern_words(pattern)), form)
        for family in families
        for pattern, form in family.forms.items()
        if ends(words, pattern_words(pattern))
    ]
    return max(forms, default=(0, ""))[1] == "offset"
