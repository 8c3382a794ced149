"""What two checkpoints, models or trees have in common and where they differ, from headers alone unless asked for more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mapper._collector import collection_paused
from mapper.checkpoint import DTYPE_BYTES, TensorInfo
from mapper.report.as_json import finite
from mapper.report.wording import natural
from mapper.weights.comparing.pairing import paired
from mapper.weights.comparing.pieces import Pair, is_cut
from mapper.weights.comparing.sides import Side, open_side

if TYPE_CHECKING:
    from mapper.report.contrast import Contrast

# Of one side, mapped at a time: a mapping for each of 100,000 tensors would take longer.
_BATCH_BYTES = 64_000_000
_BATCH_TENSORS = 1_000


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

    `print` shows it as `mapper diff` does, `as_dict()` is its JSON, `to_html()` its page, which a notebook shows by itself. `architecture` lists what the two readings and
    configs say differently, and reads both sides when first asked for.
    """

    a: str
    b: str
    common: int  # pairs of tensors that agree in what was compared; each part of a fused map counts
    only_a: list[Entry]  # path, shape, dtype
    only_b: list[Entry]
    changed: list[
        Entry
    ]  # path, kind, a and b with shape and dtype; where values differ `max_abs_diff`, "inf" and "nan" as texts
    sides: tuple[Side, Side] = field(repr=False, compare=False)
    values: bool = False  # whether values were read
    prefixes: tuple[str, str] = ("", "")  # what most names of A and of B have before those of the other
    renamed: list[Entry] = field(
        default_factory=list
    )  # a and b: two names of one tensor, not by the prefixes alone
    layout: list[Entry] = field(
        default_factory=list
    )  # kind, a, b, transposed: maps that are stored in another way

    @property
    def weights_equal(self) -> bool | None:
        """Whether each tensor has its counterpart with the same values, under whatever name and in whatever layout.

        None where nothing differs in shape and type, and values were not read.
        """
        if self.only_a or self.only_b or self.changed:
            return False
        return True if self.values else None

    @property
    def equal(self) -> bool | None:
        """Whether nothing differs: names, shapes, types, values, config and architecture.

        None where nothing was found to differ, and values were not read.
        """
        is_named_alike = not (any(self.prefixes) or self.renamed or self.layout)
        return (
            self.weights_equal
            if is_named_alike and self.weights_equal is not False and not self.architecture
            else False
        )

    @cached_property
    def architecture(self) -> list[Contrast]:
        """What the readings and the configs of the two sides say differently."""
        from mapper.report.configs import config_contrasts
        from mapper.report.contrast import contrasts

        if self.sides[0].reads_like(self.sides[1]):
            return []
        left, right = self.readings
        found = contrasts(left, right) if left and right else []
        types, fields = config_contrasts(*self.sides)
        return types + found + fields

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
            "weights_equal": self.weights_equal,
            "values": self.values,
            "common": self.common,
            "prefixes": dict(zip("ab", self.prefixes, strict=True)),
            "renamed": [dict(entry) for entry in self.renamed],
            "layout": [dict(entry) for entry in self.layout],
            "only_a": [dict(entry) for entry in self.only_a],
            "only_b": [dict(entry) for entry in self.only_b],
            "changed": [dict(entry) for entry in self.changed],
            "architecture": [contrast.as_dict() for contrast in self.architecture],
        }

    def __str__(self) -> str:
        from mapper.report.difference import as_text

        return as_text(self)

    def to_html(self) -> str:
        """One page for a browser, as `mapper diff --html` writes it: both pictures, what differs marked."""
        from mapper.picture.compared import compared

        return compared(self)

    def _repr_html_(self) -> str | None:
        """The page, small, for a notebook; None where neither side can be drawn."""
        from mapper.picture import in_notebook

        readings = [reading for reading in self.readings if reading is not None and not reading.parts]
        return in_notebook(self.to_html()) if readings else None

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """What a notebook shows: the page, and where it shows none, the text."""
        page = self._repr_html_()
        return {"text/plain": str(self)} | ({"text/html": page} if page else {})

    def __repr__(self) -> str:
        counts = f"only_a={len(self.only_a)}, only_b={len(self.only_b)}, changed={len(self.changed)}"
        return f"Diff({self.a!r}, {self.b!r}, common={self.common}, {counts})"


def diff(a: Any, b: Any, *, values: bool = False, follow_links: bool = False) -> Diff:
    """Compare two checkpoints, models or trees: names, shapes, dtypes and architecture, and with `values` every number.

    Each side is any source of the tool, a module, or a tree of arrays. Tensors are each other's by role and block
    first, then by name, then by name behind a prefix. A tensor that one side ties to another of its tensors is not
    missed where the other side stores the tie once. Raises what opening the sides raises; with `values` also
    SourceError for a side without weights. `follow_links` allows links out of a checkpoint's folder.

        mapper.diff("old.safetensors", model).only_a
    """
    with collection_paused():  # a hundred thousand entries, all of them kept
        left, right = (open_side(source, values, follow_links) for source in (a, b))
        return _compared(left, right, values)


