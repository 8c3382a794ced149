"""Where checkpoints come from: one module for each container, one function for all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mapper.checkpoint import Checkpoint
from mapper.errors import MissingSourceError, SourceError, shorten
from mapper.sources.directory import directory_name, open_directory, open_file
from mapper.sources.files import MARK, SHOWN

if TYPE_CHECKING:
    from torch import nn

PURPOSES = ("headers", "weights")
PACKAGE = "package:"
ADDRESS = ("https://", "http://")
FILE_SUFFIXES = (
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".th", ".pt2", ".torchscript", ".jit", ".json", ".gz", ".onnx", ".npz", ".npy", ".gguf", ".msgpack",
    ".h5",
)  # fmt: skip


def open_source(
    source: str | Path | Mapping[str, Any] | nn.Module,
    *,
    purpose: str,
    revision: str | None = None,
    catalogue: bool = False,
    follow_links: bool = False,
    rules: Sequence[str | Path] = (),
) -> Checkpoint:
    """The checkpoint that `source` names: a path, `package:NAME`, a hub id, a manifest, tensors, or a module.

    `purpose` is "headers" (nothing but names, shapes and config is fetched) or "weights". A hub id, `name` or
    `owner/name`, optionally `@revision` and `:FILE`, or the address of its page, is looked for in the cache, then on the
    hub, then, where `catalogue` allows it, among the bundled headers. `#PART` at the end chooses one of several models;
    `rules` names folders that may say which those of a file are. `follow_links` allows links out of a folder. Raises
    MissingSourceError where nothing is found, SourceError and FormatError otherwise.

    >>> open_source({"lm_head.weight": [50257, 768]}, purpose="headers").parameters
    38597376
    """
    if purpose not in PURPOSES:
        raise ValueError(f"purpose is {purpose!r}, known are {PURPOSES}")
    if not isinstance(source, (str, os.PathLike)):
        return _open_object(source)
    text, part = split_part(os.fspath(source))
    asked = _Asked(purpose, revision, catalogue, follow_links)
    if isinstance(source, str) and text.lower().startswith(ADDRESS):
        from mapper.sources.pages import page_of

        page = page_of(text)
        part = part or page.folder
        checkpoint = _open_repository(text, page.name, page.revision, page.file, part, asked)
    else:
        checkpoint = _open_text(text, part, isinstance(source, str), asked)
    if part == checkpoint.part and not (checkpoint.parts and purpose == "weights"):
        return checkpoint
    return _one_of(checkpoint, part, rules)


class _Asked(NamedTuple):
    """How a source is to be opened."""

    purpose: str
    revision: str | None
    catalogue: bool
    follow_links: bool


def _open_text(text: str, part: str, is_name: bool, asked: _Asked) -> Checkpoint:
    """The checkpoint of a path or, where it is no path, of a name."""
    if is_name and text.startswith(PACKAGE):
        from mapper.sources.package import open_package

        return open_package(text.removeprefix(PACKAGE), asked.follow_links)
    place = _place(text)
    if _exists(place):
        if os.path.isdir(place):
            return open_directory(place, directory_name(text), asked.follow_links, part)
        return open_file(place, asked.follow_links)
    if not is_name or (_is_path(text) and not _is_file_of_hub(text)):
        raise MissingSourceError(f"{shorten(text, SHOWN)}: no such file or directory; check the path")
    return _open_id(text, part, asked)


def split_part(text: str) -> tuple[str, str]:
    """`SRC#PART` as its two parts; a path that is there stands for itself, whatever its name is."""
    whole, mark, part = text.rpartition(MARK)
    return (whole, part) if mark and whole and part and not _exists(text) else (text, "")


def _one_of(checkpoint: Checkpoint, part: str, rules: Sequence[str | Path]) -> Checkpoint:
    """The model `part` of several. Raises SourceError where none is named and one is needed."""
    from mapper.rulebook.rulebook import rulebook_of
    from mapper.sources.parts import choose_part, refuse_whole

    rulebook = rulebook_of(rules)
    if not part:
        refuse_whole(checkpoint, checkpoint.parts, rulebook)
    return choose_part(checkpoint, part, rulebook)


def _open_object(source: Any) -> Checkpoint:
    from mapper.sources.in_memory import open_mapping, open_module

    if isinstance(source, Mapping):
        return open_mapping(source)
    if hasattr(source, "state_dict"):
        return open_module(source)
    raise TypeError(f"a source is a path, a name, a manifest or a module, not {type(source).__name__}")


def _place(path: str) -> str:
    """Where what `path` names is: a writer that was killed may have left it beside."""
    if os.path.exists(path):
        return path
    from mapper.outputs.files import standing

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


def _open_id(text: str, part: str, asked: _Asked) -> Checkpoint:
    """The checkpoint of `owner/name@revision:FILE`."""
    from mapper.sources import hub

    repo, file = hub.split_file(text) or (text, None)
    name, at, given = repo.partition("@")
    return _open_repository(text, name, given if at else None, file, part, asked)


def _open_repository(
    text: str, name: str, given: str | None, file: str | None, part: str, asked: _Asked
) -> Checkpoint:
    """The checkpoint in a repository at the revision `given`, if one is; errors call the source `text`."""
    from mapper.sources import hub

    if given is not None and asked.revision is not None and given != asked.revision:
        raise SourceError(
            f"{shorten(text, SHOWN)}: names one revision, and {shorten(asked.revision)} is asked for; "
            "give one of them"
        )
    revision = asked.revision if given is None else given
    if not hub.is_id(name) or (revision is not None and not hub.is_revision(revision)):
        raise MissingSourceError(
            f"{shorten(text, SHOWN)}: no such file or directory, and not the id of a model on the "
            "hub (owner/name)"
        )
    try:
        return hub.open_hub(name, asked.purpose, revision, file, part)
    except SourceError as error:
        bundled = (
            _bundled(name)
            if asked.catalogue and revision is None and file is None and asked.purpose == "headers"
            else None
        )
        if bundled is not None:
            return bundled
        was_asked = error.__cause__ is not None  # what the hub answered is behind what is said of it
        more = _instead(name, was_asked) if isinstance(error, MissingSourceError) else ""
        if not more:
            raise
        raise MissingSourceError(f"{error}{more}") from error


def _instead(name: str, answered: bool) -> str:
    """What there is of a model that cannot be had, or what its name may have been meant for, as the end of a sentence."""
    from mapper.sources.pages import neighbours

    if not answered and _bundled(name) is not None:
        return "; its header is bundled, without weights: mapper inspect and mapper generate read that"
    return neighbours(name, answered)


def _bundled(name: str) -> Checkpoint | None:
    from mapper.catalogue import find

    return find(name)
