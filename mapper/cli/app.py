"""The group of commands, and what each way to end means as an exit code."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper

import click

import mapper
from mapper._collector import ends_with_its_command
from mapper.cli.options import COMPLETE, Group
from mapper.cli.output import columns, error_line
from mapper.errors import DifferenceError, MapperError
from mapper.report.wrapping import fitted

BUG = 1
USER = 2  # what a user or a file caused
DIFFERS = 3  # a comparison that was asked for found a difference
INTERRUPTED = 130  # 128 + SIGINT, as shells count
PIPE_CLOSED = 141  # 128 + SIGPIPE: the reader had enough, which is nobody's error
COMMANDS = {
    "inspect": "commands:inspect",
    "infer": "inferring:infer",
    "build": "building:build",
    "generate": "commands:generate",
    "run": "running:run",
    "export": "exporting:export",
    "verify": "commands:verify",
    "diff": "differing:diff",
    "convert": "converting:convert",
    "rename": "renaming:rename",
    "list": "listing:list_models",
    "rules": "rules:rules",
    "completion": "completion:completion",
}


@click.group(
    cls=Group,
    later=COMMANDS,
    differs="different: a comparison that was asked for (verify, export, diff --exit-code)",
    examples="""
    mapper inspect  distilbert-base-uncased
    mapper infer    model.safetensors --try
    mapper build    distilbert-base-uncased --out distilbert
    mapper generate distilbert-base-uncased -o model.py
    mapper run      distilbert-base-uncased "The capital of France is [MASK]."
    mapper export   distilbert-base-uncased -o model.onnx
    mapper verify   distilbert-base-uncased
    mapper diff     distilbert-base-uncased ./fine-tuned
    mapper convert  model.gguf model.safetensors
    mapper rename   ./Llama-3.2-1B --to litgpt -o litgpt/lit_model.pth
    mapper list
    """,
)
@click.version_option(mapper.__version__, "-V", "--version", message="mapper %(version)s")
def app() -> None:
    """What a pretrained checkpoint is, the model that runs it, and its source.

    SRC is a hub id (optionally @revision and :FILE) or the address of its page, a folder, one file (.safetensors .bin .pt .pth .npz .gguf .onnx
    .msgpack), a manifest .json, or package:NAME (optionally :FILE), a model inside an installed Python package. SRC#PART is one of several models:
    of a pipeline's folder, or of one file.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code: 0, 2 user or file, 3 differs, 1 bug."""
    _never_fail_to_print()
    if arguments is None:
        ends_with_its_command()
    try:
        return _ended(arguments)
    finally:
        if arguments is None:
            gc.freeze()  # the process ends: what it holds is not looked through once more


def _ended(arguments: Sequence[str] | None) -> int:
    """The exit code of a command line, however it ends."""
    try:
        code = _run(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
        return code
    except click.exceptions.Exit as ended:  # after --help and --version
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:  # a bare `mapper` asks what there is
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        return _failed(_usage(error))
    except DifferenceError as error:
        _failed(error.in_command())
        return DIFFERS
    except MapperError as error:
        return _failed(error.in_command())
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _failed(f"{where}{error.strerror or error}")
    except Exception as error:
        if os.environ.get("MAPPER_TRACEBACK"):
            raise
        at = _last_frame(error)
        message = f"this is a bug: {type(error).__name__}: {error} ({at}); set MAPPER_TRACEBACK=1 to see where, and report it"
        _failed(message)
        return BUG


def _run(arguments: list[str]) -> int:
    """click's own `main` is left out: it turns closed pipes and ends of files into exit code 1."""
    if instruction := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(app, {}, "mapper", COMPLETE, instruction)
    with app.make_context("mapper", arguments) as context:
        code = app.invoke(context)
    return code if isinstance(code, int) else 0


def _failed(message: str) -> int:
    click.echo(fitted(error_line(message), columns(sys.stderr)), err=True)
    return USER


def _usage(error: click.ClickException) -> str:
    """click's message in the form of all others: lower case, what to do, no full stop."""
    message = error.format_message().rstrip(".")
    message = message[:1].lower() + message[1:]
    context = getattr(error, "ctx", None)
    return f"{message}; see {context.command_path} --help" if context else message


def _last_frame(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "?"
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"


def _reader_left() -> int:
    """Let the interpreter's last flush go nowhere instead of failing a second time."""
    with suppress(OSError, ValueError):  # a test's standard output is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # type: ignore[union-attr]
    return PIPE_CLOSED


def _never_fail_to_print() -> None:
    """A terminal that cannot show a character shows its escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
