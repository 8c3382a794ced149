"""What reaches the terminal beside the answer: one error line, progress on long work."""

from __future__ import annotations

import os
import sys
from typing import TextIO

import click

from mapper._progress import is_terminal, terminal_size
from mapper._progress import working as working
from mapper.report.style import Paint, coloured, plain
from mapper.report.text import SCREEN
from mapper.report.wording import printable
from mapper.report.wrapping import fitted

_LOWEST = 36  # lines: on a lower terminal a report is scrolled


def error_line(message: str) -> str:
    """One line whatever the message holds: names from files may carry anything."""
    return f"error: {printable(' '.join(message.split()), limit=2_000)}"


def columns(stream: TextIO | None = None) -> int | None:
    """How wide the terminal is that text goes to; None for a file or a pipe, whose lines stay whole."""
    return terminal_size().columns if is_terminal(stream or sys.stdout) else None


def screen() -> int:
    """How many lines a report may take."""
    if not is_terminal(sys.stdout):
        return SCREEN
    return max(terminal_size().lines - 2, _LOWEST)


def say(text: str) -> None:
    """Print an answer; on a terminal no word is broken at its edge."""
    click.echo(fitted(text, columns()))


def paint(when: str = "auto") -> Paint:
    """Colours where standard output is a terminal that may show them (https://no-color.org); "always", or "never"."""
    if when != "auto":
        return coloured if when == "always" else plain
    return coloured if is_terminal(sys.stdout) and not os.environ.get("NO_COLOR") else plain
