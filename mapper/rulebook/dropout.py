"""Dropout files: where the published code of a model type drops what, and which field of the config says how much."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.architecture import DROPS
from mapper.catalogue import published
from mapper.rulebook.fields import Fields
from mapper.rulebook.strict import Document
from mapper.words import close_to

if TYPE_CHECKING:
    from mapper.rulebook.rulebook import Rulebook

KIND = "dropout"
_TYPO = 0.85  # how alike a type is to a listed one that was meant: others are types that no family lists yet
_SITE = re.compile(rf"({'|'.join(DROPS)}) of ([a-z_0-9/]+(?:\.[a-z_0-9/]+)*)")


@dataclass(frozen=True)
class Site:
    """Where something is dropped: one of DROPS, and a block by words of its role path, or a role in such a block."""

    way: str
    words: tuple[
        str, ...
    ]  # "feed_forward.down" by its words; a block may be told by its flow too, "tower/reader"

    def __str__(self) -> str:
        return f"{self.way} of {'.'.join(self.words)}"


@dataclass(frozen=True)
class Place:
    """The sites of one rate."""

    line: int
    fields: tuple[str, ...]  # of the config: the first that is a number counts
    sites: tuple[Site, ...]
    tasks: tuple[str, ...]  # only models for these tasks have the sites; none: all have


@dataclass(frozen=True)
class DropoutRule:
    """The places of some model types."""

    file: str
    line: int
    model_types: tuple[str, ...]
    places: tuple[Place, ...]
    elsewhere: dict[str, str]  # fields that say nothing about such a model -> why
    unwritten: dict[str, str]  # fields whose places no flow has -> why


def read_dropout(document: Document) -> dict[str, DropoutRule]:
    """What one file says, by model type. RuleError where it says a type twice."""
    found: dict[str, DropoutRule] = {}
    for rule in _read(document):
        for model_type in rule.model_types:
            if model_type in found:
                raise document.error(f"{model_type} is in two groups", "groups")
            found[model_type] = rule
    return found


def _read(document: Document) -> Iterator[DropoutRule]:
    fields = Fields(document.data, document.label, lambda keys: document.line(*keys))
    fields.text("dropout"), fields.text("doc")
    groups = [fields.inner(item, "groups", at) for at, item in enumerate(fields.sequence("groups"))]
    fields.done()
    for group in groups:
        places = [group.inner(item, "places", at) for at, item in enumerate(group.sequence("places"))]
        elsewhere, unwritten = (
            {name: str(why) for name, why in group.mapping(key).items()} for key in ("elsewhere", "unwritten")
        )
        yield DropoutRule(
            document.label,
            group.line(),
            group.words("model_types"),
            tuple(map(_place, places)),
            elsewhere,
            unwritten,
        )
        group.done()


def _place(fields: Fields) -> Place:
    sites = tuple(_site(fields, text) for text in fields.words("at"))
    place = Place(fields.line(), fields.words("rate"), sites, fields.words("tasks"))
    fields.done()
    return place


def _site(fields: Fields, text: Any) -> Site:
    found = _SITE.fullmatch(text)
    if found is None:
        fields.fail(
            f"{text!r} is no site: {', '.join(DROPS)} of a block, or of a role in one, as in input of feed_forward.down",
            "at",
        )
    return Site(found[1], tuple(found[2].split(".")))


def check_dropout(document: Document, rulebook: Rulebook) -> Iterator[str]:
    """What in a file means nothing: types that nobody knows, fields that a type has not, blocks that no flow has."""
    others = [
        other
        for other in rulebook.documents(KIND)
        if other.path != document.path and _folder(other) == _folder(document)
    ]
    taken = {name: other.label for other in others for name in read_dropout(other)}
    roles = _roles(rulebook)
    listed = {name for family in rulebook.families for name in family.model_types}
    for rule in {id(rule): rule for rule in read_dropout(document).values()}.values():
        problem = partial("{}:{}: {}".format, document.label)
        for name in rule.model_types:
            if name in taken:
                yield problem(rule.line, f"{name} is in {taken[name]} too")
            row = published.find(name)
            if row is None and name not in listed and (hint := _close(name, listed, _TYPO)):
                yield problem(rule.line, f"no family lists the type {name!r}{hint}")
            for line, field in _fields(rule) if row else ():
                if not field.startswith("/") and not _has(row, field.split(".")):
                    yield problem(line, f"a config of {name} has no field {field!r}")
        for place in rule.places:
            for word in (word for site in place.sites for word in site.words):
                if word not in roles:
                    yield problem(
                        place.line, f"{word!r} is no role and no topic of flows{_close(word, roles)}"
                    )


def _folder(document: Document) -> Path:
    return document.path.resolve().parent


def _fields(rule: DropoutRule) -> Iterator[tuple[int, str]]:
    yield from ((place.line, name) for place in rule.places for name in place.fields)
    yield from ((rule.line, name) for name in rule.unwritten)


def _has(row: published.Row | None, words: list[str]) -> bool:
    """Whether a published config class has a field, by the parts before it."""
    first, *rest = words
    if row is None or (not rest and first in row.known):
        return True
    part = row.parts.get(first)
    inside = row.fields.get(first)
    return bool(rest) and (
        _has(published.find(part.reader), rest) if part else isinstance(inside, dict) or first in row.known
    )


def _roles(rulebook: Rulebook) -> set[str]:
    """All words for blocks and leaves."""
    flows, entries = (
        rulebook.flows.everything(),
        (entry for file in rulebook.vocabulary for entry in file.entries),
    )
    return {
        *(word for flow in flows for word in (flow.name, flow.topic, *flow.roles)),
        *(word for entry in entries for word in entry.target.split(".")),
        *(
            word
            for family in rulebook.families
            for role in family.names.values()
            for word in str(role).split(".")
        ),
    }


def _close(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    found = close_to(word, known, alike=cutoff)
    return f"; did you mean {found[0]!r}?" if found else ""
