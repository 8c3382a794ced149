"""The vocabulary, compiled: patterns as tries over reversed words, matched in one walk from the end of a path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import field
from functools import lru_cache
from typing import Any

from mapper._dataclass import dataclass
from mapper.architecture import Place
from mapper.naming.tree import NUMBER, Node
from mapper.rulebook.vocabulary import SECTIONS, Entry, Region, VocabularyFile, end
from mapper.words import normal, parts, unnumbered

ANY = "*"  # as a part: a folder of any name, decided by what it holds
ROOT = "{root}"
TOWER = "{tower}"
Words = Sequence["str | tuple[int, ...]"]
_KNOWN = 2**13  # paths of which a trie keeps what matches


@dataclass(frozen=True)
class Match:
    """An entry whose pattern fits the end of a path, by how many words."""

    entry: Entry
    length: int  # 0: by a part of the last word, -1: by what the folder holds
    rank: int  # of the rule's origin: a family's entries (from 1) win over the vocabulary's (0)


class Spot:
    """Where something stands: its folded path, and the folders from the root to the one that holds it."""

    __slots__ = ("node", "nodes", "place", "words")

    def __init__(self, place: Place, nodes: tuple[Node, ...], node: Node, words: Words):
        self.place = place
        self.nodes = nodes  # len(place) of them: nodes[0] is the root, nodes[-1] holds the last word
        self.node = node  # what stands there
        self.words = words  # the place as patterns compare it

    def child(self, part: str | tuple[int, ...], node: Node) -> Spot:
        word = normal(part) if isinstance(part, str) else part
        return Spot(self.place.child(part), (*self.nodes, self.node), node, (*self.words, word))

    def folder(self, length: int) -> Spot:
        """The folder that the first `length` parts of the place lead to."""
        node = self.nodes[length] if length < len(self.nodes) else self.node
        return Spot(Place(self.place[:length]), self.nodes[:length], node, self.words[:length])

    def renamed(self, word: str) -> Spot:
        """The same under another last word."""
        return Spot(self.place, self.nodes, self.node, (*self.words[:-1], normal(word)))

    def with_indices(self, at: int, indices: tuple[int, ...]) -> Spot:
        """The same for some of the elements of a list."""
        place, words = (
            (*whole[:at], indices, *whole[at + 1 :]) for whole in (tuple(self.place), tuple(self.words))
        )
        return Spot(Place(place), self.nodes, self.node, words)

    def elements(self) -> list[Node]:
        """The list elements around it, the closest first."""
        at = range(len(self.place) - 1, 0, -1)
        return [self.nodes[length] for length in at if isinstance(self.place[length - 1], tuple)]


class Trie:
    """Patterns of one section by their last word first, on top of those of another one.

    Those of files are entered when a name ends as they do: of thousands a checkpoint asks for some dozens.
    """

    def __init__(self, below: Trie | None = None) -> None:
        self.below = below
        self.root: dict[Any, Any] = {}
        self.by_part: dict[str, list[tuple[Entry, int]]] = {}
        self._matches: dict[Words, Sequence[Match]] = {}  # of the words that were asked for last
        self._words: dict[str, list[tuple[VocabularyFile, Sequence[int]]]] = {}
        self._parts: dict[str, list[tuple[VocabularyFile, Sequence[int]]]] = {}

    def add(self, entry: Entry, rank: int = 0) -> None:
        """Enter an entry that no file has."""
        self._matches.clear()
        for pattern in entry.names:
            _enter(self.root, entry, pattern, rank)

    def add_file(self, file: VocabularyFile, section: str) -> None:
        self._matches.clear()
        words, parts = file.ends[section]
        for word, numbers in words.items():
            self._words.setdefault(word, []).append((file, numbers))
        for part, numbers in parts.items():
            self._parts.setdefault(part, []).append((file, numbers))
        for word in (ROOT, TOWER):  # of a pattern without words, which fits any name
            self._ready(word)

    def _ready(self, word: str) -> None:
        """Enter the patterns of files that end with a word: all at once, for another thread may be here too."""
        if word not in self._words or word in self.root:
            return
        above: dict[Any, Any] = {}
        for entry in (file.entries[at] for file, numbers in self._words[word] for at in numbers):
            for pattern in entry.names:
                if end(pattern) == word:
                    _enter(above, entry, pattern, 0)
        self.root |= above

    def _of_part(self, part: str) -> Sequence[tuple[Entry, int]]:
        if part in self._parts and part not in self.by_part:
            files = self._parts[part]
            self.by_part[part] = [(file.entries[at], 0) for file, numbers in files for at in numbers]
        return self.by_part.get(part, ())

    def matches(self, words: Words) -> Sequence[Match]:
        """Every entry whose pattern fits the end of `words`: families first, then the longest, then the file's order."""
        key = tuple([word if isinstance(word, str) or len(word) == 1 else () for word in words])
        matches = self._matches.get(key)
        if matches is None:
            found = [*self._found(words), *(self.below.matches(words) if self.below else ())]
            matches = tuple(sorted(found, key=_strength))
            if len(self._matches) >= _KNOWN:
                self._matches.clear()
            self._matches[key] = matches
        return matches

    def _found(self, words: Words) -> Iterator[Match]:
        """Those of its own."""
        for node, length in self._walk(words):
            for entry, rank in node.get(None, ()):
                yield Match(entry, length, rank)
        last = last_word(words)
        if last and self._parts:
            for part in sorted(parts(last)):
                for entry, rank in self._of_part(part):
                    yield Match(entry, 0, rank)
        if (last or not words) and self._parts:  # the whole may be a list, too
            for entry, rank in self._of_part(ANY):
                yield Match(entry, -1, rank)

    def splits(self, words: Words) -> Iterator[tuple[int, int]]:
        """Positions in `words` whose indices a pattern tells apart, with the index that it names."""
        for node, length in self._walk(words):
            at = len(words) - 1 - length
            indices = words[at] if at >= 0 else ()
            if isinstance(indices, tuple) and len(indices) > 1:
                for index in () if length else indices:
                    self._ready(str(index))
                yield from ((at, index) for index in indices if str(index) in node)
        if self.below:
            yield from self.below.splits(words)

    def _walk(self, words: Words) -> Iterator[tuple[dict[Any, Any], int]]:
        nodes = [self.root]
        length = 0
        while nodes:
            yield from ((node, length) for node in nodes)
            if length == len(words):
                return
            wanted = _called(words[len(words) - 1 - length])
            for word in () if length else wanted:
                self._ready(word)
            nodes = [node[word] for node in nodes for word in wanted if word in node]
            length += 1


