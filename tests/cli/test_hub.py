"""The command that a user types first: `mapper build distilbert-base-uncased`, with a hub, with a cache, with neither."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

import mapper
from mapper.cli import main
from tests.hub import Fault, Hub

REPO = "distilbert/distilbert-base-uncased"
SHORT = "distilbert-base-uncased"
SIZE, INNER, WORDS = 16, 24, 50
CONFIG = {
    "model_type": "distilbert", "architectures": ["DistilBertModel"], "n_heads": 2, "n_layers": 2, "dim": SIZE, "hidden_dim": INNER,
    "vocab_size": WORDS, "max_position_embeddings": 32, "activation": "gelu",
}  # fmt: skip


def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "embeddings.word_embeddings.weight": (WORDS, SIZE),
        "embeddings.position_embeddings.weight": (32, SIZE),
        "embeddings.LayerNorm.weight": (SIZE,),
        "embeddings.LayerNorm.bias": (SIZE,),
    }
    for layer in range(2):
        path = f"transformer.layer.{layer}"
        for name in ("q_lin", "k_lin", "v_lin", "out_lin"):
            shapes |= {
                f"{path}.attention.{name}.weight": (SIZE, SIZE),
                f"{path}.attention.{name}.bias": (SIZE,),
            }
        shapes |= {f"{path}.ffn.lin1.weight": (INNER, SIZE), f"{path}.ffn.lin1.bias": (INNER,)}
        shapes |= {f"{path}.ffn.lin2.weight": (SIZE, INNER), f"{path}.ffn.lin2.bias": (SIZE,)}
        for name in ("sa_layer_norm", "output_layer_norm"):
            shapes |= {f"{path}.{name}.weight": (SIZE,), f"{path}.{name}.bias": (SIZE,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No hub that could answer, and an empty cache."""
    from huggingface_hub import close_session, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # the discard port: refused at once
    monkeypatch.setenv("NO_PROXY", "*")
    close_session()


@pytest.fixture
def hub(offline: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors": save(weights()),
        "pytorch_model.bin": b"never asked for",
    }
    with Hub({REPO: files}) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.address)
        yield running


