"""What the published config classes have: fields and their defaults, by model type.

`tools/bundle_config_fields.py` writes the table; `README.md` beside this says what a row holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from mapper._dataclass import dataclass
from mapper.catalogue.records import read_record
from mapper.sources.documents import parse

FIELDS = Path(__file__).with_name("config_fields.zip")
_ALWAYS = frozenset({"model_type", "architecture"})


@dataclass(frozen=True)
class Part:
    """A part of a config, and which class reads it."""

    reader: str  # the key of its row
    fixed: bool = False  # whether that class reads it whatever type it names
    there: bool = False  # whether the model has the part though a file leaves it out
    made: Mapping[str, Any] = field(default_factory=dict)  # what it then has, otherwise than by itself
    given: Mapping[str, Any] = field(default_factory=dict)  # the same of one that leaves out fields
    unless: str = ""  # a field that stands for the part where it says something


@dataclass(frozen=True)
class Row:
    """What one config class has."""

    key: str
    fields: Mapping[str, Any] = field(default_factory=dict)  # name -> default
    aliases: Mapping[str, str] = field(default_factory=dict)  # other name -> field
    known: frozenset[str] = _ALWAYS  # all names that its code reads
    parts: Mapping[str, Part] = field(default_factory=dict)
    flat: tuple[str, ...] = ()  # parts whose fields may stand at the top
    rope: Mapping[str, Any] | None = None
    computed: frozenset[str] = frozenset()  # names that it writes to files and never reads

    def having(self, fields: Mapping[str, Any]) -> Row:
        """This class with other defaults."""
        turned = fields.get("rope_parameters")
        rope = {**(self.rope or {}), "silent": turned} if turned else self.rope
        return replace(self, fields={**self.fields, **fields}, rope=rope) if fields else self

    def beside(self, inner: Row) -> Row:
        """This class with the fields of a part that stand at its top."""
        return replace(
            inner,
            key=self.key,
            fields={**inner.fields, **self.fields},
            aliases={**inner.aliases, **self.aliases},
            known=self.known | inner.known,
            computed=self.computed | inner.computed,
            parts=self.parts,
        )


@cache
def _table() -> bytes:
    return FIELDS.read_bytes()


@lru_cache(maxsize=1024)
def find(key: str) -> Row | None:
    """The row of a model type, or of a class that only parts of configs have; None where the table has none."""
    found = read_record(_table(), f"{key}.json") if key else None
    if found is None:
        return None
    said = parse(found, f"{key} in the table of config fields")
    fields, aliases, parts = said.get("fields", {}), said.get("aliases", {}), said.get("parts", {})
    names = (*fields, *said.get("undefaulted", ()), *aliases, *said.get("asked", ()), *parts)
    return Row(
        key,
        fields,
        aliases,
        _ALWAYS.union(names),
        {name: _part(part) for name, part in parts.items()},
        tuple(said.get("flat", ())),
        said.get("rope"),
        frozenset(said.get("computed", ())),
    )


def _part(said: Mapping[str, Any]) -> Part:
    return Part(
        said["reader"],
        said.get("fixed", False),
        said.get("there", False),
        said.get("made", {}),
        said.get("with", {}),
        said.get("unless", ""),
    )
