"""What reaches the terminal beside the answer: one error line, progress on long work."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from mapper.report.style import Paint, coloured, plain
from mapper.report.words import printable

PATIENCE = 1.0  # seconds of work before anyone is told about it
_REFRESH = 0.1
_BAR = 24


def error_line(message: str) -> str:
    """One line whatever the message holds: names from files may carry anything."""
    return f"error: {printable(' '.join(message.split()), limit=2_000)}"


def paint(when: str = "auto") -> Paint:
    """Colours where standard output is a terminal that may show them (https://no-color.org); "always", or "never"."""
    if when != "auto":
        return coloured if when == "always" else plain
    return coloured if _is_terminal(sys.stdout) and not os.environ.get("NO_COLOR") else plain


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def working(what: str, fraction: Callable[[], float] | None = None) -> Iterator[None]:
    """Show on a terminal that work goes on, once it has taken a second; with `fraction`, how far it is."""
    if not _is_terminal(sys.stderr):
        yield
        return
    done = threading.Event()
    shown = threading.Thread(target=_show, args=(what, fraction, done), daemon=True)
    shown.start()
    try:
        yield
    finally:
        done.set()
        shown.join()


def _show(what: str, fraction: Callable[[], float] | None, done: threading.Event) -> None:
    start = time.monotonic()
    if done.wait(PATIENCE):
        return
    while not done.wait(_REFRESH):
        line = f"{what} {_bar(fraction())}" if fraction else f"{what} {time.monotonic() - start:.0f} s"
        sys.stderr.write(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        sys.stderr.flush()
    sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()


def _bar(part: float) -> str:
    full = int(_BAR * min(max(part, 0.0), 1.0))
    return f"{'█' * full}{'░' * (_BAR - full)} {min(part, 1.0):4.0%}"
