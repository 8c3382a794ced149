"""The vocabulary, compiled: patterns as tries over reversed words, matched in one walk from the end of a path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from mapper.architecture import Place
from mapper.naming.tree import NUMBER, Node
from mapper.naming.words import normal, parts
from mapper.rulebook.vocabulary import SECTIONS, Entry, VocabularyFile

ANY = "*"  # as a part: a folder of any name, decided by what it holds
ROOT = "{root}"
Words = Sequence["str | tuple[int, ...]"]


@dataclass(frozen=True)
class Match:
    """An entry whose pattern fits the end of a path, by how many words."""

    entry: Entry
    length: int  # 0: by a part of the last word, -1: by what the folder holds
    rank: int  # of the rule's origin: a family's entries (1) win over the vocabulary's (0)


@dataclass
class Spot:
    """Where something stands: its folded path, and the folders from the root to the one that holds it."""

    place: Place
    nodes: tuple[Node, ...]  # len(place) of them: nodes[0] is the root, nodes[-1] holds the last word
    node: Node  # what stands there
    elements: tuple[Node, ...] = ()  # the list elements around it, the closest first
    words: list[str | tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.words = [normal(word) if isinstance(word, str) else word for word in self.place]
        lists = (at for at in range(len(self.place) - 1, 0, -1) if isinstance(self.place[at - 1], tuple))
        self.elements = tuple(self.nodes[at] for at in lists)


class Trie:
    """Patterns of one section by their last word first."""

    def __init__(self) -> None:
        self.root: dict[Any, Any] = {}
        self.by_part: dict[str, list[tuple[Entry, int]]] = {}

    def add(self, entry: Entry, rank: int = 0) -> None:
        for pattern in entry.names:
            node = self.root
            for word in reversed(pattern_words(pattern)):
                node = node.setdefault(word, {})
            node.setdefault(None, []).append((entry, rank))
        for part in entry.parts:
            self.by_part.setdefault(part, []).append((entry, rank))

    def matches(self, words: Words) -> list[Match]:
        """Every entry whose pattern fits the end of `words`: families first, then the longest, then the file's order."""
        found = []
        for node, length in self._walk(words):
            found += [Match(entry, length, rank) for entry, rank in node.get(None, ())]
        last = last_word(words)
        if last and self.by_part:
            found += [
                Match(entry, 0, rank)
                for part in sorted(parts(last))
                for entry, rank in self.by_part.get(part, ())
            ]
            found += [Match(entry, -1, rank) for entry, rank in self.by_part.get(ANY, ())]
        found.sort(key=lambda match: (-match.rank, -match.length, -match.entry.conditions))
        return found

    def splits(self, words: Words) -> Iterator[tuple[int, int]]:
        """Positions in `words` whose indices a pattern tells apart, with the index that it names."""
        for node, length in self._walk(words):
            at = len(words) - 1 - length
            indices = words[at] if at >= 0 else ()
            if isinstance(indices, tuple) and len(indices) > 1:
                yield from ((at, index) for index in indices if str(index) in node)

    def _walk(self, words: Words) -> Iterator[tuple[dict[Any, Any], int]]:
        nodes = [self.root]
        length = 0
        while nodes:
            yield from ((node, length) for node in nodes)
            if length == len(words):
                return
            nodes = list(_step(nodes, words[len(words) - 1 - length]))
            length += 1


def _step(nodes: list[dict[Any, Any]], word: str | tuple[int, ...]) -> Iterator[dict[Any, Any]]:
    wanted = (word,) if isinstance(word, str) else (str(word[0]), NUMBER) if len(word) == 1 else (NUMBER,)
    for node in nodes:
        for each in wanted:
            if each in node:
                yield node[each]


@lru_cache(maxsize=8192)
def pattern_words(pattern: str) -> tuple[str, ...]:
    """The words of a pattern as they are compared; a leading `{root}` stands for any prefix, as does nothing."""
    words = pattern.split(".")
    if words[0] == ROOT:
        words = words[1:]
    return tuple(word if word == NUMBER else normal(word) for word in words)


