"""How the names and the layout of two sides differ where their tensors are each other's all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from mapper.report.style import Paint, plain
from mapper.report.wording import counted, folded, is_index, printable
from mapper.weights.comparing.wrappers import WRAPPERS, bare_name

if TYPE_CHECKING:
    from mapper.weights.comparing.differences import Diff, Entry

SHOWN = 15  # lines of names, and of maps in another layout
_NAME = 200  # characters of one name


def alignment(diff: Diff, paint: Paint = plain) -> str:
    """The prefixes, tensors under other names, and maps in another layout; empty where there are none."""
    lines = [*_prefixes(diff), *_wrapped(diff), *_within(_layout(diff)), *_within(_renamed(diff))]
    return "\n".join([paint("title", "names and layout"), *(f"  {line}" for line in lines)]) if lines else ""


def _prefixes(diff: Diff) -> Iterator[str]:
    """`B has the prefix module.`"""
    told = [
        f"{side} has the prefix {printable(prefix)}"
        for side, prefix in zip("AB", diff.prefixes, strict=True)
        if prefix
    ]
    if told:
        yield ", ".join(told)


def _wrapped(diff: Diff) -> Iterator[str]:
    """`B has _orig_mod. inside 20 names`: what a wrapper of modules put there."""
    counts: Counter[tuple[str, str]] = Counter()
    for entry in diff.renamed:
        if bare_name(entry.a) == bare_name(entry.b):
            for side, path in (("A", entry.a), ("B", entry.b)):
                counts.update((side, word) for word in WRAPPERS.intersection(path.split(".")))
    for (side, word), count in sorted(counts.items()):
        yield f"{side} has {word}. inside {counted(count, 'name')}"


def _renamed(diff: Diff) -> Iterator[str]:
    """`a.{0..5}.q = b.{0..5}.query`, a line for modules whose names differ in numbers only."""
    told = {(tuple(entry.a), tuple(entry.b)) for entry in _modules(diff.layout)}
    for group in _groups(
        entry for entry in _modules(diff.renamed) if (tuple(entry.a), tuple(entry.b)) not in told
    ):
        yield _equation(group)


def _layout(diff: Diff) -> Iterator[str]:
    """`attn.c_attn = attn.q, attn.k, attn.v: one map in A, transposed`."""
    modules = _modules(diff.layout)
    for turned in (False, True):
        for group in _groups(entry for entry in modules if entry.turned == turned):
            a, b, _ = group[0]
            what = [f"one map in {'A' if len(a) < len(b) else 'B'}"] if len(a) != len(b) else []
            yield f"{_equation(group)}: {', '.join(what + ['transposed'] * turned)}"


class _Modules(NamedTuple):
    """Modules of both sides that are each other's; whether one stores its weight the other way round."""

    a: list[str]
    b: list[str]
    turned: bool = False


def _modules(entries: Iterable[Entry]) -> list[_Modules]:
    """Entries of tensors as entries of the modules that have them, where both sides call the tensors alike."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], bool] = {}
    for entry in entries:
        sides = [[side] if isinstance(side, str) else side for side in (entry.a, entry.b)]
        if "transposed" not in entry and bare_name(sides[0][0]) == bare_name(sides[1][0]):
            continue  # `_wrapped` says it
        if len({name.rpartition(".")[2] for side in sides for name in side}) == 1:
            sides = [[name.rpartition(".")[0] or name for name in side] for side in sides]
        key = tuple(sides[0]), tuple(sides[1])
        found[key] = found.get(key, False) or entry.get("transposed", False)
    return [_Modules(list(a), list(b), turned) for (a, b), turned in found.items()]


def _groups(entries: Iterable[_Modules]) -> Iterator[list[_Modules]]:
    """Those together whose names differ in numbers only."""
    found: dict[tuple[tuple[str, ...], ...], list[_Modules]] = {}
    for entry in entries:
        found.setdefault(tuple(tuple(map(_pattern, side)) for side in entry[:2]), []).append(entry)
    yield from found.values()


def _pattern(path: str) -> str:
    return ".".join("" if is_index(word) else word for word in path.split("."))


def _equation(group: list[_Modules]) -> str:
    """`a = b`; one name where both have it."""
    sides: list[str] = []
    for columns in (
        zip(*(entry.a for entry in group), strict=True),
        zip(*(entry.b for entry in group), strict=True),
    ):
        sides.append(
            ", ".join(printable(name, limit=_NAME) for names in columns for name in folded(list(names)))
        )
    return " = ".join(dict.fromkeys(sides))


def _within(lines: Iterable[str]) -> Iterator[str]:
    every = list(lines)
    yield from every[:SHOWN]
    if len(every) > SHOWN:
        yield f"and {counted(len(every) - SHOWN, 'more line')}"
