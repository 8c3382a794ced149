"""The families that speak about one checkpoint: that of the whole, and those of towers with a config of their own.

A vision-language model is a text model and a vision model that other checkpoints hold alone. A family that says
`towers:` describes only what stands around them: each tower is read by the family that its own part of the config
names (`text_config.model_type`), where that names none by the one that `towers:` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mapper._dataclass import dataclass
from mapper.errors import listed, shorten
from mapper.inference.config import Config
from mapper.inference.matching import FamilyMatch, is_recognised, match_family
from mapper.inference.names import IN_OUT, OUT_IN
from mapper.inference.names import words_of as words_of_place
from mapper.inference.part import Checked, Home, Part, Stranger
from mapper.naming.towers import HALVES
from mapper.naming.vocabulary import Overrides, Vocabulary, in_region, pattern_words
from mapper.rulebook.facts import TYPE
from mapper.rulebook.families import TRANSPOSED
from mapper.rulebook.vocabulary import Region
from mapper.words import normal, unnumbered

if TYPE_CHECKING:
    from mapper.architecture import Leaf
    from mapper.inference.names import Names
    from mapper.inference.scopes import Scope
    from mapper.rulebook.facts import ConfigVocabulary, FactRule
    from mapper.rulebook.families import Family
    from mapper.rulebook.ignored import Ignored
    from mapper.rulebook.rulebook import Rulebook

TEXT = "text"  # the tower that speaks for what no tower's words name
_COMPILED: WeakKeyDictionary[Rulebook, Vocabulary] = WeakKeyDictionary()


@dataclass(frozen=True)
class Families:
    """Who says what, the family of the whole first."""

    match: FamilyMatch | None = None
    parts: tuple[Part, ...] = ()
    findings: tuple[str, ...] = ()  # towers that no family lists
    strangers: Mapping[str, Stranger] = field(default_factory=dict)  # the same by tower
    halves: frozenset[str] = frozenset()  # towers in the folder of a text, whose part of the config they have
    everything: tuple[Family, ...] = field(init=False)

    def __post_init__(self) -> None:
        whole = (self.match.family,) if self.match else ()
        object.__setattr__(self, "everything", (*whole, *(part.family for part in self.parts)))

    @cached_property
    def whole(self) -> Family | None:
        return self.match.family if self.match else None

    @cached_property
    def home(self) -> Home:
        """Where what the family of the whole judges stands."""
        return self.match.home if self.match else Home()

    @property
    def are_complete(self) -> bool:
        """Whether each tower of a type that nobody lists has a family by its names."""
        return self.strangers.keys() <= {part.tower for part in self.parts}

    def are_of_whole(self, words: Sequence[str | tuple[int, ...]]) -> bool:
        """Whether a path is of the whole, the towers that families read included."""
        return self.home.holds_words(words) or any(in_region(part.region, words) for part in self.parts)

    @cached_property
    def are_vouched_for(self) -> bool:
        """Whether the whole is listed by its model_type; a tower that is not has a finding."""
        return bool(self.match and self.match.by_type)

    @cached_property
    def are_known_by_names(self) -> bool:
        """Whether the whole is of a family without types: a library's own names, beside which no config names a type."""
        match = self.match
        return match is not None and match.model_type is None and not match.family.model_types

    def vouch(self, scope: Scope) -> bool:
        """Whether a family lists the model_type of the whole, and of the tower that a block is in."""
        return self.stranger(scope) is None and self.are_vouched_for

    def are_of_names(self, scope: Scope) -> bool:
        """Whether names alone show the family of a block of the whole, or of a tower of a type that nobody lists.

        The part of a config that a tower has is often written without what its class has by default: of a listed type.
        """
        if self.stranger(scope) is not None:
            return True
        if self.strangers or self.part(scope) is not None:
            return False
        return not (self.vouch(scope) or self.are_known_by_names)

    def vouch_for_tower(self, scope: Scope) -> bool:
        """Whether a family lists the type of the tower that a block is in; what joins towers is the whole's."""
        return self.stranger(scope) is None and scope.tower is not None and self.part(scope) is not None

    def speak_for(self, scope: Scope) -> bool:
        """The same, or a family of the whole has one for the tower, or the names are those of a library; none speaks for what joins towers."""
        towers = {part.tower for part in self.parts} | self.strangers.keys()
        is_between = scope.tower is None and len(towers) > 1
        joins = is_between and (bool(scope.words) or self.match is not None)  # what stands between towers
        if self.are_vouched_for or (self.part(scope) is not None and not joins):
            return True
        return self.are_known_by_names and self._whole_speaks(scope)

    def is_in_part_of_stranger(self, scope: Scope) -> bool:
        """Whether a block is in a tower that a family reads, of a whole whose type no family lists."""
        return not self.are_vouched_for and self.part(scope) is not None

    def is_in_stranger(self, scope: Scope) -> bool:
        """Whether a block is in a tower that a family reads, of a whole that no family knows by type or names."""
        return self.match is None and self.part(scope) is not None

    def goes_by_names(self, scope: Scope) -> bool:
        """The same of a tower of a type that nobody lists, which may be joined by a library's names: its family is that of its own."""
        return self.stranger(scope) is not None and (self.is_in_stranger(scope) or self.are_known_by_names)

    def stranger(self, scope: Scope) -> str | None:
        """The tower that a block is in, if that is of a type of its own that no family lists."""
        tower = self._tower(scope)
        return tower if tower in self.strangers else None

    def towers(self) -> dict[str, str]:
        """Tower -> name of its family, for reports."""
        return {part.tower: part.family.name for part in self.parts}

    def facts(self, scope: Scope, name: str) -> list[tuple[str | None, tuple[FactRule, ...]]]:
        """What each family says about a fact of a block, that of the whole first, with the type that it speaks of."""
        part = self.part(scope)
        found = [(self.match.model_type, self._of_whole(self.match, scope, name))] if self.match else []
        own = part.model_type if part and part.is_listed else None
        return [*found, *([(own, part.family.facts.get(name, ()))] if part else [])]

    def _of_whole(self, match: FamilyMatch, scope: Scope, name: str) -> tuple[FactRule, ...]:
        """What the family of the whole says of a fact; of a tower that another one reads, what it says of that by name."""
        rules = match.family.facts.get(name, ())
        if self._whole_speaks(scope):
            return rules
        joined = self._tower(scope) in match.family.towers
        return tuple(rule for rule in rules if rule.at) if joined else ()

    def _whole_speaks(self, scope: Scope) -> bool:
        """Whether the family of the whole says anything of a block: where names alone show it, what it judges."""
        return self.are_vouched_for or self.home.holds(scope.block.home)

    def types_at(self, scope: Scope) -> Sequence[str]:
        """The type that the family of a block reads it as; where names alone show it, that of its name, or all that it lists."""
        match = self.match
        joins = match is not None and scope.tower is None  # what stands between towers is the whole's
        part = None if joins else self.part(scope)
        if part and part.is_listed:
            return [part.model_type]
        if match and match.by_type and match.model_type and not part:
            return [match.model_type]
        own = part.family if part else self.whole if self._whole_speaks(scope) else None
        if own is None:
            return ()
        return [own.name] if own.name in own.model_types else own.model_types

    def part(self, scope: Scope) -> Part | None:
        """The tower's family; outside of all towers, and in the only one, that of the text."""
        return self._by_tower.get(self._tower(scope))

    @cached_property
    def _by_tower(self) -> dict[str, Part]:
        return {part.tower: part for part in reversed(self.parts)}  # of two the first

    def _tower(self, scope: Scope) -> str:
        """The tower whose family reads a block: an encoder and a decoder that are halves of a text have that of the text."""
        tower = _tower(scope)
        return TEXT if tower in self.halves else tower

    def flows(self, scope: Scope) -> Sequence[str]:
        """What the families say for a block: by its role path, longest first, also without a number, its topic, its kind."""
        paths = [".".join(scope.words[start:]) for start in range(len(scope.words))]
        keys = [*paths, *map(unnumbered, paths), scope.topic, scope.block.kind]
        part = self.part(scope) if scope.words else None  # the root is the whole's
        tables = [self._flows_of_whole(scope)]
        if part:
            tables.append(part.family.flows)
            if scope.words[0] == part.tower:  # as it is called where it stands alone
                keys[len(paths) : len(paths)] = [".".join(("tower", *scope.words[1:]))]
        return next((table[key] for table in tables for key in keys if key in table), ())

    def _flows_of_whole(self, scope: Scope) -> Mapping[str, Sequence[str]]:
        """What the family of the whole says; of a tower that another one reads, what it says of that by name."""
        if self.whole is None or self._whole_speaks(scope):
            return self.whole.flows if self.whole else {}
        tower = self._tower(scope)
        said = self.whole.flows.items() if tower in self.whole.towers else ()
        return {key: names for key, names in said if key.split(".")[0] == tower}

    def ignored(self) -> dict[str, Ignored]:
        """What each family says of fields that nobody reads, by the part of the config that it speaks about."""
        own = [("", self.whole)] if self.whole else []
        found: dict[str, Ignored] = {}
        for folder, family in (*((part.folder, part.family) for part in self.parts), *own):
            found[folder] = found[folder].beside(family.ignored) if folder in found else family.ignored
        return found

    def fields_said(self) -> frozenset[str]:
        """Fields of the config that these families' own rules read for just this type, as its files have them."""
        own = [(self.match.model_type, self.match.family)] if self.match else []
        spoken = [*own, *((part.model_type, part.family) for part in self.parts)]
        rules = (
            rule
            for model_type, family in spoken
            for rules in family.own_facts.values()
            for rule in rules
            if model_type in rule.when.get(TYPE, family.model_types if len(family.model_types) == 1 else ())
        )
        names = (name for rule in rules for name in (*rule.config, *chain(*rule.towers.values())))
        return frozenset(word for name in names for word in name.removeprefix("/").split("."))

    def varies(self) -> tuple[str, ...]:
        return tuple(name for family in self.everything for name in family.varies)

    def checked(self, names: Names, leaves: Sequence[Leaf]) -> Iterator[Checked]:
        """Each family with what it speaks about."""
        if self.match:
            own = [leaf for leaf in leaves if self.are_of_whole(words_of_place(leaf.place))]
            named = names.of(self.are_of_whole) if self.home.foreign else names
            yield Checked(self.match.family, "", None, named, own)
        for part in self.parts:
            inside = _leaves_of(part, leaves)
            yield Checked(part.family, part.folder, part.model_type, names.within(part.region), inside)


