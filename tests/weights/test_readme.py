"""The four cases of the README beside the code run and print what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "mapper" / "weights" / "README.md").read_text(encoding="utf-8")
CASES = re.findall(r"```python\n(.*?)```\n```\n(.*?)```", TEXT, flags=re.DOTALL)
WORDS = ("Classifier", "optimizer", "Conv2d", "save_tree")


@pytest.mark.parametrize("word", WORDS)
def test_a_case_prints_what_the_readme_shows(tmp_path: Path, word: str) -> None:
    (case,) = [case for case in CASES if word in case[0]]
    code, printed = case
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.stdout == printed, run.stderr


def test_there_are_four_cases() -> None:
    assert len(CASES) == len(WORDS)


def test_every_file_and_folder_has_its_place() -> None:
    listed = TEXT.partition("## Where it is")[2]
    code = [path for path in (ROOT / "mapper" / "weights").iterdir() if path.name[0] not in "_."]
    names = {f"{path.name}/" if path.is_dir() else path.name for path in code} - {"README.md"}
    assert {name for name in names if f"`{name}`" not in listed} == set()
