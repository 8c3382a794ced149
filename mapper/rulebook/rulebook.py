"""Finds the rule files, reads them once, and holds what they say."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mapper._parsed import Cache, SourceFile, digest
from mapper.errors import RuleError
from mapper.rulebook.strict import Document, parse_yaml, read_text

if TYPE_CHECKING:
    from mapper.flows.flow import Flow
    from mapper.rulebook.composites import Composites
    from mapper.rulebook.facts import ActivationRule, ConfigVocabulary, InputRule
    from mapper.rulebook.families import Family
    from mapper.rulebook.flows import FlowRule
    from mapper.rulebook.vocabulary import VocabularyFile

KINDS = ("vocabulary", "flows", "families")
_EXAMPLES = "examples"  # what of a family file no reading needs


def shipped_folder() -> Path:
    """Where the shipped rules are: `rules/` beside the package in a checkout, `mapper/_rules` in an installed wheel."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "_rules"
    return inside if inside.is_dir() else package.parent / "rules"


def rule_folders(extra_dirs: Iterable[Path | str] = ()) -> list[Path]:
    """Folders with rules, first wins: those given, the user's own, the shipped ones."""
    folders = []
    for folder in map(Path, extra_dirs):
        if not folder.is_dir():
            raise RuleError(f"{folder}:1: no such folder of rules")
        folders.append(folder)
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    user = Path(config) / "mapper" / "rules"
    return [*folders, *([user] if user.is_dir() else []), shipped_folder()]


def rule_files(kind: str, extra_dirs: Iterable[Path | str] = ()) -> list[Path]:
    """Files of one of KINDS; a file replaces those with the same relative path in later folders."""
    return [Path(file.path) for file in _found(kind, rule_folders(extra_dirs))]


def _found(kind: str, folders: Sequence[Path]) -> list[SourceFile]:
    chosen: dict[str, SourceFile] = {}
    for folder in folders:
        top = "" if folder is folders[-1] else f"{folder.as_posix()}/"
        for relative, stamp in sorted(_below(folder / kind, kind)):
            chosen.setdefault(relative, SourceFile(os.path.join(folder, relative), top + relative, stamp))
    return list(chosen.values())


