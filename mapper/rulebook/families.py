"""Family files: one architecture family, by which names it is known, and what no tensor shows about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mapper._dataclass import dataclass
from mapper.errors import RuleError
from mapper.rulebook.complete import Made, made_of
from mapper.rulebook.fact_tables import FactRules, FirstOf
from mapper.rulebook.facts import TYPE
from mapper.rulebook.ignored import Ignored
from mapper.rulebook.signs import Signs
from mapper.rulebook.strict import Document
from mapper.words import close_to

if TYPE_CHECKING:
    from mapper.rulebook.examples import Example

TRANSPOSED = "transposed"  # the form of a map whose weight is stored [in, out]


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
    implies: dict[str, tuple[str, ...]]  # pattern -> patterns that must occur where it does
    implies_of: dict[str, dict[str, tuple[str, ...]]]  # model_type -> the same for one of that type
    present_if: dict[
        str, tuple[str, ...]
    ]  # field of the config -> patterns that occur where it is true, and only there (`field=word`: where that is its value)
    present_if_of: dict[
        str, dict[str, tuple[str, ...]]
    ]  # model_type -> the same, where it differs for that type
    # field of the config and pattern -> patterns without which it does not say that it is there
    present_beside: dict[tuple[str, str], tuple[str, ...]]
    unbiased: (
        tuple[str, ...] | None
    )  # patterns of what has no bias, where all other maps and LayerNorms have one
    optional: tuple[str, ...]  # patterns of what its examples have and a checkpoint may lack
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
    forms: dict[str, str]  # pattern -> form of a leaf ("offset"; "transposed": stored [in, out])
    flows: dict[str, tuple[str, ...]]  # role path, role or kind -> flows, tried in order
    facts: FactRules
    types: tuple[str, ...]  # model types that have a row of facts
    unused: dict[str, str]  # pattern -> why no forward reads it
    unused_beside: dict[str, tuple[str, ...]]  # pattern -> names without which it is read after all
    unused_without: dict[str, tuple[str, ...]]  # pattern -> names beside which it is read after all
    ignored: Ignored  # fields of its config that change nothing here
    document: Document = field(repr=False)
    file: str
    line: int = 1
    extends: str | None = None

    @property
    def own_facts(self) -> FactRules:
        """What its own entries say, without those of families that it extends."""
        return self.facts.first if isinstance(self.facts, FirstOf) else self.facts

    @property
    def transposed(self) -> tuple[str, ...]:
        """Patterns of weights stored [in, out]."""
        return tuple(pattern for pattern, form in self.forms.items() if form == TRANSPOSED)

    @cached_property
    def signs(self) -> Signs:
        """By which names it is known."""
        return Signs(self.recognise, self.recognise_shapes, self.absent)

    def read(self) -> Family:
        """Itself: what an entry of the index gives."""
        return self

    @cached_property
    def own_examples(self) -> tuple[Example, ...]:
        """Those in its file."""
        from mapper.rulebook.examples import read_examples

        return tuple(read_examples(self.document.whole(), self.document))

    @cached_property
    def examples(self) -> tuple[Example, ...]:
        """These and those in the file beside it. Read when first asked for: only checks need them."""
        from mapper.rulebook.examples import beside, read_examples

        other = beside(self.document)
        return (*self.own_examples, *(read_examples(other, self.document) if other else ()))

    @cached_property
    def complete(self) -> Made:
        """What is in each folder of its examples."""
        return Made(*self.document.made) if self.document.made is not None else made([self])


def made(families: Iterable[Family]) -> Made:
    """What the complete examples of families with the same names have in common.

    Nothing where they cannot be read, which checks say.
    """
    from mapper.rulebook.examples import header, is_near_miss

    alike = list(families)
    try:
        own = [example for family in alike for example in family.examples if not is_near_miss(example)]
        complete = [header(example) for example in own if example.expect.get("reading") == "exact"]
    except RuleError:
        complete = []
    named = ((str((item.config or {}).get("model_type", "")), item.tensors) for item in complete)
    return made_of(named, alike[0].recognise)


def alike(families: Iterable[Family]) -> list[list[Family]]:
    """Families together that are known by the same names: one, and those that extend it and say no others."""
    known = {family.name: family for family in families}
    found: dict[str, list[Family]] = {}
    for family in known.values():
        first = family
        while first.extends in known and "recognise" not in first.document.data:
            first = known[first.extends]
        found.setdefault(first.name, []).append(family)
    return list(found.values())


# What a family has beside that of the family which it extends: tables, in which its own entries win, and lists.
_TABLES = (
    "implies",
    "implies_of",
    "present_if_of",
    "present_beside",
    "requires_of",
    "towers",
    "reads_as",
    "folders",
    "names",
    "kinds",
    "forms",
    "flows",
    "unused",
    "unused_beside",
    "unused_without",
)
_LISTS = ("requires", "varies", "optional")


def inherited(family: Family, families: Mapping[str, Family], seen: tuple[str, ...] = ()) -> Family:
    """The family with the tables of those it extends; its own entries come first and win."""
    if family.extends is None:
        return family
    if family.extends in (*seen, family.name):
        raise RuleError(f"{family.file}:{family.line}: {family.name!r} extends itself")
    base = inherited(_extended(family, families), families, (*seen, family.name))
    changes: dict[str, Any] = {
        key: {**getattr(family, key), **_without(getattr(base, key), getattr(family, key))} for key in _TABLES
    }
    for key in _LISTS:
        changes[key] = tuple(dict.fromkeys((*getattr(family, key), *getattr(base, key))))
    changes["present_if"] = {**_promised_still(base.present_if, family.optional), **family.present_if}
    changes["ignored"] = base.ignored.beside(family.ignored)
    if not family.recognise:
        changes |= {
            "recognise": base.recognise,
            "recognise_shapes": base.recognise_shapes,
            "absent": base.absent,
        }
    return replace(family, facts=FirstOf((family.facts, base.facts)), **changes)


def _extended(family: Family, families: Mapping[str, Family]) -> Family:
    """The family that one extends. Raises RuleError where there is none of that name."""
    name = str(family.extends)
    if name in families:
        return families[name]
    close = close_to(name, families)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise RuleError(f"{family.file}:{family.line}: there is no family {name!r} to extend{hint}")


def _promised_still(table: dict[str, tuple[str, ...]], optional: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What fields of the config say is there, but for what the extending family leaves to be there or not."""
    left = {field: tuple(name for name in names if name not in optional) for field, names in table.items()}
    return {field: names for field, names in left.items() if names}


def _without(table: dict[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in keys}


def field_of(condition: str) -> str:
    """The field of a config that `field` or `field=word` is about."""
    return condition.partition("=")[0]


def fields_of_type(family: Family, model_type: str) -> Iterator[tuple[str, ...]]:
    """The fields of a config by which a family knows facts of one of its types, or what tensors it has."""
    present_if = {**family.present_if, **family.present_if_of.get(model_type, {})}
    yield from ((field_of(name),) for name in present_if)
    for rules in family.facts.values():
        for rule in rules:
            if rule.config and model_type in rule.when.get(TYPE, (model_type,)):
                yield rule.config
