"""Rows of the benchmarks: processes timed in turns, medians, a markdown table."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# Source of `peak()`, megabytes: of this process alone. What getrusage calls the largest is also that of the process before it became another program.
PEAK = "peak = lambda: next(int(row.split()[1]) for row in open('/proc/self/status') if row.startswith('VmHWM')) / 1000"
HEAD = "| | mapper | peer | ratio | at most |\n| --- | --- | --- | --- | --- |"


class Line(NamedTuple):
    """One row of the table: what was measured, and the most of it that the project allows itself."""

    what: str
    ours: str
    theirs: str = "-"
    ratio: float | None = None
    limit: float | None = None  # of the ratio; where there is no peer, of `measured`
    measured: float | None = None
    unit: str = ""  # of the limit, where there is no peer

    @property
    def is_over(self) -> bool:
        found = self.measured if self.ratio is None else self.ratio
        return self.limit is not None and found is not None and found > self.limit

    @property
    def most(self) -> str:
        """The limit as the table shows it."""
        return "-" if self.limit is None else f"{self.limit:g} {self.unit}".strip()


def run_python(*arguments: str) -> float:
    """Seconds that one interpreter takes from start to end, its modules compiled, as those of an installed package are."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{' '.join(arguments)[:200]}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return seconds


def in_turns(repeat: int, *sides: Callable[[], Any]) -> list[list[Any]]:
    """Results of each side; one unmeasured turn first, to fill the file cache."""
    results: list[list[Any]] = [[] for _ in sides]
    for turn in range(repeat + 1):
        for side, measured in zip(sides, results, strict=True):
            value = side()
            if turn:
                measured.append(value)
    return results


def seconds(what: str, ours: list[float], theirs: list[float], limit: float | None) -> Line:
    """A row of two medians in seconds."""
    left, right = median(ours), median(theirs)
    return Line(what, f"{left:.3f} s", f"{right:.3f} s", left / right, limit)


def alone(what: str, ours: list[float], limit: float | None = None) -> Line:
    """A row of one median in seconds, without a peer."""
    return Line(what, f"{median(ours):.3f} s", limit=limit, measured=median(ours), unit="s")


def memory(what: str, ours: list[float], theirs: list[float], limit: float | None) -> Line:
    """A row of two medians in megabytes."""
    left, right = median(ours), median(theirs)
    return Line(what, f"{left:.0f} MB", f"{right:.0f} MB", left / right, limit)


def row(line: Line) -> str:
    ratio = "-" if line.ratio is None else f"{line.ratio:.2f}"
    return f"| {line.what} | {line.ours} | {line.theirs} | {ratio} | {line.most} |"


def markdown(lines: list[Line]) -> str:
    """The table that docs/speed.md shows."""
    return "\n".join([HEAD, *map(row, lines)])


def rewritten(page: str, lines: list[Line]) -> str:
    """A page whose table has these rows anew: each in the place of the row of its name, what it had not at the end.

    Raises ValueError for a page without the table.
    """
    before, head, rest = page.partition(HEAD + "\n")
    if not head:
        raise ValueError("the page has no table of times")
    count = next((at for at, text in enumerate(rest.splitlines()) if not text.startswith("|")), None)
    old = rest.splitlines()[:count]
    new = {line.what: row(line) for line in lines}
    kept = [new.pop(text.split("|")[1].strip(), text) for text in old]
    after = "\n".join(rest.splitlines()[len(old) :])
    return before + head + "\n".join([*kept, *new.values(), after]) + "\n"
