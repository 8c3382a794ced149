"""Large files onto the disk while they are written, so that little is left to wait for at their end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import BinaryIO

STEP = 2**26  # bytes that are worth a sync of their own
_PAUSE = 0.01  # seconds between two looks at the size

_flush = getattr(os, "fdatasync", os.fsync)  # which only some systems have


@contextmanager
def new_file(path: Path | str, buffering: int = -1) -> Iterator[BinaryIO]:
    """A new file at `path` to write to, by Python or by the system from another file.

    Raises OSError at its end where a part did not reach the disk: the system says so once alone, not at a later sync.
    """
    ended = Event()
    with open(path, "wb", buffering=buffering) as file, ThreadPoolExecutor(1) as others:
        try:
            flushed = others.submit(_flush_as_it_grows, file.fileno(), ended)
            yield file
        finally:
            ended.set()  # the pool waits for its thread, before the file is closed
        flushed.result()


def _flush_as_it_grows(descriptor: int, ended: Event) -> None:
    done = 0
    while not ended.wait(_PAUSE):
        size = os.fstat(descriptor).st_size
        if size - done >= STEP:
            _flush(descriptor)
            done = size
