"""Outputs that are whole or not there: written under a temporary name, synced, then renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mapper.errors import SourceError


@contextmanager
def whole_file(path: Path | str) -> Iterator[Path]:
    """A temporary path beside `path`; what the caller wrote there becomes `path` when the block ends without error."""
    path = Path(path)
    if path.is_dir():
        raise SourceError(f"{path} is a folder; name a file in it")
    partial = _partial(path)
    try:
        yield partial
        _sync(partial)
        os.replace(partial, path)
        _sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path | str) -> Iterator[Path]:
    """A temporary folder beside `path`, which becomes `path` when the block ends without error.

    `path` must not exist or be an empty folder: nothing of somebody's is ever replaced.
    """
    path = Path(path)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise SourceError(f"{path} already exists; name a new folder or remove it first")
    partial = _partial(path)
    partial.mkdir()
    try:
        yield partial
        for inside in [*partial.rglob("*"), partial]:
            _sync(inside)
        os.replace(partial, path)
        _sync(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_text(path: Path | str, text: str) -> None:
    """Write `text` as UTF-8 with newlines as they are."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="")


def _partial(path: Path) -> Path:
    """A free name in the same folder: renaming never crosses a file system."""
    if not path.absolute().parent.is_dir():
        raise SourceError(f"there is no folder {path.absolute().parent}; make it first")
    name = tempfile.mktemp(prefix=f".{path.name[:64]}.", suffix=".partial", dir=path.absolute().parent)
    return Path(name)


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
