"""The result of an inspection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mapper.architecture import Architecture


@dataclass(frozen=True, repr=False)
class Report:
    """What a checkpoint is and how that is known; `print` shows it as `mapper inspect` does.

    `architecture` has the data behind it, `to_text(depth=9)` the whole of a long report, `to_json()` the document of
    `mapper inspect --json`, and `why("attention.heads")` the evidence for one fact.
    """

    architecture: Architecture

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        known = self.architecture
        if known.parts:
            return f"Report({known.checkpoint.source!r}, parts={list(known.parts)})"
        return f"Report({known.checkpoint.source!r}, family={known.family!r}, reading={known.reading!r})"

    def to_text(self, depth: int | None = None, width: int | None = None) -> str:
        """What `print` shows, with so many levels of folders (when left out, as many as fit on a screen), no line wider."""
        from mapper.report.text import as_text

        return as_text(self.architecture, depth=depth, width=width)

    def to_json(self) -> str:
        """One JSON document, described by `mapper/report/schema.json`."""
        from mapper.report.as_json import as_json

        return as_json(self.architecture)

    @property
    def parts(self) -> dict[str, Report]:
        """The report on each of several models, by name; empty for one model. `inspect(f"{source}#{name}")` gives it alone."""
        return {name: Report(part) for name, part in self.architecture.parts.items()}

    def why(self, fact: str) -> str:
        """The evidence for the facts of this name, strongest first, with what was considered and lost."""
        if self.architecture.parts:
            from mapper.sources.parts import refuse_whole

            parts = {name: part.checkpoint for name, part in self.architecture.parts.items()}
            refuse_whole(self.architecture.checkpoint, parts, self.architecture.rulebook)
        from mapper.report.chain import chain

        return chain(self.architecture, fact)
