"""Colours, as the sixteen that every terminal theme sets; nothing else depends on them."""

from __future__ import annotations

from collections.abc import Callable

Paint = Callable[[str, str], str]  # (style, text) -> text

_CODES = {"title": "1", "name": "1", "good": "32", "doubt": "33", "bad": "31", "faint": "2", "role": "36"}


def plain(style: str, text: str) -> str:
    """`text` as it is: for files, pipes and `print`."""
    return text


def coloured(style: str, text: str) -> str:
    """`text` between the escape sequences of a style."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if text else text
