"""`mapper completion SHELL`."""

from __future__ import annotations

import click

from mapper.cli.options import COMPLETE, Command


@click.command(
    cls=Command,
    examples="""
    eval "$(mapper completion bash)"                                   # in ~/.bashrc
    eval "$(mapper completion zsh)"                                    # in ~/.zshrc
    mapper completion fish > ~/.config/fish/completions/mapper.fish
    """,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    root = context.find_root()
    if found is not None:
        click.echo(found(root.command, {}, "mapper", COMPLETE).source())
