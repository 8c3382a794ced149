"""The rule files of one kind: where they are, what they hold, and the index by which rules are found in them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from mapper._collector import collection_paused
from mapper._parsed import Cache, Kept, Read, SourceFile, digest, keep
from mapper.rulebook.renamed import Renamed, renamed_document
from mapper.rulebook.strict import Document, KeptDocument, parse_yaml, read_text

_FAMILIES, _EXAMPLES = "families", "examples"  # what of a family file no reading needs
_CODE = Path(__file__).resolve().parent
_WORDS = [_CODE.parent / name for name in ("architecture.py", "limits.py", "_parsed.py", "words.py")]


def found(kind: str, folders: Sequence[Path]) -> list[SourceFile]:
    """Files of a kind; a file replaces those with the same relative path in later folders, the last of which is shipped."""
    chosen: dict[str, SourceFile] = {}
    for folder in folders:
        top = "" if folder is folders[-1] else f"{folder.as_posix()}/"
        for label, path, size, time in sorted(_below(os.path.join(folder, kind), kind)):
            if label not in chosen:
                chosen[label] = SourceFile(path, top + label, size, time)
    return list(chosen.values())


@cache
def readers() -> list[SourceFile]:
    """The files of this package that decide what a rule file is read as."""
    code = [_CODE / name for name in sorted(os.listdir(_CODE)) if name.endswith(".py")]
    infos = [(path, path.stat()) for path in (*code, *_WORDS)]
    return [SourceFile(str(path), path.name, info.st_size, info.st_mtime_ns) for path, info in infos]


def _below(folder: str, relative: str) -> list[tuple[str, str, int, int]]:
    """Each rule file in a folder and in those below it: its relative path, its path, its size and time of writing."""
    files = []
    waiting = [(folder, relative)]
    while waiting:
        folder, relative = waiting.pop()
        try:
            entries = os.scandir(folder)
        except OSError:  # not every folder of rules has every kind
            continue
        with entries:
            for entry in entries:
                if entry.is_dir():
                    waiting.append((entry.path, f"{relative}/{entry.name}"))
                elif entry.name.endswith(".yaml"):
                    info = entry.stat()
                    files.append((f"{relative}/{entry.name}", entry.path, info.st_size, info.st_mtime_ns))
    return files


class Shelf:
    """The files of one kind in one rule set. What another process kept of just these is believed; else they are read."""

    @collection_paused()  # what is kept becomes thousands of objects, all of them held
    def __init__(self, kind: str, folders: Sequence[Path]):
        self.kind, self.files = kind, found(kind, folders)
        self.name = kind.replace("/", "-")  # of what is kept
        beside = found(_EXAMPLES, folders) if kind == _FAMILIES else []
        self._cache = Cache(self.name, os.pathsep.join(map(str, folders)), [*self.files, *beside], readers())
        self._kept = self._cache.read()
        self._read: dict[int, Document] = {}  # by number
        self._added: list[Document] = []

    @cached_property
    def documents(self) -> list[Document]:
        """Every file, in the order in which they win. None has been looked at by more than the reader of YAML."""
        return [*self._added, *map(self.document, range(len(self.files)))]

    def document(self, at: int) -> Document:
        """The file with this number in the index."""
        if self._added:
            return self.documents[at]
        if at not in self._read:
            read = KeptDocument(self.files[at], self._kept, at) if self._kept else self._parsed(at)
            self._read[at] = renamed_document(read) if self._may_have_old_names(at) else read
        return self._read[at]

    @property
    def notes(self) -> list[str]:
        """What the files that were read call by names of old."""
        read = [*self._added, *self._read.values()]
        return [note for document in read if isinstance(document, Renamed) for note in document.notes]

    def _may_have_old_names(self, at: int) -> bool:
        """A user's file may; what is in a folder of the namings are other libraries' words."""
        return "/" not in self.kind and not self.files[at].label.startswith(f"{self.kind}/")

    def add(self, document: Document) -> None:
        """Put a file from elsewhere before the others."""
        now = renamed_document(document)
        self.documents.insert(0, now)
        self._added.insert(0, now)
        self.__dict__.pop("index", None)

    @cached_property
    def index(self) -> Any:
        """What the rules of this kind are found by. Raises RuleError for a mistake in any file."""
        if self._kept and not self._added:
            return self._kept.index
        from mapper.rulebook.index import INDEXES

        if self._added:
            return INDEXES[self.kind](self.documents)
        same = next((kept for kept in self._others if kept.text == self._text), None)
        self._kept = kept = same or self._compiled(INDEXES[self.kind](self.documents))
        self._cache.write(kept)
        return kept.index

    @property
    def text(self) -> str:
        """The digest of the files' labels and texts."""
        return self._text if self._added else self.compiled().text

    def compiled(self) -> Kept:
        """All that another process needs to believe the files unread."""
        _ = self.index
        assert self._kept is not None
        return self._kept

    def _compiled(self, index: Any) -> Kept:
        own = enumerate(self.documents)  # names of old are kept as they were written: they are said anew
        bare = [
            (self._parsed(at) if isinstance(document, Renamed) else document).without(_EXAMPLES)
            for at, document in own
        ]
        read = [
            Read([item.data, item.lacks], document.made, item.marks, source)
            for item, document, source in zip(bare, self.documents, self._digests, strict=True)
        ]
        return keep(read, self._text, self._cache.readers_digest, index)

    # what follows is needed only where nothing was kept
    @cached_property
    def _texts(self) -> list[str]:
        return [read_text(Path(file.path), file.label) for file in self.files]

    @cached_property
    def _digests(self) -> list[str]:
        return [
            digest([text, *self._beside(file)]) for file, text in zip(self.files, self._texts, strict=True)
        ]

    def _beside(self, file: SourceFile) -> Iterator[str]:
        """The examples beside a file: what a family must have is made of them."""
        from mapper.rulebook.examples import path_beside

        path = path_beside(Path(file.path)) if self.kind == _FAMILIES else None
        if path and path.is_file():
            yield read_text(path, path.as_posix())

    @cached_property
    def _text(self) -> str:
        labels = (file.label for file in self.files)
        return digest(part for pair in zip(labels, self._digests, strict=True) for part in pair)

    @cached_property
    def _others(self) -> list[Kept]:
        """What was kept of other lists of files, in which some of these may be."""
        return list(self._cache.others())

    @cached_property
    def _known(self) -> dict[str, tuple[Kept, int]]:
        """The digest of a text -> where what it gave is."""
        known: dict[str, tuple[Kept, int]] = {}
        for kept in self._others:
            for source, at in kept.numbers().items():
                known.setdefault(source, (kept, at))
        return known

    def _parsed(self, at: int) -> Document:
        file = self.files[at]
        if self._digests[at] in self._known:
            return KeptDocument(file, *self._known[self._digests[at]])
        return parse_yaml(self._texts[at], file.label, Path(file.path))
