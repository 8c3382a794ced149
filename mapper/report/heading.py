"""The first lines of a report: what it is, of which family, how far to trust the reading, and how large it is."""

from __future__ import annotations

from mapper.architecture import CONTRADICTION, Architecture
from mapper.checkpoint import Checkpoint
from mapper.report.style import Paint, plain
from mapper.report.wording import counted, in_bytes, parameters, printable

_STATED = ("_class_name", "architecture")  # fields by which configs of other libraries say what they are of
STYLE = {"exact": "good", "unverified": "doubt", "graph": "doubt", "skeleton": "bad", CONTRADICTION: "bad"}


def first_line(architecture: Architecture, paint: Paint = plain) -> str:
    """The source, its family and how far to trust the reading."""
    return f"{paint('name', printable(architecture.checkpoint.source))}: {what_it_is(architecture, paint)}"


def what_it_is(architecture: Architecture, paint: Paint = plain) -> str:
    """What it is in words, the family, and how far to trust the reading."""
    if architecture.parts:
        return f"{printable(architecture.what)}, {printable(', '.join(architecture.parts))}"
    family = printable(architecture.family) if architecture.family else _unknown(architecture.checkpoint)
    if architecture.towers:
        family += " (" + ", ".join(f"{tower}: {name}" for tower, name in architecture.towers.items()) + ")"
    reading = paint(STYLE.get(architecture.reading, "name"), architecture.reading)
    what = f"{printable(architecture.what, limit=400)}; " if architecture.what else ""
    return f"{what}{family}, {reading}"


def stated_class(checkpoint: Checkpoint) -> str:
    """The class, or the name of the architecture, that the source itself says it is of; "" for none."""
    config = checkpoint.config or {}
    stated = (checkpoint.class_name, *(config.get(name) for name in _STATED))
    return next((printable(name) for name in stated if isinstance(name, str) and name), "")


def _unknown(checkpoint: Checkpoint) -> str:
    """That no family has these names, and what the source calls it all the same."""
    stated = stated_class(checkpoint)
    return f"no known family for {stated}" if stated else "no known family"


def stored(checkpoint: Checkpoint) -> str:
    """`104 tensors, 22.7 million parameters (F32, I64, 90.9 MB)`."""
    types = checkpoint.stored()
    size = in_bytes(sum(taken for _, taken in types.values()))
    dtypes = ", ".join(list(types)[:3])
    return f"{counted(len(checkpoint.tensors), 'tensor')}, {parameters(checkpoint.parameters)}" + (
        f" ({dtypes}, {size})" if types else ""
    )
