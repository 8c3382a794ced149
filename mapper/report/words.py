"""Numbers and names as a person reads them."""

from __future__ import annotations

_UNITS = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))


def printable(text: str, limit: int = 160) -> str:
    """`text` on one line without control characters, cut in the middle when longer than `limit` characters.

    Names come from files: an escape sequence would write on the user's terminal.
    """
    if len(text) > limit:
        half = (limit - 5) // 2
        text = f"{text[:half]} ... {text[-half:]}"
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


def in_bytes(count: float) -> str:
    """`90.9 MB`: decimal units, as files are listed."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"
