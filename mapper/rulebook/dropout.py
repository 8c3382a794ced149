"""Dropout files: where the published code of a model type drops what, and which field of the config says how much."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mapper.architecture import DROPS
from mapper.rulebook.fields import Fields
from mapper.rulebook.strict import Document

KIND = "dropout"
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
