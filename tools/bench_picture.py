"""Time and size of the page that `inspect --html` writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from timing import Line, alone, in_turns, run_python

MORE, LARGE_TIME, LARGE_SIZE = 0.3, 2.0, 2.0  # seconds over `inspect`, seconds, MB


def pages(minilm: Path, experts: Path, folder: Path, repeat: int) -> Iterator[Line]:
    """A whole `inspect --html` beside the `inspect` that it is part of, and one of a mixture of experts."""
    page = folder / "page.html"

    def whole(case: Path, *more: str) -> float:
        return run_python("-m", "mapper", "inspect", str(case), *more)

    drawn = ("--html", str(page), "--overwrite")
    plain, with_page = in_turns(repeat, lambda: whole(minilm), lambda: whole(minilm, *drawn))
    more = [one - other for one, other in zip(with_page, plain, strict=True)]
    yield alone("`mapper inspect --html` of MiniLM, over `mapper inspect`", more, MORE)
    (large,) = in_turns(repeat, lambda: whole(experts, *drawn))
    yield alone("`mapper inspect --html` of Qwen3-30B-A3B (18,867 tensors)", large, LARGE_TIME)
    size = page.stat().st_size / 1e6
    yield Line("its page", f"{size:.2f} MB", limit=LARGE_SIZE, measured=size, unit="MB")
