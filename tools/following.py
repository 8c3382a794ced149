"""Entries of families that say what is read without them, whatever a config says: by the rules alone, without reading anything.

A fact follows where the fields that general rules read of it are, of the classes of all types that take the entry,
the same in the same order. That is tried with every one and every two of the fields. Their default is that of the
class; where names alone show the family, it stays, or is then that of its types' classes (`by_class` of the vocabulary).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations
from types import SimpleNamespace
from typing import Any

from mapper.catalogue import published
from mapper.inference.config import Config
from mapper.inference.entries import is_silent
from mapper.rulebook.facts import ROWS, TYPE, UNSET, ConfigVocabulary, FactRule
from mapper.rulebook.families import Family
from mapper.rulebook.family_file import BIASES, patterns
from mapper.rulebook.ignored import ANY
from mapper.rulebook.rulebook import Rulebook

Keys = tuple[Any, ...]
_HEADS = "head.tied"
_WITH_HEADS = (None, "text", "decoder")  # towers that a language modeling head belongs to
_COMPUTED = (
    "expr", "each", "marks", "runs", "shared", "entry", "doubt", "rows", "columns", "kernels",
    "stored", "most", "divides", "total", "length", "item", "has", "lacks",
)  # fmt: skip


def chain_of(families: Mapping[str, Family], name: str | None) -> Iterator[str]:
    """A family and those that it extends."""
    while name:
        yield name
        name = families[name].extends


def following(rulebook: Rulebook, families: Mapping[str, Family], name: str) -> Iterator[Keys]:
    """The places of entries of a family, as its file has it, that follow."""
    family = families[name]
    whole = {entry.name: entry.read() for entry in rulebook.family_entries if entry.name == family.extends}
    above = whole.get(str(family.extends))
    yield from _repeated(family, above)
    yield from _ignored(rulebook.config_vocabulary, family, above)
    for fact in family.facts:
        if _Fact(rulebook.config_vocabulary, families, family, above, fact).follows():
            yield from _places(family, fact)


def _repeated(family: Family, above: Family | None) -> Iterator[Keys]:
    """Flows and what must be there, as the family that is extended says them."""
    if above is None:
        return
    for key, names in family.flows.items():
        if above.flows.get(key) == names:
            yield ("flows", key)
    for at, item in enumerate(family.document.data.get("requires") or ()):
        if isinstance(item, str) and item != BIASES and set(patterns(item)) <= set(above.requires):
            yield ("requires", at)


def _ignored(words: ConfigVocabulary, family: Family, above: Family | None) -> Iterator[Keys]:
    """Fields that change nothing by the general rules, or by those of the family that is extended."""
    said = words.ignored.beside(above.ignored if above else None)
    read = {
        name for table in (words.facts, words.unlisted) for rules in table.values() for name in _fields(rules)
    }
    for field, values in (family.document.data.get("ignored") or {}).items():
        if field == ANY and isinstance(values, list):
            idle = said.always - read  # of what is read somewhere a family may say that it is not
            yield from (("ignored", ANY, at) for at, name in enumerate(values) if name in idle)
        elif (
            field not in (ANY, *said.always, *read) and said.valued.get(field) == family.ignored.valued[field]
        ):
            yield ("ignored", field)


def _places(family: Family, fact: str) -> Iterator[Keys]:
    """Where a family's file defines a fact."""
    data = family.document.data
    if fact in (data.get("facts") or {}):
        yield ("facts", fact)
    yield from ((ROWS, row, fact) for row, cells in (data.get(ROWS) or {}).items() if fact in cells)


