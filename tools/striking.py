"""A rule set without one model type: without its row, and without whatever serves it alone.

What is left is what stood there if nobody had ever met the type: the checkpoint is then read as one of an
architecture that no family lists. What serves a type alone is what `usage.Recorder` saw no other type take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, cached_property, lru_cache, partial
from typing import Any
from unittest.mock import patch

from usage import (
    ACTIVATION,
    CONFIG,
    FACT,
    FIELD,
    FLOW,
    ROW,
    SPARED,
    TASK,
    TENSOR,
    UNUSED,
    WORD,
    Key,
    fields_of,
    row_steps,
    units,
    word_key,
)

from mapper.catalogue import published
from mapper.inference.families import TYPE
from mapper.rulebook.fact_tables import FactRules, FirstOf
from mapper.rulebook.facts import ConfigVocabulary, FactRule, TowerConfig
from mapper.rulebook.families import Family
from mapper.rulebook.index import FamilyEntry, FlowTable, SpineEntry
from mapper.rulebook.pages import Page
from mapper.rulebook.rulebook import Rulebook
from mapper.rulebook.vocabulary import Entry, VocabularyFile
from mapper.words import normal


class _Left(FactRules):
    """A table of facts, each rule of which may have lost something."""

    def __init__(self, table: FactRules, rule: Callable[[FactRule], FactRule]):
        self._table, self._rule = table, cache(lambda name: tuple(map(rule, table[name])))

    def __getitem__(self, name: str) -> tuple[FactRule, ...]:
        return self._rule(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def types(self, name: str) -> set[str]:
        return self._table.types(name)

    @cached_property
    def apart(self) -> dict[str, str]:
        return {name: rule.over for name in self._table.apart for rule in self[name] if rule.apart}


class _Entry(FamilyEntry):
    """What a family is found by, of which some types are taken."""

    __slots__ = ("_left",)

    def __init__(self, entry: FamilyEntry, types: tuple[str, ...], read: Callable[[], Family]):
        for name in FamilyEntry.__slots__:
            setattr(self, name, getattr(entry, name))
        self.model_types, self._left = types, cache(read)

    def read(self) -> Family:
        return self._left()


def _same(page: Page) -> Page:
    return page


class Struck(Rulebook):
    """A rule set without some of its entries: those of `taken`, and the rows of the types in it."""

    def __init__(self, whole: Rulebook, taken: set[Key]):
        self.__dict__.update(whole.__dict__)
        self.taken = taken
        self.types = frozenset(key[1] for key in taken if key[0] == ROW)
        self._written = row_steps(whole)
        self.flows = self._flows(whole.flows)
        self.family_entries = [kept for entry in whole.family_entries if (kept := self._entry_of(entry))]
        self.vocabulary = list(map(self._file, whole.vocabulary))
        self.config_vocabulary = self._config(whole.config_vocabulary)
        self.activations = {
            name: rule for name, rule in whole.activations.items() if (ACTIVATION, name) not in taken
        }

    # --- flows

    def _flows(self, table: FlowTable) -> FlowTable:
        """The table without flows that are taken, and without steps that are."""
        without = [name for name in table if any(map(self._is_taken, units(name)))]
        topics = {key[1].partition("/")[0] for key in self.taken if key[0] == FLOW}
        spines = {
            topic: self._spines(table, topic)
            for topic in (table.spines if topics else ())
            if any(page.topic in topics for page in table.pages(topic))
        }
        return table.but(without, spines)

    def _spines(self, table: FlowTable, topic: str) -> list[SpineEntry]:
        """The spines of a topic without steps that are taken; one that lacks all steps of a slot makes no flow."""
        pages = [page.where(lambda step: not self._is_taken(step.name)) for page in table.pages(topic)]
        return [SpineEntry(page.facts(), partial(_same, page)) for page in pages]

    def _is_taken(self, unit: str) -> bool:
        """Whether a flow or step is taken: one that stands around several slots is one step."""
        return (FLOW, self._written.get(unit, unit)) in self.taken

    # --- families

    def _entry_of(self, entry: FamilyEntry) -> FamilyEntry | None:
        """What a family is known by then; None where it lists these types alone."""
        types = self._kept(entry.model_types)
        if entry.model_types and not types:
            return None
        return _Entry(entry, types, lambda: self._family(entry.read()))

    def _family(self, family: Family) -> Family:
        """A family without what is taken."""
        by_type = {
            key: {name: value for name, value in getattr(family, key).items() if name not in self.types}
            for key in ("requires_of", "implies_of", "present_if_of")
        }
        return replace(
            family,
            **by_type,
            model_types=self._kept(family.model_types),
            towers={tower: self._tower(value) for tower, value in family.towers.items()},
            reads_as={tower: self._kept(names) for tower, names in family.reads_as.items()},
            folders={tower: self._folders(tower, words) for tower, words in family.folders.items()},
            names=self._table("roles", family.names),
            kinds=self._table("kinds", family.kinds),
            forms=self._table("forms", family.forms),
            flows={key: kept for key, names in family.flows.items() if (kept := self._named(names))},
            unused=self._unused(family.unused),
            ignored=family.ignored.where(self._is_left),
            facts=self._facts(family.facts),
        )

    def _tower(self, value: Any) -> Any:
        return (
            {name: types for name, types in value.items() if name not in self.types}
            if isinstance(value, dict)
            else value
        )

    def _kept(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in self.types)

    def _folders(self, tower: str, words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(word for word in words if (WORD, "folders", tower, normal(word)) not in self.taken)

    def _table(self, section: str, table: Mapping[str, str]) -> dict[str, str]:
        return {
            pattern: target
            for pattern, target in table.items()
            if (WORD, section, target.lstrip("/"), pattern) not in self.taken
        }

    def _named(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if self.flows.get(name) is not None)

    def _unused(self, table: Mapping[str, str]) -> dict[str, str]:
        return {pattern: why for pattern, why in table.items() if (UNUSED, why) not in self.taken}

    def _is_left(self, field: str) -> bool:
        """Whether a field of a config may still be said to change nothing."""
        return (SPARED, field) not in self.taken

    # --- facts

    def _facts(self, table: FactRules) -> FactRules:
        left = _Left(table, self._rule)
        return FirstOf((_Left(table.first, self._rule), left)) if isinstance(table, FirstOf) else left

    def _rule(self, rule: FactRule) -> FactRule:
        """The rule without fields that are taken; one that says nothing but its type where it is taken itself."""
        types = rule.when.get(TYPE, ())
        left = tuple(name for name in types if name not in self.types)
        if (FACT, id(rule)) in self.taken or (types and not left):
            return FactRule(rule.name, rule.file, rule.line, type=rule.type, doc=rule.doc)
        gone = {name for name in fields_of(rule) if (FIELD, id(rule), name) in self.taken}
        if not gone and left == types:
            return rule
        return replace(
            rule,
            when={**rule.when, TYPE: left} if types else rule.when,
            config=tuple(name for name in rule.config if name not in gone),
            towers={
                tower: tuple(name for name in names if name not in gone)
                for tower, names in rule.towers.items()
            },
        )

    # --- words

    def _file(self, file: VocabularyFile) -> VocabularyFile:
        entries = tuple(kept for entry in file.entries if (kept := self._entry(entry)))
        tensors = {
            purpose: tuple(name for name in names if (TENSOR, name) not in self.taken)
            for purpose, names in file.tensors.items()
        }
        return replace(file, entries=entries, tensors=tensors)

    def _entry(self, entry: Entry) -> Entry | None:
        names = tuple(word for word in entry.names if word_key(entry, word) not in self.taken)
        parts = tuple(word for word in entry.parts if word_key(entry, word) not in self.taken)
        if len(names) == len(entry.names) and len(parts) == len(entry.parts):
            return entry
        return replace(entry, names=names, parts=parts) if names or parts else None

    def _config(self, words: ConfigVocabulary) -> ConfigVocabulary:
        return replace(
            words,
            facts=self._facts(words.facts),
            unlisted=self._facts(words.unlisted),
            towers={
                tower: TowerConfig(tuple(name for name in said.configs if (CONFIG, name) not in self.taken))
                for tower, said in words.towers.items()
            },
            tasks={ending: task for ending, task in words.tasks.items() if (TASK, ending) not in self.taken},
            ignored=words.ignored.where(self._is_left),
            unused=self._unused(words.unused),
        )

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """The published fields of the types are unknown meanwhile, too."""
        find = published.find

        @lru_cache(maxsize=64)
        def without(key: str) -> published.Row | None:
            return None if key in self.types else find(key)

        with patch.object(published, "find", without):
            yield