def _leaves_of(part: Part, leaves: Sequence[Leaf]) -> list[Leaf]:
    """The leaves of a tower, by their paths, without those that have a role in a list beside the tower."""
    inside = [leaf for leaf in leaves if in_region(part.region, leaf.place)]
    named = any(leaf.block and leaf.block[0][0] == part.tower for leaf in inside)
    return [leaf for leaf in inside if not (named and _is_in_list_beside(leaf, part.tower))]


def _is_in_list_beside(leaf: Leaf, tower: str) -> bool:
    name, indices = leaf.block[0] if leaf.block else (tower, None)
    return name != tower and indices is not None


def _tower(scope: Scope) -> str:
    return TEXT if scope.tower_name in (None, "tower") else scope.tower_name


def words_of(rulebook: Rulebook, families: Families, names: Names | None = None) -> Vocabulary:
    """The vocabulary, with the words of the families on top; those of the whole win."""
    common = rulebook.config_vocabulary
    alike = [
        patterns
        for shown, patterns in common.transposed.items()
        if names and names.stored([shown], [shown]) == IN_OUT
    ]
    overrides = [Overrides(unused=common.unused, transposed=[name for group in alike for name in group])]
    overrides += [_overrides(part.family, names, common, part.region) for part in families.parts]
    overrides += [_overrides(families.whole, names, common)] if families.whole else []
    return compiled_vocabulary(rulebook).below(overrides)