def _strength(match: Match) -> tuple[int, int, int]:
    return -match.rank, -match.length, -match.entry.conditions


def _called(word: str | tuple[int, ...]) -> tuple[str, ...]:
    """What patterns call a word or the numbers in its place."""
    return (word,) if isinstance(word, str) else (str(word[0]), NUMBER) if len(word) == 1 else (NUMBER,)


def _enter(root: dict[Any, Any], entry: Entry, pattern: str, rank: int) -> None:
    node = root
    for word in reversed(pattern_words(pattern)):
        node = node.setdefault(word, {})
    node.setdefault(None, []).append((entry, rank))


@lru_cache(maxsize=8192)
def pattern_words(pattern: str) -> tuple[str, ...]:
    """The words of a pattern as they are compared; a leading `{root}` stands for any prefix, as does nothing, `{tower}` for any without a list."""
    words = pattern.split(".")
    if words[0] in (ROOT, TOWER):
        words = words[1:]
    return tuple(word if word == NUMBER else normal(word) for word in words)


@dataclass(frozen=True)
class Overrides:
    """What a family says about names, in place of the vocabulary."""

    names: Mapping[str, str] = field(default_factory=dict)  # pattern -> role path; "/..." starts at the root
    kinds: Mapping[str, str] = field(default_factory=dict)  # pattern -> leaf kind
    transposed: Sequence[str] = ()  # Linear layers whose weight is stored [in, out]
    forms: Mapping[str, str] = field(default_factory=dict)  # pattern -> form of a leaf ("offset")
    unused: Mapping[str, str] = field(default_factory=dict)  # pattern -> why
    folders: Mapping[str, Sequence[str]] = field(default_factory=dict)  # tower -> names of folders
    region: Region | None = None  # the paths that it is meant for; None: all
    origin: str = "the family"  # as messages name it

    def entries(self) -> Iterator[Entry]:
        for pattern, target in self.names.items():
            scope = "whole" if target.startswith("/") else "any"
            yield Entry(
                "roles", target.lstrip("/"), scope, (pattern,), region=self.region, origin=self.origin
            )
        for pattern, kind in self.kinds.items():
            yield Entry("kinds", kind, "any", (pattern,), region=self.region, origin=self.origin)
        for pattern in self.transposed:
            yield Entry("forms", "transposed", "any", (pattern,), region=self.region, origin=self.origin)
        for pattern, form in self.forms.items():
            yield Entry("forms", form, "any", (pattern,), region=self.region, origin=self.origin)
        for pattern, why in self.unused.items():
            yield Entry("unused", why, "any", (pattern,), region=self.region, origin=self.origin)


