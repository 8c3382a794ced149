"""Family files: one architecture family, by which names it is known, and what no tensor shows about it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from mapper.errors import RuleError
from mapper.rulebook.facts import FactRule, FactTable, fields_of
from mapper.rulebook.fields import Fields
from mapper.rulebook.strict import Document


@dataclass(frozen=True)
class Example:
    """One checkpoint header in a rule file, and what must be read from it."""

    name: str
    tensors: dict[str, Any]  # name with brace lists -> shape
    config: dict[str, Any] | None
    expect: dict[str, Any]
    file: str
    line: int


@dataclass(frozen=True)
class Family:
    """What one rule file says about an architecture family."""

    name: str
    model_types: tuple[str, ...]
    source: tuple[str, ...]
    recognise: tuple[str, ...]  # patterns over names, all of which must occur
    recognise_shapes: dict[str, tuple[Any, ...]]  # pattern -> extents; null is any
    absent: tuple[str, ...]  # patterns none of which may occur
    requires: tuple[str, ...]  # patterns without which a checkpoint of the family is incomplete
    requires_of: dict[str, tuple[str, ...]]  # model_type -> patterns without which one of that type is
    requires_roles: tuple[str, ...]  # "tower.final_norm": block and role, for what has no name of its own
    brings: dict[str, tuple[str, ...]]  # pattern -> patterns that must occur where it does
    brings_of: dict[str, dict[str, tuple[str, ...]]]  # model_type -> the same for one of that type
    promises: dict[
        str, tuple[str, ...]
    ]  # field of the config -> patterns that occur where it is true, and only there
    promises_of: dict[
        str, dict[str, tuple[str, ...]]
    ]  # model_type -> the same, where it differs for that type
    unbiased: (
        tuple[str, ...] | None
    )  # patterns of what has no bias, where all other maps and LayerNorms have one
    towers: dict[
        str, Any
    ]  # tower -> its model_type (or several, the first that fits) where its own config names none, or that by the type of the whole
    reads_as: dict[
        str, tuple[str, ...]
    ]  # tower -> types that its configs give it and no family lists: `towers:` reads them
    folders: dict[str, tuple[str, ...]]  # tower -> names of folders that are its own here
    varies: tuple[str, ...]  # roles that some layers have and others, of the same flow, have not
    by_type_only: bool  # its names do not tell it from another family: never chosen without its model_type
    names: dict[str, str]  # pattern -> role path
    kinds: dict[str, str]  # pattern -> leaf kind
    transposed: tuple[str, ...]  # patterns of weights stored [in, out]
    forms: dict[str, str]  # pattern -> form of a leaf ("offset")
    flows: dict[str, tuple[str, ...]]  # role path, role or kind -> flows, tried in order
    facts: Mapping[str, tuple[FactRule, ...]]
    unused: dict[str, str]  # pattern -> why no forward reads it
    unused_beside: dict[str, tuple[str, ...]]  # pattern -> names without which it is read after all
    irrelevant: tuple[str, ...]  # fields of its config that change nothing here
    harmless: dict[str, tuple[Any, ...]]
    document: Document = field(repr=False)
    file: str
    line: int = 1
    extends: str | None = None
    variants: tuple[Family, ...] = ()  # types of the same file that differ from the others in names too

    @property
    def own_facts(self) -> Mapping[str, tuple[FactRule, ...]]:
        """What its own entries say, without those of families that it extends."""
        return self.facts.maps[0] if isinstance(self.facts, ChainMap) else self.facts

    @cached_property
    def examples(self) -> tuple[Example, ...]:
        """Read when first asked for: only checks need them."""
        fields = fields_of(self.document.whole())
        every = enumerate(fields.sequence("examples"))
        return tuple(
            _example(fields, at, item) for at, item in every if _whose(fields, at, item) == self.name
        )


def read_families(documents: Iterable[Document]) -> list[Family]:
    """Every family, in the order of the files, with what it inherits filled in."""
    families: dict[str, Family] = {}
    for document in documents:
        first = read_family(document)
        for family in (first, *first.variants):
            if family.name in families:
                where = ("family",) if family is first else ("variants", family.name)
                raise document.error(
                    f"the family {family.name!r} is already in {families[family.name].file}", *where
                )
            families[family.name] = family
    return [_inherited(family, families) for family in families.values()]


def read_family(document: Document) -> Family:
    """One family file as it stands; RuleError with file and line."""
    fields = fields_of(document)
    family = _family(fields, fields.text("family"), document, fields.line("family"))
    said = fields.mapping("variants")
    fields.sequence("examples")
    fields.done()
    if not family.recognise and not family.extends:
        fields.fail("the field 'recognise' is missing")
    return replace(family, variants=tuple(_variant(fields, name, said[name], family) for name in said))


def _variant(fields: Fields, name: str, said: Any, family: Family) -> Family:
    """What of a file holds for some of its types alone: a family that extends that of the file."""
    inner = fields.inner(said, "variants", name)
    if "extends" in inner.data:
        inner.fail(f"it already extends {family.name!r}, the family of its file", "extends")
    variant = _family(inner, name, family.document, inner.line(), family.name)
    inner.done()
    return variant


def _family(fields: Fields, name: str, document: Document, line: int, extends: str | None = None) -> Family:
    recognise, shapes = _recognise(fields)
    unused, unused_beside = _unused(fields)
    return Family(
        name=name,
        model_types=fields.words("model_types"),
        source=fields.words("source"),
        recognise=recognise,
        recognise_shapes=shapes,
        absent=fields.words("absent"),
        requires=fields.words("requires"),
        requires_roles=fields.words("requires_roles"),
        requires_of=_lists(fields, "requires_of"),
        brings=_lists(fields, "brings"),
        brings_of=_by_type(fields, "brings_of"),
        promises=_lists(fields, "promises"),
        promises_of=_by_type(fields, "promises_of"),
        unbiased=fields.words("unbiased") if "unbiased" in fields.data else None,
        towers=_towers(fields),
        reads_as=_lists(fields, "reads_as"),
        folders=_lists(fields, "folders"),
        varies=fields.words("varies"),
        by_type_only=fields.flag("by_type_only"),
        names=_texts(fields, "names"),
        kinds=_texts(fields, "kinds"),
        transposed=fields.words("transposed"),
        forms=_texts(fields, "forms"),
        flows=_lists(fields, "flows"),
        facts=FactTable(fields, "facts"),
        unused=unused,
        unused_beside=unused_beside,
        irrelevant=fields.words("irrelevant"),
        harmless=fields.choices("harmless"),
        document=document,
        file=document.label,
        line=line,
        extends=extends or fields.any("extends"),
    )


def _recognise(fields: Fields) -> tuple[tuple[str, ...], dict[str, tuple[Any, ...]]]:
    patterns: list[str] = []
    shapes: dict[str, tuple[Any, ...]] = {}
    for at, item in enumerate(fields.sequence("recognise")):
        if isinstance(item, str):
            patterns.append(item)
            continue
        inner = fields.inner(item, "recognise", at)
        for pattern in inner.data:
            patterns.append(pattern)
            shapes[pattern] = tuple(inner.sequence(pattern))
    return tuple(patterns), shapes


def _unused(fields: Fields) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """`pattern: why`, or `pattern: {why: .., has: [..]}` where it is unused only beside other names."""
    reasons: dict[str, str] = {}
    beside: dict[str, tuple[str, ...]] = {}
    for pattern, value in fields.mapping("unused").items():
        if isinstance(value, str):
            reasons[pattern] = value
            continue
        inner = fields.inner(value, "unused", pattern)
        reasons[pattern] = inner.text("why")
        beside[pattern] = inner.words("has")
        inner.done()
    return reasons, beside


def _towers(fields: Fields) -> dict[str, Any]:
    """`text: llama`, `vision: {qwen2_vl: qwen2_vl_vision, ...}`, or a list, tried in order, for either type."""
    towers: dict[str, Any] = {}
    for tower, value in fields.mapping("towers").items():
        types = value.values() if isinstance(value, dict) else [value]
        named = [item for each in types for item in (each if isinstance(each, list) else [each])]
        if not all(isinstance(item, str) for item in named):
            fields.fail("expected a model_type, or one for each model_type of the whole", "towers", tower)
        towers[tower] = value
    return towers


def _texts(fields: Fields, key: str) -> dict[str, str]:
    found = fields.mapping(key)
    for name, value in found.items():
        if not isinstance(value, str):
            fields.fail("expected text", key, name)
    return found


def _lists(fields: Fields, key: str) -> dict[str, tuple[str, ...]]:
    """Name -> texts (of `flows`, tried in order); one text stands for a list of one."""
    found = fields.choices(key)
    for name, items in found.items():
        if not items or not all(isinstance(item, str) for item in items):
            fields.fail("expected a text, or a list of texts", key, name)
    return found


def _by_type(fields: Fields, key: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """Model type -> such a table."""
    types = fields.mapping(key)
    inner = fields.inner(types, key)
    found = {name: _lists(inner, name) for name in types}
    inner.done()
    return found


def _whose(fields: Fields, at: int, item: Any) -> str:
    """The name of the family, or of the variant in its file, that an example is of."""
    inner, first = fields.inner(item, "examples", at), fields.text("family")
    name = inner.text("of", first)
    known = (first, *fields.mapping("variants"))
    if name not in known:
        inner.fail(f"{name!r} is no variant here; there are {', '.join(known)}", "of")
    return name


def _example(fields: Fields, at: int, item: Any) -> Example:
    inner = fields.inner(item, "examples", at)
    inner.any("of")
    config = inner.any("config")
    if config is not None and not isinstance(config, dict):
        inner.fail("expected a mapping", "config")
    example = Example(
        name=inner.text("name"),
        tensors=inner.mapping("tensors"),
        config=config,
        expect=inner.mapping("expect"),
        file=fields.file,
        line=inner.line(),
    )
    inner.done()
    return example


def _inherited(family: Family, families: dict[str, Family], seen: tuple[str, ...] = ()) -> Family:
    """The family with the tables of those it extends; its own entries come first and win."""
    if family.extends is None:
        return family
    if family.extends in (*seen, family.name):
        raise RuleError(f"{family.file}:{family.line}: {family.name!r} extends itself")
    base = families.get(family.extends)
    if base is None:
        close = get_close_matches(family.extends, families, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise RuleError(f"{family.file}:{family.line}: there is no family {family.extends!r} to extend{hint}")
    base = _inherited(base, families, (*seen, family.name))
    changes: dict[str, Any] = {
        key: {**getattr(family, key), **_without(getattr(base, key), getattr(family, key))}
        for key in (
            "brings",
            "brings_of",
            "promises_of",
            "requires_of",
            "towers",
            "reads_as",
            "folders",
            "promises",
            "names",
            "kinds",
            "forms",
            "flows",
            "unused",
            "unused_beside",
            "harmless",
        )
    }
    for key in ("transposed", "irrelevant", "requires", "varies"):
        changes[key] = tuple(dict.fromkeys((*getattr(family, key), *getattr(base, key))))
    if not family.recognise:
        changes |= {
            "recognise": base.recognise,
            "recognise_shapes": base.recognise_shapes,
            "absent": base.absent,
        }
    return replace(family, facts=ChainMap(family.facts, base.facts), **changes)  # type: ignore[arg-type]


def _without(table: dict[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in keys}
