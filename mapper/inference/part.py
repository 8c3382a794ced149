"""The part of a checkpoint that has the names of a family: what else stands in the file is not the family's to judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mapper._dataclass import dataclass
from mapper.inference.names import Names, words_of
from mapper.naming.towers import Folder
from mapper.words import shared_start

if TYPE_CHECKING:
    from mapper.architecture import Leaf, Place
    from mapper.rulebook.families import Family
    from mapper.rulebook.vocabulary import Region


@dataclass(frozen=True)
class Home:
    """Folders with the names of a family, and the folders beside them that hold layers of something else."""

    folders: tuple[Folder, ...] = ((),)
    foreign: frozenset[Folder] = frozenset()

    def holds(self, place: Place) -> bool:
        """Whether a path is the family's: inside of its folders, or beside them as heads are."""
        return not self.foreign or self.holds_words(words_of(place))  # asked for each fact of each block

    def holds_words(self, words: Sequence[str | tuple[int, ...]]) -> bool:
        return not any(tuple(words[:length]) in self.foreign for length in range(1, len(words) + 1))

    def surrounds(self, place: Place) -> bool:
        """Whether a path lies inside of its folders, or the whole file is the family's."""
        words = tuple(words_of(place))
        return not self.foreign or any(words[: len(folder)] == folder for folder in self.folders)


def home_of(family: Family, names: Names) -> Home:
    """Where the names that a family is recognised by stand."""
    folders = tuple(dict.fromkeys(map(_above_lists, names.homes(family.recognise))))
    every = (words for pattern in family.recognise for words in names.found(pattern))
    hits = [words for words in every if any(words[: len(folder)] == folder for folder in folders)]
    foreign = set()
    for path in names.lists:
        around = max(folders, key=lambda folder: shared_start(path, folder))
        branch = path[: shared_start(path, around) + 1]
        if len(branch) <= len(path) and not any(words[: len(branch)] == branch for words in hits):
            foreign.add(branch)
    return Home(folders, frozenset(foreign))


def _above_lists(folder: Folder) -> Folder:
    """The folder that holds the first list on the way to one."""
    at = next((at for at, word in enumerate(folder) if isinstance(word, tuple)), None)
    return folder if at is None else folder[: max(at - 1, 0)]


@dataclass(frozen=True)
class Part:
    """One tower and the family that reads it."""

    tower: str
    folder: str  # the field of the config that holds the tower's own; "" where that stands at the top
    model_type: str  # as its config calls it, or, where that is silent, the family of the whole
    family: Family
    region: Region  # the paths that the family's words are meant for
    is_listed: bool = True  # False: its own part of the config names a type that no family lists


@dataclass(frozen=True)
class Stranger:
    """A tower of a type that no family lists."""

    tower: str
    folder: str
    region: Region


@dataclass(frozen=True)
class Checked:
    """A family, and the part of a checkpoint that it speaks about."""

    family: Family
    folder: str  # of the config
    model_type: str | None  # None: as the config says
    names: Names
    leaves: list[Leaf]
