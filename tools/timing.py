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


class Line(NamedTuple):
    """One row of the table; `limit` is the largest ratio that the project allows itself."""

    what: str
    ours: str
    theirs: str
    ratio: float | None
    limit: float | None


def run_python(*arguments: str) -> float:
    """Seconds that one interpreter takes from start to end."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
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


def memory(what: str, ours: list[float], theirs: list[float], limit: float | None) -> Line:
    """A row of two medians in megabytes."""
    left, right = median(ours), median(theirs)
    return Line(what, f"{left:.0f} MB", f"{right:.0f} MB", left / right, limit)


def markdown(lines: list[Line]) -> str:
    """The table that the README quotes."""
    rows = ["| | mapper | peer | ratio | at most |", "| --- | --- | --- | --- | --- |"]
    for line in lines:
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        limit = "" if line.limit is None else f"{line.limit:.2f}"
        rows.append(f"| {line.what} | {line.ours} | {line.theirs} | {ratio} | {limit} |")
    return "\n".join(rows)
