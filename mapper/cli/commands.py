"""`mapper inspect`, `generate`, `verify`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

import mapper
from mapper.cli import options
from mapper.cli.options import Command
from mapper.cli.output import columns, paint, say, screen, working
from mapper.errors import ArchitectureError
from mapper.report.heading import first_line
from mapper.report.text import as_text
from mapper.report.wording import in_bytes, printable

if TYPE_CHECKING:
    from mapper.architecture import Architecture

DIFFERS = 3  # exit code: a comparison that was asked for found a difference


@click.command(
    cls=Command,
    examples="""
    mapper inspect distilbert-base-uncased
    mapper inspect ./checkpoint --json > report.json
    mapper inspect ./checkpoint --why attention.heads
    mapper inspect model.safetensors --set attention.heads=12
    mapper inspect llava-hf/llava-1.5-7b-hf --depth 3
    """,
)
@options.source
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.option(
    "--depth",
    type=click.IntRange(1),
    metavar="N",
    help="Show so many levels of folders; when left out, as many as fit on a screen.",
)
@click.option("--why", metavar="FACT", help="Print the evidence for one fact, such as attention.heads.")
@options.facts
@options.rule_folders
@options.without
@options.revision
@options.follow_links
@options.quiet
def inspect(
    source: str,
    as_json: bool,
    depth: int | None,
    why: str | None,
    hints: dict[str, str],
    rules: tuple[str, ...],
    without: tuple[str, ...],
    revision: str | None,
    follow_links: bool,
    quiet: bool,
) -> None:
    """Say what a checkpoint is and how that is known. Reads headers only."""
    with working("reading"):
        try:
            report = mapper.inspect(
                source,
                hints,
                revision=revision,
                rules=rules,
                families=not without,
                follow_links=follow_links,
            )
        except ArchitectureError as error:
            if not (as_json or quiet or why) and error.so_far:
                _show(error.so_far(), depth)
            raise
    if why:
        say(report.why(why))
    elif as_json:
        click.echo(report.to_json(), nl=False)
    elif quiet:
        say(first_line(report.architecture, paint()))
    else:
        _show(report.architecture, depth)


def _show(architecture: Architecture, depth: int | None) -> None:
    click.echo(as_text(architecture, paint(), depth, columns(), screen()))


@click.command(
    cls=Command,
    examples="""
    mapper generate distilbert-base-uncased -o model.py
    mapper generate ./llama --cache -o llama.py
    """,
)
@options.source
@click.option("-o", "--output", metavar="FILE", help="Write the source there instead of printing it.")
@options.overwrite("FILE; one that was edited is kept as FILE.bak")
@click.option("--cache", is_flag=True, help="Give a decoder a key/value cache.")
@options.adapter
@options.train
@options.facts
@options.rule_folders
@options.without
@options.revision
@options.follow_links
def generate(
    source: str,
    output: str | None,
    overwrite: bool,
    cache: bool,
    train: bool,
    hints: dict[str, str],
    rules: tuple[str, ...],
    without: tuple[str, ...],
    revision: str | None,
    follow_links: bool,
    adapter: str | None,
    merge: bool,
) -> None:
    """Write the model's source: plain torch, one file, yours to edit."""
    from mapper._api import describe
    from mapper._written import check_place, write_source
    from mapper.emission import emit

    place = None if output == "-" else output
    if place is not None:
        check_place(place, None, overwrite=overwrite)
    architecture = describe(
        source,
        hints,
        revision=revision,
        rules=rules,
        families=not without,
        follow_links=follow_links,
        adapter=adapter,
        merge=merge,
    )
    text = emit(architecture, cache=cache, train=train)
    if place is None:
        click.echo(text, nl=False)
        return
    if kept := write_source(place, text, overwrite=overwrite):
        click.echo(printable(kept, limit=400), err=True)
    say(f"wrote {place} ({in_bytes(len(text.encode()))}): {first_line(architecture, paint())}")


@click.command(
    cls=Command,
    differs="different",
    examples="""
    mapper verify distilbert-base-uncased
    mapper verify ./checkpoint --against transformers
    mapper verify distilbert/model.py
    mapper verify model.py --weights ./checkpoint --against original.py
    """,
)
@click.argument("source", metavar="SRC|FILE.py", shell_complete=options.complete_files)
@click.option(
    "--against",
    metavar="transformers|FILE.py",
    shell_complete=options.complete_files,
    help="The reference; transformers where it is installed when left out.",
)
@click.option("--weights", metavar="SRC", help="Where a FILE's tensors are; its folder when left out.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@options.facts
@options.rule_folders
@options.revision
@options.follow_links
@options.quiet
def verify(
    source: str,
    against: str | None,
    weights: str | None,
    as_json: bool,
    hints: dict[str, str],
    rules: tuple[str, ...],
    revision: str | None,
    follow_links: bool,
    quiet: bool,
) -> int:
    """Compare a model, block by block, with a reference implementation. Exit code 3 where they differ.

    A FILE.py is a generated file, edited or not: it is Python, and it is run. Without a reference the model's own
    checks run: loading, finiteness, causality, padding.
    """
    with working("comparing"):
        found = mapper.verify(
            source,
            against,
            hints,
            weights=weights,
            revision=revision,
            rules=rules,
            follow_links=follow_links,
        )
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
    elif not quiet:
        say(str(found))
    return 0 if found.passed else DIFFERS
