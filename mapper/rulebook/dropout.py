"""Dropout files: where the published code of a model type drops what, and which field of the config says how much."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mapper.architecture import DROPS
from mapper.rulebook.fields import Fields
from mapper.rulebook.rulebook import Rulebook
from mapper.rulebook.strict import Document, load_yaml

KIND = "dropout"
_SITE = re.compile(rf"({'|'.join(DROPS)}) of ([a-z_0-9]+(?:\.[a-z_0-9]+)*)")


@dataclass(frozen=True)
class Site:
    """Where something is dropped: one of DROPS, and a block by words of its role path, or a role in such a block."""

    way: str
    words: tuple[str, ...]  # "feed_forward.down" by its words

    def __str__(self) -> str:
        return f"{self.way} of {'.'.join(self.words)}"


@dataclass(frozen=True)
class Place:
    """The sites of one rate."""

    fields: tuple[str, ...]  # of the config: the first that is a number counts
    sites: tuple[Site, ...]
    tasks: tuple[str, ...]  # only models for these tasks have the sites; none: all have
    otherwise: float | None = None  # the rate where the config has none of the fields


@dataclass(frozen=True)
class DropoutRule:
    """The places of some model types."""

    file: str
    model_types: tuple[str, ...]
    places: tuple[Place, ...]
    elsewhere: dict[str, str]  # fields that say nothing about such a model -> why


def dropout_rules(rulebook: Rulebook) -> dict[str, DropoutRule]:
    """By model type. A user's own file goes before a shipped one; RuleError where one file says a type twice."""
    found: dict[str, DropoutRule] = {}
    for path, label in rulebook.files(KIND):
        document = load_yaml(path, label)
        own: dict[str, DropoutRule] = {}
        for rule in _read(document):
            for model_type in rule.model_types:
                if model_type in own:
                    raise document.error(f"{model_type} is in two groups", "groups")
                own[model_type] = rule
        found = {**own, **found}
    return found


def _read(document: Document) -> Iterator[DropoutRule]:
    fields = Fields(document.data, document.label, lambda keys: document.line(*keys))
    fields.text("dropout"), fields.text("doc")
    groups = [fields.inner(item, "groups", at) for at, item in enumerate(fields.sequence("groups"))]
    fields.done()
    for group in groups:
        places = [group.inner(item, "places", at) for at, item in enumerate(group.sequence("places"))]
        elsewhere = {key: str(why) for key, why in group.mapping("elsewhere").items()}
        yield DropoutRule(document.label, group.words("model_types"), tuple(map(_place, places)), elsewhere)
        group.done()


def _place(fields: Fields) -> Place:
    sites = tuple(_site(fields, text) for text in fields.words("at"))
    otherwise = fields.any("otherwise")
    if otherwise is not None and (isinstance(otherwise, bool) or not isinstance(otherwise, (int, float))):
        fields.fail("a rate is a number", "otherwise")
    place = Place(fields.words("rate"), sites, fields.words("tasks"), otherwise)
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
