"""Finds the rule files, reads them once, and holds what they say."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.errors import RuleError
from mapper.rulebook.strict import Document, parse_yaml, read_text

if TYPE_CHECKING:
    from mapper.flows.flow import Flow
    from mapper.rulebook.facts import ActivationRule, ConfigVocabulary, InputRule
    from mapper.rulebook.families import Family
    from mapper.rulebook.flows import FlowRule
    from mapper.rulebook.vocabulary import VocabularyFile

KINDS = ("vocabulary", "flows", "families")
_CACHE_FORMAT = 1  # raised when the layout of the cache file changes
_CACHES_KEPT = 4  # rule sets in use side by side: a user's rules, a checkout, a wheel


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
    return [path for path, _ in _found(kind, rule_folders(extra_dirs))]


def _found(kind: str, folders: Sequence[Path]) -> list[tuple[Path, str]]:
    """Each file with its label: the relative path for shipped files, the path as it was given for others."""
    chosen: dict[str, tuple[Path, str]] = {}
    for folder in folders:
        shipped = folder is folders[-1]
        for path in sorted((folder / kind).rglob("*.yaml")):
            relative = path.relative_to(folder).as_posix()
            chosen.setdefault(relative, (path, relative if shipped else path.as_posix()))
    return list(chosen.values())


class Rulebook:
    """One rule set: documents by kind, and what they mean, each read when first asked for.

    `kinds` leaves out whole kinds: a reading without families is `Rulebook(kinds=("vocabulary", "flows"))`.
    """

    def __init__(self, extra_dirs: Iterable[Path | str] = (), kinds: Iterable[str] = KINDS):
        self.folders = rule_folders(extra_dirs)
        self.kinds = tuple(kinds)
        self._documents: dict[str, list[Document]] = {}
        self.parsed: dict[str, Flow] = {}  # flows whose body was parsed already

    @cached_property
    def _files(self) -> dict[str, list[tuple[Path, str, str]]]:
        """Path, label and text of each file, by kind."""
        return {
            kind: [(path, label, read_text(path, label)) for path, label in _found(kind, self.folders)]
            for kind in self.kinds
        }

    @cached_property
    def digest(self) -> str:
        """Twelve digits that change with any rule; every report carries them."""
        return _digest([kind + self._digest_of(kind) for kind in self.kinds])[:12]

    def _digest_of(self, kind: str) -> str:
        return _digest(part for _, label, text in self._files[kind] for part in (label, text))

    def documents(self, kind: str) -> list[Document]:
        """The parsed files of one of KINDS, in the order in which they win."""
        if kind not in self._documents:
            self._documents[kind] = self._parsed(kind) if kind in self.kinds else []
        return self._documents[kind]

    def _parsed(self, kind: str) -> list[Document]:
        files = self._files[kind]
        cache = cache_folder() / f"{kind}-{_CACHE_FORMAT}-{self._digest_of(kind)[:24]}.json"
        contents = _read_cache(cache)
        if contents is None or len(contents) != len(files):
            documents = [parse_yaml(text, label, path) for path, label, text in files]
            _write_cache(cache, [[document.data, document.marks] for document in documents])
            return documents
        return [
            Document(path, label, *content) for (path, label, _), content in zip(files, contents, strict=True)
        ]

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
    def families(self) -> list[Family]:
        from mapper.rulebook.families import read_families

        return read_families(self.documents("families"))

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


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}\0{part}".encode())
    return digest.hexdigest()


def cache_folder() -> Path:
    """The user's cache folder for this tool."""
    base = (
        os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/.cache")
    )
    return Path(base) / "mapper"


def _read_cache(path: Path) -> list[list[Any]] | None:
    """Parsed files that an earlier process left; parsing YAML takes ten times as long as reading them."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def _write_cache(path: Path, contents: list[list[Any]]) -> None:
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(contents, separators=(",", ":")), encoding="utf-8")
        partial.replace(path)
        kept = sorted(
            path.parent.glob(f"{path.name.partition('-')[0]}-*.json"), key=lambda file: -file.stat().st_mtime
        )
        for old in kept[_CACHES_KEPT:]:
            old.unlink()
    except OSError:  # no place to keep it: the rules are parsed each time
        return
