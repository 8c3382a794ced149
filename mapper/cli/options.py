"""Arguments and options that several commands share, and help pages with examples."""

from __future__ import annotations

import inspect as python
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from mapper._collector import collection_paused
from mapper.errors import HintError, shorten

Function = TypeVar("Function", bound=Callable[..., Any])
EXIT_CODES = {
    0: "done",
    1: "a bug of mapper's own: please report it",
    2: "refused: what a user or a file caused, in one line on standard error",
    130: "interrupted",
}
COMPLETE = "_MAPPER_COMPLETE"  # set by the scripts of `mapper completion` when a shell asks what may follow
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class _WithExamples:
    """A help page that ends with commands to try, and with what the command ends with."""

    def __init__(self, *args: Any, examples: str = "", differs: str = "", **kwargs: Any):
        kwargs.setdefault("context_settings", CONTEXT)
        super().__init__(*args, **kwargs)
        self.examples = python.cleandoc(examples).splitlines()
        self.codes = {**EXIT_CODES, **({3: differs} if differs else {})}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), self.codes[code]) for code in sorted(self.codes)])


class Command(_WithExamples, click.Command):
    """A command with examples."""


class Group(_WithExamples, click.Group):
    """Commands in the order in which they were added.

    Those of `later` are imported when they are asked for: name -> MODULE:FUNCTION of this package.
    """

    def __init__(self, *args: Any, later: Mapping[str, str] | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.later = dict(later or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.later or self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.later and cmd_name not in self.commands:
            module, _, function = self.later[cmd_name].partition(":")
            with collection_paused(for_good=True):
                loaded = import_module(f"mapper.cli.{module}")
            self.add_command(getattr(loaded, function), cmd_name)
        return super().get_command(ctx, cmd_name)


def complete_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def _folders(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


def _facts(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """`[AT:]FACT=VALUE` pairs as hints; the type of the fact decides how the value is read."""
    facts: dict[str, str] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise click.BadParameter(f"{text!r} is not FACT=VALUE, as in attention.heads=12")
        if facts.setdefault(name.strip(), value.strip()) != value.strip():
            raise click.BadParameter(f"{name.strip()} is given twice")
    return facts


def source(function: Function) -> Function:
    return click.argument("source", metavar="SRC", shell_complete=complete_files)(function)


def facts(function: Function) -> Function:
    return click.option(
        "--set",
        "hints",
        metavar="[AT:]FACT=V",
        multiple=True,
        callback=_facts,
        help="Give a fact that no tensor and no config shows, such as attention.heads=12; AT narrows it to a part, "
        "the narrowest of which holds.",
    )(function)


def follow_links(function: Function) -> Function:
    return click.option(
        "--follow-links",
        is_flag=True,
        help="Read what links in a folder lead to outside of it: only where the links are yours.",
    )(function)


def device(function: Function) -> Function:
    return click.option(
        "--device", default="cpu", show_default=True, metavar="DEVICE", help="Such as cuda, cuda:1 or mps."
    )(function)


def check_device(device: str) -> None:
    """Raises HintError for a device that is not to be had here; where it is the processor, torch is not asked."""
    if device == "cpu":
        return
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise HintError(f"--device {shorten(device)} is not to be had here: {reason}") from None


def revision(function: Function) -> Function:
    return click.option("--revision", metavar="REV", help="Branch, tag or commit of a hub id.")(function)


def html(function: Function) -> Function:
    return click.option(
        "--html", metavar="FILE", help="Write a page with the picture there, for any browser."
    )(function)


def train(function: Function) -> Function:
    return click.option(
        "--train", is_flag=True, help="Write dropout where the config has it; only model.train() turns it on."
    )(function)


def rule_folders(function: Function) -> Function:
    return click.option(
        "--rules",
        "rules",
        metavar="DIR",
        multiple=True,
        shell_complete=_folders,
        help="Folder of rule files that go before the shipped ones.",
    )(function)


def without(function: Function) -> Function:
    return click.option(
        "--without",
        metavar="families",
        multiple=True,
        type=click.Choice(["families"]),
        help="Read without the family files: the vocabulary and the flows alone.",
    )(function)


def overwrite(what: str) -> Callable[[Function], Function]:
    """`--overwrite`, which replaces `what`."""
    return click.option("--overwrite", is_flag=True, help=f"Replace {what}.")


def adapter(function: Function) -> Function:
    """`--adapter LORA` and `--merge`."""
    merged = click.option("--merge", is_flag=True, help="Add the adapter's updates to the weights.")(function)
    return click.option(
        "--adapter",
        metavar="LORA",
        help="A LoRA of SRC: a folder, a file or a hub id, with its adapter_config.json.",
    )(merged)


def quiet(function: Function) -> Function:
    return click.option("-q", "--quiet", is_flag=True, help="Say as little as possible.")(function)
