"""What the listed types whose names a checkpoint has make of its facts.

A family that was recognised by its names alone vouches for none of its constants: a type that no family lists may
differ from those that are listed as these do from each other. Where they differ, the fact is a question.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mapper._dataclass import dataclass
from mapper.errors import listed
from mapper.inference.completeness import (
    broken_promises,
    has_more,
    lacking_kept_roles,
    lacking_names,
    lacking_of_examples,
    may_lack,
    stated,
)
from mapper.inference.computed import sources
from mapper.inference.evidence import Known
from mapper.inference.families import Families, gather, towers_of, words_of
from mapper.inference.matching import FamilyMatch, is_recognised, judged_home
from mapper.inference.names import ends
from mapper.inference.names import words_of as words_of_place
from mapper.inference.part import Part
from mapper.inference.scopes import is_part
from mapper.naming.resolve import resolve
from mapper.naming.vocabulary import in_region, pattern_words
from mapper.rulebook.complete import is_around, unheard
from mapper.rulebook.declared import FLOW
from mapper.rulebook.facts import TYPE, UNSET
from mapper.rulebook.families import fields_of_type

if TYPE_CHECKING:
    from mapper.architecture import Leaf, Place
    from mapper.inference.choosing import Choosing
    from mapper.inference.facts import Facts
    from mapper.inference.names import Names
    from mapper.inference.part import Home
    from mapper.inference.scopes import Scope
    from mapper.rulebook.elements import Words
    from mapper.rulebook.families import Family
    from mapper.rulebook.flows import FlowRule
    from mapper.rulebook.rulebook import Rulebook

_NAMED = 12  # types in a note
_WEAK = (
    "name",
    "rule",
    "default",
)  # evidence that a type alone could overrule: no shape, field or hint shows it
SCALED = ("RMSNorm", "LayerNorm")  # norms of one row of scales
KIND = "norm.kind"  # the fact that says which, where names do not
COMPOSED = "+"  # in the name of a flow that steps of a page make
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
        self.alike = rulebook.config_vocabulary.alike if rulebook else {}
        self.asked: set[str] = set()
        self._of: dict[str | None, list[Twin]] = {}
        self._near: dict[Scope, list[Twin]] = {}
        self._others: dict[tuple[str, str | None], list[Words]] = {}
        self._tracing: set[tuple[Scope, str]] = set()  # what is being followed to what it rests on

    def differ(self, scope: Scope, name: str, known: Known | None, leaf: Leaf | None = None) -> list[Any]:
        """The values that they give a fact that nothing here shows, if several; what is known of it first.

        A listed type whose field the config lacks says nothing by its default: what has the option has the field, but
        in the part of a tower, which is often written without its defaults.
        """
        if known is not None and name in self.unasked:
            return []
        if known is not None and known.evidence == "config" and not known.problem:
            return self._contradicted(scope, name, known)
        if known is not None and self.is_unlike(scope) and (general := self._general(name, known)):
            return self._several(name, [known.value, *general])
        if known is not None and self._is_shown(scope, name, known):
            return []
        is_off = known is not None and (known.evidence != "default" or known.value in (None, False))
        without = is_off and bool(self.facts.config.data) and self.facts.families.stranger(scope) is None
        twins = self.of(scope)
        answers = [(twin, _value(twin, scope, name, leaf, without)) for twin in twins]
        said = [(twin, answer.value) for twin, answer in answers if answer is not None and not answer.problem]
        found = [value for _, value in said]
        if known is None:
            return self._several(name, found) or found[:1]
        if self.facts.declared.is_convention(known, name):
            by = known.by
            if by and (by.by_whole or (by.at and self.facts.families.speak_for(scope))):
                return []  # said of such a tower where it stands: a listed type alone ends in another way
            whole = self.facts.families.whole
            own = [value for twin, value in said if twin.family is whole] or found
            if not own or known.value in own or (known.value in found and self._is_told(scope, known)):
                return []
        return self._several(name, [known.value, *found])

    def _general(self, name: str, known: Known) -> list[Any]:
        """What holds of most models, beside what a family says that only its names bring in: no listed type is like this one."""
        whole = self.facts.families.whole
        if (
            whole is None
            or known.evidence not in ("rule", "default")
            or known.by not in whole.facts.get(name, ())
        ):
            return []
        return [
            rule.default for rule in self.facts.declared.common.get(name, ()) if rule.default is not UNSET
        ][-1:]

    def is_unlike(self, scope: Scope) -> bool:
        """Whether no listed type is like a part that has the names of a family: what that says of it is a guess."""
        families = self.facts.families
        if families.whole is None or families.are_vouched_for or families.are_known_by_names:
            return False
        return self.facts.config.is_of_a_class and not self.of(scope)

    def _is_told(self, scope: Scope, known: Known) -> bool:
        """Whether the config says what a convention asks for: it tells apart types of equal names."""
        names = [self.facts.full_name(scope, other) for other in (known.by.when if known.by else ())]
        said = [self.facts.get(scope, name) for name in names]
        return bool(said) and all(one is not None and one.evidence == "config" for one in said)

    def _contradicted(self, scope: Scope, name: str, known: Known) -> list[Any]:
        """The values that a fact has where listed types obey another field of the config than is read here, or none.

        What follows from a field that is there, whatever it holds, may follow from the type alone as well; not from
        one that some computation must need.
        """
        if known.implied and self.facts.config.is_needed(known.source):
            return []
        answers = [(twin, twin.facts.get(scope, name)) for twin in self.of(scope)]
        said = [
            answer
            for twin, answer in answers
            if answer
            and not answer.problem
            and (answer.evidence == "config" or self._overrules(twin, name, answer, known))
        ]
        others = [answer.value for answer in said if answer.source != known.source]
        return self._several(name, [known.value, *others])

    def _overrules(self, twin: Twin, name: str, answer: Known, known: Known) -> bool:
        """Whether a rule of a listed type holds whatever a field says, which it ignores; any, for what that only implies.

        What joins towers may know better than the part of the config that a tower has, and any type what every class has.
        """
        if answer.evidence != "rule" or known.implied:
            return answer.evidence == "rule"
        may_know = bool(twin.family.towers) or name in self.facts.declared.usual
        is_own = may_know and answer.by in twin.family.facts.get(name, ())
        field = known.source.partition("[")[0]
        return is_own and self.facts.config.is_idle(field, twin.facts.families.ignored())

    def _several(self, name: str, values: Iterable[Any]) -> list[Any]:
        """The values, if there is more than one to choose from; of those that compute the same, the first."""
        found = list(_distinct(values))
        same = [value for value in found if value in self.alike.get(name, ())]
        found = [value for value in found if value not in same[1:]]
        if len(found) < 2:
            return []
        self.asked.add(name)
        return found

    def forks(self, scope: Scope, rule: FlowRule | None) -> dict[str, list[Any]]:
        """The facts by which listed types choose another flow for a block, each with its values; the flow, if none tells."""
        if self.rulebook is None:
            return {}
        found: dict[str, list[Any]] = {}
        for twin in self.of(scope):
            other = self._choosing.flow(scope, twin.facts.families, twin.said)
            if other is None or (rule and other.name == rule.name):
                continue
            telling = [
                (name, _value_of(self.facts.get(scope, name)), _value_of(twin.said.get(scope, name)))
                for name in conditions(scope, self.facts, *([rule] if rule else []), other)
            ]
            telling = [item for item in telling if item[1] != item[2]]
            if any(self._is_settled(scope, name) for name, *_ in telling):
                continue  # the names show that it is not this one
            if not telling and COMPOSED not in other.name:
                telling = [(FLOW, rule.name if rule else other.name, other.name)]
            for name, own, theirs in telling:
                found.setdefault(name, [own]).append(theirs)
        return {name: list(_distinct(values)) for name, values in found.items()}

    def _is_settled(self, scope: Scope, name: str) -> bool:
        """Whether a convention that goes with names or shapes says a fact, as some listed type of these names has it."""
        known = self.facts.get(scope, name)
        if known is None or known.by is None or not self.facts.declared.is_convention(known, name):
            return False
        return bool(known.by.has or known.by.holds) and not self.differ(scope, name, known)

    def kinds(self, scope: Scope, leaf: Leaf) -> list[str]:
        """The kinds that they give a norm, where its tensors allow several and their families say; its own first."""
        twins = self.of(scope)
        own = _said(self.facts.families, leaf, "kinds")
        theirs = [_said(twin.facts.families, leaf, "kinds") for twin in twins]
        if all(kind == own for kind in theirs):
            return []
        found = [kind or self._plain_kinds.get(leaf.place, leaf.kind) for kind in theirs]
        return self._several(KIND, [leaf.kind, *(kind for kind in found if kind in SCALED)])

    @cached_property
    def _plain_kinds(self) -> dict[Place, str]:
        """The kind of each leaf where no family says more than the vocabulary."""
        assert self.rulebook is not None
        return {
            leaf.place: leaf.kind for leaf in resolve(self.names.tree, words_of(self.rulebook, Families()))
        }

    def _is_shown(self, scope: Scope, name: str, known: Known) -> bool:
        """Whether the checkpoint, its config or the user say it: by what it follows from, too."""
        if known.problem or known.shown or known.evidence not in _WEAK:
            return True
        common = self.facts.declared.is_common(known, name)
        if common and any(self._is_overruled(twin, scope, name, known) for twin in self.of(scope)):
            return False
        if known.evidence == "name":
            return common
        bases = self._bases(scope, name, known, common)
        asked = self._conditions(scope, known)
        return bool(bases) and not any(self._is_open(scope, base) for base in (*bases, *asked))

    def _is_overruled(self, twin: Twin, scope: Scope, name: str, known: Known) -> bool:
        """Whether the family of a listed type says otherwise than what holds in general."""
        if known.by is not None and known.by.entry:
            return False  # a list of the config says it
        answer = twin.said.get(scope, name)
        is_own = answer is not None and answer.by in twin.family.facts.get(name, ())
        return is_own and answer is not None and answer.value != known.value

    def _bases(self, scope: Scope, name: str, known: Known, common: bool) -> list[str]:
        """The facts that a value follows from; a rule of all types also follows from the conditions of those before it."""
        if known.by is None or known.evidence == "default":
            return []
        everyone = common or self.facts.declared.is_convention(known, name)
        rules = self.facts.declared.common.get(name, ()) if common else (known.by,)
        conditions = [other for rule in rules for other in rule.when] if everyone else []
        full = [self.facts.full_name(scope, other) for other in (*sources(known.by), *conditions)]
        return [other for other in dict.fromkeys(full) if other not in (name, TYPE)]

    def _conditions(self, scope: Scope, known: Known) -> list[str]:
        """The facts by which the rule that gave a value was chosen."""
        asked = known.by.when if known.by else ()
        return [self.facts.full_name(scope, other) for other in asked if other != TYPE]

    def _is_open(self, scope: Scope, name: str) -> bool:
        """Whether listed types differ in a fact, or know it where nothing here does; not what leads back to itself."""
        if (scope, name) in self._tracing:
            return False
        self._tracing.add((scope, name))
        known = self.facts.get(scope, name)
        values = self.differ(scope, name, known)
        self._tracing.discard((scope, name))
        return bool(values) if known else any(value is not None for value in values)

    def of(self, scope: Scope) -> list[Twin]:
        """The twins of the part that a block is in; none where its type is listed."""
        if scope not in self._near:
            self._near[scope] = self._near_to(scope)
        return self._near[scope]

    def _near_to(self, scope: Scope) -> list[Twin]:
        families = self.facts.families
        if self.rulebook is None or families.vouch(scope) or families.are_known_by_names:
            return []
        tower = families.stranger(scope)
        if tower not in self._of:
            twins = list(self._twins(tower))
            groups = (
                [twin for twin in twins if bool(twin.family.towers) == joins] for joins in (True, False)
            )
            plausible = [twin for group in groups for twin in self._plausible(group)]
            alike = [twin for twin in self._of_these_names(twins, tower) if twin in plausible]
            self._of[tower] = alike
        place = scope.block.home
        near = [
            twin
            for twin in self._of[tower]
            if twin.home.holds(place) or scope.tower_name in twin.family.towers
        ]
        near = self._with_all_modules(near, scope, tower) or near
        if families.vouch_for_tower(scope):
            return [twin for twin in near if twin.family.towers]
        joined = self._joined_by(scope)
        return [twin for twin in near if twin.family.towers or all(map(twin.home.holds, joined))]

    def _joined_by(self, scope: Scope) -> list[Place]:
        """The towers that a block joins, if several: a type that has one alone says nothing of it."""
        if scope.tower is not None:
            return []
        towers = {
            other.tower.block.home
            for other in self.root.below()
            if other.tower and other.tower.parent is self.root
        }
        return list(towers) if len(towers) > 1 else []

    def notes(self) -> list[str]:
        """What to say beside the questions: which types are told apart by them, and that one of them answers all."""
        if not self.asked:
            return []
        types = self._types()
        if not types:
            return []
        more = f" and {len(types) - _NAMED} more" if len(types) > _NAMED else ""
        named = f"{', '.join(types[:_NAMED])}{more}"
        differ = f"{'they differ in' if types[1:] else 'it knows'} {listed(sorted(self.asked))}"
        return [f"--set model_type=TYPE answers as a listed type of these names does: {named}; {differ}"]

    def _types(self) -> list[str]:
        """The types that the whole could be said to be, those of the family of its names first."""
        family = self.facts.families.whole
        own = sorted(family.model_types, key=lambda word: word != family.name) if family else []
        twins = sorted(self._of.get(None, ()), key=lambda twin: twin.model_type)
        every = dict.fromkeys(own, family) | {twin.model_type: twin.family for twin in twins}
        return [word for word, of in every.items() if of is not None and self._may_be(of, word)]

    def _may_be(self, family: Family, model_type: str) -> bool:
        """Whether a checkpoint that lacks nothing of its own may be of a type, with what the class has by default."""
        names, config = self.names, self.facts.config.part("")
        said = stated(model_type, config)
        return not (
            lacking_names(family, names, model_type)
            or lacking_kept_roles(family, (self.root, *self.root.below()))
            or self._lacks(family, model_type, names, config)
            or broken_promises(family, said, names, model_type)[0]
        )

    def _twins(self, tower: str | None) -> Iterator[Twin]:
        assert self.rulebook is not None
        families = self.facts.families
        part = families.strangers[tower] if tower is not None else None
        names = self.names.within(part.region) if part else self.names
        homes: dict[str, Home] = {}
        for family, model_type in self._candidates(names, within_tower=part is not None):
            if part:
                own = Part(part.tower, part.folder, model_type, family, part.region)
                others = tuple(other for other in families.parts if other.tower != part.tower)
                made = Families(families.match, (*others, own), halves=families.halves)
            else:
                match = FamilyMatch(family, True, model_type)
                made = gather(match, self.facts.config, self.rulebook, self.names)
            fields = frozenset(fields_of_type(family, model_type))
            if family.name not in homes:
                match = FamilyMatch(family, False)
                homes[family.name] = judged_home(self.rulebook.family_entries, match, names)
            home = homes[family.name]
            facts, said = self.facts.as_of(made), self.facts.as_of(made, has_defaults=False)
            if self._explains(home, made, facts):
                yield Twin(model_type, family, home, facts, said, fields)

    def _explains(self, home: Home, families: Families, facts: Facts) -> bool:
        """Whether every block that has a flow would have one if the checkpoint were of a twin's type."""
        every = (scope for scope in (self.root, *self.root.below()) if not is_part(scope.block))
        blocks = [scope for scope in every if scope.block.flow]
        own = (scope for scope in blocks if families.part(scope) is None or not families.whole)
        inside = [scope for scope in own if home.surrounds(scope.block.home)]
        return all(self._choosing.flow(scope, families, facts) for scope in inside)

    @cached_property
    def _choosing(self) -> Choosing:
        from mapper.inference.choosing import Choosing  # here: a listed type needs none of it

        assert self.rulebook is not None
        return Choosing(self.rulebook.flows)

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
        for entry in self.rulebook.family_entries:
            if (within_tower and entry.towers) or not is_recognised(entry, names):
                continue
            family = entry.read()
            if lacking_kept_roles(family, () if within_tower else every):
                continue
            for model_type in family.model_types:
                own = towers_of(family, model_type)
                if towers.issuperset(own) and not lacking_names(family, names, model_type):
                    yield family, model_type

    def _of_these_names(self, twins: list[Twin], tower: str | None) -> list[Twin]:
        """Those of which no name is missing here; of these the ones that have all that is here, if there are any."""
        part = self.facts.families.strangers[tower] if tower is not None else None
        names = self.names.within(part.region) if part else self.names
        config = self.facts.config.part(part.folder if part else "")
        whole = [twin for twin in twins if not self._lacks(twin.family, twin.model_type, names, config)]
        alike = [twin for twin in whole if not has_more(twin.family, twin.model_type, names, config)]
        return alike or whole

    def _with_all_modules(self, twins: list[Twin], scope: Scope, tower: str | None) -> list[Twin]:
        """Those in whose examples all modules stand that do so beside a block here and around it, such as a norm behind all layers."""
        around = words_of_place(scope.block.home)
        return [
            twin
            for twin in twins
            if not any(is_around(folder, around) for folder in self._unheard(twin, tower))
        ]

    def _unheard(self, twin: Twin, tower: str | None) -> list[Words]:
        """The folders in which modules stand that no example of a type has."""
        key = twin.model_type, tower
        if key not in self._others:
            part = self.facts.families.strangers[tower] if tower is not None else None
            paths = (self.names.within(part.region) if part else self.names).tensors()
            self._others[key] = unheard(twin.family.complete, twin.model_type, paths, twin.family.recognise)
        return self._others[key]

    def _lacks(self, family: Family, model_type: str, names: Names, config: Mapping[str, Any]) -> bool:
        """Whether names are missing that all examples of a type of a family have."""
        assert self.rulebook is not None
        unused = self.rulebook.config_vocabulary.unused
        optional = may_lack(family, config, model_type, unused)
        if not names.has("bias"):  # the same layers without any: no module lacks its own
            optional.append("bias")
        return model_type in family.complete.types and bool(lacking_of_examples(family, names, optional, ()))


