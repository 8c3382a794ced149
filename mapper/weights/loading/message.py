"""The text of a StructureError: every problem in a line, what stands around it, and the one change that would do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mapper.errors import shorten
from mapper.weights.loading import remedies
from mapper.weights.loading.flat_table import Source
from mapper.weights.loading.load_report import LoadReport, Mismatch
from mapper.weights.loading.pairing import in_model, in_source
from mapper.weights.modules import States

LINES = 20  # of one kind; the report has all
CHILDREN = 12  # names of one level


def explain(report: LoadReport, states: States, source: Source, kinds: Sequence[str]) -> str:
    """The message for the problems of the fatal `kinds` ("missing", "unexpected", "mismatched")."""
    count = sum(len(getattr(report, kind)) for kind in kinds)
    head = f"cannot load into {type(states.root).__name__}: {count} {'problem' if count == 1 else 'problems'}"
    around = _Around(states, source)
    lines = [f"{head}, nothing was changed"]
    if "mismatched" in kinds:
        lines += _counted((_mismatch(bad) for bad in report.mismatched), len(report.mismatched), "mismatched")
    if "missing" in kinds:
        told = (
            f"{_path(path)}   only in the model: {in_model(states.by_path[path])}" for path in report.missing
        )
        lines += _counted(told, len(report.missing), "only in the model", around, report.missing)
    if "unexpected" in kinds:
        told = (f"{_path(path)}   only in the source: {_leaf(source, path)}" for path in report.unexpected)
        lines += _counted(told, len(report.unexpected), "only in the source", around, report.unexpected)
    hint = remedies.one_change(report, states, source)
    return "\n".join([*lines, *([hint] if hint else [])])


def _leaf(source: Source, path: str) -> str:
    return (
        in_source(source.leaves[path])
        if path in source.leaves
        else "an array at a position that the model lacks"
    )


def _mismatch(bad: Mismatch) -> str:
    hint = "   (transposed?)" if bad.kind == "shape" and remedies.is_transposed(bad) else ""
    return f"{_path(bad.path)}   {bad.kind}: model {bad.expected}, source {bad.found}{hint}"


def _path(path: str) -> str:
    """A path as it is, unless it cannot be seen or could harm a terminal."""
    return path if path and path.isprintable() and len(path) <= 200 else shorten(path, 200)


def _counted(
    told: Iterable[str], count: int, word: str, around: _Around | None = None, paths: Sequence[str] = ()
) -> list[str]:
    lines: list[str] = []
    seen: set[str] = set()
    for position, line in zip(range(LINES), told, strict=False):
        lines.append(f"  {line}")
        context = around.line(paths[position]) if around else ""
        if context and context not in seen:  # once for neighbours
            seen.add(context)
            lines.append(f"      {context}")
    return [*lines, f"  and {count - LINES} more {word}"] if count > LINES else lines


class _Around:
    """The names one level below a path's nearest branch that both sides have."""

    def __init__(self, states: States, source: Source) -> None:
        self.model = _levels(states.by_path)
        arrays = source.arrays()
        self.source = _levels(path for path, leaf in source.leaves.items() if path in arrays or leaf is None)

    def line(self, path: str) -> str:
        at = path.rpartition(".")[0]
        while at and not (at in self.model and at in self.source):
            at = at.rpartition(".")[0]
        where = f"at {_path(at)}" if at else "at the root"
        return f"{where}: model has {_names(self.model, at)}; source has {_names(self.source, at)}"


def _levels(paths: Iterable[str]) -> dict[str, dict[str, None]]:
    """{branch: names of its children, in order}."""
    levels: dict[str, dict[str, None]] = {}
    for path in paths:
        above, _, name = path.rpartition(".")
        while name not in levels.setdefault(above, {}):
            levels[above][name] = None
            if not above:
                break
            above, _, name = above.rpartition(".")
    return levels


def _names(levels: dict[str, dict[str, None]], at: str) -> str:
    names = [_path(name) for name in levels.get(at, {})]
    more = len(names) - CHILDREN
    return (", ".join(names[:CHILDREN]) + (f" and {more} more" if more > 0 else "")) or "nothing"
