"""Python's cyclic garbage collector, which big headers and their trees keep busy for nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_MADE = 300_000  # objects of some readings: all are let go before these are looked through
_process = {"is_brief": False}  # whether it runs one command and ends


@contextmanager
def collection_paused(for_good: bool = False) -> Iterator[None]:
    """No cyclic garbage collection inside: on a big header it takes half of the time and finds nothing.

    What is made `for_good`, as modules are, is not looked through afterwards either.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if for_good:
                gc.freeze()
            gc.enable()


def ends_with_its_command() -> None:
    """Says that this process is the command's alone."""
    _process["is_brief"] = True


def is_brief() -> bool:
    """Whether nothing outlives the command, so that what it has read may stay until it ends."""
    return _process["is_brief"]


def keep_what_there_is() -> None:
    """For a process of our own that reads many checkpoints by one rule set: what it holds now stays until it ends.

    The collector does not look through it again (a million objects, once in every few readings), and looks at what comes after
    when there are as many objects as some readings make: most of them are gone by then, and were looked at for nothing.
    """
    gc.freeze()
    gc.set_threshold(_MADE, *gc.get_threshold()[1:])


def drop_what_is_new() -> None:
    """For the same process, where it reads with the collector paused: lets go of cycles that were made since the last time.

    What is left is what the rules have learned: it is older now, and no later look goes through it.
    """
    gc.collect(1)
