"""What `convert` and `build --out` keep beside the weights: the tokenizer and the like, and the type in the config."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import mapper
from mapper import limits
from mapper.cli import main
from tests.checkpoints import BERT, write_bert
from tests.hub import Hub

Captured = pytest.CaptureFixture[str]
REPO = "owner/tiny"
FILES = {
    "tokenizer.json": b'{"version": "1.0"}',
    "tokenizer_config.json": b"{}",
    "vocab.txt": b"[PAD]\r\n\xff\x00",  # bytes, whatever they are
    "merges.txt": b"#version\n",
    "spiece.model": bytes(range(256)),
    "chat_template.jinja": b"{{ bos_token }}",
    "preprocessor_config.json": b"{ not json",
    "generation_config.json": b"{}",
    "modules.json": b"[]",
    "1_Pooling/config.json": b'{"pooling_mode_mean_tokens": true}',
    "2_Dense/config.json": b"{}",
    "2_Dense/model.safetensors": b"weights of the last step",
}
OTHERS = {  # of the folder, and not of the list
    "README.md": b"#",
    "tokenization_own.py": b"raise SystemExit",
    "training_args.bin": b"",
    "vocab.txt.orig": b"",
    "3_Pooling/notes.txt": b"",
    "1_Other/config.json": b"{}",
    ".env": b"SECRET=1",
    "id_rsa": b"",
}


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    folder = write_bert(tmp_path / "bert")
    for name, data in {**FILES, **OTHERS}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def carried(folder: Path) -> dict[str, bytes]:
    """All but the model itself."""
    own = {"config.json", "mapper.json", "model.py", "model.safetensors"}
    return {name: data for name, data in contents(folder).items() if name not in own}


def run(capsys: Captured, *arguments: object, code: int = 0) -> str:
    assert main([str(argument) for argument in arguments]) == code
    out, err = capsys.readouterr()
    assert bool(err) == bool(code)
    return out + err


@pytest.mark.parametrize("command", ["convert", "build"])
def test_files_of_the_list_come_along_as_bytes_and_are_named(
    command: str, bert: Path, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "out"
    told = run(capsys, *(["convert", bert, out] if command == "convert" else ["build", bert, "--out", out]))
    assert carried(out) == FILES
    (line,) = [line for line in told.splitlines() if line.startswith("carried along: ")]
    assert sorted(line.removeprefix("carried along: ").split(", ")) == sorted(FILES)


def test_they_come_along_again_from_what_was_written(bert: Path, tmp_path: Path) -> None:
    mapper.build(bert, out=tmp_path / "a")
    assert sorted(mapper.convert(tmp_path / "a", tmp_path / "b").carried) == sorted(FILES)
    mapper.build(tmp_path / "b", out=tmp_path / "c")
    mapper.save(tmp_path / "c", mapper.load(tmp_path / "c").model)  # leaves them there
    assert carried(tmp_path / "b") == carried(tmp_path / "c") == FILES
    mapper.build(bert, out=tmp_path / "c", overwrite=True)
    assert carried(tmp_path / "c") == FILES


def test_one_file_takes_those_of_its_folder_where_that_is_a_models(bert: Path, tmp_path: Path) -> None:
    assert sorted(mapper.convert(bert / "model.safetensors", tmp_path / "a").carried) == sorted(FILES)
    (bert / "config.json").unlink()
    assert mapper.convert(bert / "model.safetensors", tmp_path / "b").carried == []
    assert mapper.convert(bert, tmp_path / "one.safetensors").carried == []
    assert os.listdir(tmp_path / "b") == ["model.safetensors"]


def test_a_package_has_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bert: Path) -> None:
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("")
    bert.rename(tmp_path / "own_package" / "model")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert sorted(mapper.convert("package:own_package", tmp_path / "out").carried) == sorted(FILES)


def test_what_stands_there_and_is_not_mappers_stays(bert: Path, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "vocab.txt").write_bytes(b"mine")
    (out / "merges.txt").write_bytes(FILES["merges.txt"])
    told = run(capsys, "convert", bert, out, "--overwrite")
    assert f"vocab.txt of {out} stays as it was" in told and f"merges.txt of {out}" not in told
    assert carried(out) == {**FILES, "vocab.txt": b"mine"}
    (out / "tokenizer.json").write_bytes(b"edited")
    told = run(capsys, "build", bert, "--out", out, "--overwrite")
    assert f"tokenizer.json of {out} stays as it was" in told
    assert carried(out) == {**FILES, "vocab.txt": b"mine", "tokenizer.json": b"edited"}


def test_links_out_of_the_folder_pipes_and_what_is_too_large_stay_behind(
    bert: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("secret")
    for name in ("vocab.txt", "merges.txt", "1_Pooling/config.json", "spiece.model"):
        (bert / name).unlink()
    (bert / "vocab.txt").symlink_to("../secret")
    (bert / "1_Pooling").rmdir()
    (bert / "1_Pooling").symlink_to("..")  # no config.json in it
    (bert / "3_Normalize").symlink_to(tmp_path)
    (tmp_path / "config.json").write_text("secret")
    os.mkfifo(bert / "merges.txt")
    (bert / "spiece.model").symlink_to("tokenizer.json")  # within it
    monkeypatch.setattr(limits, "COMPANION_BYTES", 20)
    told = run(capsys, "convert", bert, tmp_path / "out")
    for name, why in (
        ("vocab.txt", "link out of its directory"),
        ("3_Normalize/config.json", "link out of its directory"),
        ("merges.txt", "not a regular file"),
        ("2_Dense/model.safetensors", "at most 20 bytes"),
    ):
        assert f"{name} stays behind" in told and why in told
        assert not (tmp_path / "out" / name).exists()
    assert b"secret" not in contents(tmp_path / "out").values()
    assert (tmp_path / "out" / "spiece.model").read_bytes() == FILES["tokenizer.json"]


def test_how_to_follow_a_link_is_said_as_a_command_or_in_python_writes_it(
    bert: Path, tmp_path: Path, capsys: Captured
) -> None:
    (bert / "vocab.txt").rename(tmp_path / "vocab.txt")
    (bert / "vocab.txt").symlink_to("../vocab.txt")
    told = run(capsys, "convert", bert, tmp_path / "out")
    assert "--follow-links" in told and "follow_links" not in told
    with pytest.warns(UserWarning, match="vocab.txt stays behind: .* say follow_links=True"):
        mapper.build(bert, out=tmp_path / "built")
    told = run(capsys, "convert", bert, tmp_path / "followed", "--follow-links")
    assert "stays behind" not in told and (tmp_path / "followed" / "vocab.txt").is_file()


# ------------------------------------------------------------------------------------------------------- the hub
@pytest.fixture
def hub(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import close_session, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    close_session()
    with Hub({REPO: contents(bert)}) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.address)
        yield running


def test_they_are_fetched_from_the_hub_by_these_commands_alone(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    mapper.build(REPO)  # no tokenizer
    assert hub.sent("tokenizer.json") == hub.sent("1_Pooling/config.json") == 0
    monkeypatch.setattr(limits, "COMPANION_BYTES", 100)
    told = run(capsys, "convert", REPO, tmp_path / "out")
    assert carried(tmp_path / "out") == {name: data for name, data in FILES.items() if name != "spiece.model"}
    assert "spiece.model stays behind: it has 256 bytes" in told
    assert hub.sent("README.md") == hub.sent("tokenization_own.py") == hub.sent("spiece.model") == 0
    with pytest.warns(UserWarning, match="spiece.model stays behind"):
        mapper.build(REPO, out=tmp_path / "built")
    assert carried(tmp_path / "built") == carried(tmp_path / "out")


def test_without_the_hub_they_are_taken_from_the_cache_and_that_is_said(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    mapper.build(REPO)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    told = run(capsys, "build", REPO, "--out", tmp_path / "out")
    assert "taken from the cache alone: the hub is not asked" in told
    assert carried(tmp_path / "out") == {}


# ------------------------------------------------------------------------------------------------------- the type
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"dtype": "float32"}, {"dtype": "float16"}),
        ({"torch_dtype": "bfloat16"}, {"torch_dtype": "float16"}),
        ({"dtype": "torch.float32", "torch_dtype": "float32"}, {"dtype": "float16", "torch_dtype": "float16"}),
        ({"dtype": None}, {"dtype": None}),
        ({"dtype": "auto"}, {"dtype": "auto"}),
        ({}, {}),
        (
            {"dtype": "float32", "parts": [{"inner": {"dtype": "float32", "size": 3}}], "text": {"torch_dtype": "float32"}},
            {"dtype": "float16", "parts": [{"inner": {"dtype": "float16", "size": 3}}], "text": {"torch_dtype": "float16"}},
        ),
        (
            {"dtype": "float32", "quantization_config": {"dtype": "bfloat16"}},
            {"dtype": "float16", "quantization_config": {"dtype": "bfloat16"}},
        ),
    ],
)  # fmt: skip
def test_the_config_names_the_type_that_weights_were_cast_to(
    before: dict[str, object], after: dict[str, object], tmp_path: Path
) -> None:
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"a": 1, **before}))
    mapper.convert(tmp_path, tmp_path / "out", dtype="float16")
    mapper.convert(tmp_path, tmp_path / "plain")
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == {"a": 1, **after}
    assert json.loads((tmp_path / "plain" / "config.json").read_text()) == {"a": 1, **before}


@pytest.mark.parametrize("dtype", ["bfloat16", torch.bfloat16])
def test_a_build_says_it_too(dtype: str | torch.dtype, tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    (folder / "config.json").write_text(json.dumps({**BERT, "dtype": "float32"}))
    mapper.build(folder, dtype, out=tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"
    assert load_file(tmp_path / "out" / "model.safetensors")["pooler.dense.bias"].dtype == torch.bfloat16
    assert mapper.inspect(tmp_path / "out").architecture.reading == "exact"
