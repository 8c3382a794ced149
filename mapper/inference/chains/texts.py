"""Names in expressions of what layers read."""

from __future__ import annotations

import re
from collections.abc import Iterator

NAME = re.compile(r"(?<![\w.])[A-Za-z_][\w.]*(?![\w.])")
_UNSAYABLE = re.compile(r"[^\w.]")
_NO_FUNCTION = re.compile(NAME.pattern + r"(?!\()")


def sayable(name: str) -> str:
    """A layer's name as an expression may have it: `Layer 0.0` is `Layer_0.0`."""
    return _UNSAYABLE.sub("_", name)


def names_in(text: str) -> tuple[str, ...]:
    """The names in an expression, but for those of functions."""
    return tuple(_NO_FUNCTION.findall(text))


def inside(text: str) -> str:
    """What stands before the parenthesis that closes one that was opened before it."""
    depth = 1
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if not depth:
            return text[:at]
    return text


def names_in_calls(word: str, text: str) -> Iterator[tuple[str, ...]]:
    """The names in each call of a function, also in calls within calls."""
    for found in re.finditer(rf"\b{word}\(", text):
        yield names_in(inside(text[found.end() :]))


def plain(text: str) -> str:
    """The one name that an expression makes a vector of; the expression itself if it is another."""
    found = re.fullmatch(r"(?:pooled|flatten)\(([\w.]+)\)", text)
    return found[1] if found else text
