"""Model directories shipped inside installed Python packages, found without importing them."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from mapper import limits
from mapper.checkpoint import Checkpoint
from mapper.errors import MissingSourceError, SourceError, listed, shorten
from mapper.sources import sharded
from mapper.sources.companions import STEP_FOLDERS
from mapper.sources.directory import INDEX_SUFFIX, PACKAGE, TORCH_SUFFIXES, open_directory, open_file
from mapper.sources.files import LATER_SUFFIXES

PREFIX = PACKAGE
WEIGHTS = (".safetensors", *TORCH_SUFFIXES, INDEX_SUFFIX, ".npz", ".gguf", ".onnx", ".msgpack")


def open_package(name: str, follow_links: bool = False) -> Checkpoint:
    """The checkpoint in the package `name`, or in a folder of it: `package.folder`, `package/folder`.

    `name:FILE` is one weight file, of the package's folder of that name or of the only one with models.
    """
    name, colon, file = name.partition(":")
    words = name.replace("/", ".").split(".")
    if not all(word.replace("-", "_").isidentifier() for word in words):
        raise MissingSourceError(
            f"{PREFIX}{shorten(name)[1:-1]}: not the name of a package; expected package:NAME, "
            "package:NAME.FOLDER or package:NAME:FILE"
        )
    roots = _roots(words)
    if not roots:
        remedy = f"install it with `pip install {words[0].replace('_', '-')}`"
        raise MissingSourceError(f"{PREFIX}{name}: no installed package has this name; {remedy}")
    found = [folder for root in roots for folder in _model_folders(root)]
    if colon:
        return _open_file(name, file, [*roots, *found], follow_links)
    if not found:
        raise MissingSourceError(
            f"{PREFIX}{name}: the package has no folder with weights ({', '.join(WEIGHTS[:4])})"
        )
    complete = [folder for folder in found if (folder / "config.json").is_file()] or found
    if len(complete) > 1:
        choices = [".".join((words[0], *_below(folder, roots))) for folder in complete]
        raise SourceError(
            f"{PREFIX}{name}: the package has {len(complete)} models; name one: {listed(choices)}"
        )
    return open_directory(complete[0], PREFIX + name, follow_links)


def _open_file(name: str, file: str, folders: list[Path], follow_links: bool) -> Checkpoint:
    """The checkpoint in one file of a package, by its path below one of these folders."""
    source = f"{PREFIX}{name}:{file}"
    places = [folder for folder in folders if sharded.is_inside(file) and (folder / file).is_file()]
    places = list(dict.fromkeys(places))
    if not places:
        there = [_shown(entry, folders[0]) for folder in folders[1:] for entry in _weight_files(folder)]
        hint = f"it has {listed(list(dict.fromkeys(there)))}" if there else "nor any other file of weights"
        raise MissingSourceError(f"{PREFIX}{name}: the package has no file {shorten(file)}; {hint}")
    if len(places) > 1:
        choices = [_shown(folder / file, folders[0]) for folder in places]
        raise SourceError(
            f"{source}: the package has {len(places)} files of this name; name one: {listed(choices)}"
        )
    sharded.refuse_escape(os.fspath(places[0]), file, source, follow_links)
    checkpoint = open_file(places[0] / file, follow_links)
    checkpoint.source = source
    return checkpoint


def _weight_files(folder: Path) -> Iterator[Path]:
    return (folder / name for name in sorted(os.listdir(folder)) if name.endswith(WEIGHTS))


def _shown(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def _roots(words: list[str]) -> list[Path]:
    """The folder that the dotted name stands for: of an import package, else of a distribution."""
    for top in _import_folders(words[0].replace("-", "_")) or _distribution_folders(words[0]):
        below = _descend(top, words[1:])
        if below is not None:
            return [below]
    return []


def _import_folders(name: str) -> list[Path]:
    """Where the top-level package `name` lies. Nothing of it runs; a dotted name would import its parents."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a module that is being replaced, or has no spec
        return []
    locations = spec.submodule_search_locations if spec is not None else None
    return [Path(location) for location in locations or [] if os.path.isdir(location)]


def _distribution_folders(name: str) -> list[Path]:
    """The top-level folders that the distribution `name` installed, where its import name is another."""
    from importlib import metadata

    try:
        files = metadata.files(name) or []
    except (metadata.PackageNotFoundError, ValueError):
        return []
    tops = dict.fromkeys(file.parts[0] for file in files if len(file.parts) > 1 and file.suffix == ".py")
    folders = [
        Path(str(file.locate())).parents[len(file.parts) - 2]
        for file in files
        if len(file.parts) > 1 and file.parts[0] in tops
    ]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _descend(folder: Path, words: list[str]) -> Path | None:
    for word in words:
        matching = [word] if (folder / word).is_dir() else [word.replace("-", "_")]
        folder = folder / matching[0]
        if not folder.is_dir():
            return None
    return folder


def _model_folders(root: Path) -> Iterator[Path]:
    """The folders at and below `root` that hold weights, or would in a container without a reader."""
    seen = 0
    for folder, folders, files in os.walk(root):
        seen += len(folders) + len(files)
        if seen > limits.PACKAGE_ENTRIES or len(Path(folder).relative_to(root).parts) >= limits.PACKAGE_DEPTH:
            folders.clear()
        folders.sort()
        folders[:] = [name for name in folders if name not in STEP_FOLDERS]
        if any(file.endswith(WEIGHTS) or file.lower().endswith(tuple(LATER_SUFFIXES)) for file in files):
            yield Path(folder)


def _below(folder: Path, roots: list[Path]) -> tuple[str, ...]:
    return next(
        (folder.relative_to(root).parts for root in roots if folder.is_relative_to(root)), folder.parts[-1:]
    )
