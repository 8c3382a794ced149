"""`mapper diff`: what it prints, in which colours, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mapper.cli import main
from tests.checkpoints import write_bert, write_manifest

Captured = pytest.CaptureFixture[str]
UNREAD = "same names, shapes and types; values not read (--values): 39 tensors"


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    """Two files that differ in each way."""
    tables = (
        {"same": torch.zeros(2), "old": torch.zeros(1), "w": torch.zeros(2), "v": torch.zeros(2)},
        {"same": torch.zeros(2), "new": torch.zeros(1), "w": torch.zeros(3), "v": torch.ones(2)},
    )
    for name, table in zip("ab", tables, strict=True):
        save_file(table, tmp_path / f"{name}.safetensors")
    return [str(tmp_path / f"{name}.safetensors") for name in "ab"]


def test_the_text_has_a_line_for_each_difference_and_a_summary(pair: list[str], capsys: Captured) -> None:
    assert main(["diff", *pair]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in lines if line[:1] in set("-+~")] == [
        "+ new F32 [1]",
        "- old F32 [1]",
        "~ w shape F32 [2] → F32 [3]",
    ]
    assert lines[-1] == (
        "different: 2 tensors with the same names, shapes and types, 1 only in A, 1 only in B, 1 of another shape;"
        " values not read (--values)"
    )


def test_the_json_is_the_document_alone(pair: list[str], capsys: Captured) -> None:
    assert main(["diff", *pair, "--json", "--values", "--color", "always"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == [
        "a", "b", "equal", "weights_equal", "values", "common", "prefixes", "renamed", "layout", "only_a", "only_b",
        "changed", "architecture",
    ]  # fmt: skip
    assert (found["a"], found["b"], found["equal"], found["common"]) == (*pair, False, 1)
    assert [(entry["path"], entry["kind"]) for entry in found["changed"]] == [("v", "value"), ("w", "shape")]


def test_values_are_compared_when_asked_for(pair: list[str], capsys: Captured) -> None:
    assert main(["diff", *pair, "--values"]) == 0
    assert "~ v    value  F32 [2]  largest difference 1\n" in capsys.readouterr().out


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--exit-code"], 3), (["--exit-code", "--json"], 3)])
def test_the_exit_code_says_that_they_differ_only_when_asked(
    pair: list[str], options: list[str], code: int
) -> None:
    assert main(["diff", *pair, *options]) == code
    assert main(["diff", pair[0], pair[0], *options]) == 0


def test_values_that_differ_count_for_the_exit_code_when_compared(tmp_path: Path) -> None:
    for at in (0, 1):
        save_file({"w": torch.full((2,), float(at))}, tmp_path / f"{at}.safetensors")
    pair = [str(tmp_path / f"{at}.safetensors") for at in (0, 1)]
    assert main(["diff", *pair, "--exit-code"]) == 0
    assert main(["diff", *pair, "--exit-code", "--values"]) == 3


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"layer_norm_eps": 1e-5}, "norm eps: 1e-12 in A, 1e-05 in B"),
        ({"model_type": "electra"}, "model type: bert in A, electra in B"),
        ({"num_attention_heads": 4}, "attention heads: 2 in A, 4 in B"),
    ],
)
def test_what_the_configs_alone_show_counts(
    change: dict[str, object], told: str, tmp_path: Path, capsys: Captured
) -> None:
    """For the text, the JSON and the exit code; with values read too."""
    folders = [write_bert(tmp_path / name) for name in "ab"]
    config = json.loads((folders[1] / "config.json").read_text())
    (folders[1] / "config.json").write_text(json.dumps({**config, **change}))
    pair = [str(folder) for folder in folders]
    assert main(["diff", *pair, "--values", "--exit-code"]) == 3
    assert told in capsys.readouterr().out
    assert main(["diff", *pair, "--exit-code", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["equal"], found["weights_equal"], found["only_a"], found["changed"]) == (
        False,
        None,
        [],
        [],
    )
    assert found["architecture"][0]["subject"] == told.partition(":")[0]
    assert main(["diff", pair[0], pair[0], "--exit-code", "--values"]) == 0
    assert capsys.readouterr().out == "equal: 39 tensors\n"


def test_other_names_count_for_the_exit_code(tmp_path: Path, capsys: Captured) -> None:
    folder = write_bert(tmp_path / "a")
    wrapped = {f"module.{name}": value for name, value in load_file(folder / "model.safetensors").items()}
    save_file(wrapped, tmp_path / "b.safetensors")
    assert main(["diff", str(folder), str(tmp_path / "b.safetensors"), "--values", "--exit-code"]) == 3
    out = capsys.readouterr().out
    assert "  B has the prefix module.\n" in out
    assert out.splitlines()[-1] == (
        "different in names alone: 39 tensors with the same shapes, types and values under other names"
    )


def test_colours_are_for_terminals_unless_forced(
    pair: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["diff", *pair])
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    main(["diff", *pair])
    assert "\x1b[31m- old" in capsys.readouterr().out
    main(["diff", *pair, "--color", "never"])
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    main(["diff", *pair])
    assert "\x1b" not in capsys.readouterr().out
    main(["diff", *pair, "--color", "always"])
    assert "\x1b[32m+ new" in capsys.readouterr().out
    main(["diff", *pair, "--color", "always", "--json"])
    assert "\x1b" not in capsys.readouterr().out


def test_colours_that_are_forced_reach_a_pipe(pair: list[str], capsys: Captured) -> None:
    main(["diff", *pair, "--color", "always"])
    assert "\x1b[32m+ new" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["missing", "cut", "not weights", "a manifest for --values"])
def test_a_side_that_cannot_be_read_is_one_line(damage: str, tmp_path: Path, capsys: Captured) -> None:
    good, bad = write_bert(tmp_path / "bert"), tmp_path / "other.safetensors"
    if damage == "cut":
        bad.write_bytes((good / "model.safetensors").read_bytes()[:-9])
    elif damage == "not weights":
        bad.write_text("hello")
    elif damage == "a manifest for --values":
        bad = write_manifest(tmp_path / "bert.json")
    options = ["--values"] if "--values" in damage else []
    for sides in ((good, bad), (bad, good)):
        assert main(["diff", *map(str, sides), *options]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ") and err.count("\n") == 1 and bad.name in err


def test_a_checkpoint_and_its_manifest_are_equal_without_torch(tmp_path: Path) -> None:
    folder, manifest = write_bert(tmp_path / "bert"), write_manifest(tmp_path / "bert.json")
    code = (
        "import sys; from mapper.cli import main;"
        "code = main(['diff', *sys.argv[1:], '--exit-code']); print(code, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(manifest)], capture_output=True, text=True
    )
    assert done.stdout == f"{UNREAD}\n0 False\n", done.stderr


def test_python_m_mapper_is_the_same(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path / "bert.json")
    done = subprocess.run(
        [sys.executable, "-m", "mapper", "diff", manifest, manifest], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{UNREAD}\n", "")
