"""What `rules check` found in order before, by the content of all that it rests on: that is not looked at again.

The check of a flow file rests on this package and on all rules that are no family's. That of a family rests on these, on its
own file and examples, on what families are found by, and on each family that its examples were held against: those are
noted while it runs. A model that was run rests on its source, its header and its config. Only what was in order is kept.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper._parsed import cache_folder, digest
from mapper.authoring.found import FileCheck
from mapper.errors import MapperError
from mapper.rulebook.examples import FAMILIES, FOLDER, path_beside

if TYPE_CHECKING:
    from mapper.architecture import Architecture
    from mapper.rulebook.rulebook import Rulebook
    from mapper.rulebook.strict import Document

_FLOWS = "flows"
_PACKAGE = Path(__file__).resolve().parent.parent
_RULES = ("_rules", "_compiled", "__pycache__")  # folders of the package that hold none of its code
_LIBRARIES = ("torch", "numpy", "safetensors", "PyYAML")
_ALL = "*"  # families
_SAID = ("kind", "name", "examples", "combinations", "runs")  # of a check
_Row = dict[str, Any]


class Passed:
    """The checks of one rule set that were in order, and whether they still hold by what its files are now."""

    def __init__(self, rulebook: Rulebook, run: bool):
        self.rulebook, self.run = rulebook, run
        place = os.pathsep.join([*map(str, rulebook.folders), *rulebook.kinds, str(run)])
        self.path = cache_folder() / f"checks-{zlib.crc32(os.fsencode(place)):08x}.json"
        self.code = _code()
        self._rows = _rows(self.path)
        self._keys: dict[str, str] = {}
        self._content: dict[str, str] = {}
        with suppress(MapperError):  # a mistake in some file, which its check says: nothing is known or kept
            self._content = dict(_contents(rulebook))
            self._keys = dict(self._keyed())

    def of(self, document: Document) -> FileCheck | None:
        """What was found in a file, where nothing that this rests on has changed since."""
        row = self._rows.get(document.label)
        if row is None or row["key"] != self._keys.get(document.label):
            return None
        if any(self._content.get(name) != content for name, content in row["families"].items()):
            return None
        said = {name: row[name] for name in _SAID}
        return FileCheck(document.label, rests_on=(*row["families"],), ran=(*row["ran"],), **said)

    def ran(self, document: Document) -> frozenset[str]:
        """The models of a file's examples that ran before, as `run_key` calls them."""
        return frozenset(self._rows.get(document.label, {}).get("ran", ()))

    def run_key(self, architecture: Architecture, text: str) -> str:
        """What a run of the model of an example rests on: its source, its header, and what its inputs are made of."""
        checkpoint = architecture.checkpoint
        facts = [(fact.name, fact.value) for fact in architecture.facts]
        said = [[*checkpoint.tensors.items()], checkpoint.config, architecture.inputs, facts]
        return digest([self.code, text, json.dumps(said, default=repr)])[:32]

    def keep(self, checks: Iterable[FileCheck], after: Passed) -> None:
        """Keep what was in order for the next time, where all is as it was before and `after` the check."""
        rows = {check.file: self._row(check) for check in checks if not check.problems}
        same = {name for name, content in self._content.items() if after._content.get(name) == content}
        keys = {label for label, key in self._keys.items() if after._keys.get(label) == key}
        _write(
            self.path,
            {name: row for name, row in rows.items() if name in keys and row["families"].keys() <= same},
        )

    def _row(self, check: FileCheck) -> _Row:
        on = (_ALL,) if len(check.rests_on) == len(self._content) - 1 else check.rests_on
        families = {name: self._content.get(name, "") for name in on}
        said = {name: getattr(check, name) for name in _SAID}
        return {"key": self._keys.get(check.file), "families": families, "ran": check.ran, **said}

    def _keyed(self) -> Iterator[tuple[str, str]]:
        """Of each file of flows or of a family what its check rests on beside the families that are noted."""
        common = [
            self.code,
            str(self.run),
            *(text for folder in self.rulebook.folders for text in _others_in(folder)),
        ]
        both = digest(common)
        found_by = json.dumps(self.rulebook.index(FAMILIES))
        for document in self.rulebook.documents(_FLOWS):
            yield document.label, digest([both, _FLOWS, document.label])
        for document in self.rulebook.documents(FAMILIES):
            yield document.label, digest([both, FAMILIES, document.label, found_by, *_texts(document.path)])


def _contents(rulebook: Rulebook) -> Iterator[tuple[str, str]]:
    """Of each family what a reading by it rests on: its file, and what was made of the examples of those like it.

    Beside them, of all together.
    """
    if FAMILIES not in rulebook.kinds:
        return
    kept = rulebook.shelves[FAMILIES].compiled()
    own = {name: kept.content(at) for at, name, *_ in rulebook.index(FAMILIES)["families"]}
    yield from own.items()
    yield _ALL, digest(own.values())


def _code() -> str:
    """This package as it is, and what it runs on."""
    files = (path for path in sorted(_PACKAGE.rglob("*")) if path.is_file())
    own = (path for path in files if not {*path.relative_to(_PACKAGE).parts} & {*_RULES})
    texts = (part for path in own for part in (path.as_posix(), path.read_bytes().hex()))
    return digest([sys.version, platform.platform(), *map(_version, _LIBRARIES), *texts])


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""


def _others_in(folder: Path) -> Iterator[str]:
    for place, _, names in sorted(os.walk(folder, followlinks=True)):
        inside = Path(place).relative_to(folder)
        if inside.parts[:1] not in ((FAMILIES,), (FOLDER,)):
            for name in sorted(names):
                yield (inside / name).as_posix()
                yield Path(place, name).read_bytes().hex()


def _texts(path: Path) -> Iterator[str]:
    """The text of a family's file, and of the examples beside it."""
    for one in (path, path_beside(path)):
        yield one.read_bytes().hex() if one is not None and one.is_file() else ""


def _rows(path: Path) -> dict[str, _Row]:
    """What was kept; nothing where that is damaged."""
    try:
        checksum, _, text = path.read_text(encoding="utf-8").partition("\n")
        rows: dict[str, _Row] = json.loads(text) if checksum == digest([text]) else {}
    except (OSError, ValueError):
        return {}
    return rows


def _write(path: Path, rows: Mapping[str, _Row]) -> None:
    text = json.dumps(rows)
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(f"{digest([text])}\n{text}", encoding="utf-8")
        partial.replace(path)
    except OSError:  # no place to keep it: all is checked each time
        return
