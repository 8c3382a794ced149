"""`mapper inspect`, `generate`, `verify`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

import mapper
from mapper._collector import collection_paused, is_brief
from mapper.cli import options
from mapper.cli.drawing import check_places, write_pictures
from mapper.cli.options import Command
from mapper.cli.output import columns, paint, say, screen, working
from mapper.cli.valuing import measured, show_values, with_values
from mapper.errors import ArchitectureError
from mapper.report.heading import first_line
from mapper.report.text import as_text
from mapper.report.wording import in_bytes, printable

if TYPE_CHECKING:
    from mapper.architecture import Architecture
    from mapper.values.result import Values

DIFFERS = 3  # exit code: a comparison that was asked for found a difference


@click.command(
    cls=Command,
    examples="""
    mapper inspect distilbert-base-uncased
    mapper inspect ./checkpoint --json > report.json
    mapper inspect ./checkpoint --why attention.heads
    mapper inspect ./checkpoint --values
    mapper inspect model.safetensors --set attention.heads=12
    mapper inspect llava-hf/llava-1.5-7b-hf --depth 3
    mapper inspect distilbert-base-uncased --html model.html
    """,
)
@options.source
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@options.html
@click.option("--svg", metavar="FILE", help="Write the picture alone there.")
@options.overwrite("FILE")
@click.option(
    "--depth",
    type=click.IntRange(1),
    metavar="N",
    help="Show so many levels of folders; when left out, as many as fit on a screen.",
)
@click.option("--why", metavar="FACT", help="Print the evidence for one fact, such as attention.heads.")
@click.option(
    "--values",
    is_flag=True,
    help="Read the weights too: what their numbers are, and what is wrong with them.",
)
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
    values: bool,
    hints: dict[str, str],
    rules: tuple[str, ...],
    without: tuple[str, ...],
    revision: str | None,
    follow_links: bool,
    quiet: bool,
    html: str | None,
    svg: str | None,
    overwrite: bool,
) -> None:
    """Say what a checkpoint is and how that is known. Reads headers only, unless --values asks for the weights.

    --html writes a page for a browser: the blocks and the data between them, and of each block its tensors, its facts
    with their evidence, and its generated source.
    """
    check_places((html, svg), overwrite=overwrite)
    # headers: nearly all that is made is held
    paused = nullcontext() if values else collection_paused(for_good=is_brief())
    with working("reading"), paused:
        try:
            report = mapper.inspect(
                source,
                hints,
                revision=revision,
                rules=rules,
                families=not without,
                follow_links=follow_links,
                values=values,
            )
        except ArchitectureError as error:
            if not (as_json or quiet or why or html or svg) and error.so_far:
                _show(error.so_far(), depth)
            raise
    found = measured(report.architecture) if values and not why else {}
    if html or svg:
        _draw(report, found.get(""), html, svg, overwrite=overwrite)
    elif why:
        say(report.why(why))
    elif as_json:
        click.echo(with_values(report.to_json(), found) if found else report.to_json(), nl=False)
    elif quiet:
        say(first_line(report.architecture, paint()))
    else:
        _show(report.architecture, depth)
    if found and not as_json:
        show_values(found, short=quiet or bool(html or svg))


def _draw(
    report: mapper.Report, values: Values | None, html: str | None, svg: str | None, *, overwrite: bool
) -> None:
    heading = first_line(report.architecture, paint())
    write_pictures({html: lambda: report.to_html(values), svg: report.to_svg}, heading, overwrite=overwrite)


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
@click.option(
    "-o", "--output", "--out", metavar="FILE", help="Write the source there instead of printing it."
)
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
    from mapper.emission import emit
    from mapper.outputs.written import check_place, write_source

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
    mapper verify model.onnx --against onnxruntime
    """,
)
@click.argument("source", metavar="SRC|FILE.py", shell_complete=options.complete_files)
@click.option(
    "--against",
    metavar="transformers|onnxruntime|FILE.py|FILE.onnx",
    shell_complete=options.complete_files,
    help="The reference; onnxruntime runs SRC itself. Transformers where it is installed when left out.",
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
