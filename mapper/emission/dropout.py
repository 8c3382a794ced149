"""The option `train`: where the published code drops something, by `rules/dropout`, and at what rate, by the config.

A rate is a fact of the blocks that have its sites, called as the config's field; `training` writes the calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from mapper.architecture import Architecture, Block, Drop, Dropout, Fact
from mapper.errors import ArchitectureError
from mapper.inference.config import Config
from mapper.inference.scopes import Scope, scopes
from mapper.rulebook.dropout import DropoutRule, Site, dropout_rules
from mapper.rulebook.dropout import Place as Rates

MARK = "drop"  # what the names of all such fields have in common


def with_dropout(architecture: Architecture) -> Architecture:
    """The architecture whose blocks hold rates among their facts, and what they drop.

    Raises ArchitectureError where the config has rates and no rule a place for any.
    """
    if architecture.dropout is not None or architecture.reading == "skeleton":
        return architecture
    config = Config(_data(architecture), architecture.rulebook.config_vocabulary)
    copied = replace(architecture, root=_copied(architecture.root))
    planner = _Planner(config, dropout_rules(architecture.rulebook), copied)
    planner.run()
    if planner.made.left and not planner.made.written:
        raise ArchitectureError(
            f"{architecture.checkpoint.source}: no rule says where its dropout stands ({'; '.join(planner.made.left)}); "
            "leave --train out, or say it in a file of rules/dropout"
        )
    return planner.kept()


def _data(architecture: Architecture) -> Mapping[str, Any]:
    return architecture.checkpoint.config or architecture.origin.config or {}


def _copied(block: Block) -> Block:
    """The block and those below with tables of facts of their own."""

    def inner(item: Any) -> Any:
        return _copied(item) if isinstance(item, Block) else item

    roles = {
        role: [inner(item) for item in value] if isinstance(value, list) else inner(value)
        for role, value in block.roles.items()
    }
    return replace(block, roles=roles, facts=dict(block.facts), drops=[])


def told(dropout: Dropout) -> list[str]:
    """What a header and a report say of it."""
    written = ", ".join(dropout.written) or "the config has none"
    left = [f"Dropout that is not written: {text}." for text in dropout.left]
    return [f"Dropout, in training mode alone: {written}.", *left]


class _Planner:
    def __init__(self, config: Config, rules: Mapping[str, DropoutRule], architecture: Architecture):
        self.config, self.rules, self.architecture = config, rules, architecture
        self.root = scopes(architecture.root)
        self.tasks = {fact.value for fact in architecture.facts if fact.name == "task"}
        self.made = Dropout()
        self.used: dict[str, Any] = {}  # fields that say a rate, by their whole names
        self.idle: dict[str, Any] = {}  # fields that say nothing about this model
        self.missed: dict[str, str] = {}  # field -> the site that this model has not

    def run(self) -> None:
        for folder, top in self._parts():
            rule = self.rules.get(self.config.type_of(folder) or "")
            for place in rule.places if rule else ():
                self._place(place, folder, top)
            self.idle.update(
                {_whole(folder, name): why for name, why in (rule.elsewhere if rule else {}).items()}
            )
        self._notes()

    def _parts(self) -> Iterator[tuple[str, list[Scope]]]:
        """Each part of the config, and the blocks that it describes: a tower's own, and the whole."""
        every = [self.root, *self.root.below()]
        taken: set[int] = set()
        for name in dict.fromkeys(scope.tower_name for scope in every if scope.tower_name):
            for folder in self.config.parts(name):
                own = [scope for scope in every if scope.tower_name == name]
                taken.update(map(id, own))
                yield folder, own
                break
        yield "", [scope for scope in every if id(scope) not in taken]

    def _place(self, place: Rates, folder: str, blocks: list[Scope]) -> None:
        found = self._rate(place, folder)
        if found is None:
            return
        name, value = found
        if place.tasks and not self.tasks.intersection(place.tasks):
            self.idle.setdefault(name, "of another task")
            return
        self.used.update({name: value} if not value else {})
        for site in place.sites if value else ():
            hits = list(self._hits(site, blocks))
            for way, scope in hits:
                self._put(way, scope, self._fact(name, value, scope))
            if hits:
                self.used[name] = value
            elif site.words[0] != "root":
                self.missed.setdefault(name, str(site))

    def _rate(self, place: Rates, folder: str) -> tuple[str, Any] | None:
        part = self.config.part(folder)
        for name in place.fields:
            *inner, last = name.split(".")
            value = _inside(part, inner).get(last)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return _whole(folder, name), float(value)
        return None if place.otherwise is None else (_whole(folder, place.fields[0]), place.otherwise)

    def _fact(self, name: str, value: float, scope: Scope) -> Fact:
        """The rate, called as the field; where the config has none, it is the published default."""
        evidence = "config" if name in dict(_rates(self.config.data)) else "default"
        return Fact(name.rpartition(".")[2], value, str(scope.block.home), evidence, name)

    def _hits(self, site: Site, blocks: Iterable[Scope]) -> Iterator[tuple[Site, Scope]]:
        """The blocks that a site means: by all of its words, or by all but the last, which is then a role in it."""
        every = list(blocks)
        whole = [scope for scope in every if site.way not in ("input", "path") and _is_at(scope, site.words)]
        if whole:
            yield from ((Site(site.way, ()), scope) for scope in whole)
            return
        last = site.words[-1]
        for scope in every:
            if len(site.words) > 1 and _is_at(scope, site.words[:-1]) and last in scope.block.roles:
                yield Site(site.way, (last,)), scope

    def _put(self, site: Site, scope: Scope, fact: Fact) -> None:
        targets = [scope, *scope.below()] if site.way == "probabilities" else [scope]
        for target in targets:
            drop = Drop(site.way, site.words[0] if site.words else "", fact.name)
            target.block.facts[fact.name] = fact
            target.block.drops += [drop] if drop not in target.block.drops else []

    def _notes(self) -> None:
        stated = dict(_rates(self.config.data))
        published = {name: value for name, value in self.used.items() if value and name not in stated}
        self.made.written += [
            f"{name} = {value} (the published default)" for name, value in published.items()
        ]
        for name, value in stated.items():
            if name in self.used:
                self.made.written += [f"{name} = {value}"] if value else []
            if not value:
                continue
            if name in self.missed:
                self.made.left.append(f"{name} = {value}: there is no {self.missed[name]} here")
            elif name not in self.used and name not in self.idle and not self._is_stale(name):
                self.made.left.append(f"{name} = {value}: no rule says where")

    def _is_stale(self, name: str) -> bool:
        """Whether it is said of a part that is not in this checkpoint, and of which no rule speaks here."""
        folder = name.rpartition(".")[0]
        known = folder in self.config.folders and folder not in self.described
        rule = self.rules.get(self.config.type_of("") or "")
        named = {field.partition(".")[0] for place in (rule.places if rule else ()) for field in place.fields}
        return known and folder not in named

    @property
    def described(self) -> set[str]:
        return {folder for folder, _ in self._parts() if folder}

    def kept(self) -> Architecture:
        """The architecture, its rates in what the file says that it was read from."""
        architecture = self.architecture
        config = dict(architecture.origin.config or {})
        for name, value in _rates(self.config.data):
            folder, _, last = name.rpartition(".")
            if not folder:
                config[last] = value
            elif isinstance(config.get(folder), Mapping):
                config[folder] = {**config[folder], last: value}
        origin = replace(architecture.origin, config=config)
        return replace(architecture, origin=origin, dropout=self.made)


