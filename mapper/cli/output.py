"""What reaches the terminal: one error line, progress on long work."""

from __future__ import annotations

import os
import sys

from mapper.report.words import printable


def error_line(message: str) -> str:
    """One line whatever the message holds: names from files may carry anything."""
    return f"error: {printable(' '.join(message.split()), limit=2_000)}"


def is_coloured() -> bool:
    """Whether standard output is a terminal that may show colours (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
