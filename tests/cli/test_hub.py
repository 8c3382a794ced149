"""The command that a user types first: `mapper build distilbert-base-uncased`, with a hub, with a cache, with neither."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

import mapper
from mapper.cli import main
from tests.hub import Hub

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