def compiled_vocabulary(rulebook: Rulebook) -> Vocabulary:
    """The vocabulary without families, kept as long as its rules are."""
    if rulebook not in _COMPILED:
        _COMPILED[rulebook] = Vocabulary(rulebook.vocabulary)
    return _COMPILED[rulebook]


def _overrides(
    family: Family, names: Names | None, common: ConfigVocabulary, region: Region | None = None
) -> Overrides:
    read = [
        pattern
        for pattern in family.unused
        if names
        and not names.fit(family.unused_beside.get(pattern, ()), family.unused_without.get(pattern, ()))
    ]
    unused = {pattern: why for pattern, why in family.unused.items() if pattern not in read}
    forms = family.forms
    if names and _is_turned(family, names, common):
        forms = {pattern: form for pattern, form in forms.items() if form != TRANSPOSED}
    return Overrides(family.names, family.kinds, (), forms, unused, family.folders, region)


def _is_turned(family: Family, names: Names, common: ConfigVocabulary) -> bool:
    """Whether the weights that a family has stored [in, out] are stored the other way here."""
    telling = [
        shown for shown, patterns in common.transposed.items() if set(patterns) & set(family.transposed)
    ]
    return bool(family.transposed) and names.stored(family.transposed, telling) == OUT_IN


def turned_round(rulebook: Rulebook, families: Families, names: Names) -> list[str]:
    """A finding for each family whose maps are stored the other way here: the shapes win."""
    return [
        f"{listed(list(family.transposed), 2)} are stored {OUT_IN} here, and {IN_OUT} in every {family.name}: the shapes win"
        for family in families.everything
        if _is_turned(family, names, rulebook.config_vocabulary)
    ]