def conditions(scope: Scope, facts: Facts, *rules: FlowRule) -> Iterator[str]:
    """The facts that flows are chosen by, by their full names."""
    short = (name for rule in rules for name in (*rule.when, *rule.values))
    return iter(dict.fromkeys(facts.full_name(scope, name) for name in short))


def _value_of(known: Known | None) -> Any:
    return known.value if known else None


def _distinct(values: Iterable[Any]) -> Iterable[Any]:
    return {json.dumps(value, sort_keys=True, default=str): value for value in values}.values()


def _value(twin: Twin, scope: Scope, name: str, leaf: Leaf | None, without_defaults: bool) -> Known | None:
    """What one twin says of a fact; the form of a norm stands beside the facts, and is plain where nothing is said."""
    said = (twin.said if without_defaults else twin.facts).get(scope, name)
    if name != OFFSET or leaf is None:
        return said
    if _said(twin.facts.families, leaf, "forms") == "offset":
        return Known(True, "rule", twin.family.file)
    return said or Known(False, "default", "as stored")


def _said(families: Families, leaf: Leaf, table: str) -> str:
    """What families say of a leaf by its name, those of towers of what is theirs: its form or kind; "" where they say nothing."""
    words = words_of_place(leaf.place)
    own = [part.family for part in families.parts if in_region(part.region, leaf.place)]
    fitting = [
        (len(pattern_words(pattern)), said)
        for family in ([families.whole, *own] if families.whole else own)
        for pattern, said in getattr(family, table).items()
        if ends(words, pattern_words(pattern))
    ]
    return max(fitting, default=(0, ""))[1]
