"""What a reading takes from the rules: flows, words, facts, fields of configs, rows of families.

Everything that a rule set says is a thing with a key: a tuple whose first entry is its kind. `Recorder` notes which
things the readings of which model types take; `tools/striking.py` takes out what serves one type alone, and
`tools/sharing.py` counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any
from unittest.mock import patch

from mapper.architecture import Architecture
from mapper.inference import outline
from mapper.inference.evidence import Known
from mapper.inference.facts import Facts
from mapper.inference.scopes import Scope
from mapper.naming.vocabulary import ANY, Match, Spot, Vocabulary, last_word, pattern_words
from mapper.rulebook.facts import FactRule
from mapper.rulebook.rulebook import Rulebook
from mapper.rulebook.vocabulary import Entry
from mapper.words import normal, parts

Key = tuple[Any, ...]
FLOW, WORD, UNUSED, FACT, FIELD = "flow", "word", "unused", "fact", "field"
ACTIVATION, TASK, CONFIG, SPARED, TENSOR, ROW = (
    "activation",
    "task",
    "config part",
    "spared field",
    "tensor",
    "row",
)
TYPE_FIELDS = ("model_type", "architecture")


def units(flow: str) -> list[str]:
    """What a flow's name says it is made of: itself, or of `attention/separate+rotary` the two steps of attention."""
    topic, _, steps = flow.partition("/")
    return [f"{topic}/{step}" for step in steps.split("+")]


def used_units(architecture: Architecture) -> set[str]:
    """The flows and steps of an architecture's blocks."""
    blocks = (architecture.root, *architecture.root.blocks())
    return {unit for block in blocks if block.flow for unit in units(block.flow)}


def row_steps(rulebook: Rulebook) -> dict[str, str]:
    """The steps that stand around several slots, `layer/pre_norm_attention`: what each is written as, once for all."""
    pages = (page for topic in rulebook.flows.spines for page in rulebook.flows.pages(topic))
    slots = (slot for page in pages for slot in page.slots if slot.around)
    return {step.name: step.name.removesuffix(f"_{slot.around}") for slot in slots for step in slot.steps}


def types_in(config: Any) -> set[str]:
    """Every model type that a config names, at its top and in its parts."""
    if isinstance(config, list):
        return set().union(*map(types_in, config))
    if not isinstance(config, Mapping):
        return set()
    own = {value for key in TYPE_FIELDS if isinstance(value := config.get(key), str)}
    return own.union(*map(types_in, config.values()))


def fields_in(config: Any) -> set[str]:
    """Every field that a config has, at its top and in its parts."""
    if not isinstance(config, Mapping):
        return set()
    return set(config).union(*map(fields_in, config.values()))


def word_key(entry: Entry, word: str) -> Key:
    """The key of one pattern, or part of a word, of an entry; families' entries are told by what they say."""
    if entry.document is None:
        return (WORD, entry.section, entry.target, word)
    return (WORD, entry.document.label, *entry.keys, word)


