"""Sizes and times as a person reads them."""

from __future__ import annotations


def in_bytes(count: float) -> str:
    """`90.9 MB`: decimal units, as files are listed."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


def duration(seconds: float) -> str:
    """`33 s`, `2 min 5 s`, `1 h 20 min`."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"