class Vocabulary:
    """All files of a rule set compiled."""

    def __init__(self, files: Iterable[VocabularyFile]):
        self.files = tuple(files)
        self.tries = {section: Trie() for section in (*SECTIONS, "unused")}
        self.block_kinds: dict[str, str] = {}
        self.roles_of: dict[str, str] = {}
        self.tensors: dict[str, str] = {}  # tensor name -> purpose
        self._words: dict[str, set[str]] = {}  # what parts of names speak of -> those parts
        for file in self.files:
            for section in file.ends:
                self.tries[section].add_file(file, section)
            self.block_kinds |= file.block_kinds
            self.roles_of |= file.roles_of
            self.tensors |= {name: purpose for purpose, names in file.tensors.items() for name in names}
            for thing, words in file.words.items():
                self._words.setdefault(thing, set()).update(words)
        self.folders: dict[str, str] = {}  # name of a folder -> the tower that a family says it is of

    def below(self, overrides: Iterable[Overrides]) -> Vocabulary:
        """The same with what families say on top: the last of them wins."""
        made = copy(self)
        made.tries = {section: Trie(trie) for section, trie in self.tries.items()}
        made.folders = dict(self.folders)
        for rank, own in enumerate(overrides, 1):
            made.folders |= {normal(word): tower for tower, words in own.folders.items() for word in words}
            for entry in own.entries():
                made.tries[entry.section].add(entry, rank)
        return made

    def words(self, thing: str) -> Set[str]:
        """The parts of names that speak of something, one of WORDS_OF."""
        return self._words.get(thing, frozenset())

    def block_kind(self, role: str) -> str:
        """The kind of the block that plays a role; "other" for a role that no file names."""
        return self.block_kinds.get(role) or self.block_kinds.get(unnumbered(role), "other")

    def takes_roles_of(self, role: str) -> str:
        """The kind of block whose roles a block has: those of an expert are a feed-forward's."""
        return self.roles_of.get(unnumbered(role)) or self.block_kind(role)

    def tower(self, words: Words) -> str | None:
        """The tower that the last of these folders stands for, if any; a pattern may tell what it stands in."""
        if not words or not isinstance(words[-1], str):
            return None
        plain = [normal(word) if isinstance(word, str) else word for word in words]
        match = next(iter(self.tries["towers"].matches(plain)), None)
        return self.folders.get(str(plain[-1])) or (match.entry.target if match else None)

    @staticmethod
    def tower_words(files: Iterable[VocabularyFile], tower: str) -> frozenset[str]:
        """The words and parts of words that stand for a tower."""
        own = [entry for file in files for entry in file.of("towers") if entry.target == tower]
        names = (".".join(pattern_words(name)) for entry in own for name in entry.names)
        return frozenset((*names, *(normal(part) for entry in own for part in entry.parts)))

    def matches(self, section: str, spot: Spot, kind: str | None = None) -> Iterator[Match]:
        """The entries of a section that fit this spot, the strongest first."""
        for match in self.tries[section].matches(spot.words):
            if fits(match, spot, kind):
                yield match

    def verdicts(self, section: str, spot: Spot, kind: str | None = None) -> list[tuple[Match, str]]:
        """Every entry whose pattern fits, the strongest first, with the condition that forbids it or ""."""
        matches = self.tries[section].matches(spot.words)
        return [(match, next(unmet(match, spot, kind), "")) for match in matches]

    def decide(self, section: str, spot: Spot, kind: str | None = None) -> Match | None:
        """The entry that wins here."""
        return next(self.matches(section, spot, kind), None)


