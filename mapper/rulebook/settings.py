"""Settings files: where other libraries write what a model was made from, beside its weights or in one file with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mapper.rulebook.fields import Fields
from mapper.rulebook.namings import KIND
from mapper.rulebook.rulebook import rule_files
from mapper.rulebook.strict import Document, load_yaml

SETTINGS = "settings"
FOLDER = "settings"  # of the namings: no other file of theirs is read for it


@dataclass(frozen=True)
class Settings:
    """One such file: where the settings of a library stand, and by which fields they are known."""

    name: str
    files: tuple[str, ...]  # beside the weights
    tables: tuple[str, ...]  # beside the state dict, in what training code saved
    inside: str  # the field that holds them; "" for the whole
    fields: tuple[str, ...]  # that are always there
    examples: tuple[dict[str, Any], ...]

    def of(self, said: Mapping[str, Any]) -> dict[str, Any] | None:
        """The settings in what a file or a table says; None where it is not this library's."""
        inner = said.get(self.inside) if self.inside else said
        if not isinstance(inner, Mapping) or not all(field in inner for field in self.fields):
            return None
        return dict(inner) or None


@lru_cache(maxsize=1)
def every_settings() -> tuple[Settings, ...]:
    """All files of this kind: the user's own, then the shipped ones."""
    paths = [path for path in rule_files(KIND) if path.parent.name == FOLDER]
    return tuple(read_settings(load_yaml(path)) for path in paths)


def read_settings(document: Document) -> Settings:
    """What one file says."""
    fields = Fields(document.data, document.label, lambda keys: document.line(*keys))
    fields.words("source")
    found = Settings(
        fields.text(SETTINGS),
        fields.words("files"),
        fields.words("tables"),
        fields.text("inside", ""),
        fields.words("fields"),
        tuple(fields.sequence("examples")),
    )
    if found.files and not found.fields:
        fields.fail("a file beside the weights is known by fields that are always in it", "files")
    if not found.files and not found.tables:
        fields.fail("say files beside the weights, or tables beside a state dict")
    fields.done()
    return found


def wrong_examples(settings: Settings) -> list[str]:
    """Which examples of a settings file are not as it says."""
    problems = []
    for example in settings.examples:
        found = settings.of(example.get("says", {}))
        if found != example.get("config"):
            problems.append(
                f"settings {settings.name!r} read {found}, and the example says {example.get('config')}"
            )
    return problems
