"""Where checkpoints come from: one module for each container, one function for all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.checkpoint import Checkpoint
from mapper.errors import shorten
from mapper.sources.directory import open_directory, open_file
from mapper.sources.manifest import from_document

if TYPE_CHECKING:
    from torch import nn

PURPOSES = ("headers", "weights")


def open_source(
    source: str | Path | Mapping[str, Any] | nn.Module,
    *,
    purpose: str,
    revision: str | None = None,
    catalogue: bool = False,
) -> Checkpoint:
    """The checkpoint that `source` names: a local path, `package:NAME`, a hub id, a manifest as a dict, or a module.

    `purpose` is "headers" (nothing but names, shapes and config is fetched) or "weights". A hub id is looked for in the cache,
    then on the hub, then, where `catalogue` allows it, among the bundled headers. Raises SourceError and FormatError.
    """
    if purpose not in PURPOSES:
        raise ValueError(f"purpose is {purpose!r}, known are {PURPOSES}")
    if isinstance(source, Mapping):
        return from_document(source, "dict")
    text = os.fspath(source)
    if os.path.isdir(text):
        return open_directory(text, directory_name(text))
    return open_file(text)


def directory_name(path: str) -> str:
    """What a directory is called in reports: its base name, or the hub id where it is a snapshot of the hub's cache."""
    full = Path(os.path.abspath(path))
    if full.parent.name == "snapshots" and full.parent.parent.name.startswith("models--"):
        return full.parent.parent.name.removeprefix("models--").replace("--", "/")
    return full.name or shorten(path)