def fits(match: Match, spot: Spot, kind: str | None) -> bool:
    """Whether the conditions of an entry hold where its pattern fits."""
    return next(unmet(match, spot, kind), None) is None


def unmet(match: Match, spot: Spot, kind: str | None) -> Iterator[str]:
    """The conditions of an entry that do not hold where its pattern fits."""
    entry = match.entry
    if entry.region and not in_region(entry.region, spot.place):
        yield "another tower's word"
    if entry.kinds and kind not in entry.kinds:
        yield f"not of kind {', '.join(entry.kinds)}"
    if entry.with_parts and parts(last_word(spot.words)).isdisjoint(entry.with_parts):
        yield f"has no part of {', '.join(entry.with_parts)}"
    if entry.not_parts and not parts(last_word(spot.words)).isdisjoint(entry.not_parts):
        yield f"has a part of {', '.join(entry.not_parts)}"
    if entry.holds and not any_path([spot.node], entry.holds):
        yield f"holds none of {', '.join(entry.holds)}"
    if entry.not_holds and any_path([spot.node], entry.not_holds):
        yield f"holds one of {', '.join(entry.not_holds)}"
    left = spot.words[: len(spot.words) - max(match.length, 1)]
    if entry.within and not is_within(left, entry.within):
        yield f"within none of {', '.join(entry.within)}"
    if entry.not_within and is_within(left, entry.not_within):
        yield f"within one of {', '.join(entry.not_within)}"
    if entry.beside and not any_path(_around(match, spot), entry.beside):
        yield f"beside none of {', '.join(entry.beside)}"
    if entry.not_beside and any_path(_around(match, spot), entry.not_beside):
        yield f"beside one of {', '.join(entry.not_beside)}"
    if entry.depthwise and not any_depthwise(_around(match, spot), entry.depthwise):
        yield f"none of {', '.join(entry.depthwise)} is a depthwise convolution"
    if entry.not_depthwise and any_depthwise(_around(match, spot), entry.not_depthwise):
        yield f"one of {', '.join(entry.not_depthwise)} is a depthwise convolution"


def in_region(region: Region, place: Words) -> bool:
    """Whether a path is one of a region's."""
    words = [normal(part) for part in place if isinstance(part, str)]
    others = [word for word in words if word not in region.own]
    return (not region.inside or is_within(words, region.inside)) and not is_within(others, region.outside)


def _around(match: Match, spot: Spot) -> list[Node]:
    """The folder in which the pattern begins, and the list elements around it."""
    return [spot.nodes[len(spot.place) - max(match.length, 1)], *spot.elements()]


def last_word(words: Words) -> str:
    """The last word that is no number: an element of a list is named after the list."""
    return next((word for word in reversed(words) if isinstance(word, str)), "")


def is_within(left: Words, wanted: Iterable[str]) -> bool:
    """Whether one of the words, or of their parts, stands in a path; or several with dots between, in this order."""
    return any(
        isinstance(word, str) and (word in wanted or not parts(word).isdisjoint(wanted)) for word in left
    ) or any(_stand_in(left, name.split(".")) for name in wanted if "." in name)


def _stand_in(left: Words, names: list[str]) -> bool:
    """Whether these words stand in a path one after another."""
    return any(list(left[at : at + len(names)]) == names for at in range(len(left) - len(names) + 1))


def any_path(nodes: Iterable[Node], paths: Iterable[str]) -> bool:
    """Whether one of the folders holds one of the paths of pattern words."""
    return any(node.holds(pattern_words(path)) for node in nodes for path in paths)


def any_depthwise(nodes: Iterable[Node], paths: Iterable[str]) -> bool:
    """Whether one of the folders holds at one of the paths a convolution that reads one channel for each of several outputs."""
    weights = (node.at(*path.split("."), "weight") for node in nodes for path in paths)
    shapes = (weight.info.shape for weight in weights if weight is not None and weight.info is not None)
    return any(len(shape) == 4 and shape[0] > 1 == shape[1] for shape in shapes)
