"""`mapper convert`: what it prints, and its exit codes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mapper.cli import main
from tests.checkpoints import write_bert, write_manifest

Captured = pytest.CaptureFixture[str]


def test_it_says_what_was_written(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_bert(tmp_path / "bert")
    assert main(["convert", "bert", "out"]) == 0
    assert capsys.readouterr().out == "wrote out: 39 tensors, 9.4 kB (model.safetensors, config.json)\n"
    assert main(["convert", "bert", "split", "--shard-size", "2kB"]) == 0
    out = capsys.readouterr().out
    assert "(model-00001-of-00005.safetensors, " in out and out.endswith(" and 3 more)\n")
    assert main(["convert", "out", "a.npz", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_a_file_says_that_the_config_stays_behind(tmp_path: Path, capsys: Captured) -> None:
    assert main(["convert", str(write_bert(tmp_path / "bert")), str(tmp_path / "a.npz")]) == 0
    assert "the config is not in a file of tensors" in capsys.readouterr().out


def test_weights_are_cast_when_asked(tmp_path: Path) -> None:
    save_file({"a": torch.arange(3.0)}, tmp_path / "a.safetensors")
    out = tmp_path / "b.safetensors"
    assert main(["convert", str(tmp_path / "a.safetensors"), str(out), "--dtype", "float16"]) == 0
    assert torch.equal(load_file(out)["a"], torch.arange(3.0).half())


@pytest.mark.parametrize(
    ("case", "options", "said"),
    [
        ("missing", [], "no such file"),
        ("manifest", [], "manifest without weights"),
        ("cut", [], "download it again"),
        ("there", [], "already exists"),
        ("good", ["--dtype", "float16"], "'big' has values out of the range of float16"),
        ("good", ["--shard-size", "much"], "size of a file"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(
    case: str, options: list[str], said: str, tmp_path: Path, capsys: Captured
) -> None:
    source, out = tmp_path / "in.safetensors", tmp_path / "out"
    save_file({"big": torch.tensor([1e30])}, source)
    if case == "missing":
        source.unlink()
    elif case == "manifest":
        source = write_manifest(tmp_path / "in.json")
    elif case == "cut":
        source.write_bytes(source.read_bytes()[:-1])
    elif case == "there":
        out.mkdir()
        (out / "mine").write_text("")
    before = sorted(tmp_path.rglob("*"))
    assert main(["convert", str(source), str(out), *options]) == 2
    printed, error = capsys.readouterr()
    assert printed == "" and error.startswith("error: ") and error.count("\n") == 1 and said in error
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_there_is_replaced_when_allowed(tmp_path: Path) -> None:
    save_file({"a": torch.arange(3.0)}, tmp_path / "a.safetensors")
    (tmp_path / "b.safetensors").write_text("mine")
    arguments = ["convert", str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors")]
    assert main(arguments) == 2
    assert main([*arguments, "--overwrite"]) == 0
    assert list(load_file(tmp_path / "b.safetensors")) == ["a"]
    assert sorted(os.listdir(tmp_path)) == ["a.safetensors", "b.safetensors"]


def test_it_prints_what_the_documentation_shows(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "converting.md").read_text(encoding="utf-8")
    command, printed = page.partition("$ mapper convert")[2].partition("```")[0].split("\n", 1)
    write_bert(tmp_path / "bert")
    monkeypatch.chdir(tmp_path)
    assert main(["convert", *command.split()]) == 0
    assert capsys.readouterr().out == printed