@dataclass(frozen=True)
class Overrides:
    """What a family says about names, in place of the vocabulary."""

    names: Mapping[str, str] = field(default_factory=dict)  # pattern -> role path; "/..." starts at the root
    kinds: Mapping[str, str] = field(default_factory=dict)  # pattern -> leaf kind
    transposed: Sequence[str] = ()  # Linear layers whose weight is stored [in, out]
    unused: Mapping[str, str] = field(default_factory=dict)  # pattern -> why

    def entries(self) -> Iterator[Entry]:
        for pattern, target in self.names.items():
            scope = "root" if target.startswith("/") else "any"
            yield Entry("roles", target.lstrip("/"), scope, (pattern,))
        for pattern, kind in self.kinds.items():
            yield Entry("kinds", kind, "any", (pattern,))
        for pattern in self.transposed:
            yield Entry("transposed", "transposed", "any", (pattern,))
        for pattern, why in self.unused.items():
            yield Entry("unused", why, "any", (pattern,))


class Vocabulary:
    """All files of a rule set compiled, optionally with a family's overrides on top."""

    def __init__(self, files: Iterable[VocabularyFile], overrides: Overrides | None = None):
        self.files = tuple(files)
        self.tries = {section: Trie() for section in (*SECTIONS, "transposed", "unused")}
        self.block_kinds: dict[str, str] = {}
        self.roles_of: dict[str, str] = {}
        self.tensors: dict[str, str] = {}  # tensor name -> purpose
        for file in self.files:
            for entry in file.entries:
                self.tries[entry.section].add(entry)
            self.block_kinds |= file.block_kinds
            self.roles_of |= file.roles_of
            self.tensors |= {name: purpose for purpose, names in file.tensors.items() for name in names}
        for entry in overrides.entries() if overrides else ():
            self.tries[entry.section].add(entry, rank=1)

    def block_kind(self, role: str) -> str:
        """The kind of the block that plays a role; "other" for a role that no file names."""
        return self.block_kinds.get(role) or self.block_kinds.get(unnumbered(role), "other")

    def takes_roles_of(self, role: str) -> str:
        """The kind of block whose roles a block has: those of an expert are a feed-forward's."""
        return self.roles_of.get(unnumbered(role)) or self.block_kind(role)

    def tower(self, word: str | tuple[int, ...]) -> str | None:
        """The tower that a folder's name stands for, if any."""
        match = (
            next(iter(self.tries["towers"].matches([normal(word)])), None) if isinstance(word, str) else None
        )
        return match.entry.target if match else None

    def matches(self, section: str, spot: Spot, kind: str | None = None) -> Iterator[Match]:
        """The entries of a section that fit this spot, the strongest first."""
        for match in self.tries[section].matches(spot.words):
            if fits(match, spot, kind):
                yield match

    def decide(self, section: str, spot: Spot, kind: str | None = None) -> Match | None:
        """The entry that wins here."""
        return next(self.matches(section, spot, kind), None)


def unnumbered(role: str) -> str:
    """`attention_2`, the second attention of a layer, without its number."""
    stem = role.rstrip("0123456789")
    return stem[:-1] if stem != role and stem.endswith("_") else role


def fits(match: Match, spot: Spot, kind: str | None) -> bool:
    """Whether the conditions of an entry hold where its pattern fits."""
    entry = match.entry
    if entry.kinds and kind not in entry.kinds:
        return False
    if entry.not_parts and not parts(last_word(spot.words)).isdisjoint(entry.not_parts):
        return False
    if entry.holds and not any(has_path(spot.node, path) for path in entry.holds):
        return False
    if any(has_path(spot.node, path) for path in entry.not_holds):
        return False
    left = spot.words[: len(spot.words) - max(match.length, 1)]
    if entry.within and not is_within(left, entry.within):
        return False
    if entry.not_within and is_within(left, entry.not_within):
        return False
    if entry.beside or entry.not_beside:
        around = _around(match, spot)
        if entry.beside and not any(has_path(node, path) for node in around for path in entry.beside):
            return False
        return not any(has_path(node, path) for node in around for path in entry.not_beside)
    return True


def _around(match: Match, spot: Spot) -> list[Node]:
    """The folder in which the pattern begins, and the list elements around it."""
    return [spot.nodes[len(spot.place) - max(match.length, 1)], *spot.elements]


def last_word(words: Words) -> str:
    """The last word that is no number: an element of a list is named after the list."""
    return next((word for word in reversed(words) if isinstance(word, str)), "")


def is_within(left: Words, wanted: Iterable[str]) -> bool:
    """Whether one of the words, or of their parts, stands in a path."""
    return any(
        isinstance(word, str) and (word in wanted or not parts(word).isdisjoint(wanted)) for word in left
    )


def has_path(node: Node, path: str) -> bool:
    """Whether a folder holds a path of pattern words."""
    return node.holds(pattern_words(path))
