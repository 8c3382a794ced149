"""`mapper convert`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mapper.cli import options
from mapper.cli.building import DTYPES
from mapper.cli.options import Command
from mapper.cli.output import say
from mapper.report.wording import counted, in_bytes, printable

if TYPE_CHECKING:
    from mapper.weights.converting.streaming import Conversion

SHOWN = 4  # files whose names are printed


@click.command(
    cls=Command,
    examples="""
    mapper convert pytorch_model.bin model.safetensors
    mapper convert ./checkpoint ./split --shard-size 5GB
    mapper convert model.gguf ./plain --dtype bfloat16
    mapper convert distilbert-base-uncased arrays.npz
    """,
)
@options.source
@click.argument("out", metavar="OUT", shell_complete=options.complete_files)
@click.option(
    "--dtype", type=click.Choice(DTYPES), help="Cast floats of 16 bits and more; overflow is an error."
)
@click.option(
    "--shard-size", metavar="SIZE", help="Split a folder's weights into files of at most this, as in 5GB."
)
@options.overwrite("OUT; of a folder, what mapper wrote there")
@options.revision
@options.follow_links
@options.quiet
def convert(
    source: str,
    out: str,
    dtype: str | None,
    shard_size: str | None,
    overwrite: bool,
    revision: str | None,
    follow_links: bool,
    quiet: bool,
) -> None:
    """Write the tensors of any SRC as safetensors or npz: a .safetensors or .npz file, or a folder with its config.

    A folder gets the files of the tokenizer and the like too. Nothing is at OUT before all of it is. No more than one tensor is in memory at a time.
    """
    import mapper

    done = mapper.convert(
        source,
        out,
        dtype=dtype,
        shard_size=shard_size,
        overwrite=overwrite,
        revision=revision,
        follow_links=follow_links,
    )
    if not quiet:
        say_done(done)


def say_done(done: Conversion) -> None:
    """What was written, after what else is to be known."""
    for note in done.notes:
        say(printable(note, limit=400))
    more = len(done.files) - SHOWN
    files = ", ".join(done.files[:SHOWN]) + (f" and {more} more" if more > 0 else "")
    if done.carried:
        say(f"carried along: {', '.join(done.carried)}")
    say(f"wrote {done.path}: {counted(done.tensors, 'tensor')}, {in_bytes(done.size)} ({files})")
