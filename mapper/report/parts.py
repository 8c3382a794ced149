"""Several models of one source: a short block for each."""

from __future__ import annotations

from collections.abc import Iterator

from mapper.architecture import Architecture
from mapper.report.heading import stated_class, stored, what_it_is
from mapper.report.style import Paint
from mapper.report.wording import printable

_WIDTH = 20  # of the column of names; a longer one pushes its own line only


def part_lines(architecture: Architecture, paint: Paint) -> Iterator[str]:
    """What each model is, and how large; then how to have one of them by itself."""
    width = min(max(map(len, architecture.parts)), _WIDTH)
    for name, part in architecture.parts.items():
        shown = f"{printable(name):{width}}"
        yield f"{paint('name', shown)}  {what_it_is(part, paint)}{_class(part)}"
        yield f"{'':{width}}  {stored(part.checkpoint)}, {part.checkpoint.container}"
        if part.refusal:
            yield f"{'':{width}}  {printable(part.refusal, limit=400)}"
    yield f"one by itself: SRC#{printable(next(iter(architecture.parts)))}, in every command"


def _class(part: Architecture) -> str:
    """The class that the source says it is of, where the line does not have it yet."""
    named = stated_class(part.checkpoint) if part.family else ""
    return f" ({named})" if named else ""
