"""What stands beside the weights: settings, vocabularies and templates, each read once and within a limit."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Any

from mapper import limits
from mapper.checkpoint import Checkpoint, Companions
from mapper.errors import FormatError, MapperError
from mapper.running.tables import Folders, table
from mapper.sources.companions import none
from mapper.sources.files import open_regular, reading
from mapper.sources.gguf import CONTAINER, MAGIC, read_words


class Beside:
    """The files of the closed list that are beside a checkpoint's weights, and the metadata of a GGUF file."""

    def __init__(self, checkpoint: Checkpoint, folders: Folders = ()):
        self.source = checkpoint.source
        self.folders = folders  # of rules, which say what the files mean
        self._checkpoint = checkpoint
        self._json: dict[str, dict[str, Any]] = {}

    @cached_property
    def _found(self) -> Companions:
        find = self._checkpoint.companions
        return find() if find is not None else none()

    @property
    def names(self) -> Collection[str]:
        """The names of the files that are there."""
        return self._found.files.keys()

    def path(self, name: str) -> Path | None:
        """Where a file is; None where there is none."""
        return self._found.files.get(name)

    def data(self, name: str) -> bytes | None:
        """A file's bytes. Raises FormatError where it is larger than such a file can be."""
        path = self.path(name)
        if path is None:
            return None
        file, size = open_regular(path)
        with file, reading(name):
            if size > limits.COMPANION_BYTES:
                raise FormatError(f"{name} has {size:,} bytes, at most {limits.COMPANION_BYTES:,} are read")
            return file.read(limits.COMPANION_BYTES)

    def text(self, name: str) -> str | None:
        """A file as UTF-8. Raises FormatError."""
        data = self.data(name)
        try:
            return None if data is None else data.decode("utf-8")
        except UnicodeDecodeError:
            raise FormatError(f"{name} is no UTF-8 text; download it again") from None

    def any(self, name: str) -> Any:
        """A JSON file's value; None where there is no file. Raises FormatError."""
        text = self.text(name)
        try:
            return None if text is None else json.loads(text)
        except (ValueError, RecursionError):
            raise FormatError(f"{name} is no JSON; download it again") from None

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file's table; empty where there is no file. Raises FormatError."""
        if name not in self._json:
            value = self.any(name)
            if value is not None and not isinstance(value, dict):
                raise FormatError(f"{name} holds no table of settings; download it again")
            self._json[name] = value or {}
        return self._json[name]

    @cached_property
    def config(self) -> dict[str, Any]:
        """The checkpoint's own config."""
        return self._checkpoint.config or {}

    @cached_property
    def gguf(self) -> dict[str, Any]:
        """The metadata of a GGUF file with its words; empty for others."""
        if self._checkpoint.container != CONTAINER or not self._checkpoint.weights:
            return {}
        path = self._checkpoint.weights[0]
        try:
            file, size = open_regular(path)
            with file:
                return read_words(file, size, Path(path).name) if file.read(len(MAGIC)) == MAGIC else {}
        except MapperError:
            return {}

    @property
    def vocabularies(self) -> dict[str, Any]:
        """The table that says what the files of a tokenizer mean."""
        return table("tokenizers", self.folders)

    def has_any(self, names: tuple[str, ...]) -> bool:
        """Whether one of the files is there."""
        return any(name in self._found.files for name in names)
