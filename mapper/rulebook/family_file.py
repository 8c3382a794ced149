"""Reading one family file: every field has one meaning, and what it may hold is checked where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import field
from itertools import chain, product
from typing import Any, TypeVar

from mapper._dataclass import dataclass
from mapper.rulebook.complete import EITHER
from mapper.rulebook.facts import ROWS, FactTable, fields_of, read_rows, types_of
from mapper.rulebook.families import Family, inherited
from mapper.rulebook.fields import Fields
from mapper.rulebook.ignored import read_ignored
from mapper.rulebook.renamed import FAMILY_PARTS as FORMER
from mapper.rulebook.strict import Document

TABLES = ("requires", "optional")  # what a row of `types:` may have besides facts
BIASES = "*.bias"  # of what must be there: the bias of each map and LayerNorm
_CHOICE = re.compile(r"\{([^{}]*,[^{}]*)\}")  # but not {root} and {n}
_Key = TypeVar("_Key")
ROLE = "role"  # the entry of roles among entries of names
_OF_NAME = ("role", "kind", "form", "unused", "has", "lacks")  # what may be said of a name
_OF_TOWER = ("any", "called", "folders")  # what may be said of a tower besides model types


@dataclass
class Needed:
    """What must be there and what may be, of a family or of one of its types."""

    requires: list[str] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)
    implies: dict[str, list[str]] = field(default_factory=dict)
    present_if: dict[str, list[str]] = field(default_factory=dict)
    present_beside: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # by field and pattern
    varies: list[str] = field(default_factory=list)
    optional: list[str] = field(default_factory=list)
    is_biased: bool = False

    def add(self, fields: Fields) -> Needed:
        """What `requires:` and `optional:` of one mapping say."""
        for at, item in enumerate(_items(fields, "requires")):
            self._require(fields, item, at)
        for row, said in fields.mapping("optional").items():
            self._leave(fields, row, said)
        return self

    def _require(self, fields: Fields, item: Any, at: int) -> None:
        if item == BIASES:
            self.is_biased = True
        elif isinstance(item, str):
            self.requires += patterns(item)
        else:
            inner = fields.inner(item, "requires", at)
            for row in inner.data:
                if row == ROLE:
                    self.roles += inner.words(row)
                    continue
                for pattern in patterns(row):
                    wanted = [name for text in inner.words(row) for name in patterns(text)]
                    self.implies.setdefault(pattern, []).extend(name for name in wanted if name != pattern)

    def _leave(self, fields: Fields, row: str, said: Any) -> None:
        if row == ROLE:
            self.varies += fields.inner(fields.data["optional"], "optional").words(row)
            return
        beside: list[str] = []
        if isinstance(said, dict):
            inner = fields.inner(said, "optional", row)
            beside = [name for text in inner.words("beside") for name in patterns(text)]
            said = inner.need("config")
            inner.done(("config", "beside"))
        if names := said if isinstance(said, list) else [said]:
            if None in names:
                self.optional += patterns(row)
            for name in names:
                if not isinstance(name, str | None):
                    fields.fail("expected a field of the config, or null", "optional", row)
                if name:
                    self.present_if.setdefault(name, []).extend(patterns(row))
                    self.present_beside |= {(name, pattern): beside for pattern in patterns(row) if beside}


def patterns(row: str) -> list[str]:
    """The patterns that a row is of: `ln_1, ln_2`, `{q,k}_proj`."""
    pieces = re.split(r",(?![^{}]*\})", row)
    return [pattern for piece in pieces for pattern in _spelled_out(piece.strip())]


def _spelled_out(piece: str) -> Iterator[str]:
    parts = _CHOICE.split(piece)
    choices = [part.split(",") if at % 2 else [part] for at, part in enumerate(parts)]
    return map("".join, product(*choices))


def read_families(documents: Iterable[Document]) -> list[Family]:
    """Every family, in the order of the files, with what it inherits filled in."""
    families: dict[str, Family] = {}
    for document in documents:
        family = read_family(document)
        if family.name in families:
            raise document.error(
                f"the family {family.name!r} is already in {families[family.name].file}", "family"
            )
        families[family.name] = family
    return [inherited(family, families) for family in families.values()]


def read_family(document: Document) -> Family:
    """One family file as it stands; RuleError with file and line."""
    fields = fields_of(document)
    if "variants" in fields.data:
        fields.fail("each is a file of its own now, which says `extends`", "variants")
    _refuse_both(fields)
    has, shapes, lacks, by_type_only = _recognise(fields)
    names, kinds, forms, unused, unused_beside, unused_without = _names(fields)
    towers, called, folders = _towers(fields)
    types, rows = read_rows(fields, (*TABLES, *FORMER))
    needed = _formerly_needed(fields, Needed().add(fields))
    of_types = _of_types(fields)
    family = Family(
        name=fields.text("family"),
        model_types=fields.words("model_types"),
        source=fields.words("source"),
        recognise=has,
        recognise_shapes=shapes,
        absent=(*lacks, *_words(fields, "absent")),
        requires=tuple(needed.requires),
        requires_roles=tuple(needed.roles),
        requires_of={name: tuple(own.requires) for name, own in of_types.items() if own.requires},
        implies=_frozen(needed.implies),
        implies_of={name: _frozen(own.implies) for name, own in of_types.items() if own.implies},
        present_if=_frozen(needed.present_if),
        present_beside=_frozen(_beside((needed, *of_types.values()))),
        present_if_of={name: _frozen(own.present_if) for name, own in of_types.items() if own.present_if},
        unbiased=_unbiased(needed.optional) if needed.is_biased else None,
        optional=tuple(needed.optional),
        towers=towers,
        reads_as=called,
        folders=folders,
        varies=tuple(needed.varies),
        by_type_only=by_type_only or ("extends" in fields.data and not has),
        names=names,
        kinds=kinds,
        forms=forms,
        flows=_lists(fields, "flows"),
        facts=FactTable(fields, "facts", rows),
        types=types,
        unused=unused,
        unused_beside=unused_beside,
        unused_without=unused_without,
        ignored=read_ignored(fields),
        document=document,
        file=document.label,
        line=fields.line("family"),
        extends=fields.any("extends"),
    )
    fields.sequence("examples")
    fields.done()
    if not family.recognise and not family.extends:
        fields.fail("the field 'recognise' is missing")
    return family


def _recognise(fields: Fields) -> tuple[tuple[str, ...], dict[str, tuple[Any, ...]], tuple[str, ...], bool]:
    """A list of patterns, or `has` with it, `lacks` and `by_type_only`."""
    by_type_only = fields.flag("by_type_only") if "by_type_only" in fields.data else False
    said = fields.any("recognise", [])
    if not isinstance(said, dict):
        return (*_patterns(fields, "recognise"), (), by_type_only)
    inner = fields.inner(said, "recognise")
    found = _patterns(inner, "has")
    lacks = tuple(name for row in inner.words("lacks") for name in patterns(row))
    only = inner.flag("by_type_only")
    inner.done()
    return (*found, lacks, only)


def _patterns(fields: Fields, key: str) -> tuple[tuple[str, ...], dict[str, tuple[Any, ...]]]:
    found: list[str] = []
    shapes: dict[str, tuple[Any, ...]] = {}
    for at, item in enumerate(fields.sequence(key)):
        if isinstance(item, str):
            found += patterns(item) if EITHER not in item else [item]
            continue
        inner = fields.inner(item, key, at)
        for pattern in inner.data:
            found.append(pattern)
            shapes[pattern] = tuple(inner.sequence(pattern))
    return tuple(found), shapes


_Texts = dict[str, str]


def _names(
    fields: Fields,
) -> tuple[_Texts, _Texts, _Texts, _Texts, dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Roles, kinds, forms, why what is not read, beside what and without what it is not: each by pattern.

    `pattern: role`, or a mapping of what there is to say of it; `ln_1, ln_2` has what is said of several.
    """
    roles: _Texts = {}
    kinds, forms = _texts(fields, "kinds"), _texts(fields, "forms")
    forms |= dict.fromkeys(_words(fields, "transposed"), "transposed")
    unused, beside = _unused(fields)
    without: dict[str, tuple[str, ...]] = {}
    for row, said in fields.mapping("names").items():
        if isinstance(said, str):
            roles |= dict.fromkeys(patterns(row), said)
            continue
        inner = fields.inner(said, "names", row)
        tables = (("role", roles), ("kind", kinds), ("form", forms), ("unused", unused))
        for key, table in tables:
            if key in inner.data:
                table |= dict.fromkeys(patterns(row), inner.text(key))
        for key, where in (("has", beside), ("lacks", without)):
            if key in inner.data:
                where |= dict.fromkeys(patterns(row), inner.words(key))
        inner.done(_OF_NAME)
    return roles, kinds, forms, unused, beside, without


