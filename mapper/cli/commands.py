"""`mapper inspect`, `generate`, `verify`."""

from __future__ import annotations

import json

import click

import mapper
from mapper.cli import options
from mapper.cli.options import Command
from mapper.cli.output import paint, working
from mapper.report.text import as_text, first_line
from mapper.report.words import printable

DIFFERS = 3  # exit code: a comparison that was asked for found a difference


@click.command(
    cls=Command,
    examples="""
    mapper inspect distilbert-base-uncased
    mapper inspect ./checkpoint --json > report.json
    mapper inspect ./checkpoint --why attention.heads
    mapper inspect model.safetensors --set attention.heads=12
    """,
)
@options.source
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
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
        report = mapper.inspect(
            source, hints, revision=revision, rules=rules, families=not without, follow_links=follow_links
        )
    if why:
        click.echo(report.why(why))
    elif as_json:
        click.echo(report.to_json(), nl=False)
    else:
        show = first_line if quiet else as_text
        click.echo(show(report.architecture, paint()))


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
    hints: dict[str, str],
    rules: tuple[str, ...],
    without: tuple[str, ...],
    revision: str | None,
    follow_links: bool,
    adapter: str | None,
    merge: bool,
) -> None:
    """Write the model's source: plain torch, one file, yours to edit."""
    from mapper._written import check_place, write_source

    place = None if output == "-" else output
    if place is not None:
        check_place(place, None, overwrite=overwrite)
    text = mapper.generate(
        source,
        hints,
        cache=cache,
        revision=revision,
        rules=rules,
        families=not without,
        follow_links=follow_links,
        adapter=adapter,
        merge=merge,
    )
    if place is None:
        click.echo(text, nl=False)
    elif kept := write_source(place, text, overwrite=overwrite):
        click.echo(printable(kept, limit=400), err=True)


@click.command(
    cls=Command,
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
        click.echo(found)
    return 0 if found.passed else DIFFERS
