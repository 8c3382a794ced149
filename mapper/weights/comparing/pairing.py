"""Which tensors of two sides are each other's: by role and block first, by name next, by name behind a prefix last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from mapper.checkpoint import TensorInfo
from mapper.weights.comparing.pieces import Pair, Piece, pair, split
from mapper.weights.comparing.places import FUSED, Key, Spot, spots

if TYPE_CHECKING:
    from mapper.architecture import Architecture
    from mapper.weights.comparing.sides import Side

Table = Mapping[str, TensorInfo]


class Known(NamedTuple):
    """What the reading of a side says of its tensors."""

    architecture: Architecture | None
    spots: Mapping[Key, Spot]


def _known(side: Side) -> Known:
    architecture = side.placed()
    paths = {name: path for path, name in side.names.items()}
    return Known(architecture, spots(architecture, paths) if architecture else {})


@dataclass
class Pairing:
    """What two sides have in common, and the paths that have no counterpart."""

    pairs: list[Pair] = field(default_factory=list)
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    prefixes: tuple[str, str] = (
        "",
        "",
    )  # what the names of each side have before those of the other, with the dot

    def is_renamed(self, pair: Pair) -> bool:
        """Whether the two have other names, the prefixes left aside."""
        a, b = (piece.path.removeprefix(prefix) for piece, prefix in zip(pair, self.prefixes, strict=True))
        return a != b


def paired(left: Side, right: Side) -> Pairing:
    """The pairing of two sides; linear in the number of their tensors. Headers alone are read."""
    tables = left.table(), right.table()
    if tables[0].keys() == tables[1].keys() and all(
        info.shape == tables[1][path].shape for path, info in tables[0].items()
    ):
        return Pairing(
            [Pair(Piece(path, info), Piece(path, tables[1][path])) for path, info in tables[0].items()]
        )
    found = _Pairs(tables)
    found.by_role(*(_known(side) for side in (left, right)))
    found.by_name((left.names, right.names))
    order = {path: at for at, path in enumerate(tables[0])}
    found.pairs.sort(key=lambda pair: order[pair.a.path])
    return Pairing(found.pairs, list(found.rest[0]), list(found.rest[1]), _common_prefixes(found.pairs))


class _Pairs:
    """Pairs that are being found, and what is left on each side."""

    def __init__(self, tables: tuple[Table, Table]):
        self.tables = tables
        self.rest = dict.fromkeys(tables[0]), dict.fromkeys(tables[1])
        self.pairs: list[Pair] = []

    def by_role(self, left: Known, right: Known) -> None:
        """The same role in the same block; and a map that holds several with those that it holds."""
        for key, spot in left.spots.items():
            if key in right.spots:
                self._add(spot, right.spots[key])
        self._split(left, right.spots)
        self._split(right, left.spots, swapped=True)

    def _add(self, spot: Spot, other: Spot) -> None:
        if spot.path in self.rest[0] and other.path in self.rest[1]:
            pieces = (
                Piece(spot.path, self.tables[0][spot.path], spot.is_flipped),
                Piece(other.path, self.tables[1][other.path], other.is_flipped),
            )
            self._keep([pair(*pieces)])

    def _split(self, wholes: Known, others: Mapping[Key, Spot], swapped: bool = False) -> None:
        (here, there), tables = self.rest, self.tables
        if swapped:
            here, there, tables = there, here, (tables[1], tables[0])
        for whole in wholes.spots.values():
            if whole.role not in FUSED or whole.path not in here:
                continue
            parts = {role: others.get(whole.beside(role)) for role in FUSED[whole.role]}
            known = {role: spot for role, spot in parts.items() if spot and spot.path in there}
            if len(known) == len(parts) and wholes.architecture:
                made = split(whole, known, tables, wholes.architecture)
                self._keep([pair.swapped() for pair in made] if swapped else made)

    def by_name(self, clean: tuple[Mapping[str, str], Mapping[str, str]]) -> None:
        """The same name, but for what wrappers put into it; then the same name behind a prefix."""
        names = [
            {words.get(path, path): path for path in rest}
            for words, rest in zip(clean, self.rest, strict=True)
        ]
        self._same(names[0], names[1])
        names = [
            {name: path for name, path in table.items() if path in self.rest[side]}
            for side, table in enumerate(names)
        ]
        if all(names):
            starts = prefixes_between(names[0], names[1])
            bare = [
                {name.removeprefix(start): path for name, path in table.items() if name.startswith(start)}
                for start, table in zip(starts, names, strict=True)
            ]
            shapes = [
                (self.tables[0][bare[0][name]].shape, self.tables[1][bare[1][name]].shape)
                for name in bare[0]
                if name in bare[1]
            ]
            alike = sum(a == b for a, b in shapes)
            if 2 * len(shapes) >= min(len(names[0]), len(names[1])) and 2 * alike > len(shapes):
                self._same(bare[0], bare[1])

    def _same(self, a: Mapping[str, str], b: Mapping[str, str]) -> None:
        """What has one name is each other's as it is: nothing says that it is a map that could be turned."""
        both = [(a[name], b[name]) for name in a if name in b]
        self._keep(
            Pair(Piece(ours, self.tables[0][ours]), Piece(theirs, self.tables[1][theirs]))
            for ours, theirs in both
        )

    def _keep(self, pairs: Iterable[Pair]) -> None:
        for made in pairs:
            self.pairs.append(made)
            for piece, rest in zip(made, self.rest, strict=True):
                rest.pop(piece.path, None)  # another part of a map may have taken it