def gather(
    match: FamilyMatch | None, config: Config, rulebook: Rulebook, names: Names, by_names: bool = False
) -> Families:
    """The family of the whole with those of its towers, if it leaves these to them or nobody lists the whole.

    `by_names`: a tower of a type that nobody lists has the family of its names, as it would have alone.
    """
    if match and not match.family.towers:
        return _beside(match, config, rulebook, names)
    wanted = dict(_named_parts(config, _defaults(match)))
    speakers = Counter(folder for folder, _ in wanted.values() if folder)
    parts: list[Part] = []
    findings: list[str] = []
    strangers: dict[str, Stranger] = {}
    for tower, region in _regions(wanted, match, rulebook).items():
        folder, model_types = wanted[tower]
        inside = names.within(region)
        if speakers[folder] > 1 and not any(inside.tensors()):  # its config is that of another tower
            continue
        named = config.type_of(folder) if folder else None
        is_listed = _is_known(rulebook, match, tower, named)
        known = [(name, family) for name in model_types for family in _listers(rulebook, name)]
        fitting = [(name, family) for name, family in known if is_recognised(family, inside)]
        if by_names and not fitting and not is_listed:
            fitting = [(family.name, family) for family in _by_names(rulebook, inside)]
        if fitting:
            parts.append(Part(tower, folder, *fitting[0], region, is_listed))
        is_known = bool(match and match.by_type) or bool(fitting) or not known  # by its names, too
        if not (is_listed and is_known):
            strangers[tower] = Stranger(tower, folder, region)
        if named and not is_listed:
            as_what = f"; its names are those of {fitting[0][1].name!r}" if fitting else ""
            findings.append(f"config {folder}.model_type {shorten(named)} is listed by no family{as_what}")
        elif known and not fitting and is_listed:
            findings.append(f"config {folder}: the names lack those of family {known[0][1].name!r}")
    return Families(match, tuple(parts), tuple(findings), strangers, _halves(rulebook, names))


def _regions(wanted: Collection[str], match: FamilyMatch | None, rulebook: Rulebook) -> dict[str, Region]:
    """Where each tower stands: in folders of its usual words or a family's; the text's, in none of another."""
    words = {tower: Vocabulary.tower_words(rulebook.vocabulary, tower) for tower in wanted}
    usual: dict[
        str, frozenset[str]
    ] = {}  # what a family says in usual words: maybe inside of another's folder
    for tower, folders in (match.family.folders if match else {}).items():
        said = frozenset(map(normal, folders))
        usual[tower] = said & words.get(tower, frozenset())
        words[tower] = words.get(tower, frozenset()) | said
    regions: dict[str, Region] = {}
    for tower in wanted:
        paths = frozenset(word for word in words[tower] if "." in word)  # where it stands, and nowhere else
        if tower == TEXT and not paths:
            others = frozenset().union(*(words[other] for other in wanted if other != tower))
            regions[tower] = Region(outside=others, own=words[tower])
        else:
            nested = frozenset().union(*(said for other, said in usual.items() if other != tower))
            regions[tower] = Region(inside=paths if tower == TEXT else words[tower], outside=nested)
    return regions


def _is_known(rulebook: Rulebook, match: FamilyMatch | None, tower: str, named: str | None) -> bool:
    """Whether some family lists what a tower is said to be, or that of the whole reads it as what it lists."""
    is_typed = match is not None and match.by_type
    if _is_listed(rulebook, named) if named else is_typed:
        return True
    return match is not None and is_typed and named in match.family.reads_as.get(tower, ())


