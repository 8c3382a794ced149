"""Names in expressions of what layers read."""

from __future__ import annotations

import re


def names_in(text: str) -> tuple[str, ...]:
    """The names in an expression."""
    return tuple(re.findall(r"(?<![\w.])[A-Za-z_][\w.]*+(?!\()", text))


def plain(text: str) -> str:
    found = re.fullmatch(r"(?:pooled|flatten)\(([\w.]+)\)", text)
    return found[1] if found else text