def prefixes_between(a: Collection[str], b: Collection[str]) -> tuple[str, str]:
    """What to take from the names of each side so that most are the other's; each ends in a dot or is empty."""
    tops = _top(a), _top(b)
    bare = tuple({name.removeprefix(top) for name in names} for names, top in zip((a, b), tops, strict=True))
    longer: Counter[tuple[str, str]] = Counter()
    for side in (0, 1):
        for name in bare[side]:
            for start in _starts(name):
                if name[len(start) :] in bare[1 - side]:
                    longer[("", start) if side else (start, "")] += 1
    if not longer:
        return tops
    most = max(longer.values())
    best = min(
        (pair for pair, count in longer.items() if count == most),
        key=lambda pair: (sum(map(len, pair)), pair),
    )
    return tops[0] + best[0], tops[1] + best[1]


def _starts(name: str) -> Iterator[str]:
    at = -1
    yield ""
    while (at := name.find(".", at + 1)) >= 0:
        yield name[: at + 1]


def _top(names: Collection[str]) -> str:
    """The folder that all names stand in, with its dot, but none of a list; "" where they stand in several."""
    first = min(names), max(names)
    same = 0
    for one, other in zip(*(name.split(".")[:-1] for name in first), strict=False):
        if one != other or one.isdecimal():  # layer 0 of one side is not layer 1 of the other
            break
        same += len(one) + 1
    return first[0][:same]


def _common_prefixes(pairs: list[Pair]) -> tuple[str, str]:
    """What most names of either side have before those of the other."""
    counts = Counter(_differing_start(pair.a.path, pair.b.path) for pair in pairs)
    if not counts:
        return "", ""
    starts, count = min(counts.items(), key=lambda item: (-item[1], item[0]))
    return starts if 2 * count >= len(pairs) else ("", "")


def _differing_start(a: str, b: str) -> tuple[str, str]:
    """What stands before the words that both names end in."""
    ours, theirs = a.split("."), b.split(".")
    same = 0
    while same < min(len(ours), len(theirs)) and ours[-1 - same] == theirs[-1 - same]:
        same += 1
    if not same:
        return ("", "") if a == b else (f"{a}.", f"{b}.")
    return tuple(".".join((*words[: len(words) - same], "")) for words in (ours, theirs))  # type: ignore[return-value]
