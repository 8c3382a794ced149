"""By which names a family is known: the patterns that it recognises and those that must be absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mapper._dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Signs:
    """By which names a family is known. Families with the same have one of these together."""

    recognise: tuple[str, ...]  # patterns, all of which must occur
    shapes: Mapping[str, Sequence[Any]]  # pattern -> extents; null is any
    absent: tuple[str, ...]  # patterns none of which may occur
