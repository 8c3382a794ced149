"""What a field of a config that is a list, or a word that a rule knows, comes to for one block."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from mapper.errors import listed, shorten
from mapper.inference.evidence import Known
from mapper.inference.fields import Found
from mapper.inference.scopes import TOWER_LISTS, Scope
from mapper.rulebook.facts import FactRule
from mapper.rulebook.values import NUMBERS, checked, shown

REST = "*"  # in a map: any value that it does not name


def list_around(value: Any, scope: Scope) -> str | None:
    """The list that a block is in, which has as many elements as the config gives numbers where one is wanted."""
    if not isinstance(value, list) or scope.tower is None:
        return None
    counts = {role: scope.tower.solved.get(role) for role in reversed(TOWER_LISTS)}
    alike = (role for role, count in counts.items() if count and count.value == len(value))
    return next((role for role in alike if scope.index_of(role) is not None), None)


def element(value: list[Any], scope: Scope, role: str, source: str) -> tuple[Any, str]:
    """The entry of a list for a block in one of its elements, the same for all that it stands for; above them, the list."""
    indices = scope.index_of(role, len(value))
    count = _count(scope, role, indices)
    is_plain = indices is not None and indices[-1] < len(value) and not isinstance(value[0], list)
    same = is_plain and all(item == value[0] for item in value)
    if count not in (None, len(value)) and not same:  # a list of one value says it of any number
        raise ValueError(f"{len(value)} entries, but {count} {role}")
    if indices is None:
        return value, source
    if indices[-1] >= len(value):
        raise ValueError(f"{len(value)} entries, but there is an element {indices[-1]}")
    chosen = [value[index] for index in indices]
    if any(item != chosen[0] for item in chosen):
        raise ValueError(f"differs between equal elements: {listed([str(item) for item in chosen])}")
    return chosen[0], f"{source}[{indices[0]}]"


def _count(scope: Scope, role: str, indices: tuple[int, ...] | None) -> Any:
    """How many elements the list of a role has that a block is in or above: of layers and stages as it was settled."""
    if role not in TOWER_LISTS:
        return scope.count_of(role) if indices is not None else None
    known = (scope if indices is None else scope.tower or scope).solved.get(role)
    return known.value if known else None


def repeated(value: list[Any], scope: Scope, role: str) -> list[Any]:
    """A list as often as it takes to have an entry for every element of the list that a block is in."""
    last = max(*(scope.index_of(role) or (0,)), (scope.count_of(role) or 1) - 1)
    return value * (last // len(value) + 1) if value else value


def mapped(rule: FactRule, value: Any) -> Any:
    """What a rule makes of a word of the config, of a list of words as `a|b`; what it does not name is its `*`, or stays.

    `vit_*_clip_*` names every word of that form, the longest form wins. A list that it does not name is its `[*]`, if it has one.
    """
    is_list = bool(value) and isinstance(value, list) and _text(value) not in rule.map
    if is_list and all(str(item) in rule.map for item in value):
        return [rule.map[str(item)] for item in value]
    key = _entry(rule, value)
    return value if key is None else rule.map[key]


def is_named(rule: FactRule, value: Any) -> bool:
    """Whether the map of a rule has this very word, and no form that it has."""
    return isinstance(value, str) and "*" not in value and value in rule.map


def _entry(rule: FactRule, value: Any) -> str | None:
    """The key of the map that a word or a list has; None where not even `*` is there."""
    text = _text(value)
    if text in rule.map:
        return text
    if isinstance(value, list):
        return next((key for key in ("[*]", REST) if key in rule.map), None)
    return max((key for key in rule.map if "*" in key and fnmatchcase(text, key)), key=len, default=None)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "|".join(map(str, value)) or "[]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_silent(rule: FactRule, value: Any) -> bool:
    """Whether a rule makes nothing of a word, a number or a flag: its map has null for it, and the fact is never null."""
    if not rule.map or rule.nullable or value is None or isinstance(value, list):
        return False
    return mapped(rule, value) is None


def is_unknown(rule: FactRule, value: Any) -> bool:
    """Whether a rule makes nothing of a word because it does not know it: only `"*": null` is for it."""
    return is_silent(rule, value) and _entry(rule, value) == REST


def goes_by_form(rule: FactRule) -> bool:
    """Whether a rule reads words by their form: the name of a network, say."""
    return any("*" in key and key not in ("*", "[*]") for key in rule.map)


def from_field(rule: FactRule, found: Found, scope: Scope, kind: str) -> Known:
    """What a rule reads in a field of a config for one block, as a value of this kind; the problem where it is none."""
    evidence = "default" if found.default_of else "config"
    left_out = f", left out: the default of {found.default_of}" if found.default_of else ""
    try:
        value, source = _value(rule, found, scope, kind)
    except ValueError as error:
        return Known(None, evidence, found.name, f"config {found.name}{left_out}: {error}", rule=rule.place)
    implied = list(rule.map) == ["*"]
    return Known(value, evidence, f"{source}{left_out}", implied=implied, rule=rule.place)


def _value(rule: FactRule, found: Found, scope: Scope, kind: str) -> tuple[Any, str]:
    """The value, and the field or entry that it stands in. Raises ValueError."""
    value, source = found.value, found.name
    if not found.wanted:
        raise ValueError(f"{shorten(shown(value))} stands where an object is needed")
    if kind == "list" and rule.map and isinstance(value, list):
        value = [mapped(rule, item) for item in value]
    is_bare = kind in NUMBERS and not rule.map
    per = rule.per
    if is_bare if per is None else scope.index_of(per) is None:  # one for each of another list
        per = list_around(value, scope) or per
    if per and isinstance(value, list):
        value = repeated(value, scope, per) if rule.repeated else value
        value, source = element(value, scope, per, source)
        if kind == "list" and scope.index_of(per) is not None:
            kind = "any"  # an entry, in a block that is an element itself
    if kind != "list" and rule.map and value is not None:
        value = mapped(rule, value)
    if value is not None or not rule.nullable:
        value = checked(value, kind)
    return value, source
