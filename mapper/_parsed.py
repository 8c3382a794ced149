"""What parsing rule files and operations gave, kept for the next process: parsing takes ten times as long as reading this.

A file counts as unchanged while its size and its time of writing are the same, as for Python's own bytecode.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FORMAT = 3  # raised when the layout of the cache file changes
_KEPT = 4  # rule sets in use side by side: a user's rules, a checkout, a wheel


@dataclass(frozen=True)
class SourceFile:
    """One file, as messages name it, and what changes when it is written anew."""

    path: str
    label: str  # the relative path for shipped files, the path as it was given for others
    stamp: tuple[int, int]


def digest(parts: Iterable[str]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(f"{len(part)}\0{part}".encode())
    return found.hexdigest()


def cache_folder() -> Path:
    """The user's cache folder for this tool."""
    base = (
        os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/.cache")
    )
    return Path(base) / "mapper"


class Cache:
    """The parsed content of one list of files."""

    def __init__(self, name: str, files: Sequence[SourceFile]):
        key = digest(f"{file.path} {file.label} {file.stamp}" for file in files)
        self.path = cache_folder() / f"{name}-{_FORMAT}-{key[:24]}.json"
        self.size = len(files)

    def read(self) -> tuple[str, list[Any]] | None:
        """The digest of the files' texts and the content of each, as an earlier process left them."""
        try:
            text, contents = json.loads(self.path.read_bytes())
        except (OSError, ValueError, TypeError):
            return None
        return (text, contents) if len(contents) == self.size else None

    def write(self, text: str, contents: Sequence[Any]) -> None:
        partial = self.path.with_suffix(f".{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps([text, contents], separators=(",", ":")), encoding="utf-8")
            partial.replace(self.path)
            self._drop_old()
        except OSError:  # no place to keep it: the rules are parsed each time
            return

    def _drop_old(self) -> None:
        name = self.path.name.partition("-")[0]
        kept = sorted(self.path.parent.glob(f"{name}-*.json"), key=lambda file: -file.stat().st_mtime)
        for old in kept[_KEPT:]:
            old.unlink()
