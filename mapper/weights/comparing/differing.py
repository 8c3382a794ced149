"""What two checkpoints, models or trees have in common and where they differ, from headers alone unless asked for more."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mapper._collector import collection_paused
from mapper.checkpoint import DTYPE_BYTES, TensorInfo
from mapper.report.document import finite
from mapper.weights.comparing.sides import Side, open_side

if TYPE_CHECKING:
    from mapper.report.contrast import Contrast

# Of one side, mapped at a time: a mapping for each of 100,000 tensors would take longer.
_BATCH_BYTES = 64_000_000
_BATCH_TENSORS = 1_000
_NUMBERS = re.compile(r"([0-9]{1,18})")


class Entry(dict[str, Any]):
    """One line of the JSON document; its members are attributes too: `entry.path`, `entry["path"]`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"an entry has {', '.join(self)}, not {name!r}") from None


@dataclass(frozen=True, repr=False)
class Diff:
    """Where two sources differ; paths stand in natural order, so exchanging the sides exchanges nothing else.

    `print` shows it as `mapper diff` does, `as_dict()` is its JSON. `equal` and `common` speak of tensors;
    `architecture` lists what the two readings say differently, and reads both sides when first asked for.
    """

    a: str
    b: str
    common: int  # paths that agree
    only_a: list[Entry]  # path, shape, dtype
    only_b: list[Entry]
    changed: list[
        Entry
    ]  # path, kind, a and b with shape and dtype; where values differ `max_abs_diff`, "inf" and "nan" as texts
    sides: tuple[Side, Side] = field(repr=False, compare=False)

    @property
    def equal(self) -> bool:
        """Whether no tensor differs, in whatever was compared."""
        return not (self.only_a or self.only_b or self.changed)

    @cached_property
    def architecture(self) -> list[Contrast]:
        """What the readings of the two sides say differently; empty where one cannot be read."""
        from mapper.report.contrast import contrasts

        if self.sides[0].reads_like(self.sides[1]):
            return []
        left, right = self.readings
        return contrasts(left, right) if left and right else []

    @cached_property
    def readings(self) -> tuple[Any, Any]:
        """The `Architecture` of each side, None where it has none."""
        left, right = self.sides
        return left.reading(), right.reading()

    def as_dict(self) -> dict[str, Any]:
        """The document of `mapper diff --json`, of plain lists and dicts."""
        return {
            "a": self.a,
            "b": self.b,
            "equal": self.equal,
            "common": self.common,
            "only_a": [dict(entry) for entry in self.only_a],
            "only_b": [dict(entry) for entry in self.only_b],
            "changed": [dict(entry) for entry in self.changed],
        }

    def __str__(self) -> str:
        from mapper.report.difference import as_text

        return as_text(self)

    def __repr__(self) -> str:
        counts = f"only_a={len(self.only_a)}, only_b={len(self.only_b)}, changed={len(self.changed)}"
        return f"Diff({self.a!r}, {self.b!r}, common={self.common}, {counts})"


def diff(a: Any, b: Any, *, values: bool = False, follow_links: bool = False) -> Diff:
    """Compare two checkpoints, models or trees, by path: names, shapes and dtypes, and with `values` every number.

    Each side is any source of the tool, a module, or a tree of arrays. A tensor that one side ties to another of its
    tensors is not missed where the other side stores the tie once. Raises what opening the sides raises; with
    `values` also SourceError for a side without weights. `follow_links` allows links out of a checkpoint's folder.

        mapper.diff("old.safetensors", model).only_a
    """
    with collection_paused():  # a hundred thousand entries, all of them kept
        left, right = (open_side(source, values, follow_links) for source in (a, b))
        return _compared(left, right, values)


def _compared(left: Side, right: Side, values: bool) -> Diff:
    tables = left.table(), right.table()
    both = [path for path in tables[0] if path in tables[1]]
    changed = [_change(path, tables[0][path], tables[1][path]) for path in both]
    changed = [entry for entry in changed if entry]
    if values:
        apart = {entry["path"] for entry in changed}
        changed += _values(left, right, tables[0], [path for path in both if path not in apart])
    return Diff(
        left.name,
        right.name,
        len(both) - len(changed),
        _only(left, tables[0], tables[1]),
        _only(right, tables[1], tables[0]),
        sorted(changed, key=lambda entry: natural(entry["path"])),
        (left, right),
    )


def natural(path: str) -> tuple[list[Any], str]:
    """A sort key by which `layer.2` comes before `layer.10`."""
    words: list[Any] = _NUMBERS.split(path)
    words[1::2] = map(int, words[1::2])
    return words, path


def _only(side: Side, table: Mapping[str, TensorInfo], other: Mapping[str, TensorInfo]) -> list[Entry]:
    missing = [path for path in table if path not in other]
    ties = side.ties()
    untold = [path for path in missing if not any(same in other for same in ties.get(path, ()))]
    return [Entry(path=path, **_described(table[path])) for path in sorted(untold, key=natural)]


def _change(path: str, a: TensorInfo, b: TensorInfo) -> Entry:
    """An empty entry where the two agree. A different shape is told before a different dtype."""
    if a == b:
        return Entry()
    kind = "shape" if a.shape != b.shape else "dtype"
    return Entry(path=path, kind=kind, a=_described(a), b=_described(b))


def _described(info: TensorInfo) -> dict[str, Any]:
    return {"shape": list(info.shape), "dtype": info.dtype}


def _values(
    left: Side, right: Side, table: Mapping[str, TensorInfo], paths: Iterable[str]
) -> Iterator[Entry]:
    from mapper.weights.comparing.distance import largest_difference

    for batch in _batches(table, paths):
        ours, theirs = left.read(batch), right.read(batch)
        for path in batch:
            apart = largest_difference(ours.pop(path), theirs.pop(path))
            if apart is not None:
                both = _described(table[path])
                yield Entry(path=path, kind="value", a=both, b=dict(both), max_abs_diff=finite(apart))


def _batches(table: Mapping[str, TensorInfo], paths: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0.0
    for path in paths:
        size += table[path].size * DTYPE_BYTES[table[path].dtype]
        if len(batch) == _BATCH_TENSORS or (batch and size > _BATCH_BYTES):
            yield batch
            batch, size = [], table[path].size * DTYPE_BYTES[table[path].dtype]
        batch.append(path)
    if batch:
        yield batch