def _below(folder: Path | str, relative: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """The relative path of each rule file in a folder and in those below it, its size and its time of writing."""
    if not os.path.isdir(folder):
        return
    for entry in os.scandir(folder):
        path = f"{relative}/{entry.name}"
        if entry.is_dir():
            yield from _below(entry.path, path)
        elif entry.name.endswith(".yaml"):
            info = entry.stat()
            yield path, (info.st_size, info.st_mtime_ns)


class Rulebook:
    """One rule set: documents by kind, and what they mean, each read when first asked for.

    `kinds` leaves out whole kinds: a reading without families is `Rulebook(kinds=("vocabulary", "flows"))`.
    """

    def __init__(self, extra_dirs: Iterable[Path | str] = (), kinds: Iterable[str] = KINDS):
        self.folders = rule_folders(extra_dirs)
        self.kinds = tuple(kinds)
        self._documents: dict[str, list[Document]] = {}
        self._digests: dict[str, str] = {}
        self._unsaved: dict[str, Cache] = {}
        self.parsed: dict[str, Flow] = {}  # flows whose body was parsed already

    @cached_property
    def digest(self) -> str:
        """Twelve digits that change with any rule; every report carries them."""
        for kind in self.kinds:
            self.documents(kind)
        return digest(kind + self._digests[kind] for kind in self.kinds)[:12]

    def files(self, kind: str) -> list[tuple[Path, str]]:
        """Files of a kind that no reading needs, and how messages name them."""
        return [(Path(file.path), file.label) for file in _found(kind, self.folders)]

    def documents(self, kind: str) -> list[Document]:
        """The parsed files of one of KINDS, in the order in which they win."""
        if kind not in self._documents:
            self._documents[kind] = self._read(kind) if kind in self.kinds else []
            if kind != "families":
                self._save(kind)
        return self._documents[kind]

    def _read(self, kind: str) -> list[Document]:
        files = _found(kind, self.folders)
        cache = Cache(kind, files)
        if kept := cache.read():
            self._digests[kind], contents = kept
            return [
                Document(Path(file.path), file.label, *content)
                for file, content in zip(files, contents, strict=True)
            ]
        texts = [read_text(Path(file.path), file.label) for file in files]
        labelled = list(zip(files, texts, strict=True))
        self._digests[kind] = digest(part for file, text in labelled for part in (file.label, text))
        documents = [parse_yaml(text, file.label, Path(file.path)) for file, text in labelled]
        self._unsaved[kind] = cache
        return documents

    def _save(self, kind: str) -> None:
        """Keep what was parsed for the next process, once it is known to be good."""
        if cache := self._unsaved.pop(kind, None):
            kept = [document.without(_EXAMPLES) for document in self.documents(kind)]
            cache.write(self._digests[kind], [[item.data, item.marks, item.lacks] for item in kept])

    @cached_property
    def vocabulary(self) -> list[VocabularyFile]:
        from mapper.rulebook.vocabulary import read_vocabulary

        return [read for document in self.documents("vocabulary") if (read := read_vocabulary(document))]

    @cached_property
    def config_vocabulary(self) -> ConfigVocabulary:
        """Where configs have which fact."""
        from mapper.rulebook.facts import read_config_vocabulary

        return read_config_vocabulary(self.documents("vocabulary"))

    @cached_property
    def inputs(self) -> dict[str, InputRule]:
        """Public inputs by name, in the order of a forward's parameters."""
        from mapper.rulebook.facts import read_inputs

        return read_inputs(self.documents("vocabulary"))

    @cached_property
    def activations(self) -> dict[str, ActivationRule]:
        """By the names that configs use."""
        from mapper.rulebook.facts import read_activations

        return read_activations(self.documents("vocabulary"))

    @cached_property
    def composites(self) -> Composites:
        """Files of several models, and what models are called by their names."""
        from mapper.rulebook.composites import read_composites

        return read_composites(self.documents("vocabulary"))

    @cached_property
    def families(self) -> list[Family]:
        from mapper.rulebook.families import read_families

        families = read_families(self.documents("families"))
        if (
            "families" in self._unsaved
        ):  # what is otherwise read when it is first asked for: no later reading checks it
            for family in families:
                tuple(family.facts.values())
                tuple(family.examples)
            self._save("families")
        return families

    def own_families(self, names: Container[str | None]) -> list[Family]:
        """Those of these names whose files are a user's own."""
        shipped = self.folders[-1]
        named = [family for family in self.families if family.name in names]
        return [family for family in named if shipped not in family.document.path.parents]

    @cached_property
    def flows(self) -> dict[str, FlowRule]:
        """By name."""
        from mapper.rulebook.flows import continued, read_flow

        flows: dict[str, FlowRule] = {}
        for document in self.documents("flows"):
            rule = read_flow(document.data, document.label, lambda keys, at=document: at.line(*keys))  # type: ignore[misc]
            if rule.name in flows:
                raise document.error(f"the flow {rule.name!r} is already in {flows[rule.name].file}", "flow")
            flows[rule.name] = rule
        return {name: continued(rule, flows) for name, rule in flows.items()}


_IN_USE: dict[
    str, tuple[list[SourceFile], Rulebook]
] = {}  # folders -> their files, and what was read of them


def rulebook_of(extra_dirs: Iterable[Path | str] = ()) -> Rulebook:
    """The rule set of these folders beside the shipped ones; the one before, unless a file of it has changed."""
    made = Rulebook(extra_dirs)
    key = os.pathsep.join(map(str, made.folders))
    files = [file for kind in made.kinds for file in _found(kind, made.folders)]
    if key not in _IN_USE or _IN_USE[key][0] != files:
        _IN_USE[key] = (files, made)
    return _IN_USE[key][1]


def rulebooks_in_use() -> list[Rulebook]:
    """Every rule set that this process has read by and whose files have not changed since."""
    return [made for _, made in _IN_USE.values()]
