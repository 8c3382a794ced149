"""Which files of a folder are as mapper wrote them: the one decision on what an output may replace.

A folder that `mapper.save` wrote has a document that says so of each file, `mapper.json`; one that `mapper.convert`
wrote has the same in the header of its first weights file. A generated source has it in its last line.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from mapper import limits
from mapper.checkpoint import Companions
from mapper.errors import MapperError, OverwriteError, listed
from mapper.outputs.files import OR_OVERWRITE, place_of, put_beside, refuse_to_replace, spare, whole_file
from mapper.sources.companions import copy
from mapper.sources.documents import parse, read_document
from mapper.sources.saved import DOCUMENT, FORMAT, SOURCE

RECORD = "mapper.files"  # in the header of a weights file: name in its folder -> digest
STEM, SUFFIX = "model", ".safetensors"
CONFIG = "config.json"
INDEX = STEM + SUFFIX + ".index.json"
_DIGITS = 16  # hexadecimal, of a SHA-256
_PIECE = 2**20


def digest(path: Path) -> str:
    """What changes when the file is edited: a hash of its bytes; of tensors, of their table and the file's size."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        if path.name.endswith(
            SUFFIX
        ):  # whoever writes another table of tensors writes other bytes before them
            found.update(_header(path))
            found.update(str(path.stat().st_size).encode())
        else:
            while piece := file.read(_PIECE):
                found.update(piece)
    return found.hexdigest()[:_DIGITS]


def digest_of(data: bytes) -> str:
    """`digest` of a file with these bytes."""
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


def digest_of_weights(header: bytes, size: int) -> str:
    """`digest` of a file of tensors by its header, with the length before it, and its size."""
    return digest_of(header + str(size).encode())


def digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """What a record says of these files."""
    return {name: digest(folder / name) for name in names}


def recorded(folder: Path) -> dict[str, str] | None:
    """What mapper wrote into a folder, as a record of name to digest, "" where none was taken; None if it wrote nothing."""
    by_document, by_header = _by_document(folder), _by_header(folder)
    if by_document is None and by_header is None:
        return None
    return {**(by_header or {}), **(by_document or {})}


def as_written(folder: Path, record: Mapping[str, str]) -> set[str]:
    """The files of a record that are there and were not changed since. Links are not mapper's."""
    return {
        name
        for name, known in record.items()
        if (folder / name).is_file() and not (folder / name).is_symlink() and _is_same(folder / name, known)
    }


def _is_same(path: Path, known: str) -> bool:
    try:
        return digest(path) == known if known else path.name != SOURCE or is_as_generated(path)
    except OSError:
        return False


def _by_document(folder: Path) -> dict[str, str] | None:
    path = folder / DOCUMENT
    if not path.is_file():
        return None
    try:
        document = read_document(path, limits.HEADER_BYTES)
    except MapperError:
        return None
    if document.get("format") != FORMAT:
        return None
    files = document.get("files")
    names = [name for name in files if isinstance(name, str)] if isinstance(files, list) else []
    known = {**_texts(document.get("digests")), **_texts(document.get("carried"))}
    return {**dict.fromkeys([*names, DOCUMENT], ""), **known}


def _by_header(folder: Path) -> dict[str, str] | None:
    """The record in the header of the weights, or of the first of several files of them."""
    first = [folder / (STEM + SUFFIX), *sorted(folder.glob(f"{STEM}-*1-of-*{SUFFIX}"))[:1]]
    for path in first:
        if not path.is_file():
            continue
        try:
            table = parse(_header(path)[8:], path.name)
            record = parse(table["__metadata__"][RECORD].encode(), path.name)
        except (MapperError, OSError, KeyError, TypeError, AttributeError):
            continue
        whole = 8 + len(_header(path)[8:]) + _data_bytes(table)
        return {**_texts(record), **({path.name: ""} if path.stat().st_size == whole else {})}
    return None


def _data_bytes(table: Mapping[str, Any]) -> int:
    ends = [entry.get("data_offsets", [0, 0])[1] for name, entry in table.items() if name != "__metadata__"]
    return max((end for end in ends if isinstance(end, int)), default=0)


def _header(path: Path) -> bytes:
    """The length and the table at the start of a file of tensors."""
    with open(path, "rb") as file:
        length = file.read(8)
        return length + file.read(min(int.from_bytes(length, "little"), limits.HEADER_BYTES))


def carried_before(out: str | os.PathLike[str]) -> dict[str, str]:
    """The record of files that a build carried into `out` and that are still as they were: a save leaves them there."""
    target = place_of(out)
    path = target / DOCUMENT
    record = _texts(read_document(path, limits.HEADER_BYTES).get("carried")) if _by_document(target) else {}
    return {name: record[name] for name in as_written(target, record)}


def _texts(table: Any) -> dict[str, str]:
    """A record from outside: what is no name in the folder is left out."""
    entries = table.items() if isinstance(table, dict) else ()
    return {name: known for name, known in entries if isinstance(known, str) and ".." not in name.split("/")}


def as_record(record: Mapping[str, str]) -> str:
    """A record as the text that a header holds."""
    return json.dumps(record, separators=(",", ":"))


