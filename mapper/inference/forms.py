"""Names of fields of a config that stand for all of a form, as `*norm*eps`, and what such a field could mean."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapper.rulebook.facts import FactRule

ANY = "*"  # in the name of a field: any letters
ANYWHERE = "**."  # before such a name: at any depth of a part; what is found is the name


def is_form(key: str) -> bool:
    """Whether a name stands for all fields of its form in a part."""
    return ANY in key and not key.startswith(ANYWHERE)


def may_be_there(rule: FactRule, names: Container[str]) -> bool:
    """Whether a field of a rule may be in a config with these names of fields: a form of names always may."""
    fields = (*rule.config, *chain(*rule.towers.values()))
    words = (field.removeprefix("/").partition(".")[0] for field in fields)
    return any(ANY in word or word in names for word in words)


def field_names(data: Any) -> Iterator[str]:
    """The names of all fields, at any depth."""
    left = [data]
    while left:
        item = left.pop()
        if isinstance(item, Mapping):
            yield from item
        left += item.values() if isinstance(item, Mapping) else item if isinstance(item, list) else ()


def could_be_meant(value: Any, named: Mapping[str, Any], is_flag: bool) -> bool:
    """Whether a field could mean a fact by its value: a word of its map, or else a flag, or a number."""
    if named:
        text = str(value).lower() if isinstance(value, bool) else value
        return isinstance(text, str) and text in named
    if is_flag or isinstance(value, bool):
        return is_flag and isinstance(value, bool)
    return isinstance(value, (int, float))
