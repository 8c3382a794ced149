"""`mapper diff`."""

from __future__ import annotations

import json

import click

from mapper.cli import options
from mapper.cli.commands import DIFFERS
from mapper.cli.drawing import check_places, write_pictures
from mapper.cli.options import Command
from mapper.cli.output import columns, paint, working
from mapper.report.wrapping import fitted


@click.command(
    cls=Command,
    differs="different, where --exit-code asks",
    examples="""
    mapper diff distilbert-base-uncased ./fine-tuned
    mapper diff old.safetensors new.safetensors --values
    mapper diff model.safetensors manifest.json --json > differences.json
    mapper diff ./checkpoint ./copy --values --exit-code
    mapper diff old.safetensors new.safetensors --html differences.html
    """,
)
@click.argument("a", metavar="A", shell_complete=options.complete_files)
@click.argument("b", metavar="B", shell_complete=options.complete_files)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document of what differs.")
@click.option("--values", is_flag=True, help="Compare the weights too, a piece at a time; needs torch.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Red, green and yellow; auto: on a terminal that wants them.",
)
@click.option(
    "--exit-code", is_flag=True, help="End with 3 if anything differs: tensors, names, layout, architecture."
)
@options.html
@options.overwrite("FILE")
@options.follow_links
def diff(
    a: str,
    b: str,
    as_json: bool,
    values: bool,
    color: str,
    exit_code: bool,
    html: str | None,
    overwrite: bool,
    follow_links: bool,
) -> int:
    """Compare two checkpoints: what the models have that differs, then the tensors. Reads headers only.

    A and B are each any SRC. A line starts with - for what only A has, + for what only B has, and ~ for what both
    have but not alike; a part that only one of them has is one line. Tensors are each other's by their role and block
    first, by their names next, behind a prefix too; a fused map is compared with its parts.
    """
    import mapper

    check_places((html,), overwrite=overwrite)
    with working("comparing"):
        found = mapper.diff(a, b, values=values, follow_links=follow_links)
        if html:
            write_pictures({html: found.to_html}, f"{found.a} and {found.b}", overwrite=overwrite)
            return DIFFERS if exit_code and found.equal is False else 0
        text = json.dumps(found.as_dict(), allow_nan=False) if as_json else _text(found, color)
    # whether there are colours is settled: click would take them out of a pipe, also where they are forced
    click.echo(text if as_json else fitted(text, columns()), color=True)
    return DIFFERS if exit_code and found.equal is False else 0


def _text(found: object, color: str) -> str:
    from mapper.report.difference import as_text
    from mapper.weights.comparing.differences import Diff

    assert isinstance(found, Diff)
    return as_text(found, paint(color))