class Replacing:
    """What may go from a folder that gets the files `names`: the `own` of `whole_folder`.

    Raises OverwriteError where something is there and `overwrite` is false, and where a file would change that mapper
    did not write or that was edited since. An edited source is kept under another name, which `notes` says.
    """

    def __init__(self, names: Collection[str], *, overwrite: bool, texts: Mapping[str, str] | None = None):
        self.names = names
        self.overwrite = overwrite
        self.texts = texts or {}  # of files that are known: what stands there already is not changed
        self.notes: list[str] = []

    def __call__(self, folder: Path) -> Collection[str]:
        own = as_written(folder, recorded(folder) or {})
        taken = [name for name in self._changed(folder) if name not in own]
        foreign = [name for name in taken if name != SOURCE]
        edited = SOURCE in taken
        if not self.overwrite:
            seen = (
                f"already exists, with a {SOURCE} that mapper did not write so"
                if edited
                else "already exists"
            )
            raise OverwriteError(f"{folder} {seen}; name a new folder{OR_OVERWRITE}")
        if foreign:
            raise OverwriteError(
                f"{folder} already exists, and mapper did not write {listed(foreign)} there, or it was changed since; "
                "name a new folder, or move it away"
            )
        self.notes = [kept_note(folder / SOURCE, spare(folder / SOURCE))] if edited else []
        return own

    def _changed(self, folder: Path) -> list[str]:
        """The files that are there and would be others, or would be read with the new ones or in their place."""
        rivals = [
            name
            for name in os.listdir(folder)
            if name == INDEX or (name.startswith(STEM) and name.endswith(SUFFIX))
        ]
        there = [name for name in dict.fromkeys([*self.names, *rivals]) if os.path.lexists(folder / name)]
        return [
            name for name in there if name not in self.texts or not _holds(folder / name, self.texts[name])
        ]


def _holds(path: Path, text: str) -> bool:
    """Whether a regular file has just this text."""
    if not path.is_file() or path.is_symlink() or path.stat().st_size > limits.CONFIG_BYTES:
        return False
    return path.read_bytes() == text.encode()


class Saving:
    """The `own` of a save, which replaces the one before it whatever became of that: only an edited source is kept."""

    def __init__(self, names: Collection[str]):
        self.names = names
        self.notes: list[str] = []

    def __call__(self, folder: Path) -> Collection[str] | None:
        from mapper.sources.saved import own_files

        own = own_files(folder)
        if own is None:
            return None
        record = _by_document(folder) or {}
        edited = (
            (folder / SOURCE).is_file()
            and SOURCE not in as_written(folder, {SOURCE: record.get(SOURCE, "")})
            and not is_as_generated(folder / SOURCE)
        )
        taken = [name for name in self.names if name not in own and os.path.lexists(folder / name)]
        kept = [*([SOURCE] if edited else []), *taken]
        self.notes = [kept_note(folder / name, spare(folder / name)) for name in kept]
        return set(own) - set(kept)


def check_place(
    out: str | os.PathLike[str],
    names: Collection[str] | None,
    *,
    overwrite: bool,
    texts: Mapping[str, str] | None = None,
) -> None:
    """Raise OverwriteError, before anything is read, where `out` may not become a folder with these files.

    `names` is None for what is to be one file.
    """
    target = place_of(out)
    if names is None:
        refuse_to_replace(target, out, overwrite)
    elif target.is_dir():
        if any(target.iterdir()):
            Replacing(names, overwrite=overwrite, texts=texts)(target)
    elif os.path.lexists(target):
        raise OverwriteError(f"{out} already exists and is no folder; name a new folder")


def check_out(out: str | os.PathLike[str], overwrite: bool, config: Mapping[str, Any] | None = None) -> None:
    """`check_place` for a model that is to be kept, with that config if it is known, in a folder or in one file."""
    texts = {CONFIG: config_text(config)} if config is not None else {}
    names = None if os.fspath(out).endswith(SUFFIX) else (SOURCE, DOCUMENT, *texts)
    check_place(out, names, overwrite=overwrite, texts=texts)


def config_text(config: Mapping[str, Any]) -> str:
    """A config as the file that is written of it."""
    return json.dumps(config, indent=2) + "\n"


def carry(companions: Companions, into: Path, out: str | os.PathLike[str]) -> tuple[list[str], list[str]]:
    """Copy files of a tokenizer and the like into a new content of `out`; their names, and what to say of others.

    What stands at `out` under such a name and is not mapper's stays there.
    """
    if not companions.files:
        return [], []
    target = place_of(out)
    own = as_written(target, recorded(target) or {})
    standing = {name for name in companions.files if name not in own and os.path.lexists(target / name)}
    names = [name for name in companions.files if name not in standing]
    copy(companions, names, into)
    return names, [
        f"{name} of {out} stays as it was: it is not mapper's"
        for name, path in companions.files.items()
        if name in standing and not _are_same(path, target / name)
    ]


def _are_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other) or (other.is_file() and filecmp.cmp(one, other, shallow=False))
    except OSError:
        return False


def write_source(path: str | os.PathLike[str], text: str, *, overwrite: bool = False) -> str:
    """Write a text that people edit; what was there and is not as mapper wrote it is kept. What to say of that, or ""."""
    target = place_of(path)
    with whole_file(path, overwrite=overwrite) as partial:
        partial.write_text(text, encoding="utf-8", newline="")
        if not target.is_file() or _holds(target, text) or is_as_generated(target):
            return ""
        return kept_note(target, put_beside(target))


def kept_note(path: Path, kept: Path) -> str:
    """What to say of a file that makes room."""
    return f"{path} was not as mapper wrote it: what it held is kept as {kept.name}"


def is_as_generated(path: Path) -> bool:
    """Whether the file is a source that mapper generated, to the character."""
    from mapper.emission.origin import is_unedited

    try:
        if path.stat().st_size > limits.CONFIG_BYTES:
            return False
        return is_unedited(path.read_bytes().decode())
    except (OSError, UnicodeDecodeError):
        return False
