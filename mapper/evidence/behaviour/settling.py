"""What came of trying the values of a fact: one that is right beyond doubt, one by default, or still a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from mapper.evidence.behaviour.voices import Voice
from mapper.evidence.found import Found
from mapper.rulebook.values import shown

SURE = 4.0  # standard deviations between the parts of two candidates
LIKELY = 2.0  # of them, for a default
SAME = 0.005  # difference of the means up to which two values do the same on what was tried
_NAMED = 3  # values in a line


@dataclass(frozen=True)
class Trial:
    """What came of one value of one fact, all other answers as they were at the end."""

    fact: str
    value: Any
    parts: torch.Tensor | None = field(default=None, repr=False)  # None: it could not be tried
    why: str = ""  # it could not
    is_impossible: bool = False  # the checkpoint contradicts it
    is_asking: bool = False  # it raises a question without candidates
    is_late: bool = False  # there was no time for it

    @property
    def score(self) -> float | None:
        """The mean of all parts."""
        return None if self.parts is None else float(self.parts.mean())


def settled(rows: Sequence[Trial], voice: Voice) -> Found | None:
    """The best value of `rows`, the best first, if all others that could be are worse beyond doubt, and all could be tried."""
    best, others = rows[0], _possible(rows[1:])
    if best.parts is None or not others or any(row.parts is None for row in others):
        return None
    if not all(is_better(best, row, voice.least) for row in others):
        return None
    return Found(
        best.value,
        "behaviour",
        f"{voice.what} {best.score:.3g} against {others[0].score:.3g} for {shown(others[0].value)}",
    )


def by_default(
    rows: Sequence[Trial], candidates: Sequence[Any], voice: Voice, is_untold: bool
) -> Found | None:
    """The first of the candidates that do as well as the best, where each other one is likely worse.

    With what behaviour does not tell (`is_untold`) each value must do exactly the same.
    """
    heard = [row for row in rows if row.parts is not None]
    if not heard or any(row.is_late for row in rows):
        return None
    alike = [row for row in heard if _is_alike(heard[0], row, is_untold)]
    worse = [row for row in heard if row not in alike]
    if (is_untold and worse) or not all(is_better(heard[0], row, SAME, LIKELY) for row in worse):
        return None
    by_value = {shown(row.value): row for row in alike}
    first = next((by_value[key] for value in candidates if (key := shown(value)) in by_value), alike[0])
    return Found(first.value, "default", _reason(first, alike, rows, voice))


def _reason(first: Trial, alike: Sequence[Trial], rows: Sequence[Trial], voice: Voice) -> str:
    """Why it is a default: which values nothing tells from it, and which could not be tried."""
    others = _listed([row for row in alike if row is not first])
    untried = _listed([row for row in _possible(rows) if row.parts is None])
    said = f"{voice.what} does not tell it from {others}" if others else f"the best by {voice.what}"
    return f"{said}; not tried: {untried}" if untried else said


def _listed(rows: Sequence[Trial]) -> str:
    more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    return ", ".join(shown(row.value) for row in rows[:_NAMED]) + more


def _possible(rows: Sequence[Trial]) -> list[Trial]:
    return [row for row in rows if not row.is_impossible]


def _is_alike(best: Trial, other: Trial, exactly: bool) -> bool:
    """Whether two trials do the same."""
    if best.parts is None or other.parts is None:
        return False
    if exactly:
        return best.parts.equal(other.parts)
    return abs(float((other.parts - best.parts).mean())) <= SAME


def is_better(best: Trial, other: Trial, least: float, sure: float = SURE) -> bool:
    """Whether a trial is better than another, by default beyond doubt: by so much in the mean, and part by part."""
    if best.parts is None or other.parts is None:
        return other.parts is None and best.parts is not None
    apart = other.parts - best.parts
    mean, error = float(apart.mean()), float(apart.std()) / len(apart) ** 0.5
    return mean >= least and mean >= sure * error


def in_common(rows: list[Trial]) -> list[Trial]:
    """The trials with those parts alone that all that were heard have been asked."""
    heard = [row.parts for row in rows if row.parts is not None]
    if not heard:
        return rows
    common = torch.stack(heard).isfinite().all(0)
    return [row if row.parts is None else replace(row, parts=row.parts[common]) for row in rows]
