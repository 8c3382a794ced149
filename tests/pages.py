"""Pages of the documentation as what they are tried from: files to write, commands, and the lines that these print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

Step = tuple[str, list[str]]  # a command, the lines that it prints
Block = tuple[str, str, str]  # language, name of a file to write, text


def page(path: str) -> str:
    """The text of a page of the repository: `docs/tour.md`."""
    return (ROOT / path).read_text(encoding="utf-8")


def blocks(text: str) -> list[Block]:
    return re.findall(r"^```(\w+) ?([\w./]*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def steps(text: str) -> Iterator[Step]:
    """The files to write (as `cat > NAME` with the lines of the file) and the commands, in the order of the page."""
    for language, name, body in blocks(text):
        if name:
            yield f"cat > {name}", body.splitlines()
        elif language == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, *printed = part.splitlines()
                yield command, printed


def assert_shown(printed: str, shown: list[str], command: str) -> None:
    """Every line shown is printed, in this order; `...` stands for the rest of a line or for any lines."""
    rest = iter(" ".join(line.split()) for line in printed.splitlines())
    for line in shown:
        start, elided, _ = " ".join(line.split()).partition("...")
        assert any(row.startswith(start) if elided else row == start for row in rest) or line == "...", (
            f"{command}: {line!r} is not printed: {printed}"
        )
