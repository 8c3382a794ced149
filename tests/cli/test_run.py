"""`mapper run`: what is printed, for people and for programs, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mapper.cli import main
from tests.running_models import bert

Captured = pytest.CaptureFixture[str]
pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def filler(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(bert(tmp_path_factory.mktemp("filler"), "ForMaskedLM"))


def test_an_answer_is_a_line_or_one_document(filler: str, capsys: Captured) -> None:
    assert main(["run", filler, "the [MASK] sat.", "--top", "2"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert len(shown.out.splitlines()) == 2 and shown.out.splitlines()[0].endswith("sat.")
    assert main(["run", filler, "the [MASK] sat.", "--top", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["use"], document["input"], len(document["masks"][0])) == ("fill", "the [MASK] sat.", 2)


def test_several_inputs_and_the_lines_of_a_file_are_a_list(
    filler: str, tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "lines.txt").write_text("the [MASK] sat.\n\nthe old [MASK].\n")
    assert main(["run", filler, "a [MASK]", "--lines", str(tmp_path / "lines.txt"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["input"] for row in document] == ["a [MASK]", "the [MASK] sat.", "the old [MASK]."]
    assert main(["run", filler, "a [MASK]", "the [MASK]"]) == 0
    assert "\nthe [MASK]: " in capsys.readouterr().out


def test_an_input_without_an_answer_does_not_lose_the_others(filler: str, capsys: Captured) -> None:
    assert main(["run", filler, "the [MASK]", "the owl", "a [MASK]", "--json"]) == 2
    shown = capsys.readouterr()
    rows = json.loads(shown.out)
    assert ["masks" in row for row in rows] == [True, False, True]
    assert "put [MASK] where" in rows[1]["error"]
    assert shown.err.startswith("error: 1 of 3 inputs have no answer, the first is the owl: ")
    assert main(["run", filler, "the owl", "the fox"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "put [MASK] where" in shown.err


def test_a_users_own_table_goes_before_the_shipped_one(filler: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "running").mkdir()
    row = "{use: embed, reads: text, task: [masked_lm], takes: [input_ids]}"
    (tmp_path / "running" / "uses.yaml").write_text(f"running: uses\nuses:\n  - {row}\n")
    assert main(["run", filler, "the owl", "--rules", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["use"] == "embed"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no input; name one, or a file of them with --lines"),
        (["the owl"], "put [MASK] where a word is to be found"),
        (["the [MASK]", "--lines", "gone.txt"], "'gone.txt' does not exist"),
        (["the [MASK]", "--top-p", "0"], "invalid value for '--top-p'"),
        (["the [MASK]", "--chat"], "'fill', which reads no --chat (that is for continue); leave it out"),
    ],
)
def test_what_is_wrong_is_one_line(filler: str, arguments: list[str], message: str, capsys: Captured) -> None:
    assert main(["run", filler, *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1
    assert message in shown.err


def test_a_device_that_there_is_not_is_refused(filler: str, capsys: Captured) -> None:
    assert main(["run", filler, "the [MASK]", "--device", "nonsense"]) == 2
    assert capsys.readouterr().err.startswith("error: --device 'nonsense' is not to be had here")
    assert main(["infer", filler, "--try", "--device", "nonsense"]) == 2
    assert capsys.readouterr().err.startswith("error: --device 'nonsense' is not to be had here")
