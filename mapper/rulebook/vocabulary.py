"""Vocabulary files: what words mean. The matcher that uses them is `mapper.naming.vocabulary`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, overload

from mapper._collector import collection_paused
from mapper._dataclass import dataclass
from mapper.architecture import BLOCK_KINDS, LEAF_KINDS
from mapper.rulebook.fields import Fields
from mapper.rulebook.strict import Document, KeyPath
from mapper.words import normal

SCOPES = ("any", "layer", "tower", "root", "whole")  # "whole": the root, even inside of a tower's folder
SECTIONS = (
    "roles",
    "blocks",
    "lists",
    "numbered",
    "numbered_blocks",
    "named_blocks",
    "towers",
    "kinds",
    "forms",
)  # what a pattern can decide
# what parts of names may speak of where shapes or what stands beside decide the rest: no role of their own
WORDS_OF = (
    "norm",
    "first_norm",  # of several in a layer, as those that stand before what they are of
    "later_norm",
    "position",
    "query",
    "key",
    "value",
    "qkv",
    "up",
    "down",
    "convolution",
    "count",  # of how many inputs statistics are
)
OTHER_FILES = (
    "config",
    "inputs",
    "activations",
    "composites",
    "chain",
)  # files of this folder with a schema of their own


@dataclass(frozen=True)
class Region:
    """Paths that a family of one tower speaks about, by the words of folders."""

    inside: frozenset[str] = frozenset()  # one of these words or parts of words occurs; empty: any path
    outside: frozenset[str] = frozenset()  # none of these does
    own: frozenset[str] = frozenset()  # but whole words that are this tower's, whatever their parts are


@dataclass(
    eq=False, slots=True
)  # not frozen: that takes five times as long to make, and there are over a thousand
class Entry:
    """One line of a vocabulary: patterns that mean `target`, and what must stand around them."""

    section: str  # one of SECTIONS
    target: str  # "attention.query", a list or tower step, a leaf kind
    scope: str  # one of SCOPES
    names: tuple[str, ...] = ()  # patterns: words and {n}, joined by dots, matched at the end of a path
    parts: tuple[
        str, ...
    ] = ()  # parts of the last word ("norm" in "final_norm_2"); weaker than any pattern; "*": any word
    with_parts: tuple[str, ...] = ()  # the last word has one of these parts, too
    not_parts: tuple[str, ...] = ()  # parts that the last word must not have
    beside: tuple[
        str, ...
    ] = ()  # at least one of these paths stands beside the pattern or in its list element
    not_beside: tuple[str, ...] = ()  # none of these does
    within: tuple[str, ...] = ()  # at least one of these words or parts of words stands to the left
    not_within: tuple[str, ...] = ()  # none of these does
    holds: tuple[str, ...] = ()  # the folder itself holds one of these paths
    not_holds: tuple[str, ...] = ()  # it holds none of these
    depthwise: tuple[str, ...] = ()  # one of these paths beside it is a convolution channel by channel
    not_depthwise: tuple[str, ...] = ()  # none of these is
    inside: bool = False  # only in a block that a folder makes: the word is too general elsewhere
    kinds: tuple[str, ...] = ()  # the leaf has one of these kinds; empty: any
    ranks: tuple[int, ...] = ()  # the weight has one of these numbers of dimensions; empty: any
    kernel: tuple[int, ...] = ()  # the windows of the weight have these sizes; empty: any
    bias: bool | None = None  # the leaf has a bias (True), has none (False)
    region: Region | None = None  # where it holds: a family of one tower says it
    origin: str = ""  # who says so, where it is no vocabulary file
    document: Document | None = None
    keys: KeyPath = ()
    line: int = 0  # where it stands, if that is known already

    @property
    def conditions(self) -> int:
        """How many conditions it has: of two patterns of one length the more special one wins."""
        lists = (
            self.beside,
            self.not_beside,
            self.within,
            self.not_within,
            self.holds,
            self.not_holds,
            self.depthwise,
            self.not_depthwise,
            self.kinds,
        )
        return sum(map(bool, lists))

    @property
    def where(self) -> str:
        """`vocabulary/attention.yaml:12`."""
        if self.document is None:
            return self.origin
        return f"{self.document.label}:{self.line or self.document.line(*self.keys)}"


Ends = Mapping[str, tuple[Mapping[str, Sequence[int]], Mapping[str, Sequence[int]]]]


@dataclass(frozen=True)
class VocabularyFile:
    """One file: its entries, the names of a module's tensors, the kind of each block."""

    name: str
    entries: Sequence[Entry]
    tensors: dict[str, tuple[str, ...]]  # what a module's own tensors are called, by purpose
    block_kinds: dict[str, str]  # block role -> one of BLOCK_KINDS
    roles_of: dict[str, str]  # block role -> the kind of block whose roles it has
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)  # one of WORDS_OF -> parts of names

    @cached_property
    def ends(self) -> Ends:
        """Of each section the numbers of its entries by the last words of their names, and by their parts."""
        return self.entries.ends if isinstance(self.entries, KeptEntries) else ends_of(self.entries)

    def of(self, section: str) -> list[Entry]:
        """The entries of one section."""
        numbers = (found for table in self.ends.get(section, ()) for found in table.values())
        return [self.entries[at] for at in sorted({at for found in numbers for at in found})]