def _inside(part: Mapping[str, Any], words: Iterable[str]) -> Mapping[str, Any]:
    """A mapping in mappings; empty where there is none."""
    found: Any = part
    for word in words:
        found = found.get(word) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _whole(folder: str, name: str) -> str:
    return f"{folder}.{name}" if folder else name


def _rates(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every field of a config that may be a rate of dropout, with its number."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _rates(value, f"{prefix}{key}.")
        elif MARK in str(key) and _is_rate(value):
            yield f"{prefix}{key}", value if not isinstance(value, list) or any(value) else 0.0


def _is_rate(value: Any) -> bool:
    """Whether it is a number, or a list of them: one for each stage, which no rule reads."""
    values = value if isinstance(value, list) else [value]
    return all(isinstance(item, (int, float)) and not isinstance(item, bool) for item in values)


def _is_at(scope: Scope, words: tuple[str, ...]) -> bool:
    """Whether a block is meant: by its role or topic, and words before it by those of blocks around, in order."""
    *around, last = words
    if last not in _names(scope):
        return False
    outer = scope.parent
    for word in reversed(around):
        while outer is not None and word not in _names(outer):
            outer = outer.parent
        if outer is None:
            return False
        outer = outer.parent
    return True


def _names(scope: Scope) -> tuple[str, ...]:
    flow = (scope.block.flow or "").partition("/")[0]
    return (scope.block.role, flow or scope.topic)
