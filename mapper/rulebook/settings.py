"""Settings files: where other libraries write what a model was made from, beside its weights or in one file with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from fnmatch import fnmatchcase
from typing import Any

from mapper._dataclass import dataclass
from mapper.errors import shorten
from mapper.rulebook.fields import Fields
from mapper.rulebook.strict import Document

SETTINGS = "settings"
FOLDER = "namings/settings"  # no other file of the namings is read for it


@dataclass(frozen=True)
class Settings:
    """One such file: where the settings of a library stand, and by which fields they are known."""

    name: str
    files: tuple[str, ...]  # beside the weights
    tables: tuple[str, ...]  # beside the state dict, in what training code saved
    metadata: tuple[str, ...]  # entries of a safetensors file's metadata, each a JSON text
    inside: tuple[str, ...]  # fields that may hold them, the first that is a table; none of these: the whole
    needs_inside: bool  # whether there are none without such a field
    fields: tuple[str, ...]  # that are always there
    left: tuple[str, ...]  # fields that say nothing of a model, `*` for any letters
    held: tuple[str, ...]  # attributes by which an object stands for their value alone
    unset: tuple[str, ...]  # texts so held that stand for another value, `*` for any letters
    archives: dict[str, str]  # record of a zip file that torch.save wrote: the one with the settings
    told: dict[str, str]  # entries of the metadata that are told in a note, each with what it is
    called: dict[
        str, str
    ]  # `part.field`, by its name in a config of its own: what the settings of another library call it
    examples: tuple[dict[str, Any], ...]

    def of(self, said: Mapping[str, Any]) -> dict[str, Any] | None:
        """The settings in what a file or a table says; None where it is not this library's."""
        inner = self._inner(said)
        if inner is None or not all(field in inner for field in self.fields):
            return None
        found = {field: value for field, value in inner.items() if not self._leaves(field)}
        for name, own in self.called.items():
            found = _called(found, name.split("."), own)
        return found or None

    def note(self, metadata: Mapping[str, Any]) -> str:
        """What is told of the metadata: `rank 4 (ss_network_dim)`; "" for nothing."""
        said = ((entry, what, metadata.get(entry)) for entry, what in self.told.items())
        return ", ".join(
            f"{what} {shorten(text)[1:-1]} ({entry})"
            for entry, what, text in said
            if isinstance(text, str) and text
        )

    def _inner(self, said: Mapping[str, Any]) -> Mapping[str, Any] | None:
        tables = (said[field] for field in self.inside if isinstance(said.get(field), Mapping))
        return next(tables, None if self.needs_inside else said)

    def _leaves(self, field: str) -> bool:
        return any(fnmatchcase(field, pattern) for pattern in self.left)


def _called(said: Mapping[str, Any], path: Sequence[str], own: str) -> dict[str, Any]:
    """The settings with the field at `path` under its `own` name, unless it is not there or says nothing."""
    field, *inner = path
    if field not in said:
        return dict(said)
    if inner:
        part = said[field]
        return {**said, field: _called(part, inner, own)} if isinstance(part, Mapping) else dict(said)
    others = {name: value for name, value in said.items() if name != field}
    return {own: said[field], **others} if said[field] not in (None, "") else others


def settings_rows(documents: Sequence[Document]) -> list[list[Any]]:
    """What each file says: all that is known of it without its examples, which are checked alone."""
    return [list(astuple(replace(read_settings(document), examples=()))) for document in documents]


def settings_of(row: Sequence[Any]) -> Settings:
    """What a file says, by its row."""
    values: list[Any] = [tuple(value) if isinstance(value, list) else value for value in row]
    return Settings(*values)


def read_settings(document: Document) -> Settings:
    """What one file says."""
    fields = Fields(document.data, document.label, lambda keys: document.line(*keys))
    fields.words("source")
    found = Settings(
        fields.text(SETTINGS),
        fields.words("files"),
        fields.words("tables"),
        fields.words("metadata"),
        (*fields.words("inside"), *fields.words("may_be_inside")),
        bool(fields.words("inside")),
        fields.words("fields"),
        fields.words("left"),
        fields.words("held"),
        fields.words("unset"),
        {str(record): str(beside) for record, beside in fields.mapping("archives").items()},
        {str(entry): str(what) for entry, what in fields.mapping("told").items()},
        {str(name): str(own) for name, own in fields.mapping("called").items()},
        tuple(fields.sequence("examples")),
    )
    if found.files and not found.fields:
        fields.fail("a file beside the weights is known by fields that are always in it", "files")
    if not (found.files or found.tables or found.metadata or found.archives or found.told):
        fields.fail(
            "say files beside the weights, tables beside a state dict, records of an archive, or entries of the metadata"
        )
    fields.done()
    return found


def wrong_examples(settings: Settings) -> list[str]:
    """Which examples of a settings file are not as it says."""
    problems = []
    for example in settings.examples:
        says, wanted = example.get("says", {}), example.get("note", example.get("config"))
        found: Any = settings.note(says) if "note" in example else settings.of(says)
        if found != wanted:
            problems.append(f"settings {settings.name!r} read {found}, and the example says {wanted}")
    return problems
