"""How much work a call takes, counted instead of timed: the same on any machine, however busy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def calls(work: Callable[[], Any]) -> int:
    """Calls of Python and C functions while it runs."""
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def growth(work: Callable[[int], Callable[[], Any]], size: int) -> float:
    """Calls at twice a size beside those at the size itself; what happens once, whatever the size, is run before."""
    work(size)()
    return calls(work(2 * size)) / calls(work(size))
