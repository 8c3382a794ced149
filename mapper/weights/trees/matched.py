"""The leaves of a record and those of a tree, matched and checked; nothing is changed here but results noted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from mapper.errors import FormatError, StructureError, UnsupportedLeaf
from mapper.weights.arrays import as_tensor, is_array, raw_bytes
from mapper.weights.trees.leaf_bytes import (
    LeafReader,
    NothingStored,
    default_load_leaf,
    describe,
    dtype_name,
    is_expected,
    shape_of,
    stored_leaf,
)
from mapper.weights.trees.records import Entry, Path, RecordReader, identity, path_text
from mapper.weights.trees.walking import Leaf, Walked

_SHOWN = 20  # problems in one message; the rest is counted
_CONTEXT = 32  # levels for which a message says what stands beside
_ALONE = "only in"


class Fitting:
    """Reads a record into the leaves of a tree."""

    def __init__(self, walked: Walked, reader: RecordReader, strict: bool, by: str) -> None:
        self.walked, self.reader, self.strict, self.by = walked, reader, strict, by
        self.problems: list[tuple[Path, str]] = []  # where and what is wrong
        self.missing: list[Leaf] = []
        self.unexpected: list[tuple[Entry, str]] = []
        self.cause: Exception | None = None
        self.filled: dict[Leaf, Path] = {}
        self.left_out = {_name(path) for path in walked.left_out}

    def run(self, like: Any, at_end: Callable[[], None] = lambda: None) -> list[Leaf]:
        """The leaves that have a new result. The whole record is read, then StructureError says all that is wrong."""
        wanted = self._by_order() if self.by == "order" else self._by_path()
        for entry in self.reader.entries:
            self._read(entry, wanted.pop(id(entry), None))
        at_end()
        for leaf in self.walked.leaves:
            if leaf not in self.filled:
                self._without(leaf)
        if self.strict:
            self.problems += [(leaf.path, f"{_ALONE} like: {describe(leaf.value)}") for leaf in self.missing]
            self.problems += [(entry.path, f"{_ALONE} the file: {what}") for entry, what in self.unexpected]
        if self.problems:
            self._refuse(like)
        return list(self.filled)

    def _by_path(self) -> dict[int, list[Leaf]]:
        """The leaves that want each entry of the record, by its id."""
        names = {name: entry for entry in self.reader.entries for name in entry.names}
        wanted: dict[int, list[Leaf]] = {}
        for leaf in self.walked.leaves:
            for path in leaf.paths:
                entry = names.get(_name(path))
                if entry is not None and leaf not in (leaves := wanted.setdefault(id(entry), [])):
                    leaves.append(leaf)
        return wanted

    def _by_order(self) -> dict[int, list[Leaf]]:
        """As many leaves as are stored: those that the defaults store, or else all of them."""
        entries = [entry for entry in self.reader.entries if not self._is_left_out(entry)]
        stored = [leaf for leaf in self.walked.leaves if is_expected(leaf.value)]
        every = self.walked.leaves
        leaves = every if len(every) == len(entries) != len(stored) else stored
        return {id(entry): [leaf] for entry, leaf in zip(entries, leaves, strict=False)}

    def _read(self, entry: Entry, leaves: list[Leaf] | None) -> None:
        if leaves is None:
            first = self.reader.skip(entry)
            if not self._is_left_out(entry):
                self.unexpected.append((entry, _described(first)))
            return
        data = self.reader.leaf(entry)
        for number, leaf in enumerate(leaves):
            # Each its own memory: what was tied may be apart here.
            self._take(leaf, LeafReader(data if number + 1 == len(leaves) else bytearray(data)), entry)

    def _is_left_out(self, entry: Entry) -> bool:
        """Whether the filter has None for a place above the leaf, or for its own."""
        if not self.left_out:
            return False
        starts = (path[:cut] for path in entry.paths for cut in range(len(path) + 1))
        return any(_name(start) in self.left_out for start in starts)

    def _take(self, leaf: Leaf, reader: LeafReader, entry: Entry) -> None:
        path = next((path for path in leaf.paths if _name(path) in entry.names), leaf.path)
        value = self._called(leaf, reader, path)
        if value is _FAILED:
            return
        if leaf in self.filled and not _same(leaf.result, value):
            first = path_text(self.filled[leaf])
            self._problem(leaf, path, f"tie: not the value of {first}, which is the same tensor")
            return
        leaf.result = value
        self.filled.setdefault(leaf, path)

    def _without(self, leaf: Leaf) -> None:
        """A leaf that is not stored: its function may do without, but not read."""
        if leaf.failed:
            return
        reader = LeafReader(bytearray())
        missing, problems, cause = len(self.missing), len(self.problems), self.cause
        value = self._called(leaf, reader, leaf.path)
        if reader.was_asked:
            del self.problems[problems:]
            self.cause = cause
            if len(self.missing) == missing:
                self.missing.append(leaf)
        elif value is not _FAILED and value is not leaf.value:
            leaf.result = value
            self.filled[leaf] = leaf.path

    def _called(self, leaf: Leaf, reader: LeafReader, path: Path) -> Any:
        """What the function of a leaf returns, checked; `_FAILED` after a problem."""
        assert leaf.function is not None
        try:
            value = leaf.function(reader, leaf.value)
        except NothingStored:
            leaf.failed = True
            self.missing.append(leaf)
            return _FAILED
        except (StructureError, FormatError) as error:
            text = " ".join(str(error).split())
            self._problem(leaf, path, text, None if leaf.function is default_load_leaf else error)
            return _FAILED
        except Exception as error:
            self._problem(leaf, path, f"the function of filter_spec failed: {told(error)}", error)
            return _FAILED
        unread = leaf.function is default_load_leaf and not reader.was_asked and len(reader.data)
        stored = unread and f"type: here {describe(leaf.value)}, stored {_described(bytearray(reader.data))}"
        problem = stored or _unlike(value, leaf)
        if problem:
            self._problem(leaf, path, problem)
            return _FAILED
        return value

    def _problem(self, leaf: Leaf, path: Path, text: str, cause: Exception | None = None) -> None:
        leaf.failed = True
        self.cause = self.cause or cause
        self.problems.append((path, text))

    def _refuse(self, like: Any) -> None:
        count, around = len(self.problems), self._around()
        lines = [
            f"cannot load into {type(like).__name__}: {count} problem{'s' if count > 1 else ''}, nothing was changed"
        ]
        for path, text in self.problems[:_SHOWN]:
            lines.append(f"  {path_text(path)}   {text}")
            if text.startswith(_ALONE):
                lines.append(f"      {around(path)}")
        if count > _SHOWN:
            lines.append(f"  and {count - _SHOWN} more")
        if self._is_renamed():
            lines.append('  the same leaves in the same order stand under other names: by="order" takes them')
        raise StructureError("\n".join(lines), path_text(self.problems[0][0])) from self.cause

    def _around(self) -> Callable[[Path], str]:
        """For a path that one side lacks: the children that both sides have at the nearest common place."""
        here = _children(
            path for leaf in self.walked.leaves if is_expected(leaf.value) for path in leaf.paths
        )
        there = _children(path for entry in self.reader.entries for path in entry.paths)

        def line(path: Path) -> str:
            cut = len(path) - 1
            while cut > 0 and not (path[:cut] in here and path[:cut] in there):
                cut -= 1
            own, stored = here.get(path[:cut], {}), there.get(path[:cut], {})
            return f"at {path_text(path[:cut])}: like has {_names(own)}; the file has {_names(stored)}"

        return line

    def _is_renamed(self) -> bool:
        """Whether by="order" would pair what only one side has, and everything else as it was paired by path."""
        if self.by != "path" or not self.missing or len(self.problems) != 2 * len(self.missing):
            return False
        alone = {id(entry): what for entry, what in self.unexpected}
        in_order = self._by_order()
        pairs = [(entry, leaf) for entry in self.reader.entries for leaf in in_order.get(id(entry), [])]
        renamed = [(alone[id(entry)], leaf) for entry, leaf in pairs if id(entry) in alone]
        others = [(entry, leaf) for entry, leaf in pairs if id(entry) not in alone]
        return (
            len(renamed) == len(alone) == len(self.missing)
            and all(leaf in self.missing and describe(leaf.value) == what for what, leaf in renamed)
            and all(leaf in self.filled and _name(self.filled[leaf]) in entry.names for entry, leaf in others)
        )


_FAILED = object()


def _children(paths: Iterable[Path]) -> dict[Path, dict[str, None]]:
    """For the place of every container of the paths, its children that lead to leaves."""
    found: dict[Path, dict[str, None]] = {}
    for path in paths:
        for cut in range(min(len(path), _CONTEXT)):
            found.setdefault(path[:cut], {})[path[cut].text()] = None
    return found


def _names(children: dict[str, None]) -> str:
    names = list(children)
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return (", ".join(names[:8]) or "nothing") + more


def _name(path: Path) -> str:
    """The identity of a path in the tree; of one with keys that are never stored, one that no record has."""
    try:
        return identity(path)
    except UnsupportedLeaf:
        return f"not stored: {path_text(path)}"


def _described(data: bytearray) -> str:
    """What a leaf of a record is, if a default wrote it."""
    try:
        return stored_leaf(LeafReader(data), header_only=True).word()
    except (FormatError, NothingStored):
        return f"{len(data):,} bytes or more"


def told(error: Exception) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__


def _unlike(value: Any, leaf: Leaf) -> str:
    """In what a result is not like the leaf, where both have a shape and a dtype; in a module they must."""
    like = leaf.value
    if leaf.state is not None and not is_array(value):
        return f"type: here {describe(like)}, the function of filter_spec returned {describe(value)}"
    dtypes: list[Any] = [getattr(each, "dtype", None) for each in (value, like)]
    shapes: list[Any] = [shape_of(each) for each in (value, like)]
    if value is like or any(part is None for part in (*dtypes, *shapes)):
        return ""
    same = dtype_name(dtypes[0]) == dtype_name(dtypes[1]) and tuple(shapes[0]) == tuple(shapes[1])
    return "" if same else f"here {describe(like)}, the function of filter_spec returned {describe(value)}"


def _same(one: Any, other: Any) -> bool:
    """Whether two values of one tied tensor have the same bits."""
    return torch.equal(raw_bytes(as_tensor(one)), raw_bytes(as_tensor(other)))
