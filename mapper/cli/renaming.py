"""`mapper rename`."""

from __future__ import annotations

from typing import Any

import click

from mapper.cli import options
from mapper.cli.converting import say_done
from mapper.cli.options import Command


@click.command(
    cls=Command,
    examples="""
    mapper rename ./Llama-3.2-1B --to litgpt -o litgpt/lit_model.pth
    mapper rename ./consolidated --to hf -o ./llama
    mapper rename ./ckpt.pt --to hf/gpt2 -o gpt2.safetensors
    mapper rename ./llama --to gguf -o llama.gguf --quantised Q8_0
    """,
)
@options.source
@click.option(
    "--to",
    metavar="NAMING",
    required=True,
    help="A library, or one of its architectures: hf, meta, hf/llama; any other word lists them.",
)
@click.option(
    "--out", "-o", metavar="OUT", required=True, help="A folder, or a file .safetensors, .npz, .pth or .gguf."
)
@click.option(
    "--shard-size", metavar="SIZE", help="Split a folder's weights into files of at most this, as in 5GB."
)
@click.option("--quantised", metavar="TYPE", help="Pack the maps of a GGUF file in this type: Q8_0.")
@options.facts
@options.rule_folders
@options.overwrite("OUT and the settings beside it; of a folder, what mapper wrote there")
@options.revision
@options.follow_links
@options.quiet
def rename(
    source: str,
    to: str,
    out: str,
    shard_size: str | None,
    quantised: str | None,
    hints: dict[str, Any],
    rules: tuple[str, ...],
    overwrite: bool,
    revision: str | None,
    follow_links: bool,
    quiet: bool,
) -> None:
    """Write the tensors of any SRC that is understood under the names of another library, with its settings beside them.

    What is written is read again by its names, shapes and settings, and must be the same model: what NAMING cannot say is
    an error that names it. Whatever is fused, split, transposed or turned otherwise there is rearranged. No more than one tensor is in memory at a time.
    """
    import mapper

    done = mapper.rename(
        source,
        to,
        out,
        hints=hints,
        shard_size=shard_size,
        quantised=quantised,
        overwrite=overwrite,
        revision=revision,
        rules=rules,
        follow_links=follow_links,
    )
    if not quiet:
        say_done(done)