def _compared(a: Side, b: Side, values: bool) -> Diff:
    left, right = a.beside(b), b.beside(a)
    found = paired(left, right)
    changed = [_change(pair) for pair in found.pairs]
    if values:
        alike = [at for at, entry in enumerate(changed) if not entry]
        for at, (pair, entry) in zip(
            alike, _values(left, right, [found.pairs[at] for at in alike]), strict=True
        ):
            found.pairs[at], changed[at] = pair, entry
    told = [entry for entry in changed if entry]
    return Diff(
        left.name,
        right.name,
        len(found.pairs) - len(told),
        _only(left, found.only_a),
        _only(right, found.only_b),
        sorted(told, key=lambda entry: natural(entry["path"])),
        (left, right),
        values,
        found.prefixes,
        [
            Entry(a=pair.a.path, b=pair.b.path)
            for pair in found.pairs
            if not is_cut(pair) and found.is_renamed(pair)
        ],
        list(_layout(found.pairs)),
    )


def _only(side: Side, rest: Iterable[str]) -> list[Entry]:
    table, ties, missing = side.table(), side.ties(), dict.fromkeys(rest)
    untold = [path for path in missing if all(same in missing for same in ties.get(path, ()))]
    return [Entry(path=path, **_described(table[path])) for path in sorted(untold, key=natural)]


def _change(pair: Pair) -> Entry:
    """An empty entry where the two agree. A different shape is told before a different dtype."""
    if pair.a.shape == pair.b.shape and pair.a.info.dtype == pair.b.info.dtype:
        return Entry()
    return _entry(pair, "shape" if pair.a.shape != pair.b.shape else "dtype")


def _entry(pair: Pair, kind: str, **more: Any) -> Entry:
    """What is said of a pair: of each side its shape and type, and its name, part and turn where those are others."""
    is_plain = pair.a.path == pair.b.path and not is_cut(pair)
    sides = [
        _described(piece.info if piece.cut is None else TensorInfo(piece.shape, piece.info.dtype))
        | ({} if is_plain else {"path": piece.path})
        | ({"part": piece.cut.part} if piece.cut else {})
        | ({"transposed": True} if pair.is_transposed and piece.flipped else {})
        for piece in pair
    ]
    return Entry(path=pair.a.path, kind=kind, a=sides[0], b=sides[1], **more)


def _described(info: TensorInfo) -> dict[str, Any]:
    return {"shape": list(info.shape), "dtype": info.dtype}


def _layout(pairs: Iterable[Pair]) -> Iterator[Entry]:
    """An entry for each fused map that the other side has in parts, and for each map stored the other way round."""
    parts: dict[str, list[Pair]] = {}
    for pair in pairs:
        if is_cut(pair):
            parts.setdefault(f"a{pair.a.path}" if pair.a.cut else f"b{pair.b.path}", []).append(pair)
        elif pair.is_transposed:
            yield Entry(kind="transposed", a=[pair.a.path], b=[pair.b.path], transposed=True)
    for same in parts.values():
        same.sort(key=_start)
        a, b = (list(dict.fromkeys(pair[side].path for pair in same)) for side in (0, 1))
        yield Entry(kind="fused", a=a, b=b, transposed=same[0].is_transposed)


def _start(pair: Pair) -> int:
    """Where a part stands in its fused map."""
    cut = pair.a.cut or pair.b.cut
    return cut.first if cut else 0


def _values(left: Side, right: Side, pairs: list[Pair]) -> Iterator[tuple[Pair, Entry]]:
    """For each pair what it turned out to be, and an entry where its values differ."""
    has_turned = any(pair.is_transposed for pair in pairs)
    for batch in _batches(pairs):
        ours = left.read(dict.fromkeys(pair.a.path for pair in batch))
        theirs = right.read(dict.fromkeys(pair.b.path for pair in batch))
        for pair in batch:
            yield _valued(pair, ours[pair.a.path], theirs[pair.b.path], has_turned)


def _valued(pair: Pair, ours: Any, theirs: Any, has_turned: bool) -> tuple[Pair, Entry]:
    """A square map does not show which way round it is stored: where others are turned, it may be turned too, or not."""
    from mapper.weights.comparing.distance import largest_difference

    apart = largest_difference(pair.a.of(ours), pair.b.of(theirs))
    if apart is None:
        return pair, Entry()
    if has_turned and len(set(pair.a.shape)) == 1 and len(pair.a.shape) == 2:
        other = pair.other_way
        if largest_difference(other.a.of(ours), other.b.of(theirs)) is None:
            return other, Entry()
    return pair, _entry(pair, "value", max_abs_diff=finite(apart))


def _batches(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    batch: list[Pair] = []
    size = 0.0
    for pair in pairs:
        bytes_ = pair.a.info.size * DTYPE_BYTES[pair.a.info.dtype]
        size += bytes_
        if len(batch) == _BATCH_TENSORS or (batch and size > _BATCH_BYTES):
            yield batch
            batch, size = [], bytes_
        batch.append(pair)
    if batch:
        yield batch
