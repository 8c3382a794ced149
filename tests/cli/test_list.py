"""`mapper list`: what the hub's cache holds, model by model, read by headers alone."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import mapper
from mapper import _cached
from mapper.checkpoint import Checkpoint
from mapper.cli import main
from mapper.cli.listing import ago
from tests.hub import safetensors

SIZE, INNER = 16, 24
CONFIG = {
    "model_type": "distilbert", "architectures": ["DistilBertModel"], "n_heads": 2, "n_layers": 1, "dim": SIZE,
    "hidden_dim": INNER, "vocab_size": 50, "max_position_embeddings": 32, "activation": "gelu",
}  # fmt: skip
LAYER = "transformer.layer.0"
SHAPES = {
    "embeddings.word_embeddings.weight": [50, SIZE],
    "embeddings.position_embeddings.weight": [32, SIZE],
    "embeddings.LayerNorm.weight": [SIZE],
    "embeddings.LayerNorm.bias": [SIZE],
    **{f"{LAYER}.attention.{name}.weight": [SIZE, SIZE] for name in ("q_lin", "k_lin", "v_lin", "out_lin")},
    **{f"{LAYER}.attention.{name}.bias": [SIZE] for name in ("q_lin", "k_lin", "v_lin", "out_lin")},
    f"{LAYER}.ffn.lin1.weight": [INNER, SIZE],
    f"{LAYER}.ffn.lin1.bias": [INNER],
    f"{LAYER}.ffn.lin2.weight": [SIZE, INNER],
    f"{LAYER}.ffn.lin2.bias": [SIZE],
    **{
        f"{LAYER}.{name}.{kind}": [SIZE]
        for name in ("sa_layer_norm", "output_layer_norm")
        for kind in ("weight", "bias")
    },
}
WEIGHTS = safetensors(SHAPES)
SMALL = {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": WEIGHTS}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    return tmp_path / "hub"


def put(
    cache: Path, name: str, files: dict[str, bytes], *, commit: str = COMMIT, revision: str = "main"
) -> Path:
    """A revision of a model as the hub's client keeps it; the folder of its repository."""
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    for folder in (snapshot, repository / "refs", repository / "blobs"):
        folder.mkdir(parents=True, exist_ok=True)
    if revision:
        (repository / "refs" / revision).write_text(commit)
    for file, content in files.items():
        blob = repository / "blobs" / hashlib.sha1(content).hexdigest()
        blob.write_bytes(content)
        if not (snapshot / file).is_symlink():
            (snapshot / file).symlink_to(os.path.relpath(blob, snapshot))
    return repository


