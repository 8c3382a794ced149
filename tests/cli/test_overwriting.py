"""What stands where an output is to go: refused, replaced where mapper wrote it, and never lost."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import mapper
from mapper.cli import main
from mapper.errors import OverwriteError
from tests.checkpoints import write_bert

Captured = pytest.CaptureFixture[str]
EDIT = "# mine\n"


@pytest.fixture
def bert(tmp_path: Path) -> str:
    return str(write_bert(tmp_path / "bert"))


def said(capsys: Captured, code: int, *arguments: object) -> str:
    """What a command says on both streams."""
    assert main([str(argument) for argument in arguments]) == code
    out, err = capsys.readouterr()
    return out + err


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", [["generate"], ["rules", "new"]])
def test_a_text_is_replaced_when_asked_and_an_edited_one_kept(
    command: list[str], bert: str, tmp_path: Path, capsys: Captured
) -> None:
    place = tmp_path / "text"
    said(capsys, 0, *command, bert, "-o", place)
    text = place.read_text()
    refused = said(capsys, 2, *command, bert, "-o", place)
    assert refused.startswith(f"error: {place} already exists") and "--overwrite" in refused
    assert "bak" not in said(capsys, 0, *command, bert, "-o", place, "--overwrite")
    for number, name in enumerate(("text.bak", "text.bak2")):
        place.write_text(text + EDIT * (number + 1))
        assert f"kept as {name}" in said(capsys, 0, *command, bert, "-o", place, "--overwrite")
        assert place.read_text() == text
        assert (tmp_path / name).read_text() == text + EDIT * (number + 1)


@pytest.mark.parametrize("command", [["generate"], ["rules", "new"]])
def test_what_cannot_be_replaced_is_said_before_anything_is_read(
    command: list[str], tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text(EDIT)
    for options in ([], ["--overwrite"]):
        assert "is a folder; name a file in it" in said(
            capsys, 2, *command, "nothing", "-o", tmp_path / "folder", *options
        )
    assert "already exists" in said(capsys, 2, *command, "nothing", "-o", tmp_path / "text")
    assert (tmp_path / "text").read_text() == EDIT


def test_source_of_another_model_is_mappers_to_replace_and_a_link_is_followed(
    bert: str, tmp_path: Path, capsys: Captured
) -> None:
    other = mapper.generate(bert, hidden_states=True)
    (tmp_path / "real.py").write_text(other)
    (tmp_path / "link.py").symlink_to("real.py")
    assert "kept as" not in said(capsys, 0, "generate", bert, "-o", tmp_path / "link.py", "--overwrite")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bert", "link.py", "real.py"]
    assert (tmp_path / "real.py").read_text() == mapper.generate(bert) != other
    assert (tmp_path / "link.py").is_symlink()


@pytest.mark.parametrize("edited", ["nothing", "model.py", "foreign model.py"])
def test_a_build_is_replaced_when_asked_and_an_edited_source_kept(
    edited: str, bert: str, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "out"
    said(capsys, 0, "build", bert, "--out", out)
    source = (out / "model.py").read_text()
    (out / "notes.txt").write_text("mine")
    text = {"nothing": source, "model.py": source + EDIT, "foreign model.py": EDIT}[edited]
    (out / "model.py").write_text(text)
    before = contents(out)
    refused = said(capsys, 2, "build", bert, "--out", out)
    assert refused.startswith(f"error: {out} already exists") and "--overwrite" in refused
    assert ("model.py" in refused) == (edited != "nothing")
    assert contents(out) == before
    told = said(capsys, 0, "build", bert, "--out", out, "--overwrite")
    kept = {} if edited == "nothing" else {"model.py.bak": text.encode()}
    assert contents(out) == {**before, "model.py": source.encode(), **kept}
    assert ("kept as model.py.bak" in told) == bool(kept)


@pytest.mark.parametrize("by", ["build", "convert"])
@pytest.mark.parametrize("changed", ["config.json", "model.safetensors", "index"])
def test_a_folder_in_which_somebody_else_wrote_what_would_change_is_left_alone(
    by: str, changed: str, bert: str, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "out"
    said(capsys, 0, "build", bert, "--out", out)
    if changed == "config.json":
        (out / changed).write_text((out / changed).read_text().replace("gelu", "relu"))
    elif changed == "model.safetensors":  # fine-tuned, and saved by another library
        save_file({name: tensor + 1 for name, tensor in load_file(out / changed).items()}, out / changed)
    else:
        changed = "model.safetensors.index.json"
        (out / changed).write_text("{}")
    before = contents(out)
    arguments = ["build", bert, "--out", out] if by == "build" else ["convert", bert, out]
    refused = said(capsys, 2, *arguments, "--overwrite")
    assert f"did not write '{changed}'" in refused and refused.count("\n") == 1
    assert contents(out) == before


def test_what_others_have_beside_stays_below_too(bert: str, tmp_path: Path, capsys: Captured) -> None:
    steps = Path(bert, "1_Pooling")
    steps.mkdir()
    (steps / "config.json").write_text("{}")
    out = tmp_path / "out"
    said(capsys, 0, "build", bert, "--out", out)
    (out / "1_Pooling" / "notes.txt").write_text("mine")
    (steps / "config.json").write_text('{"new": 1}')
    said(capsys, 0, "build", bert, "--out", out, "--overwrite")
    assert (out / "1_Pooling" / "notes.txt").read_text() == "mine"
    assert (out / "1_Pooling" / "config.json").read_text() == '{"new": 1}'
    (steps / "config.json").unlink()
    said(capsys, 0, "build", bert, "--out", out, "--overwrite")
    assert os.listdir(out / "1_Pooling") == ["notes.txt"]


def test_one_file_is_refused_and_replaced_when_asked(bert: str, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "out.safetensors"
    out.write_text("mine")
    assert "already exists" in said(capsys, 2, "build", bert, "--out", out)
    assert out.read_text() == "mine"
    said(capsys, 0, "build", bert, "--out", out, "--overwrite")
    assert load_file(out).keys() == load_file(Path(bert, "model.safetensors")).keys()


def test_a_link_to_a_folder_leads_to_what_is_replaced(bert: str, tmp_path: Path, capsys: Captured) -> None:
    said(capsys, 0, "build", bert, "--out", tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    assert "already exists" in said(capsys, 2, "build", bert, "--out", tmp_path / "link")
    said(capsys, 0, "build", bert, "--out", tmp_path / "link", "--overwrite", "--dtype", "float16")
    assert load_file(tmp_path / "real" / "model.safetensors")["pooler.dense.bias"].dtype == torch.float16
    (tmp_path / "real" / "config.json").unlink()
    (tmp_path / "real" / "config.json").symlink_to("../mine.json")  # mapper writes no links
    refused = said(capsys, 2, "build", bert, "--out", tmp_path / "link", "--overwrite")
    assert "did not write 'config.json'" in refused


def test_the_same_in_python(bert: str, tmp_path: Path) -> None:
    mapper.build(bert, out=tmp_path / "out")
    with pytest.raises(OverwriteError, match="overwrite=True"):
        mapper.build(bert, out=tmp_path / "out")
    (tmp_path / "out" / "model.py").write_text(EDIT)
    with pytest.warns(UserWarning, match=r"kept as model\.py\.bak"):
        mapper.build(bert, out=tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "model.py.bak").read_text() == EDIT


def test_a_save_replaces_the_one_before_and_keeps_an_edited_source(bert: str, tmp_path: Path) -> None:
    model = mapper.build(bert, out=tmp_path / "out")
    mapper.save(tmp_path / "out", model)  # says nothing
    (tmp_path / "out" / "model.py").write_text(EDIT)
    with pytest.warns(UserWarning, match=r"kept as model\.py\.bak"):
        mapper.save(tmp_path / "out", model)
    assert (tmp_path / "out" / "model.py.bak").read_text() == EDIT
    assert mapper.load(tmp_path / "out").model.state_dict().keys() == model.state_dict().keys()


def test_a_conversion_is_replaced_by_the_next_and_a_build_by_a_conversion(
    bert: str, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "out"
    said(capsys, 0, "build", bert, "--out", out)
    for size in ("2kB", "5kB", "1GB"):
        assert "already exists" in said(capsys, 2, "convert", bert, out, "--shard-size", size)
        said(capsys, 0, "convert", bert, out, "--shard-size", size, "--overwrite")
        index = out / "model.safetensors.index.json"
        files = set(json.loads(index.read_text())["weight_map"].values()) if index.exists() else set()
        named = {*files, index.name} if files else {"model.safetensors"}
        assert set(os.listdir(out)) == {"config.json", *named}
        assert mapper.inspect(out).architecture.reading == "exact"


def test_a_folder_that_has_other_things_alone_gets_the_model_beside_them_when_asked(
    bert: str, tmp_path: Path, capsys: Captured
) -> None:
    for arguments in (["build", bert, "--out"], ["convert", bert]):
        out = tmp_path / arguments[0]
        out.mkdir()
        (out / "thesis.tex").write_text("years")
        assert "already exists" in said(capsys, 2, *arguments, out)
        assert os.listdir(out) == ["thesis.tex"]
        said(capsys, 0, *arguments, out, "--overwrite")
        assert (out / "thesis.tex").read_text() == "years" and (out / "model.safetensors").exists()


def test_an_empty_folder_is_free(bert: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "out").mkdir()
    said(capsys, 0, "build", bert, "--out", tmp_path / "out")
    assert (tmp_path / "out" / "model.py").exists()
