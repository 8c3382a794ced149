"""What every command does with its arguments, whatever it computes."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from mapper.cli import app as module
from mapper.cli import main
from mapper.cli.app import app

Captured = pytest.CaptureFixture[str]


def commands(
    group: click.Group = app, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = dict(commands())


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_a_help_page_with_examples(path: tuple[str, ...], capsys: Captured) -> None:
    assert main([*path, "--help"]) == 0
    page = capsys.readouterr().out
    assert "Examples:" in page
    assert re.search(r"Exit codes:\n +0 +done\n +1 +a bug.*\n +2 +refused", page)
    assert ("\n  3 " in page) == (path[0] in ("verify", "diff", "export"))
    assert f"mapper {path[0]}" in page


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_the_examples_of_a_help_page_parse(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_family.yaml").touch()
    for line in ALL[path].examples:  # type: ignore[attr-defined]
        words = shlex.split(
            line.partition("#")[0].partition(">")[0].replace('eval "$(', "").replace(')"', "")
        )
        assert words[0] == "mapper"
        context = app.make_context("mapper", words[1:])
        group: click.Command = app
        rest = [*context._protected_args, *context.args]
        while isinstance(group, click.Group):
            name, command, rest = group.resolve_command(context, rest)
            assert command is not None
            context = command.make_context(name, rest, parent=context)
            group, rest = command, [*context._protected_args, *context.args]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", "no such command 'nonsense'"),
        ("inspect", "missing argument 'SRC'"),
        ("inspect x --nope", "no such option"),
        ("inspect x --set attention.heads", "'attention.heads' is not FACT=VALUE"),
        ("inspect x --set a=1 --set a=2", "a is given twice"),
        ("inspect x --without flows", "'families'"),
        ("build x --dtype int3", "'int3'"),
        ("completion tcsh", "'tcsh'"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_two(line: str, says: str, capsys: Captured) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") and err.count("\n") == 1 and err.endswith("\n")
    assert says in err


def test_a_source_that_is_not_there_is_one_line(capsys: Captured, tmp_path: object) -> None:
    for command in ("inspect", "build", "generate"):
        assert main([command, f"{tmp_path}/no/such.safetensors"]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith("error: ") and "such.safetensors" in err


def test_a_bare_command_shows_what_there_is(capsys: Captured) -> None:
    assert main([]) == 0
    assert "Commands:" in capsys.readouterr().out


def test_the_entry_point_reads_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(sys, "argv", ["mapper", "--version"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("mapper ")


def test_python_m_mapper_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "mapper", "inspect"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: missing argument 'SRC'; see mapper inspect --help\n"


def ends(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(module, "_run", fail)
    return main([])


def test_ctrl_c_says_so(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    assert ends(KeyboardInterrupt(), monkeypatch) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_bug_is_exit_code_one_and_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    assert ends(KeyError("x\ny"), monkeypatch) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: this is a bug: KeyError") and err.count("\n") == 1


def test_a_full_disk_is_not_a_bug(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    assert ends(OSError(28, "No space left on device", "model.py"), monkeypatch) == 2
    assert capsys.readouterr().err == "error: model.py: No space left on device\n"


def test_a_reader_that_leaves_is_nobodys_error() -> None:
    command = f"{shlex.quote(sys.executable)} -m mapper --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.returncode in (0, 141)  # 0 where the pipe took it all before `true` ended


def test_a_terminal_without_unicode_gets_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    main(["--version"])
    stream.write("→")
    stream.flush()
    assert stream.buffer.getvalue().endswith(b"\\u2192")  # type: ignore[attr-defined]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_offers_the_commands(shell: str, capsys: Captured) -> None:
    assert main(["completion", shell]) == 0
    assert "_MAPPER_COMPLETE" in capsys.readouterr().out


def test_completion_answers_a_shell() -> None:
    environment = {
        **os.environ,
        "_MAPPER_COMPLETE": "bash_complete",
        "COMP_WORDS": "mapper in",
        "COMP_CWORD": "1",
    }
    done = subprocess.run([sys.executable, "-m", "mapper"], env=environment, capture_output=True, text=True)
    assert "plain,inspect" in done.stdout.split()
