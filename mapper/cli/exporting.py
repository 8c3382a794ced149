"""`mapper export`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mapper.cli import options
from mapper.cli.building import DTYPES
from mapper.cli.options import Command
from mapper.cli.output import paint, say, working
from mapper.report.heading import first_line
from mapper.report.wording import in_bytes, printable

if TYPE_CHECKING:
    from mapper.graphs.export.exporting import Exported

AS_STORED = "stored"
DIGITS = 10  # of an extent; no input is as large


def _sizes(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, int | str]:
    """EXTENT=N as a table; what the extent may be, the model says."""
    found: dict[str, int | str] = {}
    for value in values:
        word, equals, size = value.partition("=")
        if not (word and equals and size):
            raise click.BadParameter(f"{value!r} is not EXTENT=N, as in height=384")
        is_number = size.isdecimal() and len(size) < DIGITS
        if found.setdefault(word, int(size) if is_number else size) != (int(size) if is_number else size):
            raise click.BadParameter(f"{word} is given twice")
    return found


@click.command(
    cls=Command,
    differs="different: onnxruntime computes something else than the model, and nothing was written",
    examples="""
    mapper export distilbert-base-uncased -o distilbert.onnx
    mapper export ./llama -o llama.onnx --opset 24 --dtype float16
    mapper export bert-base-uncased -o bert.onnx --input token_type_ids
    mapper export ./vit -o vit.onnx --size batch=1 --size height=384 --size width=384
    """,
)
@options.source
@click.option("-o", "--output", "--out", required=True, metavar="FILE.onnx", help="Where to write the file.")
@options.overwrite("FILE, and FILE.data")
@click.option(
    "--opset",
    type=int,
    default=20,
    show_default=True,
    metavar="N",
    help="The version of ONNX's operators, 18 to 24.",
)
@click.option(
    "--dtype",
    type=click.Choice((*DTYPES, AS_STORED)),
    default="float32",
    show_default=True,
    help="The type of the weights.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME",
    help="An optional input that the file takes too; attention_mask it takes always.",
)
@click.option(
    "--size",
    "sizes",
    multiple=True,
    metavar="EXTENT=N",
    callback=_sizes,
    help="Fix an extent of the inputs, such as batch=1 or height=384; with =free it must stay free.",
)
@click.option("--external", is_flag=True, help="Put the weights into FILE.data; above 2 GB they always are.")
@click.option("--check/--no-check", default=True, help="Run the file in onnxruntime before it is kept.")
@options.adapter
@options.facts
@options.rule_folders
@options.without
@options.revision
@options.follow_links
@options.quiet
def export(
    source: str,
    output: str,
    overwrite: bool,
    opset: int,
    dtype: str,
    inputs: tuple[str, ...],
    sizes: dict[str, int | str],
    external: bool,
    check: bool,
    hints: dict[str, str],
    rules: tuple[str, ...],
    without: tuple[str, ...],
    revision: str | None,
    follow_links: bool,
    quiet: bool,
    adapter: str | None,
    merge: bool,
) -> None:
    """Write the model as an ONNX file for any batch and length, which onnxruntime was seen to run as torch does.

    Weights stand under the checkpoint's names, and the config and the reading in the file's metadata: it is a SRC as the checkpoint is.
    """
    from mapper._api import describe, export_described
    from mapper.graphs.export.asked import check_asked

    check_asked(output, opset, overwrite)
    with working("reading"):
        architecture = describe(
            source,
            hints,
            purpose="weights",
            revision=revision,
            rules=rules,
            families=not without,
            follow_links=follow_links,
            adapter=adapter,
            merge=merge,
        )
    if not quiet:
        say(first_line(architecture, paint()))
    with working("exporting"):
        done = export_described(
            architecture,
            output,
            dtype=None if dtype == AS_STORED else dtype,
            opset=opset,
            inputs=inputs,
            sizes=sizes,
            external=external or None,
            check=check,
            overwrite=overwrite,
        )
    if not quiet:
        _say(done)


def _say(done: Exported) -> None:
    """What the file takes and gives, how it was checked, and where it is."""
    for name, extents in done.inputs.items():
        say(f"  {name} ({', '.join(map(str, extents))})")
    say(f"  -> {', '.join(done.outputs)}")
    for note in done.notes:
        say(printable(note, limit=400))
    say(str(done.verification) if done.verification else "not checked: nobody has run the file")
    say(f"wrote {done.path}: opset {done.opset}, {in_bytes(done.size)} ({', '.join(done.files)})")
