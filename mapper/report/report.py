"""The result of an inspection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mapper._dataclass import dataclass

if TYPE_CHECKING:
    from mapper.architecture import Architecture
    from mapper.values.result import Values


@dataclass(frozen=True, repr=False)
class Report:
    """What a checkpoint is and how that is known; `print` shows it as `mapper inspect` does.

    `architecture` has the data behind it, `to_text(depth=9)` the whole of a long report, `to_json()` the document of
    `mapper inspect --json`, `to_html()` and `to_svg()` the picture, which a notebook shows by itself, and
    `why("attention.heads")` the evidence for one fact.
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

    def to_html(self, values: Values | None = None) -> str:
        """One page for a browser, as `mapper inspect --html` writes it: the picture, each block's evidence and source.

        With `values`, which the method of this name gives, also what the numbers of each tensor are.
        """
        from mapper.picture import as_html

        return as_html(self.architecture, values)

    def to_svg(self) -> str:
        """The picture alone, as `mapper inspect --svg` writes it; needs the extra `picture`."""
        from mapper.picture import as_svg

        return as_svg(self.architecture)

    def _repr_html_(self) -> str | None:
        """The page, small, for a notebook; None where one picture is not enough: several models in one source."""
        from mapper.picture import in_notebook

        return None if self.architecture.parts else in_notebook(self.to_html())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """What a notebook shows: the page, and where it shows none, the text."""
        page = self._repr_html_()
        return {"text/plain": str(self)} | ({"text/html": page} if page else {})

    def values(self) -> Values:
        """What the numbers of the weights are, and what is wrong with them: all are read. Raises SourceError without weights."""
        from mapper.values import measure

        return measure(self.architecture)

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
