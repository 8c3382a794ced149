"""`tools/refresh_catalogue.py` against a hub on this machine: what is fetched, added, kept and reported."""

from __future__ import annotations

import importlib.util
import json
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mapper.rulebook.examples import header
from mapper.rulebook.rulebook import Rulebook
from tests.hub import Hub

ROOT = Path(__file__).resolve().parents[2]
Refresh = Callable[..., int]
Files = dict[str, bytes]
NAME = "distilbert"
KNOWN = "org/known"


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "refresh_catalogue", ROOT / "tools" / "refresh_catalogue.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up there
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


TOOL = _tool()


def shapes() -> dict[str, list[int]]:
    family = next(family for family in Rulebook().families if family.name == NAME)
    tensors = header(family.examples[0]).tensors
    return {name: list(info.shape) for name, info in tensors.items()}


def config() -> dict[str, Any]:
    family = next(family for family in Rulebook().families if family.name == NAME)
    return dict(family.examples[0].config or {})


def repository(tensors: dict[str, list[int]], settings: dict[str, Any] | None) -> Files:
    """The files of a model on the hub, its weights all zero."""
    table, data = {}, 0
    for name, shape in tensors.items():
        size = 4
        for extent in shape:
            size *= extent
        table[name] = {"dtype": "F32", "shape": shape, "data_offsets": [data, data + size]}
        data += size
    text = json.dumps(table).encode()
    files = {"model.safetensors": struct.pack("<Q", len(text)) + text + bytes(data)}
    return files | ({"config.json": json.dumps(settings).encode()} if settings is not None else {})


def manifest(tensors: dict[str, list[int]]) -> dict[str, Any]:
    table = {name: {"shape": shape, "dtype": "F32"} for name, shape in tensors.items()}
    return {"repo": KNOWN, "evidence": "reconstructed", "config": config(), "tensors": table}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Hub]]:
    from huggingface_hub import close_session, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    running: list[Hub] = []

    def start(repos: dict[str, Files], **options: Any) -> Hub:
        running.append(Hub(repos, **options).__enter__())
        monkeypatch.setenv("HF_ENDPOINT", running[-1].address)
        return running[-1]

    close_session()
    yield start
    close_session()
    for hub in running:
        hub.__exit__()


@pytest.fixture
def refresh(tmp_path: Path) -> Refresh:
    """The tool on a catalogue that has one header, and no record."""
    TOOL.pack([manifest(shapes())], {}, tmp_path / "headers.zip")
    files = ["--catalogue", str(tmp_path / "headers.zip"), "--record", str(tmp_path / "readings.json")]
    return lambda *arguments: TOOL.main([*files, *arguments])


def stored(tmp_path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(tmp_path / "headers.zip") as archive:
        return {name: json.loads(archive.read(name)) for name in archive.namelist()}


def readings(tmp_path: Path) -> dict[str, str]:
    return json.loads((tmp_path / "readings.json").read_text())


def test_the_most_downloaded_come_first_over_all_pages(serve: Callable[..., Hub]) -> None:
    repos = {f"org/m{at}": repository({"a.weight": [2, 2]}, None) for at in range(5)}
    hub = serve(repos, downloads={f"org/m{at}": at for at in range(5)}, page=2)
    assert TOOL.top_models(3) == [(f"org/m{at}", hub.commit(f"org/m{at}")) for at in (4, 3, 2)]
    assert sum(request.path == "/api/models" for request in hub.log) == 2


def test_a_new_model_is_added_from_its_header_alone(
    serve: Callable[..., Hub], refresh: Refresh, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = {name: [extent * 8 for extent in shape] for name, shape in shapes().items()}
    files = repository(wide, config())
    hub = serve({"org/new": files})
    assert refresh() == 0
    assert f"new: org/new, {len(wide)} tensors" in capsys.readouterr().out
    added = stored(tmp_path)["org/new.json"]
    assert added["evidence"] == f"read from the hub's files at {hub.commit('org/new')[:12]}"
    assert {name: entry["shape"] for name, entry in added["tensors"].items()} == wide
    assert added["config"] == config()
    assert 0 < hub.sent("model.safetensors") <= 2**16 < len(files["model.safetensors"])
    assert readings(tmp_path) == {KNOWN: "exact", "org/new": "exact"}
    assert not (tmp_path / "cache").exists()


def test_the_same_answers_give_the_same_catalogue(
    serve: Callable[..., Hub], refresh: Refresh, tmp_path: Path
) -> None:
    serve({KNOWN: repository(shapes(), config())})
    assert refresh() == 0
    first = (tmp_path / "headers.zip").read_bytes()
    assert refresh() == 0
    assert (tmp_path / "headers.zip").read_bytes() == first


def test_a_model_that_was_exact_and_is_not_is_a_regression_until_it_is_accepted(
    serve: Callable[..., Hub], refresh: Refresh, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve({KNOWN: repository(shapes() | {"transformer.xyzzy.weight": [3, 3]}, config())})
    for _ in range(2):  # the second run has a record of the first
        assert refresh() == 3
        told = capsys.readouterr().out
        assert f"regression: {KNOWN} was read exact, now " in told
        assert "  no role for 'transformer.xyzzy.weight'" in told
        assert readings(tmp_path) == {KNOWN: "exact"}
    assert refresh("--accept") == 0
    assert readings(tmp_path)[KNOWN] != "exact"
    assert refresh() == 0


def test_a_header_that_differs_from_the_one_we_had_is_told(
    serve: Callable[..., Hub], refresh: Refresh, capsys: pytest.CaptureFixture[str]
) -> None:
    serve({KNOWN: repository(shapes(), {**config(), "torch_dtype": "float16"})})
    assert refresh() == 0
    assert f"changed: {KNOWN}, config: torch_dtype" in capsys.readouterr().out


def test_what_cannot_be_fetched_is_skipped_and_its_old_header_stays(
    serve: Callable[..., Hub], refresh: Refresh, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve({KNOWN: repository(shapes(), config()), "org/empty": {"README.md": b"x"}}, gated=(KNOWN,))
    assert refresh() == 0
    told = capsys.readouterr().out
    assert f"skipped: {KNOWN}: " in told and "; its old header stays" in told
    assert "skipped: org/empty: " in told
    assert stored(tmp_path)[f"{KNOWN}.json"]["evidence"] == "reconstructed"


def test_a_dry_run_writes_nothing(serve: Callable[..., Hub], refresh: Refresh, tmp_path: Path) -> None:
    serve({"org/new": repository(shapes(), config())})
    before = (tmp_path / "headers.zip").read_bytes()
    assert refresh("--dry-run") == 0
    assert (tmp_path / "headers.zip").read_bytes() == before
    assert not (tmp_path / "readings.json").exists()


def test_without_a_connection_it_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, refresh: Refresh, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert refresh() == 2
    error = capsys.readouterr().err
    assert error.startswith("error: the list of models: the hub is not asked (HF_HUB_OFFLINE is set)")
    assert error.count("\n") == 1
