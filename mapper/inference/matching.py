"""Which family a checkpoint belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from mapper._dataclass import dataclass
from mapper.errors import ArchitectureError, listed, shorten
from mapper.inference.names import Names
from mapper.inference.part import Home, home_of
from mapper.naming.vocabulary import pattern_words
from mapper.rulebook.complete import holds
from mapper.rulebook.facts import TYPE, UNSET, FactRule
from mapper.rulebook.families import Family
from mapper.rulebook.index import FamilyEntry

if TYPE_CHECKING:
    from mapper.inference.config import Config

AnyFamily = Family | FamilyEntry  # both say what a family is known by


@dataclass(frozen=True)
class FamilyMatch:
    """The family, and how it was found."""

    family: Family
    by_type: bool  # the config's model_type is one that the family lists
    model_type: str | None = None  # of the config
    home: Home = field(default_factory=Home)  # where its names stand


def match_family(families: Sequence[AnyFamily], names: Names, model_type: str | None) -> FamilyMatch | None:
    """The family whose names occur: one that lists the model_type, else the one with more and longer patterns.

    Where two match equally, neither speaks of a type that nobody lists. ArchitectureError if the config names none.
    """
    found = [
        family
        for family in families
        if (model_type in family.model_types or not family.by_type_only) and is_recognised(family, names)
    ]
    if not found:
        return None
    best = max(_strength(family, model_type) for family in found)
    equal = [family for family in found if _strength(family, model_type) == best]
    by_type = model_type in equal[0].model_types
    if len(equal) > 1 and model_type is not None and not by_type:
        return None
    if len(equal) > 1:
        who = " and ".join(repr(family.name) for family in equal)
        raise ArchitectureError(
            f"the families {who} match equally; say which in the config (model_type), by --set model_type=NAME, or leave "
            "families out"
        )
    match = FamilyMatch(equal[0].read(), by_type, model_type)
    return replace(match, home=judged_home(families, match, names))


def judged_home(families: Sequence[AnyFamily], match: FamilyMatch, names: Names) -> Home:
    """Where the names of a family stand, without the folders that are something else's.

    Inside of its own folders, and in all of a checkpoint whose type it lists, these have the names of another family.
    """
    home = home_of(match.family, names)
    others = [family for family in families if not (family.by_type_only or family.name == match.family.name)]
    foreign = []
    for folder in home.foreign:
        if match.by_type and not match.family.towers and holds(match.family.complete, folder):
            continue  # its own: what lost a part may have the names of a smaller family
        is_outside = not any(folder[: len(own)] == own for own in home.folders)
        inside = names.of(lambda words, folder=folder: tuple(words[: len(folder)]) == folder)  # type: ignore[misc]
        if (is_outside and not match.by_type) or any(is_recognised(family, inside) for family in others):
            foreign.append(folder)
    return Home(home.folders, frozenset(foreign))


def is_recognised(family: AnyFamily, names: Names) -> bool:
    """Whether every pattern of the family occurs, and none that must not."""
    return names.show(family.signs)


def absent_options(match: FamilyMatch, config: Config) -> list[str]:
    """The facts that a family has switched on by fields which the config of an unlisted type lacks, if those are most.

    A class that has an option writes its field: names alone, without the fields that go with them, are another class's.
    """
    if match.by_type or not config.is_of_a_class:
        return []
    found: dict[str, bool] = {}
    is_library = not match.family.model_types  # its own settings are what a config of it has
    for name, rules in match.family.facts.items():
        if name in config.vocabulary.usual or "." not in name:
            continue  # what every class has, or a length of a list, which names show
        usual = [rule.default for rule in config.vocabulary.facts.get(name, ())]
        for rule in rules:
            if bool(rule.config) if is_library else _is_option(rule) and rule.default not in usual:
                found[name] = found.get(name, False) or any(map(config.mentions, rule.config))
    absent = [name for name, is_there in found.items() if not is_there]
    return absent if 1 < len(found) < 2 * len(absent) else []


def _is_option(rule: FactRule) -> bool:
    """Whether a rule reads a field, and where that is absent takes it for switched on, whatever the type."""
    return bool(rule.config) and rule.default not in (UNSET, None, False) and TYPE not in rule.when


def _strength(family: AnyFamily, model_type: str | None) -> tuple[bool, bool, int, int]:
    """One that joins towers says more of a checkpoint than one of a tower in it, in whatever detail that is known."""
    patterns = family.recognise
    words = sum(len(pattern_words(pattern)) for pattern in patterns)
    return model_type in family.model_types, bool(family.towers), len(patterns), words


def type_finding(
    families: Sequence[AnyFamily], match: FamilyMatch | None, names: Names, model_type: str | None
) -> str | None:
    """What to say where the config's model_type and the names do not go together."""
    if model_type is None or (match is not None and match.by_type):
        return None
    listing = next((family for family in families if model_type in family.model_types), None)
    if listing is not None:
        lacking = [
            pattern
            for pattern in listing.recognise
            if not names.has(pattern, listing.recognise_shapes.get(pattern))
        ]
        return f"config model_type {shorten(model_type)} is family {listing.name!r}, but the names lack {listed(lacking, 3)}"
    near = near_type(families, model_type)
    meant = f"did you mean {near!r}? " if near else ""
    if match is not None:
        return f"config model_type {shorten(model_type)} is listed by no family; {meant}the names are those of {match.family.name!r}"
    return (
        f"config model_type {shorten(model_type)} is listed by no family; {meant.strip()}" if near else None
    )


def near_type(families: Sequence[AnyFamily], model_type: str) -> str:
    """The listed type that an unlisted one differs from in capitals, dashes and spaces alone; "" for none."""
    listed = [word for family in families for word in family.model_types]
    same = [word for word in listed if plain_type(word) == plain_type(model_type)]
    return same[0] if same and model_type not in listed else ""


def plain_type(word: str) -> str:
    """A type without capitals, dashes and spaces."""
    return "".join(letter for letter in word.lower() if letter.isalnum())
