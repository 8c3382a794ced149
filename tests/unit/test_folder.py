from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import mapper.emission
from mapper._folder import write_folder
from mapper._trial import made_up_inputs, shapes
from mapper.architecture import Architecture
from mapper.errors import SourceError


@pytest.fixture
def stored(bert: Architecture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Architecture:
    monkeypatch.setattr(mapper.emission, "emit", lambda architecture: "# the source\n")
    tensors = {name: torch.randn(info.shape) for name, info in bert.checkpoint.tensors.items()}
    save_file(tensors, tmp_path / "anything.safetensors")
    bert.checkpoint.read = lambda names: {name: tensors[name] for name in names}
    bert.checkpoint.weights = [str(tmp_path / "anything.safetensors")]
    return bert


def test_a_folder_holds_source_weights_architecture_and_config(stored: Architecture, tmp_path: Path) -> None:
    written = write_folder(stored, tmp_path / "out")
    assert written == ["architecture.json", "config.json", "model.py", "model.safetensors"]
    assert (tmp_path / "out" / "model.py").read_text() == "# the source\n"
    assert json.loads((tmp_path / "out" / "architecture.json").read_text())["source"] == "tiny-bert"
    before, after = (
        path.read_bytes()
        for path in (tmp_path / "anything.safetensors", tmp_path / "out" / "model.safetensors")
    )
    assert before == after


def test_shards_keep_their_names_and_get_an_index(stored: Architecture, tmp_path: Path) -> None:
    save_file({"more": torch.zeros(2)}, tmp_path / "second.safetensors")
    stored.checkpoint.weights.append(str(tmp_path / "second.safetensors"))
    write_folder(stored, tmp_path / "out")
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["weight_map"]["more"] == "second.safetensors"
    assert index["weight_map"]["embeddings.word_embeddings.weight"] == "anything.safetensors"


def test_cast_weights_are_saved_anew(stored: Architecture, tmp_path: Path) -> None:
    write_folder(stored, tmp_path / "out", torch.bfloat16)
    assert {tensor.dtype for tensor in load_file(tmp_path / "out" / "model.safetensors").values()} == {
        torch.bfloat16
    }


def test_tensors_of_other_containers_are_saved_apart(stored: Architecture, tmp_path: Path) -> None:
    whole = torch.randn(10, 10)
    tensors = {"a": whole, "tied": whole, "turned": whole.T, "part": whole[:2]}
    stored.checkpoint.container, stored.checkpoint.tensors = "torch", dict.fromkeys(tensors)  # type: ignore[arg-type]
    stored.checkpoint.read = lambda names: tensors
    stored.leaves.clear()
    stored.checkpoint.tensors = {}
    write_folder(stored, tmp_path / "out")
    saved = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(saved[name], tensor) for name, tensor in tensors.items())


def test_without_weights_nothing_is_written(stored: Architecture, tmp_path: Path) -> None:
    stored.checkpoint.container, stored.checkpoint.read = "manifest", None
    with pytest.raises(SourceError, match="no weights"):
        write_folder(stored, tmp_path / "out")
    assert not (tmp_path / "out").exists()


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
