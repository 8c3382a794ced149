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
SAME = 0.01  # difference of the means up to which two values do the same on what was tried
NEAR = 0.5  # nats that other answers may make good
_NAMED = 3  # values in a line


@dataclass(frozen=True)
class Trial:
    """What came of one value of one fact, all other answers as they were at the end."""

    fact: str
    value: Any
    parts: torch.Tensor | None = field(default=None, repr=False)  # None: it could not be tried
    source: str = field(default="", repr=False)  # of the model: several values may come to the same
    further: torch.Tensor | None = field(default=None, repr=False)  # parts of a longer text
    why: str = ""  # it could not
    is_impossible: bool = False  # the checkpoint contradicts it
    is_asking: bool = False  # it raises a question without candidates
    is_late: bool = False  # there was no time for it

    @property
    def score(self) -> float | None:
        """The mean of all parts."""
        return None if self.parts is None else float(self.parts.mean())


def ranked(rows: Sequence[Trial]) -> list[Trial]:
    """The best first: those that have read most of the longer text, the others, then those that could not be tried."""

    def place(row: Trial) -> tuple[bool, int, float]:
        scores = row.further if row.further is not None else row.parts
        read = 0 if row.further is None else len(row.further)
        return row.parts is None, -read, 0.0 if scores is None else float(scores.nanmean())

    return sorted(rows, key=place)


def settled(rows: Sequence[Trial], voice: Voice, times: float = 1.0) -> Found | None:
    """The best value of `rows`, the best first, if all others that could be are worse beyond doubt, and all could be tried.

    `times` is by how much more than usual they must be worse.
    """
    best = rows[0]
    others = [row for row in _possible(rows[1:]) if not row.source or row.source != best.source]
    if best.parts is None or not others or any(row.parts is None for row in others):
        return None
    if not all(is_better(best, row, voice.least * times) for row in others):
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
    return all(abs(float(apart.mean())) <= SAME for apart in _apart(best, other))


def _apart(best: Trial, other: Trial) -> list[torch.Tensor]:
    """By how much the parts of a trial are worse than those of the best, for each text that both have read."""
    assert best.parts is not None and other.parts is not None
    found = [other.parts - best.parts]
    if best.further is not None and other.further is not None:
        read = min(len(best.further), len(other.further))
        found += [other.further[:read] - best.further[:read]]
    return [parts[parts.isfinite()] for parts in found]


def is_better(best: Trial, other: Trial, least: float, sure: float = SURE) -> bool:
    """Whether a trial is better than another, by default beyond doubt: by so much in the mean, and part by part.

    It is by one of the texts that both have read, and by none the other way round.
    """
    if best.parts is None or other.parts is None:
        return other.parts is None and best.parts is not None
    apart = _apart(best, other)
    means = [float(parts.mean()) for parts in apart]
    errors = [float(parts.std()) / len(parts) ** 0.5 for parts in apart]
    is_sure = (mean >= least and mean >= sure * error for mean, error in zip(means, errors, strict=True))
    return any(is_sure) and min(means) > -SAME


def is_hopeless(best: Trial, other: Trial, least: float) -> bool:
    """Whether more of a text would hardly make the difference of two trials as large as that."""
    apart = _apart(best, other)[-1]
    return float(apart.mean()) + SURE * float(apart.std()) / len(apart) ** 0.5 < least


def is_near(best: Trial, other: Trial) -> bool:
    """Whether another trial is worse, but by so little that with other answers it might be better."""
    if best.score is None or other.score is None:
        return False
    return SAME < other.score - best.score <= NEAR


def in_common(rows: list[Trial]) -> list[Trial]:
    """The trials with those parts alone that all that were heard have been asked."""
    heard = [row.parts for row in rows if row.parts is not None]
    if not heard:
        return rows
    common = torch.stack(heard).isfinite().all(0)
    return [row if row.parts is None else replace(row, parts=row.parts[common]) for row in rows]
