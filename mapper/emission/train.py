"""The option `train`: where the published code drops something, by `rules/dropout`, and at what rate, by the config.

A rate is a fact of the blocks that have its sites, called as the config's field; `training` writes the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from mapper.architecture import Architecture, Block, Drop, Dropout, Fact
from mapper.catalogue import published
from mapper.emission.dropout_calls import ROWS
from mapper.errors import ArchitectureError
from mapper.inference.config import Config
from mapper.inference.scopes import Scope, scopes
from mapper.rulebook.dropout import DropoutRule, Site
from mapper.rulebook.dropout import Place as Rates
from mapper.rulebook.pages import JOINED

TYPE = "model_type"
MARK = "drop"  # what the names of all such fields have in common


def with_dropout(architecture: Architecture) -> Architecture:
    """The architecture whose blocks hold rates among their facts, and what they drop.

    Raises ArchitectureError where the config has rates and no rule a place for any.
    """
    if architecture.dropout is not None or architecture.reading == "skeleton":
        return architecture
    copied = replace(architecture, root=_copied(architecture.root))
    planner = _Planner(_config(architecture), architecture.rulebook.dropout, copied)
    planner.run()
    if planner.made.left and not planner.made.written:
        raise ArchitectureError(
            f"{architecture.checkpoint.source}: none of its dropout can be written ({'; '.join(planner.made.left)}); "
            "leave --train out, or say where it stands in a file of rules/dropout"
        )
    return planner.kept()


def _config(architecture: Architecture) -> Config:
    """The config as the published class of its type completes it."""
    data = architecture.checkpoint.config or architecture.origin.config or {}
    named = architecture.origin.hints.get(TYPE, data.get(TYPE))
    model_type = named if isinstance(named, str) else None
    return Config(data, architecture.rulebook.config_vocabulary, model_type)


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
    def __init__(
        self, config: Config, rules: Callable[[str], DropoutRule | None], architecture: Architecture
    ):
        self.config, self.rules, self.architecture = config, rules, architecture
        self.root = scopes(architecture.root)
        self.tasks = {fact.value for fact in architecture.facts if fact.name == "task"}
        self.stated = dict(_rates(config.data))  # what the file says, by whole names
        self.readers = dict(
            _readers(config, architecture.origin.hints.get(TYPE))
        )  # part -> the type of its class
        self.parts = list(self._parts())
        self.made = Dropout()
        self.used: dict[str, Any] = {}  # fields that say a rate, by their whole names
        self.idle: dict[str, Any] = {}  # fields that say nothing about this model
        self.hit: set[tuple[str, str]] = set()  # field and site
        self.missed: dict[str, list[str]] = {}  # field -> sites that a part of this model has not
        self.unwritten: dict[str, str] = {}  # field -> why no rule can say where

    def run(self) -> None:
        blocks: dict[str, list[Scope]] = {}
        for folder, top in self.parts:
            blocks.setdefault(folder, []).extend(top)
        for folder, top in self.parts:
            for place in self._rule_places(folder):
                part = place.fields[0].partition(".")[0]  # the whole may say where rates of a part stand
                self._place(place, folder, top if folder else [*top, *blocks.get(part, ())])
        for folder, reader in self.readers.items():
            if rule := self.rules(reader):
                self.idle.update({_whole(folder, name): why for name, why in rule.elsewhere.items()})
                self.unwritten.update({_whole(folder, name): why for name, why in rule.unwritten.items()})
        self._notes()

    def _rule_places(self, folder: str) -> tuple[Rates, ...]:
        rule = self.rules(self.readers.get(folder, ""))
        return rule.places if rule else ()

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
                self.hit.add((name, str(site)))
            elif site.words[0] == "root" and not place.tasks:
                self.idle.setdefault(name, "of a head that is not here")
            elif site.words[0] != "root":
                self.missed.setdefault(name, []).append(str(site))

    def _rate(self, place: Rates, folder: str) -> tuple[str, float] | None:
        """The first of the fields that is a number, in the file or by its class, and that number."""
        for field in place.fields:
            name = field[1:] if field.startswith("/") else _whole(folder, field)
            value = _at(self.config.data, name.split("."))
            if value is None:
                value = _at(self.config.seen.data, name.split("."))
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return self.config.seen.moved.get(name, name), float(value)
        return None

    def _fact(self, name: str, value: float, scope: Scope) -> Fact:
        """The rate, called as the field; where the config has none, it is the published default."""
        evidence = "config" if name in self.stated else "default"
        return Fact(name.rpartition(".")[2], value, str(scope.block.home), evidence, name)

    def _hits(self, site: Site, blocks: Iterable[Scope]) -> Iterator[tuple[Site, Scope]]:
        """The blocks that a site means: by all of its words, or by all but the last, which is then a role in it."""
        every = list(blocks)
        if site.way == "probabilities":
            yield from ((Site(site.way, ()), scope) for scope in every if _is_at(scope, site.words))
            return
        every = [scope for scope in every if scope.block.flow]  # its statements are where something can stand
        whole = [scope for scope in every if site.way not in ("input", *ROWS) and _is_at(scope, site.words)]
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
        """What is written, and what is not though it says a rate, as the file or as the class of its type says it."""
        seen = self.config.seen
        defaults = {name: value for name, value in _rates(seen.data) if name not in seen.moved}
        for name, value in {**defaults, **self.stated}.items():
            said = f"{name} = {value}" if name in self.stated else f"{name} = {value} (the published default)"
            if not value or name in seen.twins:
                continue
            missed = [site for site in self.missed.get(name, ()) if (name, site) not in self.hit]
            self.made.left += [f"{said}: there is no {missed[0]} here"] if missed else []
            if name in self.used:
                self.made.written.append(said)
            elif name in self.unwritten:
                self.made.left.append(f"{said}: {self.unwritten[name]}")
            elif not missed and name not in self.idle and not self._is_stale(name):
                self.made.left.append(f"{said}: no rule says where")

    def _is_stale(self, name: str) -> bool:
        """Whether it is said of a part that is not in this checkpoint, and of which no rule speaks here."""
        folder = name.partition(".")[0] if "." in name else ""
        known = folder in self.config.folders and folder not in {folder for folder, _ in self.parts}
        named = {field.partition(".")[0] for place in self._rule_places("") for field in place.fields}
        return known and folder not in named

    def kept(self) -> Architecture:
        """The architecture, its rates in what the file says that it was read from."""
        architecture = self.architecture
        config = dict(architecture.origin.config or {})
        for name, value in self.stated.items():
            folder, _, last = name.rpartition(".")
            if not folder:
                config[last] = value
            elif isinstance(config.get(folder), Mapping):
                config[folder] = {**config[folder], last: value}
        origin = replace(architecture.origin, config=config)
        return replace(architecture, origin=origin, dropout=self.made)


def _at(data: Any, words: Iterable[str]) -> Any:
    """What a mapping in mappings has at the end; None where there is nothing."""
    for word in words:
        data = data.get(word) if isinstance(data, Mapping) else None
    return data


def _readers(config: Config, named: Any, folder: str = "") -> Iterator[tuple[str, str]]:
    """Every part of a config, and the type whose class reads it: the one it names, or else that of the published whole."""
    data = _at(config.seen.data, folder.split(".") if folder else ())
    own = data.get(TYPE, data.get("architecture"))
    model_type = own if isinstance(own, str) and own.strip() and not named else named
    if not isinstance(model_type, str):
        model_type = ""
    yield folder, model_type
    row = published.find(model_type)
    for name, inner in data.items():
        if isinstance(inner, Mapping):
            part = row.parts.get(name) if row else None
            reader = part.reader if part and (part.fixed or not isinstance(inner.get(TYPE), str)) else None
            yield from _readers(config, reader, _whole(folder, name))


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
    """Whether a block is meant by the last word: its role, its topic, its flow or a step of it; words before it are of
    blocks around, in order.
    """
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
    flow = scope.block.flow or ""
    topic, _, name = flow.partition("/")
    steps = [f"{topic}/{step}" for step in name.split(JOINED)] if JOINED in name else []
    return (scope.block.role, topic if topic == scope.block.role else scope.topic, flow, *steps)
