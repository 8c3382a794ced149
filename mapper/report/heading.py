"""The first lines of a report: what it is, of which family, how far to trust the reading, and how large it is."""

from __future__ import annotations

from mapper.architecture import CONTRADICTION, Architecture
from mapper.checkpoint import Checkpoint
from mapper.report.style import Paint, plain
from mapper.report.wording import counted, in_bytes, parameters, printable

STYLE = {"exact": "good", "unverified": "doubt", "graph": "doubt", "skeleton": "bad", CONTRADICTION: "bad"}


def first_line(architecture: Architecture, paint: Paint = plain) -> str:
    """The source, its family and how far to trust the reading."""
    return f"{paint('name', printable(architecture.checkpoint.source))}: {what_it_is(architecture, paint)}"


def what_it_is(architecture: Architecture, paint: Paint = plain) -> str:
    """What it is in words, the family, and how far to trust the reading."""
    if architecture.parts:
        return f"{printable(architecture.what)}, {printable(', '.join(architecture.parts))}"
    family = printable(architecture.family) if architecture.family else "no known family"
    if architecture.towers:
        family += " (" + ", ".join(f"{tower}: {name}" for tower, name in architecture.towers.items()) + ")"
    reading = paint(STYLE.get(architecture.reading, "name"), architecture.reading)
    what = f"{printable(architecture.what, limit=400)}; " if architecture.what else ""
    return f"{what}{family}, {reading}"


def stored(checkpoint: Checkpoint) -> str:
    """`104 tensors, 22.7 million parameters (F32, I64, 90.9 MB)`."""
    types = checkpoint.stored()
    size = in_bytes(sum(taken for _, taken in types.values()))
    dtypes = ", ".join(list(types)[:3])
    return f"{counted(len(checkpoint.tensors), 'tensor')}, {parameters(checkpoint.parameters)}" + (
        f" ({dtypes}, {size})" if types else ""
    )
