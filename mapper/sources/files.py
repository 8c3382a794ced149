"""Opening local files: only regular ones, and what is commonly mistaken for a checkpoint is recognised."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mapper.errors import FormatError, MapperError, MissingSourceError, SourceError, shorten

MARK = "#"  # between a source and one of several models in it
SHOWN = 200  # characters of a name in an error or a report
MARK = "#"  # between a source and one of several models in it
SNIFFED = 512  # bytes that tell what a file is

# Containers that have a name but no reader yet, by their first bytes and by suffix.
LATER_MAGIC = {b"\x89HDF\r\n\x1a\n": "HDF5", b"ARROW1": "Arrow"}
LATER_SUFFIXES = {
    ".h5": "HDF5", ".keras":
    "HDF5",
    ".tflite": "TFLite", ".pb": "TensorFlow", ".mlmodel": "Core ML", ".ot": "rust-bert", ".ckpt.index":
    "TensorFlow",
}  # fmt: skip


def base_name(path: str | Path) -> str:
    """The last part of `path` as one printable line: a file may have any name."""
    text = os.fspath(path)
    return printable(os.path.basename(text.rstrip(os.sep)) or text)


def printable(text: str, limit: int = SHOWN) -> str:
    """`text`, escaped and cut in the middle where it is not one short printable line."""
    return text if text.isprintable() and len(text) <= limit else shorten(text, limit)[1:-1]


def open_regular(path: str | Path) -> tuple[BinaryIO, int]:
    """The file at `path`, open for reading, and its size in bytes. Pipes and devices are never opened."""
    name = base_name(path)
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise SourceError(f"{shorten(name)} is a directory where a file is needed")
        if not stat.S_ISREG(status.st_mode):
            raise SourceError(
                f"{shorten(name)} is not a regular file (a pipe, socket or device); save it to a file first"
            )
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - handed to the caller
    except FileNotFoundError:
        hint = "is a link to a file that is gone" if os.path.islink(path) else "does not exist"
        raise MissingSourceError(f"{shorten(name)} {hint}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SourceError(f"{shorten(name)} cannot be opened: {reason.lower()}") from error
    opened = os.fstat(file.fileno())
    if not stat.S_ISREG(opened.st_mode):  # put there since the first look
        file.close()
        raise SourceError(f"{shorten(name)} is not a regular file any more; save it to a file first")
    return file, opened.st_size


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe that took its place meanwhile does not keep anyone waiting."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


@contextmanager
def reading(name: str) -> Iterator[None]:
    """What the system says against reading the file `name`, as one line."""
    try:
        yield
    except MapperError:
        raise
    except OSError as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SourceError(f"{shorten(name)} cannot be read: {reason.lower()}") from error


def stamp(file: BinaryIO) -> tuple[int, ...]:
    """What changes where an open file is written to, or another takes its place."""
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def refuse_impostor(start: bytes, size: int, name: str) -> None:
    """Raise FormatError if the first bytes are those of something commonly taken for a checkpoint."""
    if size == 0:
        raise FormatError(f"{name}: the file is empty; download it again")
    if start.startswith(b"version https://git-lfs"):
        raise FormatError(
            f"{name}: a git-lfs pointer{_pointed(start)}, not the file itself; fetch it with `git lfs pull`"
        )
    if start.startswith(b"\x00GITCRYPT"):
        raise FormatError(f"{name}: encrypted by git-crypt; unlock the repository first")
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<error")):
        raise FormatError(f"{name}: a web page, not a checkpoint; download the file itself")
    if text.startswith(
        (b'{"error"', b"entry not found", b"invalid username", b"repository not found", b"access to model")
    ):
        shown = start.split(b"\n")[0].decode("utf-8", "replace")
        raise FormatError(
            f"{name}: an error message of the server, {shorten(shown)}; download the file again"
        )


def _pointed(start: bytes) -> str:
    """`" to N bytes"` for a pointer that says so."""
    for line in start.split(b"\n"):
        word, _, number = line.partition(b" ")
        if word == b"size" and number.isdigit() and len(number) < 20:
            return f" to {int(number):,} bytes"
    return ""


def refuse_later(start: bytes, name: str) -> None:
    """Raise SourceError if the container is known but has no reader."""
    container = next((word for magic, word in LATER_MAGIC.items() if start.startswith(magic)), None)
    if container is None:
        container = next(
            (word for suffix, word in LATER_SUFFIXES.items() if name.lower().endswith(suffix)), None
        )
    if container is not None:
        raise SourceError(
            f"{name}: a file of the format {container}, which is recognised but not read yet; give "
            "a safetensors file"
        )
