"""The bundled headers: found by name, honest about where they come from, and the same bytes from the same manifests."""

from __future__ import annotations

import gzip
import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from mapper import catalogue
from mapper.catalogue import HEADERS
from mapper.catalogue.published import FIELDS
from mapper.catalogue.records import read_record
from mapper.checkpoint import DTYPE_BYTES

ROOT = Path(__file__).resolve().parents[2]


def test_every_header_opens_and_says_where_it_is_from() -> None:
    assert len(catalogue.names()) >= 120
    for name in catalogue.names():
        checkpoint = catalogue.find(name)
        assert checkpoint is not None and checkpoint.source == name
        assert checkpoint.read is None and checkpoint.tensors
        made = checkpoint.notes[0].removeprefix("header from the bundled catalogue (")
        assert made.startswith(("reconstructed", "read from the hub's files"))
        assert checkpoint.config or made.startswith("read")
        assert all(info.dtype in DTYPE_BYTES for info in checkpoint.tensors.values())


def test_known_models_have_their_known_sizes() -> None:
    sizes = {
        "sentence-transformers/all-MiniLM-L6-v2": 22_713_216 + 512,
        "distilbert/distilbert-base-uncased": 66_985_530,
    }
    assert {name: catalogue.find(name).parameters for name in sizes} == sizes  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "name",
    ["distilbert-base-uncased", "distilbert/distilbert-base-uncased", "DistilBERT/distilbert-base-Uncased"],
)
def test_a_model_is_found_by_its_id_or_the_last_part_of_it(name: str) -> None:
    checkpoint = catalogue.find(name)
    assert checkpoint is not None and checkpoint.source == "distilbert/distilbert-base-uncased"


@pytest.mark.parametrize(
    "name", ["", "/", "nobody/distilbert-base-uncased", "distilbert", "../headers", "distilbert/", "x" * 5000]
)
def test_other_names_are_not_found(name: str) -> None:
    assert catalogue.find(name) is None


def test_the_catalogue_is_small_and_one_look_up_reads_one_model() -> None:
    assert catalogue.HEADERS.stat().st_size < 700_000
    with zipfile.ZipFile(catalogue.HEADERS) as archive:
        assert all(record.compress_type == zipfile.ZIP_DEFLATED for record in archive.infolist())
        assert all(record.date_time == (1980, 1, 1, 0, 0, 0) for record in archive.infolist())


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bundle_catalogue", ROOT / "tools" / "bundle_catalogue.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tool_makes_the_same_bundle_from_the_same_manifests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = {
        "repo": "org/name",
        "evidence": "made up",
        "config": {},
        "tensors": {"a": {"shape": [2], "dtype": "F32"}},
    }
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(json.dumps(manifest).encode()))
    (tmp_path / "b.json").write_text(json.dumps({**manifest, "repo": "org/other"}))
    (tmp_path / "index.yaml").write_text(
        "- {repo: org/name, config_evidence: recalled, note: seen once, parameters: 2}\n"
    )
    bundles = [tmp_path / "one.zip", tmp_path / "two.zip"]
    for bundle in bundles:
        arguments = [str(tmp_path), "--index", str(tmp_path / "index.yaml"), "--out", str(bundle)]
        tool = [sys.executable, str(ROOT / "tools" / "bundle_catalogue.py")]
        subprocess.run([*tool, *arguments], check=True, capture_output=True)
    assert bundles[0].read_bytes() == bundles[1].read_bytes()
    monkeypatch.setattr(catalogue, "HEADERS", bundles[0])
    catalogue.names.cache_clear()
    try:
        checkpoint = catalogue.find("name")
        assert catalogue.names() == ("org/name", "org/other")
    finally:
        catalogue.names.cache_clear()
    assert checkpoint is not None
    assert checkpoint.notes == [
        "header from the bundled catalogue (made up), not from the hub",
        "evidence for its config: recalled",
        "about this header: seen once",
    ]


def test_the_shipped_bundle_is_what_the_tool_would_write(tmp_path: Path) -> None:
    with zipfile.ZipFile(catalogue.HEADERS) as archive:
        manifests = [json.loads(archive.read(name)) for name in archive.namelist()]
    _tool().pack(manifests, {}, tmp_path / "again.zip")
    with zipfile.ZipFile(tmp_path / "again.zip") as again, zipfile.ZipFile(catalogue.HEADERS) as shipped:
        assert again.namelist() == shipped.namelist()
        assert all(again.read(name) == shipped.read(name) for name in again.namelist())


@pytest.mark.parametrize("path", [HEADERS, FIELDS], ids=lambda path: path.name)
def test_a_record_is_what_the_standard_library_reads(path: Path) -> None:
    archive = path.read_bytes()
    with zipfile.ZipFile(path) as whole:
        names = whole.namelist()
        assert all(read_record(archive, name) == whole.read(name) for name in names[::7])
    for name in ("", "nobodys.json", names[0][1:], names[0] + "x"):
        assert read_record(archive, name) is None


def test_a_damaged_record_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.json", "stored as it is")
    data = path.read_bytes()
    assert read_record(data, "a.json") == b"stored as it is"
    with pytest.raises(ValueError, match="checksum"):
        read_record(data.replace(b"stored", b"broken"), "a.json")
    with pytest.raises(ValueError, match="directory"):
        read_record(data + b"more", "a.json")
