"""The types that a fact may have, and values checked against them: from a config, a rule file or the command line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from mapper.errors import shorten
from mapper.limits import EXTENT

TYPES = (
    "count", "even", "side", "natural", "number", "positive", "amount", "share", "flag", "text", "activation", "counts", "evens", "factors",
    "rising", "list", "any",
)  # fmt: skip
_WORDS = {
    "count": "a whole number from 1",
    "even": "an even whole number from 2",
    "side": "a whole number from 1, or a list that repeats one",
    "natural": "a whole number from 0",
    "number": "a finite number",
    "positive": "a finite number above 0",
    "amount": "a finite number from 0",
    "share": "a number above 0, at most 1",
    "flag": "true or false",
    "text": "text",
    "activation": "the name of an activation",
    "counts": "a list of whole numbers from 1",
    "evens": "an even whole number from 2, or a list of such",
    "factors": "a list of finite numbers above 0",
    "rising": "a list of whole numbers from 0, each larger than the one before",
    "list": "a list",
}

NUMBERS = ("count", "even", "natural", "number", "positive", "amount", "share")

_RANGES: Mapping[str, Callable[[float], bool]] = {
    "number": lambda value: True,
    "positive": lambda value: value > 0,
    "amount": lambda value: value >= 0,
    "share": lambda value: 0 < value <= 1,
}


def checked(value: Any, kind: str) -> Any:
    """`value` as a fact of this type holds it; ValueError, with what was seen and what is allowed, if it is none."""
    if kind in ("count", "even", "natural"):
        return _whole(value, kind)
    if kind == "side":
        return _side(value)
    if kind in _RANGES and is_number(value) and _RANGES[kind](value):
        return value
    if kind == "flag" and isinstance(value, bool):
        return value
    if kind in ("text", "activation") and isinstance(value, str):
        return value
    if kind == "counts" and isinstance(value, list) and value:
        return [_whole(item, "count") for item in value]
    if kind == "evens":
        return [_whole(item, "even") for item in (value if isinstance(value, list) and value else [value])]
    if kind == "factors" and isinstance(value, list) and value:
        return [checked(item, "positive") for item in value]
    if kind == "rising" and isinstance(value, list) and _rises(value):
        return value
    if kind == "list" and isinstance(value, list):
        return value
    if kind == "any":
        return value
    raise ValueError(f"{_seen(value)} is not {_WORDS[kind]}")


def parsed(text: Any, kind: str) -> Any:
    """The value that a user wrote on a command line; anything but text is taken as it is."""
    if not isinstance(text, str) or kind in ("text", "activation"):
        return checked(text, kind)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return checked(value, kind)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number that a model may have."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) < EXTENT
        and math.isfinite(value)
    )


def _whole(value: Any, kind: str) -> int:
    lowest, step = {"count": (1, 1), "even": (2, 2), "natural": (0, 1)}[kind]
    if is_number(value) and value >= lowest and value % step == 0:
        return int(value)
    raise ValueError(f"{_seen(value)} is not {_WORDS[kind]}")


def _rises(value: list[Any]) -> bool:
    wholes = all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in value)
    return wholes and all(one < other for one, other in pairwise(value))


def _side(value: Any) -> int:
    """The side of a square: configs write it once or for each dimension."""
    sides = value if isinstance(value, list) else [value]
    if not sides or any(side != sides[0] for side in sides) or not is_number(sides[0]):
        raise ValueError(f"{_seen(value)} is not {_WORDS['side']}")
    return _whole(sides[0], "count")


def _seen(value: Any) -> str:
    """A value quoted once; of text that reads like a number, that it is text."""
    if not isinstance(value, str):
        return shorten(shown(value))
    return f"the text {shorten(value)}" if value[:1].isdigit() else shorten(value)


def in_words(kind: str) -> str:
    """What a fact of a type may be: `a whole number from 1`; "" of one that may be anything."""
    return _WORDS.get(kind, "")


def shown(value: Any) -> str:
    """A value of a config as JSON, for an error."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return str(type(value).__name__)