def end(name: str) -> str:
    """The last word of a pattern as it is compared."""
    return normal(name.rpartition(".")[2])


def ends_of(entries: Sequence[Entry]) -> Ends:
    found: dict[str, tuple[dict[str, list[int]], dict[str, list[int]]]] = {}
    for at, entry in enumerate(entries):
        words, parts = found.setdefault(entry.section, ({}, {}))
        for word in dict.fromkeys(map(end, entry.names)):
            words.setdefault(word, []).append(at)
        for part in entry.parts:
            parts.setdefault(part, []).append(at)
    return found


class KeptEntries(Sequence[Entry]):
    """The entries of a file as they were kept. Each is made when it is asked for: most are of words that no name has."""

    def __init__(self, document: Document, rows: list[str], ends: Ends):
        self.document, self.rows, self.ends = document, rows, ends
        self._made: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> list[Entry]: ...
    def __getitem__(self, at: int | slice) -> Entry | list[Entry]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        made = self._made.get(at)
        return made or self._made.setdefault(at, _entry(self.document, self.rows[at]))


def read_vocabulary(document: Document) -> VocabularyFile | None:
    """What the file says; None for the files of this folder that are read elsewhere."""
    fields = Fields(document.data, document.label, lambda keys: document.line(*keys))
    name = fields.text("vocabulary")
    if name in OTHER_FILES:
        return None
    scope = fields.text("scope", "any")
    if scope not in SCOPES:
        fields.fail(f"{scope!r} is not one of {', '.join(SCOPES)}", "scope")
    entries = [entry for section in SECTIONS for entry in _section(fields, document, section, scope)]
    tensors = {key: _texts(fields, value, "tensors", key) for key, value in fields.mapping("tensors").items()}
    kinds = dict(_block_kinds(fields))
    roles_of = fields.mapping("roles_of")
    speaking = fields.inner(fields.mapping("words"), "words")
    speaking.done(WORDS_OF)
    words = {thing: speaking.words(thing) for thing in speaking.data}
    fields.done()
    return VocabularyFile(name, tuple(entries), tensors, kinds, roles_of, words)


@collection_paused()
def vocabulary_of(document: Document) -> VocabularyFile:
    """The same of a file that `read_vocabulary` reads, by what was made of it where that is there."""
    if document.made is None:
        read = read_vocabulary(document)
        assert read is not None
        return read
    name, rows, *tables, ends = document.made
    tensors, block_kinds, roles_of, words = tables
    names, speaking = ({key: tuple(those) for key, those in table.items()} for table in (tensors, words))
    return VocabularyFile(name, KeptEntries(document, rows, ends), names, block_kinds, roles_of, speaking)


