"""One file of a repository by its name, files that name others, and GGUF by ranges."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from mapper.errors import FormatError, MissingSourceError, SourceError
from mapper.sources import open_source
from tests.gguf_files import gguf_bytes
from tests.hub import Fault, Serve, safetensors
from tests.onnx_files import beside, initialiser, model

CONFIG = b'{"model_type": "bert"}'
FIRST, SECOND = safetensors({"a.weight": [64, 64]}), safetensors({"b.weight": [32, 64]})
SEVERAL = {"config.json": CONFIG, "a.safetensors": FIRST, "b.safetensors": SECOND}


def gguf(words: int) -> bytes:
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": 0,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 4,
        "tokenizer.ggml.tokens": [f"word{number}" for number in range(words)],
    }
    return gguf_bytes(metadata, {"token_embd.weight": np.zeros((20_000, 64), np.float32)})


@pytest.mark.parametrize("purpose", ["headers", "weights"])
def test_one_of_several_files_is_named(serve: Serve, purpose: str) -> None:
    hub = serve({"org/several": SEVERAL})
    with pytest.raises(
        SourceError,
        match=r"2 weight files and none is .*; name the one to read, as in org/several:a.safetensors",
    ):
        open_source("org/several", purpose=purpose)
    checkpoint = open_source("org/several:b.safetensors", purpose=purpose)
    assert (checkpoint.source, list(checkpoint.tensors)) == ("org/several:b.safetensors", ["b.weight"])
    assert checkpoint.config == json.loads(CONFIG)
    assert hub.sent("a.safetensors") == 0
    asked = len(hub.log)
    assert open_source("org/several:b.safetensors", purpose="weights").tensors == checkpoint.tensors
    assert (len(hub.log) == asked) == (purpose == "weights")
    other = open_source("org/several@v1:a.safetensors", purpose=purpose)
    assert (other.source, list(other.tensors)) == ("org/several@v1:a.safetensors", ["a.weight"])


def test_one_file_in_the_cache_is_not_taken_for_the_model(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"config.json": CONFIG, "model.fp16.safetensors": SECOND, "model.safetensors": FIRST}
    hub = serve({"org/variants": files})
    open_source("org/variants:model.fp16.safetensors", purpose="weights")
    assert list(open_source("org/variants", purpose="headers").tensors) == ["a.weight"]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    offline = open_source("org/variants", purpose="weights")
    assert list(offline.tensors) == ["b.weight"]
    assert "from the cache, which may not have all files of the model" in offline.notes[-1]
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert list(open_source("org/variants", purpose="weights").tensors) == ["a.weight"]
    asked = len(hub.log)
    assert not open_source("org/variants", purpose="weights").notes
    assert len(hub.log) == asked


def test_a_file_by_an_unusual_name_stays_usable_where_the_hub_does_not_answer(serve: Serve) -> None:
    hub = serve({"org/odd": {"config.json": CONFIG, "weights.safetensors": FIRST}})
    open_source("org/odd", purpose="weights")
    hub.log.clear()
    for purpose in ("headers", "weights"):
        assert not open_source("org/odd", purpose=purpose).notes
    assert [request.path for request in hub.log] == ["/api/models/org/odd"] * 2
    hub.faults = {"/api/models/org/odd": [Fault(401, "RepoNotFound")]}
    checkpoint = open_source("org/odd", purpose="weights")
    assert checkpoint.read is not None and "the hub did not say" in checkpoint.notes[-1]


def test_arrays_in_the_cache_are_compared_with_the_listing(serve: Serve, tmp_path: Path) -> None:
    files = {}
    for name in ("a", "b", "c"):
        buffer = io.BytesIO()
        np.save(buffer, np.zeros((3, 4), np.float32))
        files[f"{name}.npy"] = buffer.getvalue()
    hub = serve({"org/arrays": files})
    assert list(open_source("org/arrays", purpose="weights").tensors) == ["a", "b", "c"]
    (pointer,) = (tmp_path / "cache").glob("models--org--arrays/snapshots/*/b.npy")
    pointer.unlink()
    assert list(open_source("org/arrays", purpose="weights").tensors) == ["a", "b", "c"]
    assert hub.sent(".npy") == len(files["a.npy"])  # all three are one blob


def test_a_file_that_is_not_there_is_told_from_those_that_are(serve: Serve) -> None:
    serve({"org/several": SEVERAL})
    said = r"org/several: the hub has no file 'c\.safetensors' in it; of that kind it has 'a\.saf.*, 'b\.saf"
    with pytest.raises(MissingSourceError, match=said):
        open_source("org/several:c.safetensors", purpose="headers")
    with pytest.raises(MissingSourceError, match=r"no file 'x\.gguf' in it; nor one of that kind"):
        open_source("org/several:x.gguf", purpose="weights")


@pytest.mark.parametrize("file", ["../x.bin", "/etc/passwd", "a//b.bin", "..", "", "a\\b.bin", "c:d.bin"])
def test_a_name_that_leads_out_never_reaches_the_hub(serve: Serve, file: str) -> None:
    hub = serve({"org/several": SEVERAL})
    with pytest.raises(MissingSourceError):
        open_source(f"org/several:{file}", purpose="weights")
    assert not hub.log


@pytest.mark.parametrize("purpose", ["headers", "weights"])
def test_an_index_in_a_folder_lists_what_is_beside_it(serve: Serve, purpose: str) -> None:
    index = json.dumps({"weight_map": {"a.weight": "a.safetensors", "b.weight": "b.safetensors"}}).encode()
    files = {f"fp16/{name}": data for name, data in SEVERAL.items() if name != "config.json"}
    hub = serve({"org/folder": {"config.json": CONFIG, "fp16/model.safetensors.index.json": index, **files}})
    checkpoint = open_source("org/folder:fp16/model.safetensors.index.json", purpose=purpose)
    assert list(checkpoint.tensors) == ["a.weight", "b.weight"] and checkpoint.config == json.loads(CONFIG)
    assert hub.sent("fp16/a.safetensors") > 0


@pytest.mark.parametrize("purpose", ["headers", "weights"])
def test_tensors_that_a_model_has_beside_it_are_fetched_too(serve: Serve, purpose: str) -> None:
    data = struct.pack("<2000f", *range(2000))
    graph = model(initialiser("a", [2000], 1, beside("model.onnx_data", offset=0, length=8000)))
    hub = serve({"org/onnx": {"config.json": CONFIG, "onnx/model.onnx": graph, "onnx/model.onnx_data": data}})
    checkpoint = open_source("org/onnx:onnx/model.onnx", purpose=purpose)
    assert checkpoint.tensors["a"].shape == (2000,) and checkpoint.config == json.loads(CONFIG)
    if purpose == "headers":
        assert hub.sent("model.onnx_data") == 0
    else:
        assert checkpoint.read is not None and checkpoint.read(["a"])["a"].tolist() == list(range(2000))


@pytest.mark.parametrize("purpose", ["headers", "weights"])
@pytest.mark.parametrize("location", ["../../secret", "/etc/passwd", "model.onnx_data"])
def test_a_file_beside_that_is_outside_or_absent_is_named(
    serve: Serve, purpose: str, location: str, tmp_path: Path
) -> None:
    graph = model(initialiser("a", [2000], 1, beside(location, offset=0, length=8000)))
    serve({"org/onnx": {"model.onnx": graph}})
    with pytest.raises((FormatError, MissingSourceError), match="onnx"):
        open_source("org/onnx", purpose=purpose)
    assert not [path for path in tmp_path.rglob("*") if "/cache" not in str(path)]


def test_the_header_of_a_gguf_file_comes_in_few_requests(serve: Serve) -> None:
    content = gguf(50_000)
    hub = serve({"org/gguf": {"model-q8.gguf": content}})
    checkpoint = open_source("org/gguf", purpose="headers")
    assert checkpoint.container == "gguf" and checkpoint.parameters == 20_000 * 64
    header = len(content) - 20_000 * 64 * 4
    ranges = [request for request in hub.log if request.path.startswith("/cdn/")]
    assert header <= hub.sent(".gguf") <= 2 * header + 2**16
    assert len(ranges) <= 8


def test_one_quantisation_of_many_is_fetched(serve: Serve) -> None:
    files = {f"model-{kind}.gguf": gguf(10 + at) for at, kind in enumerate(("q4_0", "q8_0", "f16"))}
    hub = serve({"org/gguf": files})
    assert open_source("org/gguf:model-q8_0.gguf", purpose="weights").read is not None
    assert hub.sent(".gguf") == len(files["model-q8_0.gguf"])
