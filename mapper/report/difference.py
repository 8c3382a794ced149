"""A comparison as text: the two sides, what their readings say differently, a line for each tensor, a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from mapper._collector import collection_paused
from mapper.report.contrast import Contrast, value_words
from mapper.report.heading import stored, what_it_is
from mapper.report.style import Paint, plain
from mapper.report.wording import counted, is_index, natural, printable, rounded
from mapper.words import spelled

if TYPE_CHECKING:
    from mapper.weights.comparing.differences import Diff, Entry

SHOWN = 15  # differences of the readings
SCREEN = 40  # lines about tensors that are shown one by one: a search for a name finds it
FOLDED = 4  # of more, those that differ in numbers only are one line, if there are so many of them
_WIDTH = 80  # of the column of paths; a longer path pushes its own line only
_NAME = 400  # characters of a path
_UNREAD = "values not read (--values)"
_STYLE = {"-": "bad", "+": "good", "~": "doubt"}

Words = tuple[str, ...]
Pattern = tuple[str | None, ...]  # a path with None for its numbers


class Row(NamedTuple):
    """One line: a path, a tensor or a whole subtree, and what may be said of several such lines together."""

    mark: str
    path: Words  # ends in "*" for a subtree
    details: str
    tensors: int = 1
    elements: int = 0  # of a subtree
    apart: float | None = None  # of values


def as_text(diff: Diff, paint: Paint = plain) -> str:
    """The whole comparison; ends without a newline. Where nothing was found to differ it is one line."""
    from mapper.report.alignment import alignment

    parts = [
        *(_readings(diff, paint) if diff.equal is False else []),
        alignment(diff, paint),
        tensors(diff, paint),
    ]
    return "\n\n".join(part for part in [*parts, summary(diff, paint)] if part)


def summary(diff: Diff, paint: Paint = plain) -> str:
    """The last line: how many agree, in what, and how many differ in what way."""
    if diff.equal:
        return f"{paint('good', 'equal')}: {counted(diff.common, 'tensor')}"
    if diff.equal is None:
        return f"{paint('good', 'same names, shapes and types')}; {_UNREAD}: {counted(diff.common, 'tensor')}"
    kinds = Counter(entry.kind for entry in diff.changed)
    parts = [
        f"{counted(diff.common, 'tensor')} with {_same(diff)}",
        f"{len(diff.only_a):,} only in A" if diff.only_a else "",
        f"{len(diff.only_b):,} only in B" if diff.only_b else "",
        *(f"{kinds[kind]:,} of another {kind}" for kind in ("shape", "dtype", "value") if kinds[kind]),
    ]
    told = ", ".join(part for part in parts if part)
    return f"{paint('bad', _how(diff))}: {told}{'' if diff.values else f'; {_UNREAD}'}"


def _how(diff: Diff) -> str:
    """`different`, or in what alone where every tensor has its counterpart."""
    if diff.weights_equal is False:
        return "different"
    ways = (
        ("names", _is_renamed(diff)),
        ("layout", bool(diff.layout)),
        ("architecture", bool(diff.architecture)),
    )
    return f"different in {' and '.join(word for word, is_so in ways if is_so)} alone"


def _same(diff: Diff) -> str:
    """What those that agree have in common."""
    is_renamed = _is_renamed(diff)
    what = f"{'' if is_renamed else 'names, '}shapes{', types and values' if diff.values else ' and types'}"
    ways = (("under other names", is_renamed), ("in another layout", bool(diff.layout)))
    return " ".join(["the same", what, " and ".join(text for text, is_so in ways if is_so)]).rstrip()


def _is_renamed(diff: Diff) -> bool:
    return bool(any(diff.prefixes) or diff.renamed)


# -------------------------------------------------------------------------------------------------------- readings
def _readings(diff: Diff, paint: Paint) -> Iterator[str]:
    heads = []
    for letter, name, side, reading in zip("AB", (diff.a, diff.b), diff.sides, diff.readings, strict=True):
        what = what_it_is(reading, paint) if reading else paint("doubt", "no architecture can be read")
        heads.append(f"{letter} {paint('name', printable(name))}: {what}; {stored(side.checkpoint)}")
    yield "\n".join(heads)
    told = [f"  {sentence(contrast)}" for contrast in diff.architecture]
    more = [f"  and {counted(len(told) - SHOWN, 'more difference')}"] if len(told) > SHOWN else []
    if told:
        yield "\n".join([paint("title", "architecture"), *told[:SHOWN], *more])
    elif all(diff.readings):
        yield "the two readings say the same"


def sentence(contrast: Contrast) -> str:
    """`B has query and key norms in 28 attention blocks`, `key/value heads: 32 in A, 8 in B`."""
    if contrast.only:
        where = f" in {contrast.where}" if contrast.where else ""
        return printable(f"{contrast.only.upper()} has {contrast.subject}{where}", limit=_NAME)
    where = f" ({contrast.where})" if contrast.where else ""
    values = [
        f"{printable(value_words(value), limit=60)} in {side.upper()}{' (a default)' if side in contrast.defaults else ''}"
        for side, value in (("a", contrast.a), ("b", contrast.b))
    ]
    return f"{printable(contrast.subject, limit=_NAME)}{printable(where)}: {', '.join(values)}"


# --------------------------------------------------------------------------------------------------------- tensors
def tensors(diff: Diff, paint: Paint = plain) -> str:
    """A line for each path that differs, a whole subtree, or many that differ in numbers only; in natural order."""
    with collection_paused():  # a hundred thousand rows, folded and forgotten
        rows = list(_folded(_rows(diff)))
    wide = min(max((len(row.path[0]) for row in rows), default=0), _WIDTH)
    return "\n".join(
        paint(_STYLE[row.mark], f"{row.mark} {row.path[0]:{wide}}  {row.details}") for row in rows
    )


def _rows(diff: Diff) -> list[Row]:
    left, right = (side.table() for side in diff.sides)
    rows = [
        *_one_sided("-", diff.only_a, left, right),
        *_one_sided("+", diff.only_b, right, left),
        *(_changed(entry, diff.prefixes) for entry in diff.changed),
    ]
    return sorted(rows, key=lambda row: (natural(".".join(row.path)), row.mark))


def _one_sided(mark: str, entries: list[Entry], mine: Iterable[str], theirs: Iterable[str]) -> Iterator[Row]:
    """A line for each subtree of which the other side has nothing, and for each tensor beside those."""
    alone = {entry.path for entry in entries}
    known = _folders([*theirs, *(path for path in mine if path not in alone)]) if entries else set()
    subtrees: dict[tuple[str, bool], list[Entry]] = {}
    for entry in entries:
        top = _topmost(entry.path, known)
        subtrees.setdefault((top, top == entry.path), []).append(entry)  # a tensor is not below its own name
    for (top, _), below in subtrees.items():
        if len(below) == 1:
            yield Row(mark, tuple(below[0].path.split(".")), _tensor(below[0]))
        else:
            elements = sum(_elements(entry) for entry in below)
            yield Row(mark, (*top.split("."), "*"), "", len(below), elements)


def _folders(paths: Iterable[str]) -> set[str]:
    """Every proper prefix of the paths, at their dots."""
    found: set[str] = set()
    for path in paths:
        at = path.rfind(".")
        while at >= 0 and path[:at] not in found:
            found.add(path[:at])
            at = path.rfind(".", 0, at)
    return found


def _topmost(path: str, known: set[str]) -> str:
    """The shortest folder of the path that is not known; the path itself where all are."""
    at = path.find(".")
    while at >= 0:
        if path[:at] not in known:
            return path[:at]
        at = path.find(".", at + 1)
    return path


def _changed(entry: Entry, prefixes: tuple[str, str]) -> Row:
    """A pair that differs, called as in A; with its name in B and the part of a map that it is, where these are others."""
    row = _differing(entry)
    names = [
        side.get("path", entry.path).removeprefix(start)
        for side, start in zip((entry.a, entry.b), prefixes, strict=True)
    ]
    told = [
        f"{side['part']} in {letter}" if "part" in side else f"{_starred(name)} in {letter}"
        for letter, side, name in zip("AB", (entry.a, entry.b), names, strict=True)
        if "part" in side or (letter == "B" and names[0] != names[1])
    ]
    return row._replace(details="  ".join([row.details, *told]))


def _starred(path: str) -> str:
    return ".".join("*" if is_index(word) else word for word in path.split("."))


def _differing(entry: Entry) -> Row:
    path = tuple(entry.path.split("."))
    if entry.kind == "value":
        return Row("~", path, _tensor(entry.a), apart=float(entry.max_abs_diff))
    if entry.kind == "dtype":
        return Row("~", path, f"dtype  {entry.a['dtype']} → {entry.b['dtype']} {entry.a['shape']}")
    return Row("~", path, f"shape  {_tensor(entry.a)} → {_tensor(entry.b)}")


def _tensor(entry: dict[str, Any]) -> str:
    return f"{entry['dtype']} {entry['shape']}"


def _elements(entry: Entry) -> int:
    count = 1
    for extent in entry.shape:
        count *= extent
    return count


# --------------------------------------------------------------------------------------------------------- folding
def _folded(rows: list[Row]) -> Iterator[Row]:
    """Rows that are equal but for the numbers in their paths as one, where there are many; paths are safe to print now."""
    groups: dict[tuple[Any, ...], dict[tuple[int, ...], Row]] = {}
    for row in rows:
        pattern, numbers = _pattern(row.path)
        key = (row.mark, pattern, row.details, row.tensors, row.elements, row.apart is None)
        groups.setdefault(key, {})[numbers] = row
    printed = {}  # by the first row of a line: there it stands
    least = FOLDED if len(rows) > SCREEN else len(rows) + 1
    for (_, pattern, *_), by_numbers in groups.items():
        for line, first in _lines(pattern, by_numbers, least):
            printed[id(first)] = line
    yield from (printed[id(row)] for row in rows if id(row) in printed)


def _pattern(path: Words) -> tuple[Pattern, tuple[int, ...]]:
    """The path without its numbers, and the numbers."""
    numbered = [is_index(word) for word in path]
    if not any(numbered):
        return path, ()
    pattern = tuple(None if is_number else word for word, is_number in zip(path, numbered, strict=True))
    return pattern, tuple(int(word) for word, is_number in zip(path, numbered, strict=True) if is_number)


def _lines(pattern: Pattern, by_numbers: dict[tuple[int, ...], Row], least: int) -> Iterator[tuple[Row, Row]]:
    """Few lines for the rows, each with its first row: one for all combinations of some numbers, at `least`."""
    for box in _products(list(by_numbers)):
        members = [by_numbers[numbers] for numbers in product(*box)]
        if len(members) < least:
            yield from ((_printed(row.path, [row]), row) for row in members)
        else:
            columns = iter(box)
            path = tuple(spelled(next(columns)) if word is None else word for word in pattern)
            yield _printed(path, members), members[0]


def _products(rows: list[tuple[int, ...]]) -> Iterator[tuple[list[int], ...]]:
    """Tuples of numbers as products of lists of numbers, each tuple in one of them."""
    if not rows or not rows[0]:
        yield from (() for _ in rows[:1])
        return
    lasts: dict[tuple[int, ...], list[int]] = {}
    for row in rows:
        lasts.setdefault(row[:-1], []).append(row[-1])
    heads: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for head, last in lasts.items():
        heads.setdefault(tuple(sorted(last)), []).append(head)
    for last_numbers, same in heads.items():
        for box in _products(same):
            yield (*box, list(last_numbers))


def _printed(path: Words, members: list[Row]) -> Row:
    """One row for all of its members, with its path as one text."""
    row = members[0]
    tensors = sum(member.tensors for member in members)
    details = row.details
    if row.path[-1] == "*" and row.tensors > 1:
        elements = sum(member.elements for member in members)
        details = f"{counted(tensors, 'tensor')}, {rounded(elements)} parameters"
    elif row.apart is not None:
        worst = max(members, key=lambda member: (member.apart != member.apart, member.apart))
        details = f"value  {details}  largest difference {worst.apart:.3g}"
    if len(members) > 1 and row.tensors == 1:
        details += f"  {counted(tensors, 'tensor')}"
    return row._replace(path=(printable(".".join(path), limit=_NAME),), details=details)
