"""Where checkpoints come from: one module for each container, one function for all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.checkpoint import Checkpoint
from mapper.errors import MissingSourceError, SourceError, listed, shorten
from mapper.sources.directory import directory_name, open_directory, open_file
from mapper.sources.files import MARK, SHOWN

if TYPE_CHECKING:
    from torch import nn

PURPOSES = ("headers", "weights")
PACKAGE = "package:"
FILE_SUFFIXES = (
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".json", ".gz", ".onnx", ".npz", ".npy", ".gguf", ".msgpack",
    ".h5",
)  # fmt: skip


def open_source(
    source: str | Path | Mapping[str, Any] | nn.Module,
    *,
    purpose: str,
    revision: str | None = None,
    catalogue: bool = False,
) -> Checkpoint:
    """The checkpoint that `source` names: a path, `package:NAME`, a hub id, a manifest, tensors, or a module.

    `purpose` is "headers" (nothing but names, shapes and config is fetched) or "weights". A hub id, `name` or
    `owner/name`, optionally `@revision` and `:FILE`, is looked for in the cache, then on the hub, then, where `catalogue`
    allows it, among the bundled headers. `#PART` at the end chooses one of several models in a file. Raises MissingSourceError where nothing is found, SourceError
    and FormatError otherwise.

    >>> open_source({"lm_head.weight": [50257, 768]}, purpose="headers").parameters
    38597376
    """
    if purpose not in PURPOSES:
        raise ValueError(f"purpose is {purpose!r}, known are {PURPOSES}")
    if not isinstance(source, (str, os.PathLike)):
        return _open_object(source)
    text, part = split_part(os.fspath(source))
    checkpoint = _open_text(text, isinstance(source, str), purpose, revision, catalogue)
    return _one_of(checkpoint, part) if part else checkpoint


def split_part(text: str) -> tuple[str, str]:
    """`SRC#PART` as its two parts; a path that is there stands for itself, whatever its name is."""
    whole, mark, part = text.rpartition(MARK)
    return (whole, part) if mark and whole and part and not _exists(text) else (text, "")


def _one_of(checkpoint: Checkpoint, part: str) -> Checkpoint:
    """The model `part` of several in a file. Raises MissingSourceError for no such one."""
    if part in checkpoint.others:
        return checkpoint.others[part]
    there = f"it has {listed(list(checkpoint.others))}" if checkpoint.others else "it is one model"
    raise MissingSourceError(f"{checkpoint.source}: no part {shorten(part)} in it; {there}")


def _open_text(text: str, is_name: bool, purpose: str, revision: str | None, catalogue: bool) -> Checkpoint:
    """The checkpoint of a path or, where it is no path, of a name."""
    if is_name and text.startswith(PACKAGE):
        from mapper.sources.package import open_package

        return open_package(text.removeprefix(PACKAGE))
    place = _place(text)
    if _exists(place):
        return open_directory(place, directory_name(text)) if os.path.isdir(place) else open_file(place)
    if not is_name or (_is_path(text) and not _is_file_of_hub(text)):
        raise MissingSourceError(f"{shorten(text, SHOWN)}: no such file or directory; check the path")
    return _open_id(text, purpose, revision, catalogue)


def _open_object(source: Any) -> Checkpoint:
    from mapper.sources.memory import open_mapping, open_module

    if isinstance(source, Mapping):
        return open_mapping(source)
    if hasattr(source, "state_dict"):
        return open_module(source)
    raise TypeError(f"a source is a path, a name, a manifest or a module, not {type(source).__name__}")


def _place(path: str) -> str:
    """Where what `path` names is: a writer that was killed may have left it beside."""
    if os.path.exists(path):
        return path
    from mapper._files import standing

    return os.fspath(standing(path))


def _exists(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:  # a zero byte
        return False


def _is_path(text: str) -> bool:
    """Whether `text` is meant as a path, so that no hub need be asked for it."""
    return (
        text.startswith((".", "/", "~", os.sep))
        or text.count("/") > 1
        or text.lower().endswith(FILE_SUFFIXES)
    )


def _is_file_of_hub(text: str) -> bool:
    """Whether `text` is `owner/name:FILE`."""
    if ":" not in text:
        return False
    from mapper.sources.hub import split_file

    return split_file(text) is not None


def _open_id(text: str, purpose: str, revision: str | None, catalogue: bool) -> Checkpoint:
    from mapper.sources import hub

    repo, file = hub.split_file(text) or (text, None)
    name, at, given = repo.partition("@")
    if at and revision is not None and given != revision:
        raise SourceError(
            f"{shorten(text, SHOWN)}: names one revision, and {shorten(revision)} is asked for; "
            "give one of them"
        )
    revision = given if at else revision
    if not hub.is_id(name) or (revision is not None and not hub.is_revision(revision)):
        raise MissingSourceError(
            f"{shorten(text, SHOWN)}: no such file or directory, and not the id of a model on the "
            "hub (owner/name)"
        )
    try:
        return hub.open_hub(name, purpose, revision, file)
    except SourceError:
        bundled = (
            _bundled(name)
            if catalogue and revision is None and file is None and purpose == "headers"
            else None
        )
        if bundled is None:
            raise
        return bundled


def _bundled(name: str) -> Checkpoint | None:
    from mapper.catalogue import find

    return find(name)
