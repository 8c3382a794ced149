"""What opening and reading a source may raise: nothing there, not what it claims to be, changed meanwhile."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import mapper
from mapper.errors import FormatError, MissingSourceError, SourceError
from mapper.sources import open_source
from mapper.sources.remote import RangeFile


@pytest.mark.parametrize(
    "name", ["gone.safetensors", "gone.npz", "gone.pt", "gone.xyz", "gone", "./gone", "a/b/c/d", "~gone", ""]
)
def test_nothing_at_a_path_is_a_file_not_found(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for source in (name, str(tmp_path / name), tmp_path / name):
        if source == tmp_path:  # the folder itself: it holds no weights
            continue
        with pytest.raises(FileNotFoundError) as caught:
            open_source(source, purpose="weights")
        assert isinstance(caught.value, MissingSourceError)
        assert "\n" not in str(caught.value)


def test_the_name_of_no_model_is_a_file_not_found_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "*")
    start = time.monotonic()
    with pytest.raises(FileNotFoundError, match="cannot be reached"):
        mapper.inspect("nonexistent/foo")
    assert time.monotonic() - start < 3


def test_a_folder_without_weights_and_a_missing_shard_are_files_not_found(tmp_path: Path) -> None:
    with pytest.raises(MissingSourceError, match="no weights"):
        open_source(tmp_path, purpose="headers")
    index = {"weight_map": {"a": "model-1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(MissingSourceError, match=r"missing: 'model-1\.safetensors'"):
        open_source(tmp_path, purpose="headers")


@pytest.mark.parametrize("source", [3, None, 1.5, b"model", {1, 2}, object()])
def test_an_object_of_no_known_kind_is_a_type_error(source: object) -> None:
    with pytest.raises(TypeError) as caught:
        open_source(source, purpose="headers")  # type: ignore[arg-type]
    assert not isinstance(caught.value, mapper.MapperError)


@pytest.mark.parametrize(
    "name", ["x.bin", "x.pt", "x.safetensors", "x.npz", "x.npy", "x.gguf", "x.onnx", "x.msgpack", "x"]
)
def test_bytes_of_no_container_are_a_format_error_that_names_the_file(name: str, tmp_path: Path) -> None:
    for content in (b"", b"\x00" * 100, b"\xff" * 5000, b"PK\x03\x04" + bytes(80), b"PK\x05\x06" + bytes(18)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FormatError, match=name):
            open_source(tmp_path / name, purpose="headers")


def test_what_a_library_raised_stays_the_cause(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{nope}")
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(FormatError, match=r"config\.json") as caught:
        open_source(tmp_path, purpose="headers")
    assert isinstance(caught.value.__cause__, json.JSONDecodeError)
    (tmp_path / "x.pt").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(FormatError, match=r"x\.pt") as caught:
        open_source(tmp_path / "x.pt", purpose="headers")
    assert caught.value.__cause__ is not None


def written(path: Path, value: float, kind: str) -> None:
    tensors = {"a": torch.full((300,), value)}
    if kind == "safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path)


@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_a_file_that_changed_since_its_header_was_read_is_refused(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"model.{kind}"
    written(file, 1.0, kind)
    whole = file.read_bytes()

    def cut() -> None:
        os.truncate(file, len(whole) - 8)

    def replaced() -> None:
        written(tmp_path / "other", 2.0, kind)
        os.replace(tmp_path / "other", file)

    def written_again() -> None:
        file.write_bytes(whole)
        os.utime(file, ns=(0, 0))

    for change in (cut, replaced, written_again):
        file.write_bytes(whole)
        read = open_source(file, purpose="weights").read
        assert read is not None
        change()
        with pytest.raises(FormatError, match=rf"model\.{kind}: .*open it again"):
            read(["a"])


def test_a_file_that_went_away_is_a_file_not_found(tmp_path: Path) -> None:
    written(tmp_path / "model.safetensors", 1.0, "safetensors")
    read = open_source(tmp_path, purpose="weights").read
    assert read is not None
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(MissingSourceError, match="does not exist"):
        read(["a"])


def test_a_file_that_the_system_does_not_read_is_a_source_error() -> None:
    if not os.path.exists("/proc/self/mem"):
        pytest.skip("no file here that opens and cannot be read")
    with pytest.raises(SourceError, match="'mem' cannot be read"):
        open_source("/proc/self/mem", purpose="headers")


def test_a_range_that_comes_cut_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="3 bytes came where 10 were asked for"):
        RangeFile(lambda start, end: b"abc", 10).read()


def test_arrays_of_any_byte_order_are_a_source(tmp_path: Path) -> None:
    arrays = {"a": np.arange(3, dtype=">f4"), "b": np.asfortranarray(np.arange(6.0).reshape(2, 3))}
    checkpoint = open_source(arrays, purpose="weights")
    assert checkpoint.tensors["a"].dtype == "F32"
    assert checkpoint.read is not None
    read = checkpoint.read(["a", "b"])
    assert read["a"].tolist() == [0, 1, 2] and read["b"].tolist() == [[0, 1, 2], [3, 4, 5]]
