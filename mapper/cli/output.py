"""What reaches the terminal beside the answer: one error line, progress on long work."""

from __future__ import annotations

import os
import sys

from mapper._progress import is_terminal
from mapper._progress import working as working
from mapper.report.style import Paint, coloured, plain
from mapper.report.words import printable


def error_line(message: str) -> str:
    """One line whatever the message holds: names from files may carry anything."""
    return f"error: {printable(' '.join(message.split()), limit=2_000)}"


def paint(when: str = "auto") -> Paint:
    """Colours where standard output is a terminal that may show them (https://no-color.org); "always", or "never"."""
    if when != "auto":
        return coloured if when == "always" else plain
    return coloured if is_terminal(sys.stdout) and not os.environ.get("NO_COLOR") else plain