class _Fact:
    """One fact of one family, with and without what that says of it."""

    def __init__(
        self,
        words: ConfigVocabulary,
        families: Mapping[str, Family],
        family: Family,
        above: Family | None,
        name: str,
    ):
        self.words, self.families, self.family, self.name = words, families, family, name
        self.said = family.facts[name]
        self.above = above.facts.get(name, ()) if above else ()
        self.general = words.facts.get(name, ())

    def follows(self) -> bool:
        """Whether every type that takes the definitions has the same without them, and who is known by names alone."""
        return bool(self.family.model_types) and all(map(self._of, self._takers()))

    def _takers(self) -> Iterator[Family]:
        """The family, and those that extend it and say nothing of the fact themselves."""
        for name, family in self.families.items():
            over = list(chain_of(self.families, name))
            first = next((one for one in over if self.name in self.families[one].facts), None)
            if self.family.name in over and first == self.family.name:
                yield family

    def _of(self, family: Family) -> bool:
        return all(self._of_type(family, kind) for kind in family.model_types) and self._by_names(family)

    def _by_names(self, family: Family) -> bool:
        """Whether the default stays where nobody says a type: a family's own goes before that of its types' classes."""
        before, after = _of(self.said, None), _of(self.above, None)
        default = _default(_speaking(before, self.general))
        known = _default(after)
        if _plain(before) == _plain(after) or default is known is UNSET:
            return True
        of_classes = known is UNSET and self.name in self.words.by_class
        if of_classes and self._default_of_classes(family) is not UNSET:
            return True
        return default == (known if known is not UNSET else _default(self.general))

    def _default_of_classes(self, family: Family) -> Any:
        own = [family.name] if family.name in family.model_types else family.model_types
        scope = _scope(None)
        for rule in self.general:
            found = [Config({}, self.words, kind).find(rule, scope)[:1] for kind in own]
            if found and all(found) and all(one[0].value == found[0][0].value for one in found):
                return found[0][0].value
        return UNSET

    def _of_type(self, family: Family, kind: str) -> bool:
        before, after = _of(self.said, kind), _of(self.above, kind)
        row = published.find(kind)
        if before and _plain(before) == _plain(after):
            words = {name.removeprefix("/").partition(".")[0] for name in _fields(before)}
            return row is None or words <= row.known
        if self.name not in self.words.by_class or family.towers:
            return False  # by its fields a type is told from others; a whole says it of its towers, too
        if row is None or not self._is_about_fields_alone((*before, *after)):
            return False
        old, new = _speaking(before, self.general), _speaking(after, self.general)
        kinds = (
            f"{row.rope} {row.fields.get('rope_parameters')}"  # of layers, where the class tells them apart
        )
        fields = [name for name in _fields((*old, *new)) if "_attention." not in name or _kind(name) in kinds]
        known = (
            _names_read(family, kind, ""),
            _names_read(family, kind, self.name if family is self.family else ""),
        )
        for count in range(3):
            for some in combinations(fields, count):
                data = _config(kind, some)
                configs = [Config(data, self.words, kind, names) for names in known]
                for tower in self._towers(kind):
                    if _answer(configs[0], old, tower) != _answer(configs[1], new, tower):
                        return False
        return True

    def _is_about_fields_alone(self, rules: Sequence[FactRule]) -> bool:
        """Whether definitions say fields and defaults, and read these as the general ones do."""
        if not rules or any(rule.silent or _is_conditioned(rule) or _is_computed(rule) for rule in rules):
            return False
        if any("*" in name for name in _fields((*rules, *self.general))):
            return False
        told = [rule for rule in (*rules, *self.general) if rule.config or rule.towers]
        if any(_is_conditioned(rule) and not rule.at for rule in told):
            return False
        ways = [(rule.map, rule.nullable, rule.per, rule.stated, rule.apart) for rule in told if not rule.at]
        return all(way == ways[0] for way in ways)

    def _towers(self, kind: str) -> list[str | None]:
        """The towers that a model of a type has by its config, and what stands outside of them."""
        config = Config({}, self.words, kind)
        own: list[str | None] = [tower for tower in self.words.towers if config.parts(tower)]
        own = (
            [*([None] if "text" in own or len(own) == 1 else []), *own] if own else [None, *self.words.towers]
        )
        return [tower for tower in _WITH_HEADS if tower in (None, *own)] if self.name == _HEADS else own


def _of(rules: Iterable[FactRule], kind: str | None) -> list[FactRule]:
    """Those for a type; for none, those for all types."""
    return [rule for rule in rules if TYPE not in rule.when or kind in rule.when[TYPE]]


def _plain(rules: Iterable[FactRule]) -> list[FactRule]:
    """Rules without where they stand and what they say to a reader."""
    return [replace(rule, file="", line=0, why="", doc="", type=None) for rule in rules]


def _is_conditioned(rule: FactRule) -> bool:
    return bool(
        rule.at
        or set(rule.when) - {TYPE}
        or rule.holds
        or rule.as_long
        or rule.square
        or rule.block
        or rule.tower
    )


def _is_computed(rule: FactRule) -> bool:
    return rule.value is not UNSET or any(getattr(rule, key) not in (None, "", ()) for key in _COMPUTED)


def _speaking(own: Sequence[FactRule], general: Sequence[FactRule]) -> list[FactRule]:
    """A family's rules, and the general ones that they leave open."""
    is_said = any(rule.is_about_fields for rule in own)
    return [*own, *(rule.without_fields if is_said and not rule.at else rule for rule in general)]


def _default(rules: Iterable[FactRule]) -> Any:
    return next((rule.default for rule in rules if rule.default is not UNSET), UNSET)


def _fields(rules: Iterable[FactRule]) -> list[str]:
    return sorted({name for rule in rules for name in (*rule.config, *chain(*rule.towers.values()))})


def _kind(field: str) -> str:
    """The kind of layers that a field is of: `rope_parameters.full_attention.rope_theta`."""
    return next(word for word in field.split(".") if word.endswith("_attention"))


def _names_read(family: Family, kind: str, but: str) -> frozenset[str]:
    """The names that a family's own rules read for just this type, but for one fact."""
    alone = family.model_types if len(family.model_types) == 1 else ()
    rules = (rule for name, rules in family.own_facts.items() if name != but for rule in rules)
    names = _fields(rule for rule in rules if kind in rule.when.get(TYPE, alone))
    return frozenset(word for name in names for word in name.removeprefix("/").split("."))


def _config(kind: str, fields: Iterable[str]) -> dict[str, Any]:
    """A config of a type with another number in each of these fields."""
    data: dict[str, Any] = {TYPE: kind}
    for number, field in enumerate(fields, 1001):
        around, *words = data, *field.removeprefix("/").split(".")
        for word in words[:-1]:
            around = around.setdefault(word, {})
        around[words[-1]] = number
    return data


def _scope(tower: str | None) -> Any:
    return SimpleNamespace(tower_name=tower, tower=None, index_of=lambda *_: None)


def _answer(config: Config, rules: Sequence[FactRule], tower: str | None) -> Any:
    """The field that speaks with its value; where none does, the default of the rules."""
    asked = (rule for rule in rules if (rule.config or rule.towers) and not rule.doubt)
    found = [
        item for rule in asked for item in config.find(rule, _scope(tower)) if not is_silent(rule, item.value)
    ]
    first = min(found, key=lambda item: bool(item.default_of), default=None)
    return (first.name, first.value, first.default_of) if first else (_default(rules),)