def plain_vocabulary(read: VocabularyFile) -> list[Any]:
    """All of a file as JSON has it: of an entry, as a text of its own, where it stands, its names, and what it says beside these."""
    rows = []
    for entry in read.entries:
        assert entry.document is not None
        line = entry.document.line(*entry.keys)
        said = {name: value for name in _SAID if (value := getattr(entry, name)) not in ((), False, None)}
        said |= {"bias": False} if entry.bias is False else {}
        row = [entry.section, entry.target, entry.scope, line, entry.names]
        rows.append(json.dumps([*row, said] if said else row, separators=(",", ":")))
    ends = {section: list(tables) for section, tables in read.ends.items()}
    return [read.name, rows, read.tensors, read.block_kinds, read.roles_of, read.words, ends]


def _entry(document: Document, text: str) -> Entry:
    row = json.loads(text)
    section, target, scope, line, names = row[:5]
    made = Entry(section, target, scope, tuple(names), document=document, line=line)
    for name, value in row[5].items() if len(row) > 5 else ():
        setattr(made, name, tuple(value) if isinstance(value, list) else value)
    return made


def _section(fields: Fields, document: Document, section: str, scope: str) -> Iterator[Entry]:
    for target, items in fields.mapping(section).items():
        if section == "kinds" and target not in LEAF_KINDS:
            fields.fail(f"{target!r} is no leaf kind; allowed: {', '.join(LEAF_KINDS)}", section, target)
        if not isinstance(items, list):
            fields.fail("expected a list of patterns", section, target)
        for at, item in enumerate(items):
            keys = (section, target, at)
            if isinstance(item, str):
                yield Entry(section, target, scope, (item,), document=document, keys=keys)
            else:
                yield read_entry(document, section, target, scope, item, keys)


# what a line of a vocabulary may say beside its patterns' names, and how each is read
_READERS: dict[str, Callable[[Fields, str], Any]] = {
    "scope": Fields.text,
    **dict.fromkeys(("names", "parts", "with_parts", "not_parts", "beside", "not_beside"), Fields.words),
    **dict.fromkeys(("within", "not_within", "holds", "not_holds"), Fields.words),
    **dict.fromkeys(("depthwise", "not_depthwise", "kind"), Fields.words),
    "inside": Fields.flag,
    **dict.fromkeys(("rank", "kernel"), lambda fields, key: tuple(fields.sequence(key))),
    "bias": Fields.any,
}
_ATTRIBUTES = {"kind": "kinds", "rank": "ranks"}  # of an Entry, where they are not called as in a file
_SAID = [_ATTRIBUTES.get(key, key) for key in _READERS if key not in ("scope", "names")]


def read_entry(document: Document, section: str, target: str, scope: str, data: Any, keys: KeyPath) -> Entry:
    """One entry with conditions."""
    fields = Fields(data, document.label, lambda inner: document.line(*inner), keys)
    fields.done(_READERS)
    made = Entry(section, target, scope, document=document, keys=keys)
    for key in data:  # what it says: most say few of what they could
        setattr(made, _ATTRIBUTES.get(key, key), _READERS[key](fields, key))
    if not made.names and not made.parts:
        fields.fail("neither names nor parts")
    if made.scope not in SCOPES:
        fields.fail(f"{made.scope!r} is not one of {', '.join(SCOPES)}", "scope")
    for kind in made.kinds:
        if kind not in LEAF_KINDS:
            fields.fail(f"{kind!r} is no leaf kind; allowed: {', '.join(LEAF_KINDS)}", "kind")
    return made


def _texts(fields: Fields, value: Any, *keys: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        fields.fail("expected a list of texts", *keys)
    return tuple(value)


def _block_kinds(fields: Fields) -> Iterator[tuple[str, str]]:
    for kind, value in fields.mapping("block_kinds").items():
        if kind not in BLOCK_KINDS:
            fields.fail(f"{kind!r} is no block kind; allowed: {', '.join(BLOCK_KINDS)}", "block_kinds", kind)
        for role in _texts(fields, value, "block_kinds", kind):
            yield role, kind
