"""`build` with `out`: the format of `mapper.save`, which every command reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import mapper
from mapper._trial import made_up_inputs, shapes
from mapper.architecture import Architecture
from mapper.errors import MapperError, SourceError
from tests.checkpoints import BERT, write_bert, write_manifest

WRITTEN = ["config.json", "mapper.json", "model.py", "model.safetensors"]
IDS = torch.arange(14).reshape(2, 7)


@pytest.fixture
def bert_folder(tmp_path: Path) -> Path:
    return write_bert(tmp_path / "bert")


def test_a_folder_holds_the_source_the_weights_the_document_and_the_whole_config(
    bert_folder: Path, tmp_path: Path
) -> None:
    config = {**BERT, "id2label": {"0": "no", "1": "yes"}}
    (bert_folder / "config.json").write_text(json.dumps(config))
    model = mapper.build(bert_folder, out=tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out")) == WRITTEN
    assert (tmp_path / "out" / "model.py").read_text() == mapper.generate(bert_folder)
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == config
    saved = load_file(tmp_path / "out" / "model.safetensors")
    assert saved.keys() == model.state_dict().keys()
    assert all(torch.equal(saved[name], tensor) for name, tensor in model.state_dict().items())


def test_every_way_back_gives_the_same_model(bert_folder: Path, tmp_path: Path) -> None:
    expected = mapper.build(bert_folder, out=tmp_path / "out")(IDS).last_hidden_state
    assert torch.equal(mapper.load(tmp_path / "out").model(IDS).last_hidden_state, expected)
    assert torch.equal(mapper.build(tmp_path / "out")(IDS).last_hidden_state, expected)
    code = "import sys, torch; from model import load; print(load('.')(torch.arange(14).reshape(2, 7)).last_hidden_state.sum().item()); assert 'mapper' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "out", capture_output=True, text=True, check=True
    )
    assert float(done.stdout) == pytest.approx(expected.sum().item(), abs=1e-5)


def test_what_was_written_is_read_as_what_it_was_written_from(bert_folder: Path, tmp_path: Path) -> None:
    mapper.build(bert_folder, out=tmp_path / "copy")
    before, after = (
        json.loads(mapper.inspect(folder).to_json()) for folder in (bert_folder, tmp_path / "copy")
    )
    assert after | {"source": ""} == before | {"source": ""}


def test_one_file_without_a_config_is_read_by_what_its_document_says(
    bert_folder: Path, tmp_path: Path
) -> None:
    mapper.build(bert_folder, out=tmp_path / "one.safetensors")
    report = json.loads(mapper.inspect(tmp_path / "one.safetensors").to_json())
    assert report["reading"] == "exact"
    heads = [fact for fact in report["facts"] if fact["name"] == "attention.heads"]
    assert heads[0]["evidence"] == "config"
    model = mapper.build(tmp_path / "one.safetensors")
    assert torch.equal(model(IDS).last_hidden_state, mapper.build(bert_folder)(IDS).last_hidden_state)


def test_what_was_saved_is_inspected_without_torch(bert_folder: Path, tmp_path: Path) -> None:
    mapper.build(bert_folder, out=tmp_path / "one.safetensors")
    code = (
        "import sys, mapper; print(mapper.inspect(sys.argv[1]).to_json()); assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "one.safetensors")], capture_output=True, check=True
    )
    assert json.loads(done.stdout)["reading"] == "exact"


def test_hints_and_options_are_kept(bert_folder: Path, tmp_path: Path) -> None:
    (bert_folder / "config.json").unlink()
    hints = {
        "attention.heads": 4,
        "attention.similarity": "dot_product",
        "position.counting": "all",
        "feed_forward.activation": "gelu",
    }
    expected = mapper.build(bert_folder, hints=hints, hidden_states=True, out=tmp_path / "out")(IDS)
    found = mapper.load(tmp_path / "out").model(IDS)
    assert torch.equal(found.last_hidden_state, expected.last_hidden_state)
    assert len(found.hidden_states) == 3
    report = json.loads(mapper.inspect(tmp_path / "out").to_json())
    assert {fact["value"] for fact in report["facts"] if fact["name"] == "attention.heads"} == {4}


def test_a_tied_weight_that_the_checkpoint_has_twice_is_stored_once_and_read_under_both_names(
    tmp_path: Path,
) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=40)
    reference = GPT2LMHeadModel(config)
    folder = tmp_path / "gpt2"
    folder.mkdir()
    save_file(
        {name: tensor.clone() for name, tensor in reference.state_dict().items()},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    model = mapper.build(folder, out=tmp_path / "out")
    assert model.lm_head.weight is model.transformer.wte.weight
    assert "lm_head.weight" not in load_file(tmp_path / "out" / "model.safetensors")
    for again in (mapper.load(tmp_path / "out").model, mapper.build(tmp_path / "out")):
        assert again.lm_head.weight is again.transformer.wte.weight
        assert again.state_dict().keys() == model.state_dict().keys()
        assert torch.equal(again(IDS).logits, model(IDS).logits)


def test_cast_weights_are_saved_as_they_are(bert_folder: Path, tmp_path: Path) -> None:
    mapper.build(bert_folder, dtype=torch.bfloat16, out=tmp_path / "out")
    saved = load_file(tmp_path / "out" / "model.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {torch.bfloat16}
    assert {tensor.dtype for tensor in mapper.load(tmp_path / "out").model.parameters()} == {torch.bfloat16}


def test_without_weights_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="without weights"):
        mapper.build(write_manifest(tmp_path / "bert.json"), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_of_mappers_is_replaced_when_asked_and_one_of_somebody_elses_is_not(
    bert_folder: Path, tmp_path: Path
) -> None:
    for overwrite in (False, True):
        mapper.build(bert_folder, out=tmp_path / "out", overwrite=overwrite)
    before = (bert_folder / "model.safetensors").read_bytes()
    for overwrite in (False, True):
        with pytest.raises(MapperError, match="already exists"):
            mapper.build(bert_folder, out=bert_folder, overwrite=overwrite)
    assert sorted(os.listdir(bert_folder)) == ["config.json", "model.safetensors"]
    assert (bert_folder / "model.safetensors").read_bytes() == before


def test_made_up_inputs_are_those_that_the_model_needs(bert: Architecture) -> None:
    bert.inputs |= {
        "pixel_values": {"shape": ["batch", 3, "height", "width"], "dtype": "float32", "optional": False},
        "attention_mask": {"shape": ["batch", "length"], "dtype": "int64", "optional": True},
    }
    inputs = made_up_inputs(bert, torch.nn.Linear(2, 2, dtype=torch.bfloat16))
    assert inputs["input_ids"].tolist() == [[2, 3, 4, 5, 6, 7, 8, 9]]
    assert inputs["pixel_values"].dtype == torch.bfloat16
    assert shapes(inputs) == ["input_ids (1, 8)", "pixel_values (1, 3, 224, 224)"]
    assert torch.equal(
        inputs["pixel_values"],
        made_up_inputs(bert, torch.nn.Linear(2, 2, dtype=torch.bfloat16))["pixel_values"],
    )


def test_the_shapes_of_an_output_are_told_by_name() -> None:
    @dataclass
    class Output:
        logits: torch.Tensor
        hidden_states: tuple[torch.Tensor, ...] | None = None

    assert shapes(Output(torch.zeros(1, 2))) == ["logits (1, 2)"]
    several = Output(torch.zeros(1, 2), (torch.zeros(3), torch.zeros(3)))
    assert shapes(several) == ["logits (1, 2)", "hidden_states: 2 of (3)"]