class Recorder:
    """Notes what readings take, and for which model types."""

    def __init__(self, rulebook: Rulebook):
        self.rulebook = rulebook
        self.users: dict[Key, set[str]] = defaultdict(set)
        self.labels: dict[Key, str] = {}  # how to print a key that does not say it itself
        self._known = set(_plain_keys(rulebook))
        self._written = row_steps(rulebook)
        self._now: set[Key] = set()
        self._seen: set[tuple[Any, ...]] = set()

    def alone(self, model_type: str) -> set[Key]:
        """What no other type takes."""
        return {key for key, users in self.users.items() if users == {model_type}}

    def label(self, key: Key) -> str:
        return self.labels.get(key) or f"{key[0]} {' '.join(map(str, key[1:]))}"

    @contextmanager
    def reading(self) -> Iterator[set[Key]]:
        """Notes what is read meanwhile."""
        self._now, self._seen = set(), set()
        matches, tower, get = Vocabulary.matches, Vocabulary.tower, Facts.get
        why_unused = outline.why_unused

        def watched_matches(
            vocabulary: Vocabulary, section: str, spot: Spot, kind: str | None = None
        ) -> Iterator[Match]:
            for match in matches(vocabulary, section, spot, kind):
                try:
                    yield match
                except GeneratorExit:  # whoever asked stopped here: this is the one that was taken
                    self._now.update(word_key(match.entry, word) for word in _words(match, spot.words))
                    raise

        def watched_tower(vocabulary: Vocabulary, words: Any) -> str | None:
            found = tower(vocabulary, words)
            if found is not None:
                self._now.update(_tower_keys(vocabulary, words))
            return found

        def watched_get(facts: Facts, scope: Scope, name: str) -> Known | None:
            known = get(facts, scope, name)
            if known is not None and known.rule:
                self._fact(facts, scope, name, known)
            return known

        def watched_unused(leaf: Any, vocabulary: Vocabulary) -> str:
            why = why_unused(leaf, vocabulary)
            if why:
                self._now.add((UNUSED, why))
            return why

        with ExitStack() as stack:
            for where, what, watched in (
                (Vocabulary, "matches", watched_matches),
                (Vocabulary, "tower", watched_tower),
                (Facts, "get", watched_get),
                (outline, "why_unused", watched_unused),
            ):
                stack.enter_context(patch.object(where, what, watched))
            yield self._now

    def note(self, model_type: str, architecture: Architecture, taken: Iterable[Key]) -> None:
        """Note what a complete reading took."""
        config = architecture.checkpoint.config or {}
        words = {str(fact.value) for fact in architecture.facts if isinstance(fact.value, str)}
        tensors = {name for leaf in architecture.leaves for name in leaf.tensors}
        plain = {(ACTIVATION, word) for word in words} | {(TENSOR, name) for name in tensors}
        plain |= {(kind, name) for name in fields_in(config) for kind in (SPARED, CONFIG)}
        plain |= {(TASK, ending) for ending in self._tasks(config)}
        rows = {(ROW, name) for name in self._rows(architecture)}
        flows = {(FLOW, self._written.get(unit, unit)) for unit in used_units(architecture)}
        for key in {*taken, *flows, *rows, *(plain & self._known)}:
            self.users[key].add(model_type)

    def _rows(self, architecture: Architecture) -> set[str]:
        """The types that are read: those that the config names, and of towers without a name those of their family."""
        named = types_in(architecture.checkpoint.config)
        families = {family.name: family for family in self.rulebook.families}
        towers = (families[name].model_types for name in architecture.towers.values())
        return named.union(*(types for types in towers if not named.intersection(types)))

    def _tasks(self, config: Mapping[str, Any]) -> list[str]:
        names = config.get("architectures") or []
        return [
            ending
            for ending in self.rulebook.config_vocabulary.tasks
            if any(isinstance(name, str) and name.endswith(ending) for name in names)
        ]

    def _fact(self, facts: Facts, scope: Scope, name: str, known: Known) -> None:
        """Note the rule behind a value, and the field of the config that it looked at."""
        seen = (name, known.rule, id(known.by), known.source)
        if seen in self._seen:
            return
        self._seen.add(seen)
        field = known.source.partition(",")[0].partition("[")[0]
        for rule in facts.speaking.every(scope, name):
            if rule.place != known.rule or (known.by is not None and not _same(rule, known.by)):
                continue
            aliases = [alias for alias in fields_of(rule) if _is_field(field, alias)]
            if known.by is None and not aliases:
                continue
            self._add((FACT, id(rule)), f"fact {name} ({rule.place})")
            for alias in aliases if known.by is None else ():
                self._add((FIELD, id(rule), alias), f"field {alias} of {name} ({rule.place})")

    def _add(self, key: Key, label: str) -> None:
        self.labels[key] = label
        self._now.add(key)


def _plain_keys(rulebook: Rulebook) -> Iterator[Key]:
    """The keys of what rules say in single words."""
    config = rulebook.config_vocabulary
    every = (config.ignored, *(family.ignored for family in rulebook.families))
    yield from ((SPARED, name) for ignored in every for name in ignored.fields())
    yield from ((CONFIG, name) for tower in config.towers.values() for name in tower.configs)
    yield from ((TASK, ending) for ending in config.tasks)
    yield from ((ACTIVATION, name) for name in rulebook.activations)
    yield from (
        (TENSOR, name) for file in rulebook.vocabulary for names in file.tensors.values() for name in names
    )


def fields_of(rule: FactRule) -> list[str]:
    """The fields of a config that a rule looks at."""
    return [*rule.config, *(name for names in rule.towers.values() for name in names)]


def _is_field(field: str, alias: str) -> bool:
    alias = alias.removeprefix("/")
    return fnmatchcase(field.rpartition(".")[2], alias) or field == alias or field.endswith(f".{alias}")


def _same(rule: FactRule, other: FactRule) -> bool:
    """Whether two are one rule, without the fields that a family may have silenced."""
    return rule is other or replace(rule, config=(), towers={}) == replace(other, config=(), towers={})


def _words(match: Match, words: Any) -> list[str]:
    """The patterns of an entry, or parts of words, by which it fits."""
    entry = match.entry
    if match.length < 0:
        return [ANY]
    if match.length == 0:
        return [part for part in entry.parts if part in parts(last_word(words))]
    long = [name for name in entry.names if len(pattern_words(name)) == match.length]
    end = words[len(words) - match.length :]
    return [name for name in long if all(map(_agrees, end, pattern_words(name)))]


def _agrees(word: Any, wanted: str) -> bool:
    return word == wanted if isinstance(word, str) else wanted == "{n}" or wanted.isdigit()


def _tower_keys(vocabulary: Vocabulary, words: Any) -> Iterator[Key]:
    plain = [normal(word) if isinstance(word, str) else word for word in words]
    if plain[-1] in vocabulary.folders:
        yield (WORD, "folders", vocabulary.folders[plain[-1]], plain[-1])
    elif match := next(iter(vocabulary.tries["towers"].matches(plain)), None):
        yield from (word_key(match.entry, part) for part in _words(match, plain))