def listing(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["list", *options]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_each_model_has_a_line_that_says_what_it_is(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(cache, "org/small", SMALL)
    put(cache, "alone", {"model.safetensors": safetensors({"a.weight": [8, 8]})}, revision="")
    title, *rows, total = listing(capsys).splitlines()
    assert title.split() == ["model", "family", "reading", "parameters", "size", "revision", "last", "used"]
    assert [row.split()[0] for row in rows] == ["alone", "org/small"]
    assert rows[0].split()[1:3] == ["-", "skeleton"] and COMMIT[:12] in rows[0]
    count = mapper.inspect(small_source(cache)).architecture.checkpoint.parameters
    assert (
        rows[1].split()
        == f"org/small distilbert exact {count:,} {len(WEIGHTS) / 1e3 + 0.2:.1f} kB main now".split()
    )
    assert total.startswith("2 models, ") and total.endswith(f" in {cache}")


def small_source(cache: Path) -> Path:
    return cache / "models--org--small" / "snapshots" / COMMIT


def test_json_is_one_document_with_every_field(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(cache, "org/small", SMALL)
    document = json.loads(listing(capsys, "--json"))
    assert list(document) == ["cache", "models"] and document["cache"] == str(cache)
    (model,) = document["models"]
    used = model.pop("last_used")
    assert used.endswith("+00:00") and used[:2] == "20"
    assert model == {
        "name": "org/small",
        "revisions": ["main"],
        "commit": COMMIT,
        "path": str(small_source(cache)),
        "bytes": sum(map(len, SMALL.values())),
        "family": "distilbert",
        "reading": "exact",
        "parameters": sum(shape[0] * (shape[1] if shape[1:] else 1) for shape in SHAPES.values()),
        "tensors": len(SHAPES),
        "container": "safetensors",
        "what": None,
        "problem": None,
    }


@pytest.mark.parametrize("made", [True, False])
def test_an_empty_cache_and_none_are_no_error(
    made: bool, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if made:
        cache.mkdir()
        (cache / "datasets--x--y").mkdir()
        (cache / "models--a-file").write_text("")
    assert listing(capsys) == f"no models in {cache}\n"
    assert json.loads(listing(capsys, "--json")) == {"cache": str(cache), "models": []}


def test_what_cannot_be_read_is_a_line_that_says_why(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(cache, "org/tokenizer", {"tokenizer.json": b"{}", "config.json": b"{}"})
    put(cache, "org/cut", {**SMALL, "model.safetensors": WEIGHTS[:500]})
    put(cache, "org/config", {**SMALL, "config.json": b"[" * 10_000})
    pipe = put(cache, "org/pipe", {}) / "snapshots" / COMMIT / "model.safetensors"
    os.mkfifo(pipe)
    gone = put(cache, "org/gone", SMALL)
    for blob in (gone / "blobs").iterdir():
        blob.unlink()
    put(cache, "org/small", SMALL)
    rows = {row.split()[0]: row.partition("  ")[2].strip() for row in listing(capsys).splitlines()}
    assert rows["org/tokenizer"] == (
        "unreadable: no weights (config.json alone does not say which tensors there are)"
    )
    assert rows["org/cut"].startswith("unreadable: model.safetensors: its header should have")
    assert rows["org/config"].startswith("unreadable: config.json: ")
    assert rows["org/pipe"].startswith("unreadable: 'model.safetensors' is not a regular file")
    assert rows["org/gone"] == "unreadable: 'config.json' is a link to a file that is gone"
    assert rows["org/small"].startswith("distilbert")
    found = {model.name: model.problem for model in mapper.cached_models()}
    assert [name for name, problem in found.items() if problem is None] == ["org/small"]


def test_a_download_that_was_cut_is_told_from_a_model_without_weights(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, files in (("org/begun", {}), ("org/config", {"config.json": b"{}"})):
        repository = put(cache, name, files)
        (repository / "blobs" / "abc.incomplete").write_bytes(bytes(2_500))
    (cache / "models--org--begun" / "snapshots" / COMMIT).rmdir()
    rows = listing(capsys).splitlines()[1:-1]
    assert len(rows) == 2
    assert all("a download was cut, 2.5 kB are here; mapper build goes on with it" in row for row in rows)


def test_each_revision_is_listed_and_named(cache: Path) -> None:
    put(cache, "org/small", SMALL)
    put(cache, "org/small", SMALL, revision="v1")
    put(cache, "org/small", SMALL, commit="f" * 40, revision="")
    first, second = mapper.cached_models()
    assert (first.revisions, second.revisions) == (("main", "v1"), ())
    assert first.bytes == second.bytes


def test_a_bug_with_one_model_keeps_no_other_from_the_list(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mapper import inference

    infer = inference.infer

    def fail(checkpoint: Checkpoint, *rest: Any) -> object:
        if checkpoint.source == "org/a":
            raise ZeroDivisionError("by zero")
        return infer(checkpoint, *rest)

    monkeypatch.setattr(inference, "infer", fail)
    put(cache, "org/a", SMALL)
    put(cache, "org/b", SMALL)
    rows = listing(capsys).splitlines()
    assert "unreadable: this is a bug: ZeroDivisionError: by zero; see mapper inspect org/a" in rows[1]
    assert "distilbert" in rows[2]


def test_what_a_model_is_is_remembered_until_its_files_change(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cache, "org/small", SMALL)
    (first,) = mapper.cached_models()
    with monkeypatch.context() as patch:
        patch.setattr(_cached, "_read", lambda *_: pytest.fail("read again"))
        assert mapper.cached_models() == [first]
    config = small_source(cache) / "config.json"
    config.write_text(json.dumps({**CONFIG, "model_type": "nobody_knows"}))
    (second,) = mapper.cached_models()
    assert first.reading == "exact" and second.reading != "exact"


@pytest.mark.parametrize("content", [b"", b"[]", b"nothing", b'{"a": 5}', b"\xff", b"[" * 100_000])
def test_a_damaged_memory_is_read_over(cache: Path, tmp_path: Path, content: bytes) -> None:
    put(cache, "org/small", SMALL)
    (first,) = mapper.cached_models()
    (memory,) = (tmp_path / "own" / "mapper").glob("models-*.json")
    memory.write_bytes(content)
    assert mapper.cached_models() == [first]
    assert json.loads(memory.read_bytes())


def test_a_memory_that_cannot_be_written_is_done_without(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cache, "org/small", SMALL)
    (cache / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))
    assert [model.reading for model in mapper.cached_models()] == ["exact"]


def test_the_first_model_is_there_before_the_second_is_read(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cache, "org/a", SMALL)
    put(cache, "org/b", SMALL)
    read = _cached._read
    seen: list[str] = []
    monkeypatch.setattr(_cached, "_read", lambda at, name, *rest: seen.append(name) or read(at, name, *rest))
    models = _cached.each_cached_model()
    assert next(models).name == "org/a" and seen == ["org/a"]
    assert [model.name for model in models] == ["org/b"]


def test_looking_is_no_use(cache: Path) -> None:
    """A file system that notes each reading would call every model used now."""
    put(cache, "org/small", SMALL)
    weights = small_source(cache) / "model.safetensors"
    old = time.time() - 10 * 86_400
    for file in SMALL:
        os.utime(small_source(cache) / file, (old, old))
    (model,) = mapper.cached_models()
    assert abs(model.last_used - old) < 1 and abs(weights.stat().st_atime - old) < 1
    files = _cached._files(small_source(cache))
    with _cached._unused(files):
        os.utime(weights, (old + 86_400, old))
    assert abs(weights.stat().st_atime - old) < 1 and abs(weights.stat().st_mtime - old) < 1


def test_names_from_the_cache_cannot_write_on_the_terminal(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = put(cache, "org/a\x1b[31mred", SMALL)
    (repository / "refs" / "b\x1b]0;x").write_text(COMMIT)
    out = listing(capsys)
    assert "\x1b" not in out and len(out.splitlines()) == 3


def test_listing_imports_neither_torch_nor_the_hubs_client(cache: Path) -> None:
    put(cache, "org/small", SMALL)
    program = (
        "import sys; from mapper.cli import main; main(['list']);"
        "print([name for name in ('torch', 'numpy', 'huggingface_hub') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "now"),
        (59, "now"),
        (300, "5 min ago"),
        (7_300, "2 h ago"),
        (86_400, "1 day ago"),
        (3e5, "3 days ago"),
    ],
)
def test_times_are_as_a_person_says_them(seconds: float, text: str) -> None:
    assert ago(seconds) == text
    assert ago(1e8).count("-") == 2
