"""The report as text."""

from __future__ import annotations

from mapper.architecture import Architecture
from mapper.report.words import counted, printable, rounded


def as_text(architecture: Architecture) -> str:
    """The whole report, without colours; ends without a newline."""
    checkpoint = architecture.checkpoint
    head = (
        f"{printable(checkpoint.source)}: {architecture.family or 'no known family'}, {architecture.reading}"
    )
    size = f"{counted(len(checkpoint.tensors), 'tensor')}, {rounded(checkpoint.parameters)} parameters"
    return f"{head}\n{size}"
