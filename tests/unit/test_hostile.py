"""Every bad input of `tests/hostile.py` through the commands: refused in one line, or read right; nothing is executed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import mapper.inference
from mapper.cli import main
from tests.hostile import GOOD, Case, cases, write
from tests.reading_once import Once
from tests.shipped import RULEBOOK

CASES = list(cases())
SECONDS = 5
REFUSED = 2


class Ended(NamedTuple):
    code: int
    out: str
    error: str


@pytest.fixture(autouse=True)
def nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in an empty folder, without a hub, and no shell is within reach."""
    (tmp_path / "here").mkdir()
    (tmp_path / "input").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(
        "mapper.rulebook.rulebook.Rulebook", lambda folders=(): RULEBOOK
    )  # reading it takes the most time
    monkeypatch.setattr(mapper.inference, "infer", Once())  # three commands read the same
    monkeypatch.setattr(os, "system", lambda command: pytest.fail(f"executed {command!r}"))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The outputs of the good checkpoints."""
    folder = tmp_path_factory.mktemp("good")
    return {name: output(write(folder / name, *make())) for name, make in GOOD.items()}


def output(source: Path | str) -> torch.Tensor:
    ids = torch.arange(14).view(2, 7) * 3 % 47 + 2
    with torch.inference_mode():
        out: torch.Tensor = mapper.build(source)(input_ids=ids).last_hidden_state
    return out


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Ended:
    """A command line; whatever it is given it ends soon, by itself, with an answer or with one line."""
    start = time.perf_counter()
    code = main(arguments)
    out, error = capsys.readouterr()
    assert time.perf_counter() - start < SECONDS
    assert code in (0, REFUSED), error
    if code == REFUSED:
        assert error.startswith("error: ") and error.count("\n") == 1 and error.isprintable() is False
        assert len(error) < 2_100 and "this is a bug" not in error
    return Ended(code, out, error)


def test_there_are_at_least_two_hundred_bad_inputs() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 200


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_bad_input_is_refused_or_read_right(
    case: Case, tmp_path: Path, good: dict[str, torch.Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(case.make(tmp_path / "input"))
    inspected = run(capsys, "inspect", source, "--json", *case.arguments)
    built = run(capsys, "build", source, *case.arguments)
    report = (
        json.loads(inspected.out) if inspected.code == 0 else {"reading": "", "findings": [], "unmapped": []}
    )
    said = "\n".join([*report["findings"], *report["unmapped"]])
    if case.error and built.code == REFUSED:
        assert case.error in built.error
        if inspected.code == 0:
            assert run(capsys, "generate", source, *case.arguments).code in (0, REFUSED)
    elif case.error:
        assert case.either and report["reading"] == "skeleton"
    else:
        assert built.code == 0, built.error
        assert all(part in said for part in case.says.split("\n"))
        assert report["reading"] == (case.reading or report["reading"])
        assert run(capsys, "generate", source, "-o", str(tmp_path / "model.py"), *case.arguments).code == 0
    if case.same:
        assert output(source).equal(good[case.same])
    assert os.listdir(tmp_path / "here") == []
