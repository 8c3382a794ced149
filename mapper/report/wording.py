"""Numbers and names as a person reads them."""

from __future__ import annotations

import re
from typing import Any

from mapper._units import in_bytes as in_bytes
from mapper.errors import cut
from mapper.words import spelled

_NUMBERS = re.compile(r"([0-9]{1,18})")
_UNITS = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))


def printable(text: str, limit: int = 160) -> str:
    """`text` on one line without control characters, cut in the middle when longer than `limit` characters.

    Names come from files: an escape sequence would write on the user's terminal.
    """
    text = cut(text, limit)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def counted(count: int, noun: str) -> str:
    """`1 tensor`, `104 tensors`, `1,204 tensors`."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def rounded(count: int) -> str:
    """Three digits and a unit: `22.7 million`; whole below a million."""
    for size, unit in _UNITS:
        if count >= size:
            return f"{count / size:.{2 if count < 10 * size else 1 if count < 100 * size else 0}f} {unit}"
    return f"{count:,}"


def parameters(count: int) -> str:
    """`1 parameter`, `22.7 million parameters`."""
    return f"{rounded(count)} parameter{'' if count == 1 else 's'}"


def folded(keys: list[str]) -> list[str]:
    """Keys that differ in numbers only as one, `layer.{0..5}.bias`, in the order of their first."""
    groups: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
    for key in keys:
        words = key.split(".")
        shape = tuple("\0" if is_index(word) else word for word in words)
        groups.setdefault(shape, []).append(tuple(int(word) for word in words if is_index(word)))
    return [_named(shape, numbers) for shape, numbers in groups.items()]


def is_index(word: str) -> bool:
    """Whether a word is a number as code writes it."""
    return word.isascii() and word.isdecimal() and len(word) < 10 and (word == "0" or word[0] != "0")


def _named(shape: tuple[str, ...], numbers: list[tuple[int, ...]]) -> str:
    columns = iter(zip(*numbers, strict=True))
    return ".".join(_span(sorted(set(next(columns)))) if word == "\0" else word for word in shape)


def _span(numbers: list[int]) -> str:
    runs = spelled(numbers).split(",")
    return ",".join(runs) if len(runs) <= 6 else f"{','.join(runs[:6])},..}}"


def natural(path: str) -> tuple[list[Any], str]:
    """A sort key by which `layer.2` comes before `layer.10`."""
    words: list[Any] = _NUMBERS.split(path)
    words[1::2] = map(int, words[1::2])
    return words, path
