"""What was tried, for a report: each fact with its values, the best first."""

from __future__ import annotations

from mapper.evidence.behaviour.settling import Trial
from mapper.evidence.behaviour.trying import Tried
from mapper.report.chain import value_text
from mapper.report.wording import printable

_VALUES = 6  # of one fact
_LIMIT = 100  # characters of a reason


def table(tried: Tried) -> list[str]:
    """`attention.heads  12: 2.104, 6: 5.31, 24: 5.9` for each fact."""
    if not tried.what:
        return [
            "tried: nothing that it gives can be judged (a language model needs its tokenizer beside the weights)"
        ]
    wide = max(map(len, tried.trials), default=0)
    lines = [f"tried, by {tried.what}, the lower the better:"]
    lines += [f"  {printable(name):{wide}}  {_row(rows)}" for name, rows in tried.trials.items()]
    return lines if tried.is_whole else [*lines, "  there was no time for the rest: --seconds gives more"]


def _row(rows: list[Trial]) -> str:
    heard = [f"{value_text(row.value)}: {row.score:.4g}" for row in rows if row.score is not None]
    lost = [row for row in rows if row.score is None]
    more = [f"{len(heard) - _VALUES} more"] if len(heard) > _VALUES else []
    why = [f"not {value_text(row.value)} ({printable(row.why, limit=_LIMIT)})" for row in lost[:1]]
    others = [f"nor {len(lost) - 1} more"] if len(lost) > 1 else []
    return ", ".join([*heard[:_VALUES], *more, *why, *others])
