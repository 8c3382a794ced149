"""Finds the rule files, reads them once, and holds what they say."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable
from functools import cache, cached_property, partial, reduce
from operator import xor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.errors import RuleError
from mapper.rulebook.index import FamilyEntry, FlowTable, family_entries, flow_table
from mapper.rulebook.shelf import Shelf, found

if TYPE_CHECKING:
    from mapper.rulebook.chain import ChainWords
    from mapper.rulebook.composites import Composites
    from mapper.rulebook.dropout import DropoutRule
    from mapper.rulebook.facts import ActivationRule, ConfigVocabulary, InputRule
    from mapper.rulebook.families import Family
    from mapper.rulebook.flows import FlowRule
    from mapper.rulebook.strict import Document
    from mapper.rulebook.vocabulary import VocabularyFile

KINDS = ("vocabulary", "flows", "families", "dropout")


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
    return [Path(file.path) for file in found(kind, rule_folders(extra_dirs))]


class Rulebook:
    """One rule set: documents by kind, and what they mean, each read when first asked for.

    `kinds` leaves out whole kinds: a reading without families is `Rulebook(kinds=("vocabulary", "flows"))`.
    """

    def __init__(self, extra_dirs: Iterable[Path | str] = (), kinds: Iterable[str] = KINDS):
        self.folders = rule_folders(extra_dirs)
        self.kinds = tuple(kinds)
        self.paired: dict[
            str, list[FlowRule]
        ] = {}  # topic -> flows that drafts have put together of its steps

    @cached_property
    def shelves(self) -> dict[str, Shelf]:
        """The files by kind."""
        return {kind: Shelf(kind, self.folders) for kind in self.kinds}

    @cached_property
    def digest(self) -> str:
        """Twelve digits that change with any rule; every report carries them."""
        texts = (int(shelf.text, 16) for shelf in self.shelves.values())
        return f"{reduce(xor, texts, 0):064x}"[:12]

    def is_current(self) -> bool:
        """Whether every file is as it was when this rule set was made."""
        return all(shelf.files == found(kind, self.folders) for kind, shelf in self.shelves.items())

    def documents(self, kind: str) -> list[Document]:
        """The parsed files of one of KINDS, in the order in which they win."""
        return self.shelves[kind].documents if kind in self.kinds else []

    def index(self, kind: str) -> Any:
        """What the rules of one of KINDS are found by. Raises RuleError for a mistake in any file of it."""
        return self.shelves[kind].index if kind in self.kinds else {}

    @property
    def notes(self) -> list[str]:
        """What files of the user's own that were read call by names of old."""
        return [note for shelf in self.shelves.values() for note in shelf.notes]

    def add(self, kind: str, document: Document) -> None:
        """Put a file from elsewhere before those of its kind. No rule of it may have been read yet."""
        self.shelves[kind].add(document)

    def _document(self, kind: str, at: int) -> Document:
        return self.shelves[kind].document(at)

    def _called(self, *names: str) -> list[Document]:
        """Vocabulary files with one of these names; without, those with a name that is none of `OTHER_FILES`."""
        from mapper.rulebook.vocabulary import OTHER_FILES

        called = enumerate(self.index("vocabulary"))
        numbers = [at for at, name in called if (name in names if names else name not in OTHER_FILES)]
        return [self._document("vocabulary", at) for at in numbers]

    @cached_property
    def vocabulary(self) -> list[VocabularyFile]:
        from mapper.rulebook.vocabulary import vocabulary_of

        return [vocabulary_of(document) for document in self._called()]

    @cached_property
    def config_vocabulary(self) -> ConfigVocabulary:
        """Where configs have which fact."""
        from mapper.rulebook.facts import read_config_vocabulary

        return read_config_vocabulary(self._called("config"))

    @cached_property
    def inputs(self) -> dict[str, InputRule]:
        """Public inputs by name, in the order of a forward's parameters."""
        from mapper.rulebook.facts import read_inputs

        return read_inputs(self._called("inputs"))

    @cached_property
    def activations(self) -> dict[str, ActivationRule]:
        """By the names that configs use."""
        from mapper.rulebook.named_activations import read_activations

        return read_activations(self._called("activations"))

    @cached_property
    def composites(self) -> Composites:
        """Files of several models, and what models are called by their names."""
        from mapper.rulebook.composites import read_composites

        return read_composites(self._called("composites"))

    @cached_property
    def chain_words(self) -> ChainWords:
        """What may lie between the layers of networks that no family knows."""
        from mapper.rulebook.chain import read_chain_words

        return read_chain_words(self._called("chain"))

    @property
    def families(self) -> list[Family]:
        """Every family, read whole."""
        return [entry.read() for entry in self.family_entries]

    @property
    def noted_families(self) -> set[str]:
        """The names of the families that were read since this set was cleared."""
        return self.family_entries[0].noted if self.family_entries else set()

    def note_all_families(self) -> None:
        """Say that an answer rests on every family, though none of them is read for it again."""
        for entry in self.family_entries[:1]:
            entry.note_all()

    @cached_property
    def family_entries(self) -> list[FamilyEntry]:
        """What each family is known by, in the order of the files."""
        return family_entries(self.index("families"), partial(self._document, "families"))

    def dropout(self, model_type: str) -> DropoutRule | None:
        """Where training drops what in models of this type."""
        numbers = self.index("dropout")
        return self._dropout(numbers[model_type])[model_type] if model_type in numbers else None

    @cached_property
    def _dropout(self) -> Callable[[int], dict[str, DropoutRule]]:
        """What the file with a number says, by type."""
        from mapper.rulebook.dropout import read_dropout

        return cache(lambda at: read_dropout(self._document("dropout", at)))

    def own_families(self, names: Container[str | None]) -> list[Family]:
        """Those of these names whose files are a user's own."""
        shipped = self.folders[-1]
        named = [entry.read() for entry in self.family_entries if entry.name in names]
        return [family for family in named if shipped not in family.document.path.parents]

    @cached_property
    def flows(self) -> FlowTable:
        """By name."""
        return flow_table(self.index("flows"), partial(self._document, "flows"))

    @cached_property
    def flow_facts(self) -> list[str]:
        """The facts by which flows are chosen, or of which they take some values."""
        return self.flows.facts()


_IN_USE: dict[str, Rulebook] = {}  # by their folders


def rulebook_of(extra_dirs: Iterable[Path | str] = ()) -> Rulebook:
    """The rule set of these folders beside the shipped ones; the one before, unless a file of it has changed."""
    made = Rulebook(extra_dirs)
    key = os.pathsep.join(map(str, made.folders))
    if key not in _IN_USE or not _IN_USE[key].is_current():
        _IN_USE[key] = made
    return _IN_USE[key]


def rulebooks_in_use() -> list[Rulebook]:
    """Every rule set that this process has read by and whose files have not changed since."""
    return list(_IN_USE.values())
