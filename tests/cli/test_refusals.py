"""What headers decide is refused before torch is there, in the words of whoever asked, with what it names as fields."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpoints import write_bert, write_manifest

# Each is refused; the whole list in one process, whose modules are looked at after each.
RUN = """
import json, sys
import mapper
from mapper.cli import main

told = []
def look(what, refused):
    told.append([what, refused, "torch" in sys.modules, "transformers" in sys.modules])

for arguments in json.loads(sys.argv[1]):
    look(arguments, main(arguments) == 2)
for call, arguments, options in json.loads(sys.argv[2]):
    try:
        getattr(mapper, call)(*arguments, **options)
        look([call, arguments, options], False)
    except mapper.MapperError:
        look([call, arguments, options], True)
print(json.dumps(told))
"""


@pytest.fixture
def unknown(tmp_path: Path) -> str:
    """A checkpoint whose heads nobody knows."""
    folder = write_bert(tmp_path / "unknown")
    (folder / "config.json").unlink()
    return str(folder)


def test_what_headers_decide_is_refused_before_torch_is_there(unknown: str, tmp_path: Path) -> None:
    cut, out = tmp_path / "cut.safetensors", str(tmp_path / "out")
    cut.write_bytes(Path(unknown, "model.safetensors").read_bytes()[:-1])
    manifest = str(write_manifest(tmp_path / "bert.json"))
    known = str(write_bert(tmp_path / "known"))
    commands = [
        ["build", unknown],
        ["build", unknown, "--out", out],
        ["build", unknown, "--set", "attention.heads=3"],
        ["build", unknown, "--set", "attention.hats=2"],
        ["build", manifest],
        ["build", known, "--out", unknown],
        *([command, str(cut)] for command in ("build", "verify", "generate")),
        ["verify", unknown],
        ["verify", manifest],
        ["generate", unknown],
        ["generate", known, "--cache"],
        ["convert", str(cut), out],
        ["convert", manifest, out],
        ["convert", known, unknown],
        ["convert", known, out, "--shard-size", "much"],
    ]
    calls = [
        ["build", [unknown], {}],
        ["build", [known], {"dtype": "float17"}],
        ["build", [known], {"cache": True}],
        ["build", [manifest], {"out": out}],
        ["build", [known], {"out": unknown}],
        ["build", [str(cut)], {"dtype": "float16"}],
        ["verify", [unknown], {}],
        ["convert", [known, out], {"dtype": "int8"}],
        ["generate", [unknown], {}],
    ]
    command = [sys.executable, "-c", RUN, json.dumps(commands), json.dumps(calls)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    told = json.loads(done.stdout.splitlines()[-1])
    assert [what for what, refused, torch, transformers in told if not refused or torch or transformers] == []
    assert len(told) == len(commands) + len(calls)