def _unused(fields: Fields) -> tuple[_Texts, dict[str, tuple[str, ...]]]:
    """As files of before have it: `pattern: why`, or `pattern: {why: .., has: [..]}`."""
    reasons: _Texts = {}
    beside: dict[str, tuple[str, ...]] = {}
    for pattern, value in (fields.mapping("unused") if "unused" in fields.data else {}).items():
        if isinstance(value, str):
            reasons[pattern] = value
            continue
        inner = fields.inner(value, "unused", pattern)
        reasons[pattern] = inner.text("why")
        beside[pattern] = inner.words("has")
        inner.done()
    return reasons, beside


def _towers(
    fields: Fields,
) -> tuple[dict[str, Any], dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """What reads each tower, types that configs give it, and names of its folders.

    `text: llama`, a list, tried in order, or a mapping: `{qwen2_vl: qwen2_vl_vision, ...}` by the type of the whole,
    `any` of which the others are none, `called` and `folders`.
    """
    towers: dict[str, Any] = {}
    called, folders = _lists(fields, "reads_as", True), _lists(fields, "folders", True)
    for tower, value in fields.mapping("towers").items():
        if isinstance(value, dict):
            inner = fields.inner(value, "towers", tower)
            for key, table in (("called", called), ("folders", folders)):
                if key in value:
                    table[tower] = inner.words(key)
            value = value.get("any", {key: item for key, item in value.items() if key not in _OF_TOWER})
        types = value.values() if isinstance(value, dict) else [value]
        named = [item for each in types for item in (each if isinstance(each, list) else [each])]
        if not all(isinstance(item, str) for item in named):
            fields.fail("expected a model_type, or one for each model_type of the whole", "towers", tower)
        if value:
            towers[tower] = value
    return towers, called, folders


def _of_types(fields: Fields) -> dict[str, Needed]:
    """Model type -> what must be there and may be there of its rows."""
    found: dict[str, Needed] = {}
    for row, said in fields.mapping(ROWS).items():
        inner = fields.inner(said, ROWS, row)
        if any(key in inner.data for key in (*TABLES, *FORMER)):
            for name in types_of(row):
                _formerly_needed(inner, found.setdefault(name, Needed()).add(inner))
    return found


# ------------------------------------------------------------------------------------- files of before
def _refuse_both(fields: Fields) -> None:
    """A mistake where a field of before stands beside the list that is a mapping now."""
    if isinstance(fields.data.get("recognise"), dict):
        for key in ("absent", "by_type_only"):
            if key in fields.data:
                fields.fail(f"say it under recognise: {FORMER[key]}", key)


def _formerly_needed(fields: Fields, needed: Needed) -> Needed:
    for pattern, others in _lists(fields, "implies", True).items():
        needed.implies.setdefault(pattern, []).extend(others)
    for name, found in _lists(fields, "present_if", True).items():
        needed.present_if.setdefault(name, []).extend(found)
    needed.roles += _words(fields, "requires_roles")
    needed.varies += _words(fields, "varies")
    if "unbiased" in fields.data:
        needed.is_biased = True
        needed.optional += [f"{pattern}.bias" for pattern in _words(fields, "unbiased")]
    return needed


# -------------------------------------------------------------------------------------------- parts
def _items(fields: Fields, key: str) -> list[Any]:
    """A list of texts and mappings; one text stands for a list of one, lists by name for all that they have."""
    value = fields.any(key, [])
    if isinstance(value, dict):  # as rows of before have it
        return list(chain(*fields.choices(key).values()))
    return fields.sequence(key) if isinstance(value, list) else [value]


def _words(fields: Fields, key: str) -> tuple[str, ...]:
    return fields.words(key) if key in fields.data else ()


def _texts(fields: Fields, key: str) -> _Texts:
    found = fields.mapping(key) if key in fields.data else {}
    for name, value in found.items():
        if not isinstance(value, str):
            fields.fail("expected text", key, name)
    return found


def _lists(fields: Fields, key: str, only_if_there: bool = False) -> dict[str, tuple[str, ...]]:
    """Name -> texts (of `flows`, tried in order); one text stands for a list of one."""
    if only_if_there and key not in fields.data:
        return {}
    found = fields.choices(key)
    for name, items in found.items():
        if not items or not all(isinstance(item, str) for item in items):
            fields.fail("expected a text, or a list of texts", key, name)
    return found


def _beside(every: Iterable[Needed]) -> dict[tuple[str, str], list[str]]:
    return {key: names for needed in every for key, names in needed.present_beside.items()}


def _unbiased(optional: list[str]) -> tuple[str, ...]:
    """Whose biases may be missing."""
    return tuple(pattern.removesuffix(".bias") for pattern in optional if pattern.endswith(".bias"))


def _frozen(table: dict[_Key, list[str]]) -> dict[_Key, tuple[str, ...]]:
    return {key: tuple(dict.fromkeys(items)) for key, items in table.items()}
