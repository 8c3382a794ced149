"""Checked reading of one JSON value after another: everything that is no such value is a FormatError in one line."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from mapper import limits
from mapper.errors import FormatError, shorten

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*|_[A-Za-z0-9][A-Za-z0-9_]*")
_DOTTED = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9][A-Za-z0-9_]*)*")
_TEXT = 100_000  # characters of one text: a flow with all that it comes after has under 4,000
_NAME = 200  # characters of an identifier
_DEPTH = 8  # of a value


def fail(why: str) -> NoReturn:
    raise FormatError(f"the stored architecture cannot be read: {why}")


def shown(value: Any) -> str:
    return shorten(value if isinstance(value, str) else repr(value)[:200])


def table(value: Any, what: str) -> dict[str, Any]:
    """A mapping from texts."""
    if not isinstance(value, dict):
        fail(f"{what} is {shown(value)}, not an object")
    return value


def text(data: Mapping[str, Any], key: str, default: str = "") -> str:
    """A text of bounded length."""
    value = data.get(key, default)
    if not isinstance(value, str) or len(value) > _TEXT:
        fail(f"{key} is {shown(value)}, not a text of at most {_TEXT} characters")
    return value


def items(data: Mapping[str, Any], key: str, most: int = limits.LAYERS) -> list[Any]:
    """A list of bounded length."""
    value = data.get(key, [])
    if not isinstance(value, list) or len(value) > most:
        fail(f"{key} is {shown(value)}, not a list of at most {most} items")
    return value


def texts(data: Mapping[str, Any], key: str) -> list[str]:
    return [text({key: item}, key) for item in items(data, key)]


def words(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of identifiers."""
    return tuple(word(item) for item in items(data, key))


def words_of(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A mapping from identifiers."""
    return {word(name): value for name, value in table(data.get(key, {}), key).items()}


def word(value: Any) -> str:
    """An identifier: what emission may write as it is."""
    if (
        not isinstance(value, str)
        or len(value) > _NAME
        or not _WORD.fullmatch(value)
        or keyword.iskeyword(value)
    ):
        fail(f"{shown(value)} is no name")
    return value


def dotted(value: Any) -> str:
    """Identifiers with dots between them: the name of a fact."""
    is_name = isinstance(value, str) and len(value) <= _NAME and _DOTTED.fullmatch(value)
    if not is_name or any(map(keyword.iskeyword, value.split("."))):
        fail(f"{shown(value)} is no name of a fact")
    return str(value)


def matching(data: Mapping[str, Any], key: str, pattern: re.Pattern[str]) -> str:
    value = text(data, key)
    if value and not pattern.fullmatch(value):
        fail(f"{key} is {shown(value)}")
    return value


def one_of(data: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> str:
    value = data.get(key)
    if value not in allowed:
        fail(f"{key} is {shown(value)}, none of {', '.join(allowed)}")
    return str(value)


def number(value: Any, what: str, most: int = limits.EXTENT) -> int:
    """A whole number from 0."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        fail(f"{what} is {shown(value)}, not a whole number from 0 to {most}")
    return value


def value_of(data: Any, depth: int = _DEPTH) -> Any:
    """What `plain` made a JSON value of."""
    if depth == 0:
        fail("a value is nested too deeply")
    if isinstance(data, list):
        return [value_of(item, depth - 1) for item in items({"a value": data}, "a value")]
    if isinstance(data, dict):
        return _wrapped(data, depth)
    if isinstance(data, str):
        return text({"a value": data}, "a value")
    if isinstance(data, float) and not math.isfinite(data):
        fail(f"{data} is no JSON number")
    if isinstance(data, int) and not isinstance(data, bool) and abs(data) > 2**63:
        fail("a number is too large")
    return data


def _wrapped(data: dict[str, Any], depth: int) -> Any:
    kind, inner = next(iter(data.items()), ("", None))
    if len(data) == 1 and kind == "tuple" and isinstance(inner, list):
        return tuple(value_of(inner, depth))
    if len(data) == 1 and kind == "float" and inner in ("inf", "-inf", "nan"):
        return float(inner)
    if len(data) == 1 and kind == "table" and isinstance(inner, list):
        pairs = [tuple(pair) for pair in inner if isinstance(pair, list) and len(pair) == 2]
        if len(pairs) == len(inner) and all(isinstance(key, str) for key, _ in pairs):
            return {key: value_of(item, depth - 1) for key, item in pairs}
    fail(f"{shown(data)} is no value")
