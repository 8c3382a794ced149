"""Directories, sharded checkpoints, manifests, configs and things in memory."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mapper import limits
from mapper.errors import FormatError, MapperError, SourceError
from mapper.sources import open_source

INDEX = "model.safetensors.index.json"


def shard(path: Path, *names: str) -> None:
    save_file({name: torch.full((2, 2), float(at)) for at, name in enumerate(names)}, path)


def sharded(folder: Path, table: dict[str, str] | None = None) -> Path:
    """A checkpoint of two shards with an index."""
    folder.mkdir(exist_ok=True)
    shard(folder / "model-1.safetensors", "a", "b")
    shard(folder / "model-2.safetensors", "c")
    table = table or {"a": "model-1.safetensors", "b": "model-1.safetensors", "c": "model-2.safetensors"}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": table}))
    return folder


def refusal(source: object, kind: type[MapperError] = MapperError) -> str:
    with pytest.raises(kind) as caught:
        open_source(source, purpose="weights")  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_directory_is_its_weights_and_its_config(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    shard(folder / "model.safetensors", "a")
    (folder / "optimizer.pt").write_bytes(b"x")
    (folder / "config.json").write_text('{"model_type": "x"}')
    checkpoint = open_source(folder, purpose="weights")
    assert (checkpoint.source, checkpoint.container, checkpoint.config) == (
        "my-model",
        "safetensors",
        {"model_type": "x"},
    )
    assert checkpoint.weights == [str(folder / "model.safetensors")]
    assert open_source(str(folder) + "/", purpose="headers").source == "my-model"
    assert open_source(folder / "model.safetensors", purpose="headers").config == {"model_type": "x"}


def test_shards_are_one_checkpoint_by_index_or_by_number(tmp_path: Path) -> None:
    by_index = open_source(sharded(tmp_path / "x"), purpose="weights")
    assert list(by_index.tensors) == ["a", "b", "c"]
    assert by_index.read is not None
    assert list(by_index.read(["c", "a"])) == ["c", "a"]
    assert open_source(tmp_path / "x" / INDEX, purpose="headers").tensors == by_index.tensors
    numbered = tmp_path / "y"
    numbered.mkdir()
    shard(numbered / "model-00001-of-00002.safetensors", "a", "b")
    shard(numbered / "model-00002-of-00002.safetensors", "c")
    assert open_source(numbered, purpose="headers").tensors == by_index.tensors
    (numbered / "model-00001-of-00002.safetensors").unlink()
    assert refusal(numbered).endswith(
        "y: 1 of 2 shards are missing: 'model-00001-of-00002.safetensors'; download them again"
    )


def test_missing_shards_are_named(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "x")
    (folder / "model-2.safetensors").unlink()
    assert (
        refusal(folder) == f"{INDEX}: 1 of 2 shards are missing: 'model-2.safetensors'; download them again"
    )


def test_index_and_shards_must_not_contradict_each_other(tmp_path: Path) -> None:
    wrong = {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-2.safetensors"}
    assert "'b' should be in model-2.safetensors, which lacks it" in refusal(
        sharded(tmp_path / "x", wrong), FormatError
    )
    unlisted = {"a": "model-1.safetensors", "c": "model-2.safetensors"}
    checkpoint = open_source(sharded(tmp_path / "x", unlisted), purpose="headers")
    assert list(checkpoint.tensors) == ["a", "b", "c"]
    assert checkpoint.notes == [f"model-1.safetensors has 1 tensors that {INDEX} does not list: 'b'"]
    shard(tmp_path / "x" / "model-2.safetensors", "c", "a")
    assert "'a' also in an earlier shard" in refusal(tmp_path / "x", FormatError)


ESCAPES = [
    "../model.safetensors",
    "/etc/passwd",
    "a/../../x",
    "C:\\x",
    "..\\x",
    "./x",
    "",
    ".",
    "a//b",
    "x\0y",
]


@pytest.mark.parametrize("file", ESCAPES)
def test_an_index_cannot_name_a_file_elsewhere(file: str, tmp_path: Path) -> None:
    shard(tmp_path / "model.safetensors", "a")
    assert "which is no file beside the index" in refusal(sharded(tmp_path / "x", {"a": file}), FormatError)


def test_a_shard_that_links_out_of_its_directory_is_refused_but_not_in_the_hubs_cache(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "x")
    (folder / "model-2.safetensors").rename(tmp_path / "elsewhere")
    (folder / "model-2.safetensors").symlink_to("../elsewhere")
    assert "'model-2.safetensors' is a link out of its directory" in refusal(folder, FormatError)
    repository = tmp_path / "cache" / "models--org--name"
    snapshot = repository / "snapshots" / "0123"
    (repository / "blobs").mkdir(parents=True)
    snapshot.parent.mkdir()
    sharded(snapshot)
    for file in list(snapshot.iterdir()):
        file.rename(repository / "blobs" / file.name)
        file.symlink_to(f"../../blobs/{file.name}")
    checkpoint = open_source(snapshot, purpose="headers")
    assert (checkpoint.source, len(checkpoint.tensors)) == ("org/name", 3)


BAD_INDICES = [
    '{"weight_map": {}}',
    '{"weight_map": []}',
    "{}",
    '{"weight_map": {"a": 1}}',
    "[1]",
    '{"weight_map"',
    "\xff",
]


@pytest.mark.parametrize("text", BAD_INDICES)
def test_a_broken_index_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_bytes(text.encode("latin-1"))
    assert refusal(tmp_path, FormatError).startswith(INDEX)


def test_several_weight_files_are_a_question(tmp_path: Path) -> None:
    shard(tmp_path / "one.safetensors", "a")
    assert open_source(tmp_path, purpose="headers").tensors
    shard(tmp_path / "two.safetensors", "a")
    assert "2 weight files" in refusal(tmp_path, SourceError)
    shard(tmp_path / "model.safetensors", "b")
    assert list(open_source(tmp_path, purpose="headers").tensors) == ["b"]


def test_a_directory_without_weights_says_what_it_lacks(tmp_path: Path) -> None:
    assert "no weights (expected model.safetensors)" in refusal(tmp_path, SourceError)
    (tmp_path / "later").mkdir()
    shard(tmp_path / "later" / "model.safetensors", "a")
    assert "folders of it have some: 'later'; name one, as in " in refusal(tmp_path, SourceError)
    (tmp_path / "later" / "model.safetensors").unlink()
    (tmp_path / "config.json").write_text("{}")
    assert "config.json alone" in refusal(tmp_path, SourceError)
    for config in ({"model_type": "x"}, {"hidden_size": 4}):
        assert "a config without tensors" in refusal(_write(tmp_path / "config.json", config), SourceError)
    (tmp_path / "tf_model.h5").write_bytes(b"x")
    assert "'tf_model.h5', are in the format HDF5, which is recognised but not read yet" in refusal(
        tmp_path, SourceError
    )


CONFIGS = {
    "[]": "holds a JSON array where an object is needed",
    "null": "holds a JSON null",
    '{"a": ' + "[" * 50 + "]" * 50 + "}": "nested more than 32 levels deep",
    "[" * 100_000: "nested too deeply",
    '{"a": "\\ud800"}': "half of a surrogate pair",
    '{"a" 1}': "not JSON: expecting ':' delimiter at line 1, column 6",
    "": "the file is empty",
    "version https://git-lfs.github.com/spec/v1\nsize 3\n": "a git-lfs pointer to 3 bytes",
}


@pytest.mark.parametrize("text", CONFIGS)
def test_a_broken_config_is_named(text: str, tmp_path: Path) -> None:
    shard(tmp_path / "model.safetensors", "a")
    (tmp_path / "config.json").write_text(text)
    assert refusal(tmp_path, FormatError).startswith("config.json: ")
    assert CONFIGS[text] in refusal(tmp_path)


def test_a_config_that_json_would_not_allow_is_read_as_python_does(tmp_path: Path) -> None:
    shard(tmp_path / "model.safetensors", "a")
    (tmp_path / "config.json").write_bytes(b'\xef\xbb\xbf{"a": Infinity, "b": 2, "b": 2}')
    assert open_source(tmp_path, purpose="headers").config == {"a": float("inf"), "b": 2}


def test_a_config_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    shard(tmp_path / "model.safetensors", "a")
    (tmp_path / "config.json").write_text('{"b": {"c": 1, "c": [2]}}')
    assert refusal(tmp_path, FormatError) == "config.json: 'c' more than once, as '1' and '[2]'"


def test_a_config_larger_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard(tmp_path / "model.safetensors", "a")
    with open(tmp_path / "config.json", "wb") as file:
        os.ftruncate(file.fileno(), limits.CONFIG_BYTES + 1)
    assert "20,000,001 bytes of JSON, at most 20,000,000 are read" in refusal(tmp_path, FormatError)


MANIFEST = {
    "repo": "org/name",
    "evidence": "made up",
    "config": {"model_type": "x"},
    "tensors": {"a": {"shape": [2, 3], "dtype": "BF16"}, "b": {"shape": [], "dtype": "torch.float32"}},
}


def _write(path: Path, document: object) -> Path:
    data = json.dumps(document).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["x.json", "x.json.gz", "manifest"])
def test_a_manifest_is_a_checkpoint_without_weights(name: str, tmp_path: Path) -> None:
    checkpoint = open_source(_write(tmp_path / name, MANIFEST), purpose="weights")
    assert (checkpoint.source, checkpoint.container, checkpoint.read) == ("org/name", "manifest", None)
    assert checkpoint.tensors == {"a": ((2, 3), "BF16"), "b": ((), "F32")}
    assert checkpoint.config == {"model_type": "x"}
    assert checkpoint.notes == ["a manifest without weights: made up"]
    assert open_source(MANIFEST, purpose="headers").tensors == checkpoint.tensors


def test_a_bare_table_of_shapes_is_a_manifest_of_assumed_dtypes(tmp_path: Path) -> None:
    checkpoint = open_source(_write(tmp_path / "x.json", {"a": [2, 3], "b": []}), purpose="headers")
    assert checkpoint.tensors == {"a": ((2, 3), "F32"), "b": ((), "F32")}
    assert (checkpoint.source, checkpoint.notes[-1]) == (
        "x.json",
        "the manifest names no dtypes: F32 is assumed",
    )


BAD_MANIFESTS = [
    {}, {"tensors": {}}, {"tensors": []}, {"tensors": {"a": 3}}, {"tensors": {"a": [-1]}}, {"tensors": {"a": [1.5]}},
    {"tensors": {"a": {"shape": [2]}}, "config": []}, {"tensors": {"a": {"shape": [2], "dtype": "F3"}}}, {"tensors": {"": [2]}},
    {"tensors": {"a": {"dtype": "F32"}}}, {"tensors": {"x" * 5000: [2]}}, {"weight_map": {"a": "b"}}, {"tensors": {"a": [True]}},
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(BAD_MANIFESTS)))
def test_a_broken_manifest_is_named(at: int, tmp_path: Path) -> None:
    assert refusal(_write(tmp_path / "x.json", BAD_MANIFESTS[at])).startswith("x.json: ")


def test_a_compressed_manifest_is_limited_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "x.json.gz"
    file.write_bytes(gzip.compress(bytes(limits.HEADER_BYTES + 10), 1))
    assert "more than 100,000,000 bytes of JSON" in refusal(file, FormatError)
    whole = gzip.compress(json.dumps(MANIFEST).encode())
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        refusal(file, FormatError)


def test_a_module_and_a_table_of_tensors_are_checkpoints(tmp_path: Path) -> None:
    module = torch.nn.Linear(3, 2)
    checkpoint = open_source(module, purpose="weights")
    assert (checkpoint.source, checkpoint.tensors["weight"]) == ("Linear", ((2, 3), "F32"))
    assert checkpoint.read is not None
    assert checkpoint.read(["weight"])["weight"].data_ptr() == module.weight.data_ptr()
    assert open_source(module.state_dict(), purpose="weights").tensors == checkpoint.tensors
    assert "meta device" in _read_refusal(torch.nn.Linear(3, 2, device="meta"))
    with pytest.raises(TypeError, match="not int"):
        open_source(3, purpose="headers")  # type: ignore[arg-type]


def _read_refusal(module: torch.nn.Module) -> str:
    checkpoint = open_source(module, purpose="weights")
    assert checkpoint.read is not None
    with pytest.raises(SourceError) as caught:
        checkpoint.read(checkpoint.tensors)
    return str(caught.value)


def test_a_path_that_is_not_there_is_no_hub_id(tmp_path: Path) -> None:
    for source in (
        tmp_path / "x",
        str(tmp_path / "x"),
        "./x",
        "weights/model.safetensors",
        "model.bin",
        Path("org/name"),
    ):
        assert "no such file or directory; check the path" in refusal(source, SourceError)


def test_a_name_with_control_characters_is_shown_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "a\nb\x1b[31m.safetensors").write_bytes(b"x")
    assert refusal(tmp_path / "a\nb\x1b[31m.safetensors").startswith("a\\nb\\x1b[31m.safetensors: 1 bytes")
    checkpoint = open_source({**MANIFEST, "repo": "a\nb", "evidence": "\x1b[31m"}, purpose="headers")
    assert checkpoint.source == "a\\nb" and checkpoint.notes == ["a manifest without weights: \\x1b[31m"]
    (tmp_path / "c\nd").mkdir()
    assert refusal(tmp_path / "c\nd").startswith("c\\nd: no weights")