def test_build_downloads_one_format_and_runs(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", SHORT, "--out", str(tmp_path / "distilbert")]) == 0
    out = capsys.readouterr().out
    assert "distilbert, exact" in out
    assert "last_hidden_state (1, 8, 16)" in out
    assert (tmp_path / "distilbert" / "model.py").exists()
    assert hub.sent("pytorch_model.bin") == 0


def test_a_second_build_needs_no_hub(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = mapper.build(REPO)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    ids = torch.arange(7)[None]
    assert torch.equal(mapper.build(REPO)(ids).last_hidden_state, first(ids).last_hidden_state)


def test_inspect_downloads_no_weights(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", SHORT, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["family"], document["reading"], document["tensors"]) == ("distilbert", "exact", 36)
    assert 0 < hub.sent("model.safetensors") <= 2**16


def test_build_with_neither_hub_nor_cache_is_one_line_that_says_what_to_do(
    offline: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", SHORT]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("error: ") and SHORT in captured.err


def test_generate_answers_from_the_catalogue_and_says_so(
    offline: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", SHORT, "-o", str(tmp_path / "model.py")]) == 0
    text = (tmp_path / "model.py").read_text()
    assert "catalogue" in text and "reconstructed" in text
    assert "class Model(nn.Module)" in text


# What a command does before it needs torch, whose import takes longer than all the rest.
FETCH = """import sys
from mapper.cli.output import working
from mapper.sources import open_source
with working("reading"):
    open_source(sys.argv[1], purpose="weights")
"""


def run(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, text=True, preexec_fn=interruptible, **pipes)  # noqa: PLW1509 - no thread runs yet


def interruptible() -> None:
    """A run in the background of a shell passes on that interrupts are ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_retry_is_said_on_standard_error_and_the_answer_stays_clean(hub: Hub) -> None:
    hub.faults = {"model.safetensors": [Fault(503), Fault(429, headers=(("Retry-After", "1"),))]}
    process = run("-m", "mapper", "inspect", REPO, "--json")
    out, told = process.communicate(timeout=60)
    assert process.returncode == 0 and json.loads(out)["reading"] == "exact"
    assert told.splitlines() == [
        "model.safetensors: the hub answers 503 (service unavailable); trying again in 1 s (1 of 4)",
        "model.safetensors: the hub answers 429 (too many requests); trying again in 1 s (2 of 4)",
    ]


def test_an_interrupted_download_is_gone_on_with(hub: Hub, tmp_path: Path) -> None:
    hub.faults = {"model.safetensors": [Fault(pause=0.05, piece=1_000)]}
    process = run("-m", "mapper", "build", REPO)
    parts = list[Path]()
    while process.poll() is None and not (parts and parts[0].stat().st_size):
        parts = list((tmp_path / "cache").glob(f"*/blobs/{'?' * 64}.incomplete"))
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, told = process.communicate(timeout=60)
    assert (process.returncode, out, told) == (130, "", "interrupted\n")
    kept = parts[0].stat().st_size
    process = run("-c", FETCH, REPO)
    assert process.communicate(timeout=60) == ("", "") and process.returncode == 0
    assert any(request.range == f"bytes={kept}-" for request in hub.log)


def test_an_interrupt_does_not_wait_for_a_silent_server(hub: Hub, tmp_path: Path) -> None:
    hub.faults = {"model.safetensors": [Fault(pause=30, piece=10_000)]}
    process = run("-m", "mapper", "build", REPO)
    parts = list[Path]()
    while process.poll() is None and not (parts and parts[0].stat().st_size):
        parts = list((tmp_path / "cache").glob(f"*/blobs/{'?' * 64}.incomplete"))
        time.sleep(0.005)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "interrupted\n") and process.returncode == 130
    assert time.monotonic() - start < 10


def test_two_processes_at_once_fetch_a_file_once(hub: Hub) -> None:
    hub.faults = {"model.safetensors": [Fault(pause=0.05, piece=2_000)]}
    both = [run("-c", FETCH, REPO) for _ in range(2)]
    for process in both:
        _, told = process.communicate(timeout=60)
        assert process.returncode == 0, told
    assert hub.sent("model.safetensors") == len(hub.repos[REPO]["model.safetensors"])


def test_progress_of_a_download_is_shown_on_a_terminal_only(hub: Hub) -> None:
    hub.faults = {"model.safetensors": [Fault(pause=0.2, piece=3_000)]}
    leader, follower = os.openpty()
    terminal = {"env": {**os.environ, "TERM": "xterm", "COLUMNS": "100"}, "stderr": follower}
    process = run("-c", FETCH, REPO, **terminal)
    os.close(follower)
    shown = b""
    while True:
        try:
            piece = os.read(leader, 4096)
        except OSError:  # the other side has ended
            break
        if not piece:
            break
        shown += piece
    os.close(leader)
    assert process.communicate(timeout=60) == ("", None) and process.returncode == 0
    text = shown.decode()
    assert f"fetching {REPO} " in text and "kB of 24" in text and "/s, " in text and " s left" in text
    assert text.endswith("\r\x1b[K")


@pytest.mark.parametrize("command", ["inspect", "build"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(403, "GatedRepo"), "the model is gated; ask for access at http"),
        (Fault(401), "does not accept the token; check HF_TOKEN"),
        (Fault(404, "RepoNotFound"), "no local path, and the hub has no such model"),
        (Fault(404, "RevisionNotFound"), "the hub has no revision 'main' of it"),
    ],
)
def test_a_refusal_is_one_line_and_exit_code_2(
    hub: Hub, command: str, fault: Fault, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "org/not-in-the-catalogue"
    hub.repos = {name: hub.repos[REPO]}
    hub.faults = {f"/api/models/{name}": [fault]}
    assert main([command, name]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert captured.err.startswith(f"error: {name}: ") and said in captured.err