def _by_names(rulebook: Rulebook, inside: Names) -> list[Family]:
    """The family whose names a tower has, if it is one that reads towers."""
    entries = [entry for entry in rulebook.family_entries if not entry.towers]
    match = match_family(entries, inside, "")  # a type that nobody lists
    return [match.family] if match else []


def _beside(match: FamilyMatch, config: Config, rulebook: Rulebook, names: Names) -> Families:
    """A family without towers; where names alone show it, with the towers beside it whose own types are listed."""
    is_stranger = not match.by_type and config.model_type is not None
    others = gather(None, config, rulebook, names) if is_stranger else Families()
    if _is_of_several(match, others, names):
        return others
    if not any(part.is_listed for part in others.parts):
        return Families(match)
    folders = [[word for word in folder if isinstance(word, str)] for folder in match.home.folders]
    is_read = any(in_region(part.region, folder) for part in others.parts for folder in folders)
    return others if is_read else replace(others, match=match)


def _is_of_several(match: FamilyMatch, others: Families, names: Names) -> bool:
    """Whether names of the text and of other towers are those of a family together, and those of none alone.

    A family that is known by the folders of towers speaks of all of them.
    """
    regions = [one.region for one in others.strangers.values()] + [part.region for part in others.parts]
    known_by = [pattern_words(pattern) for pattern in match.family.recognise]
    if any(region.inside and in_region(region, words) for region in regions for words in known_by):
        return False
    own = [names.within(region) for region in dict.fromkeys(regions)]
    return len(own) > 1 and not any(is_recognised(match.family, inside) for inside in own)


def _defaults(match: FamilyMatch | None) -> dict[str, list[str]]:
    """Tower -> the types that it may have where its config names none."""
    return towers_of(match.family, match.model_type) if match else {}


def towers_of(family: Family, model_type: str | None) -> dict[str, list[str]]:
    """Tower -> the types that read it in a model of a type; of one that is not listed, all that read it in others."""
    chosen = {
        tower: _types_for(types, model_type if model_type in family.model_types else None)
        if isinstance(types, dict)
        else types
        for tower, types in family.towers.items()
    }
    return {tower: [types] if isinstance(types, str) else types for tower, types in chosen.items() if types}


def _types_for(types: Mapping[str, Any], model_type: str | None) -> Any:
    """A tower's types by the type of the whole; each of them once where that is none of these."""
    if model_type is not None:
        return types.get(model_type)
    every = (name for names in types.values() for name in ([names] if isinstance(names, str) else names))
    return list(dict.fromkeys(every))


def _named_parts(
    config: Config, defaults: dict[str, list[str]]
) -> Iterator[tuple[str, tuple[str, list[str]]]]:
    """Each tower of its own: where its config stands, and the types that it may be of, the likeliest first."""
    for tower in config.vocabulary.towers:
        folder = next(iter(config.parts(tower)), None)
        named = config.type_of(folder) if folder else None
        model_types = [*([named] if named else []), *defaults.get(tower, [])]
        if model_types:
            yield tower, (folder or "", model_types)


def _halves(rulebook: Rulebook, names: Names) -> frozenset[str]:
    """The encoder and the decoder that stand in the folder of a text: `language_model.encoder`."""
    words = [word for word in Vocabulary.tower_words(rulebook.vocabulary, TEXT) if "." not in word]
    found = {half for half in HALVES if any(names.has(f"{word}.{half}") for word in words)}
    return frozenset(found) if found == HALVES else frozenset()


def has_strangers(config: Config, rulebook: Rulebook) -> bool:
    """Whether the config names a type for a tower that no family lists: its names are its own."""
    folders = (next(iter(config.parts(tower)), None) for tower in config.vocabulary.towers)
    named = (config.type_of(folder) for folder in folders if folder)
    return any(name is not None and not _is_listed(rulebook, name) for name in named)


def _is_listed(rulebook: Rulebook, model_type: str) -> bool:
    """Whether a family of one tower lists a model_type."""
    return any(model_type in item.model_types for item in rulebook.family_entries if not item.towers)


def _listers(rulebook: Rulebook, model_type: str) -> list[Family]:
    """The families of one tower that list a model_type: several where it was saved under several sets of names.

    A word that none lists is the name of a family: names that a library writes beside no type.
    """
    entries = [item for item in rulebook.family_entries if not item.towers]
    listing = [item for item in entries if model_type in item.model_types]
    return [item.read() for item in listing or entries if listing or item.name == model_type]
