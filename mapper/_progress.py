"""What a person is told while long work goes on: a line on the terminal that comes and goes, and notes that stay."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partialmethod
from typing import TextIO

from mapper._units import duration, in_bytes

PATIENCE = 1.0  # seconds of work before anyone is told about it
WINDOW = 10.0  # seconds over which the speed of a transfer is measured
_REFRESH = 0.1
_BAR = 24

_shown: list[Callable[[], str]] = []  # work within work: the innermost is shown
_lock = threading.RLock()


def terminal_size() -> os.terminal_size:
    import shutil  # here, because what goes to a file is written without it

    return shutil.get_terminal_size()


def is_terminal(stream: TextIO) -> bool:
    """Whether `stream` can show a line that is written over."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def note(text: str) -> None:
    """Log one line: on standard error, unless the program that imported this package logs elsewhere."""
    import logging

    with _lock:
        _wipe()
        logging.getLogger("mapper").warning("%s", _one_line(text))


@contextmanager
def working(what: str, fraction: Callable[[], float] | None = None) -> Iterator[None]:
    """Show on a terminal that work goes on, once it has taken a second; with `fraction`, how far it is."""
    start = time.monotonic()

    def line() -> str:
        return f"{what} {bar(fraction())}" if fraction else f"{what} {time.monotonic() - start:.0f} s"

    with showing(line):
        yield


@contextmanager
def showing(line: Callable[[], str]) -> Iterator[None]:
    """Keep what `line` returns on the terminal while the block runs, once it has taken a second."""
    if not is_terminal(sys.stderr):
        yield
        return
    with _lock:
        _shown.append(line)
    done = threading.Event()
    thread = None
    if len(_shown) == 1:
        thread = threading.Thread(target=_show, args=(done,), daemon=True)
        thread.start()
    try:
        yield
    finally:
        with _lock:
            _shown.remove(line)
        done.set()
        if thread is not None:
            thread.join()


@contextmanager
def without_bars() -> Iterator[None]:
    """No progress bars of other libraries while the block runs: they would write over what is shown here."""
    try:
        from tqdm.std import tqdm  # type: ignore[import-untyped]
    except ImportError:
        yield
        return
    usual = tqdm.__init__
    tqdm.__init__ = partialmethod(usual, disable=True)
    try:
        yield
    finally:
        tqdm.__init__ = usual


def _show(done: threading.Event) -> None:
    if done.wait(PATIENCE):
        return
    while not done.wait(_REFRESH):
        with _lock:
            text = _one_line(_shown[-1]()) if _shown else ""
            sys.stderr.write(f"\r{text[: terminal_size().columns - 1]}\x1b[K")
            sys.stderr.flush()
    with _lock:
        _wipe()


def _wipe() -> None:
    """Clear the line that `_show` writes over."""
    if is_terminal(sys.stderr):
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _one_line(text: str) -> str:
    """Names come from files: an escape sequence would write on the user's terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def bar(part: float) -> str:
    full = int(_BAR * min(max(part, 0.0), 1.0))
    return f"{'█' * full}{'░' * (_BAR - full)} {min(part, 1.0):4.0%}"


class Transfer:
    """How much of `total` bytes is here, how fast they come, and how long the rest will take."""

    def __init__(self, what: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.done = 0
        self._what = what
        self._total = total
        self._clock = clock
        self._mutex = threading.Lock()
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, count: int) -> None:
        """Count bytes that came, or, where negative, that have to come again."""
        with self._mutex:
            self.done += count

    def line(self) -> str:
        """`fetching org/big 1.2 GB of 4.0 GB, 85.0 MB/s, 33 s left`."""
        speed = self._speed()
        text = f"{self._what} {in_bytes(self.done)} of {in_bytes(self._total)}"
        if speed <= 0:
            return text
        return f"{text}, {in_bytes(speed)}/s, {duration((self._total - self.done) / speed)} left"

    def _speed(self) -> float:
        """Bytes a second, of the last seconds."""
        now = self._clock()
        self._seen.append((now, self.done))
        while now - self._seen[0][0] > WINDOW:
            self._seen.popleft()
        start, before = self._seen[0]
        return (self.done - before) / (now - start) if now > start else 0.0
