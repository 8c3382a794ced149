"""Long tuples of values as a person writes them: a pattern that comes again, runs of one value, equal steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

from mapper.emission.expressions import literal

_LONG = 50  # characters; fewer are read at a glance
_SHORTER = 2  # times: what it must be worth to be computed
_PERIODS = 2  # a pattern that stands there once is none
_PARTS = 3  # runs that are easier to read than the values


def tuple_text(values: Sequence[Any]) -> str:
    """The values one by one, or the expression of the same tuple that is much shorter."""
    plain = literal(tuple(values))
    if len(plain) <= _LONG:
        return plain
    texts = [literal(value) for value in values]
    ways = (_stepped(values), _of_runs(texts), _of_periods(texts))
    return next((text for text in ways if text and len(text) * _SHORTER <= len(plain)), plain)


def _stepped(values: Sequence[Any]) -> str | None:
    """`tuple(range(0, 32, 2))`"""
    if any(type(value) is not int for value in values):
        return None
    steps = {later - one for one, later in pairwise(values)}
    if len(steps) != 1 or steps == {0}:
        return None
    step = steps.pop()
    start, stop = values[0], values[-1] + step
    given = (start, stop, step) if step != 1 else (start, stop) if start else (stop,)
    return f"tuple(range({', '.join(map(str, given))}))"


def _of_runs(texts: Sequence[str]) -> str | None:
    """`("full",) * 28`, or the sum of a few such runs."""
    parts = [(text, len([*run])) for text, run in groupby(texts)]
    if len(parts) > _PARTS:
        return None
    return " + ".join(_times(text, count) for text, count in parts)


def _of_periods(texts: Sequence[str]) -> str | None:
    """`(("sliding",) * 5 + ("full",)) * 4`, and of a last one that is not whole what there is."""
    for period in range(2, len(texts) // _PERIODS + 1):
        if all(text == texts[at % period] for at, text in enumerate(texts)):
            count, rest = divmod(len(texts), period)
            once, last = _once(texts[:period]), _once(texts[:rest]) if rest else ""
            return f"{once} * {count}{' + ' * bool(rest)}{last}" if once and last is not None else None
    return None


def _once(texts: Sequence[str]) -> str | None:
    """A pattern: its values where all neighbours differ, else its runs."""
    if all(one != later for one, later in pairwise(texts)):
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    runs = _of_runs(texts)
    return f"({runs})" if runs and "+" in runs else runs


def _times(text: str, count: int) -> str:
    return f"({text},) * {count}" if count > 1 else f"({text},)"
