"""The one change of a call, or of a source, that would make everything fit."""

from __future__ import annotations

import re

from mapper.weights.loading.flat_table import Array, Source
from mapper.weights.loading.load_report import LoadReport, Mismatch
from mapper.weights.loading.order import by_position
from mapper.weights.modules import State, States, is_unshaped

_SHAPE = re.compile(r"\[([\d, ]*)\]$")


def one_change(report: LoadReport, states: States, source: Source) -> str | None:
    """A sentence with the change, or None where no single one repairs everything."""
    return (
        _transposed(report)
        or _prefix(report, states, source)
        or _order(report, states, source)
        or _false(report, states)
    )


def is_transposed(bad: Mismatch) -> bool:
    """Whether the shapes of a mismatch are those of a matrix and its transpose."""
    shapes = [_SHAPE.search(text) for text in (bad.expected, bad.found)]
    if None in shapes:
        return False
    one, other = (match[1].split(", ") for match in shapes if match)
    return len(one) == 2 and one == other[::-1] and one != other


def _transposed(report: LoadReport) -> str | None:
    bad = report.mismatched
    if report.missing or report.unexpected or not bad or not all(is_transposed(each) for each in bad):
        return None
    word = "it" if len(bad) == 1 else "them"
    return f"everything fits but for transposed matrices: transpose {word} in the source (`.T`)"


def _fits(state: State, array: Array) -> bool:
    tensor = state.tensor
    return tensor is not None and (is_unshaped(tensor) or tuple(tensor.shape) == array.shape)


def _prefix(report: LoadReport, states: States, source: Source) -> str | None:
    """A prefix that all of the source has, or that all of the model has."""
    arrays = source.arrays()
    real = {path: state for path, state in states.by_path.items() if state.tensor is not None}
    if not report.missing or not report.unexpected:
        return None
    for path in report.unexpected:
        if path.endswith(f".{report.missing[0]}"):
            prefix = path[: -len(report.missing[0])]
            if all(
                prefix + key in arrays and _fits(state, arrays[prefix + key])
                for key, state in _wanted(real).items()
            ):
                return f'everything fits with prefix="{prefix}"'
    for path in report.missing:
        if path.endswith(f".{report.unexpected[0]}"):
            prefix = path[: -len(report.unexpected[0])]
            if {prefix + key for key in arrays} == set(_wanted(real)):
                return f'everything fits with rename=lambda path: "{prefix}" + path'
    return None


def _wanted(real: dict[str, State]) -> dict[str, State]:
    """One path of each tensor of the model."""
    return {path: state for path, state in real.items() if path == state.path}


def _order(report: LoadReport, states: States, source: Source) -> str | None:
    if not report.missing or not report.unexpected:
        return None
    moved = by_position(source, states)
    arrays = moved.arrays()
    real = {path: state for path, state in states.by_path.items() if state.tensor is not None}
    wanted = _wanted(real)
    if moved.strays or not set(wanted) <= set(arrays) or not set(arrays) <= set(states.by_path):
        return None
    fits = all(_fits(state, arrays[path]) for path, state in wanted.items())
    return (
        'everything fits with by="order": the same leaves in the same order under other names'
        if fits
        else None
    )


def _false(report: LoadReport, states: States) -> str | None:
    if report.mismatched or report.unexpected or not report.missing:
        return None
    neutral = [states.by_path[path].neutral for path in report.missing]
    if any(value is None for value in neutral):
        return None
    words = " and ".join(sorted({"zeros" if value == 0 else "ones" for value in neutral}, reverse=True))
    what = "it is" if len(neutral) == 1 else "they are"
    return f"everything fits if {what} False in the source, which means {words}"
