"""Pictures as files: `--html` and `--svg` of `inspect`, `--html` of `diff`."""

from __future__ import annotations

from collections.abc import Callable

import click

from mapper.cli.output import say
from mapper.report.wording import in_bytes

Drawn = Callable[[], str]


def check_places(places: tuple[str | None, ...], *, overwrite: bool) -> None:
    """Raise OverwriteError before anything is read, where a file stands already."""
    files = [str(place) for place in places if place not in (None, "-")]
    if files:
        from mapper.outputs.written import check_place  # only now: nothing else of `inspect` writes

        for file in files:
            check_place(file, None, overwrite=overwrite)


def write_pictures(wanted: dict[str | None, Drawn], heading: str, *, overwrite: bool) -> None:
    """Write each to its place, "-" being standard output, and say so."""
    from mapper.outputs.files import write_text

    for place, drawn in wanted.items():
        if place is None:
            continue
        text = drawn()
        if place == "-":
            click.echo(text, nl=False)
            continue
        write_text(place, text, overwrite=overwrite)
        say(f"wrote {place} ({in_bytes(len(text.encode()))}): {heading}")
