"""What a config says of its own type, where that is odd: no type, one that is no word, nearly a listed one, another class's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mapper.errors import shorten
from mapper.inference.config import Config
from mapper.inference.matching import AnyFamily, FamilyMatch, near_type, plain_type
from mapper.rulebook.facts import TYPE
from mapper.rulebook.values import shown

OTHER_LIBRARY = "_class_name"  # where configs of another library say it


def odd_type(config: Config, families: Sequence[AnyFamily], match: FamilyMatch | None) -> list[str]:
    """Findings about the type that the config of the whole or of a tower says it is, each with what follows."""
    if not config.data or is_of_another_library(config):
        return []
    found = list(_of_towers(config))
    if config.model_type is None:
        is_said = families or config.data.get(TYPE) not in (None, "")
        return [_untyped(config, families, match), *found] if is_said else found
    is_listed = any(config.model_type in family.model_types for family in families)
    classes = _other_class(config, families) if is_listed else ""
    return [classes, *found] if classes else found


def is_of_another_library(config: Config) -> bool:
    """Whether a config names a class as another library does."""
    return isinstance(config.data.get(OTHER_LIBRARY), str)


def _untyped(config: Config, families: Sequence[AnyFamily], match: FamilyMatch | None) -> str:
    """What there is in place of a type, what the names say, and how to say the type."""
    value = config.data.get(TYPE)
    if value is None:
        seen = "config has no model_type" if TYPE not in config.data else "config model_type is null"
    elif isinstance(value, str):
        seen = "config model_type is empty"
    else:
        seen = f"config model_type is {shorten(shown(value))}, not text"
    names = f"the names are those of {match.family.name!r}" if match else "no family has these names"
    meant = _meant(value, config, families, match)
    way = f"--set {TYPE}={meant or 'TYPE'}"
    return (
        f"{seen}: {names}, and no reading is exact without a type in the config; to read it as one say {way}"
    )


def _meant(value: Any, config: Config, families: Sequence[AnyFamily], match: FamilyMatch | None) -> str:
    """The type that the odd value, the saved class or the family of the names leaves: only a listed one."""
    words = (
        [value]
        if isinstance(value, str)
        else [item for item in value if isinstance(item, str)]
        if isinstance(value, list)
        else []
    )
    listed = [word for family in families for word in family.model_types]
    said = [word for word in words if word in listed]
    said = said or [near for word in words if (near := near_type(families, word))]
    said = said or list(_types_of_classes(config, families))
    if not said and match and len(match.family.model_types) == 1:
        said = list(match.family.model_types)
    return said[0] if len(set(said)) == 1 else ""


def _of_towers(config: Config) -> Iterator[str]:
    """A finding for each part of the config whose type is no word; published ones have none, or an empty one."""
    for folder in sorted(config.folders):
        value = config.part(folder).get(TYPE)
        if value is not None and not isinstance(value, str):
            seen = f"config {folder}.model_type is {shorten(shown(value))}, not text"
            yield f"{seen}: that part is read as if nobody said its type"


def _other_class(config: Config, families: Sequence[AnyFamily]) -> str:
    """A finding where the class that was saved is that of another listed type, which no family has beside this one."""
    own = config.model_type or ""
    types = _types_of_classes(config, families)
    if not types or any(_are_alike(own, word, families) for word in types):
        return ""
    return (
        f"config model_type is {shorten(own)}, but architectures says {shorten(config.class_names[0])}, a class of "
        f"{next(iter(types))!r}: one of them is wrong, so the reading is not exact"
    )


def _are_alike(own: str, other: str, families: Sequence[AnyFamily]) -> bool:
    """Whether a type may be saved as another's class: one is a part of the other, both are of a family, or it extends it."""
    one, two = plain_type(own), plain_type(other)
    mine = [family for family in families if own in family.model_types]
    theirs = {family.name for family in families if other in family.model_types}
    shared = any(family.name in theirs or family.read().extends in theirs for family in mine)
    return shared or one.startswith(two) or two.startswith(one)


def _types_of_classes(config: Config, families: Sequence[AnyFamily]) -> dict[str, None]:
    """The listed types whose classes the config says were saved: of `LlamaForCausalLM` `llama`."""
    stems = [stem for name in config.class_names for stem in _stems(name, config.vocabulary.tasks)]
    begin = {stem[:1] for stem in stems}
    listed: dict[str, str] = {}
    for word in (word for family in families for word in family.model_types):
        if word[:1] in begin or not word[:1].isalnum() or word[:1].isupper():  # no other can be one of them
            listed.setdefault(plain_type(word), word)
    return dict.fromkeys(listed[stem] for stem in stems if stem in listed)


def _stems(name: str, endings: Iterable[str]) -> list[str]:
    """What may be left of a class name as a type, compared as `plain_type` has it: without its task, and whole."""
    return [
        plain_type(name),
        *(plain_type(name.removesuffix(ending)) for ending in endings if name.endswith(ending)),
    ]
