"""Settings of other libraries beside the weights or in one file with them: which are read, and which are refused."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError, MapperError, RuleError
from mapper.rulebook import shelf
from mapper.rulebook.rulebook import shipped_folder
from mapper.rulebook.settings import FOLDER, read_settings
from mapper.rulebook.shelf import found
from mapper.rulebook.strict import load_yaml, parse_yaml
from mapper.sources import open_source
from mapper.sources.settings import every_settings

META = {"dim": 8, "n_layers": 1, "n_heads": 2, "norm_eps": 1e-5}


def opened(folder: Path, **files: str) -> Checkpoint:
    folder.mkdir(exist_ok=True)
    save_file({"norm.weight": torch.ones(8)}, folder / "model.safetensors")
    for name, text in files.items():
        (folder / name).write_text(text)
    return open_source(folder, purpose="headers")


def test_a_file_of_a_library_is_the_config_and_a_note_says_so(tmp_path: Path) -> None:
    found = opened(tmp_path, **{"params.json": json.dumps(META)})
    assert found.config == META
    assert "the settings are those in params.json" in found.notes


def test_the_same_beside_a_single_file(tmp_path: Path) -> None:
    opened(tmp_path, **{"params.json": json.dumps(META)})
    assert open_source(tmp_path / "model.safetensors", purpose="headers").config == META


def test_a_config_json_comes_first(tmp_path: Path) -> None:
    files = {"params.json": json.dumps(META), "config.json": '{"model_type": "tale"}'}
    found = opened(tmp_path, **files)
    assert found.config == {"model_type": "tale"} and found.notes == []


def test_another_file_of_the_same_name_is_none(tmp_path: Path) -> None:
    assert opened(tmp_path, **{"params.json": '{"lr": 0.1, "dim": 8}'}).config is None


def test_yaml_is_read_and_what_json_has_not_is_left_out(tmp_path: Path) -> None:
    text = "n_layer: 1\nn_embd: 8\nnorm_class_name: RMSNorm\nmlp_class_name: LLaMAMLP\nday: 2024-01-02\nbig: .inf\n"
    found = opened(tmp_path, **{"model_config.yaml": text})
    assert found.config == {
        "n_layer": 1,
        "n_embd": 8,
        "norm_class_name": "RMSNorm",
        "mlp_class_name": "LLaMAMLP",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &x [1]\nb: [*x, *x]\n", "an anchor or an alias"),
        ("a: [1", "not YAML"),
        ("- 1\n", "no table of settings"),
        ("a: !!python/object/apply:os.system [x]\n", "not YAML"),
        ("[" * 5000, "not YAML"),
    ],
)
def test_yaml_that_is_more_than_plain_values_is_refused(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=why) as caught:
        opened(tmp_path, **{"model_config.yaml": text})
    assert "\n" not in str(caught.value)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_text(json.dumps(META))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "params.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(MapperError, match="follow"):
        opened(folder)


@pytest.mark.parametrize(
    ("saved", "config"),
    [
        ({"dims": {"n_mels": 8, "n_audio_head": 2, "n_text_head": 2}}, {"n_mels": 8, "n_audio_head": 2, "n_text_head": 2}),
        ({"dims": {"width": 8}}, None),
        ({"model_args": {"n_layer": 2, "seed": torch.ones(1)}}, {"n_layer": 2}),
        ({"model_args": {"nested": {"heads": [1, 2]}}}, {"nested": {"heads": [1, 2]}}),
        ({"model_args": {}}, None),
    ],
)  # fmt: skip
def test_tables_beside_a_state_dict(saved: dict[str, Any], config: Any, tmp_path: Path) -> None:
    torch.save({"model": {"norm.weight": torch.ones(8)}, **saved}, tmp_path / "ckpt.pt")
    found = open_source(tmp_path / "ckpt.pt", purpose="headers")
    assert found.config == config


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("settings: a\nfiles: [a.json]\n", "known by fields"),
        ("settings: a\nfields: [b]\n", "say files beside the weights"),
        ("settings: a\ntables: [b]\ntale: 1\n", "unknown field 'tale'"),
    ],
)
def test_what_no_settings_file_may_say_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(RuleError, match=why):
        read_settings(parse_yaml(text, "settings.yaml"))


class Settings:
    """A class of training code, whose objects are never made of what was pickled."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)


@pytest.mark.parametrize(
    ("saved", "config"),
    [
        ({"hyper_parameters": {"num_heads": 4, "lr": 0.1, "size": (8, 8)}}, {"num_heads": 4, "size": [8, 8]}),
        ({"hyper_parameters": {"lr": 0.1, "model": {"num_heads": 4}}}, {"num_heads": 4}),
        ({"args": argparse.Namespace(num_heads=4, lr=0.1, seen={1, 2})}, {"num_heads": 4}),
        ({"config": Settings(n_head=2, inner=Settings(width=3))}, {"n_head": 2, "inner": {"width": 3}}),
        ({"model_args": {"n_head": 2}, "config": {"n_head": 3}}, {"n_head": 2}),
        ({"hparams": '{"n_head": 2}'}, {"n_head": 2}),
        ({"cfg": Settings(_content={"n_head": Settings(_val=2), "n_embd": Settings(_val="${n_head}")}, _parent=None)}, {"n_head": 2}),
    ],
)  # fmt: skip
def test_settings_of_training_code_are_read_as_data(
    saved: dict[str, Any], config: Any, tmp_path: Path
) -> None:
    torch.save(
        {"state_dict": {"model.norm.weight": torch.ones(8)}, "epoch": 3, **saved}, tmp_path / "last.ckpt"
    )
    found = open_source(tmp_path / "last.ckpt", purpose="headers")
    assert found.config == config
    assert any("the settings are those under" in note for note in found.notes)


def test_settings_may_stand_beside_tensors_without_a_table_of_their_own(tmp_path: Path) -> None:
    torch.save({"norm.weight": torch.ones(8), "config": {"n_head": 2}}, tmp_path / "x.pt")
    found = open_source(tmp_path / "x.pt", purpose="headers")
    assert (found.config, list(found.tensors)) == ({"n_head": 2}, ["norm.weight"])


def test_a_recipe_is_read_by_its_model(tmp_path: Path) -> None:
    text = "model:\n  _component_: torchtune.models.llama3.llama3\n  num_heads: 2\noptimizer: {lr: 1.0}\n"
    said = {"_component_": "torchtune.models.llama3.llama3", "num_heads": 2}
    assert opened(tmp_path, **{"torchtune_config.yaml": text}).config == said


def test_what_the_metadata_tells_of_an_adapter_is_a_note(tmp_path: Path) -> None:
    said = {"ss_network_dim": "4", "ss_base_model_version": "sd_v1", "ss_learning_rate": "0.1"}
    save_file({"lora_unet_x.lora_down.weight": torch.ones(4, 8)}, tmp_path / "x.safetensors", metadata=said)
    notes = open_source(tmp_path / "x.safetensors", purpose="headers").notes
    assert notes == ["its metadata says: made for sd_v1 (ss_base_model_version), rank 4 (ss_network_dim)"]


def test_one_table_in_many_places_is_no_endless_one(tmp_path: Path) -> None:
    table: Any = {"n": 1}
    for _ in range(30):
        table = {"a": table, "b": table}
    torch.save(
        {"model": {"norm.weight": torch.ones(8)}, "config": {"n_head": 2, "deep": table}}, tmp_path / "x.pt"
    )
    found = open_source(tmp_path / "x.pt", purpose="headers").config
    assert found is not None and found["n_head"] == 2


def test_the_metadata_of_a_safetensors_file_may_hold_them(tmp_path: Path) -> None:
    text = {"config": json.dumps({"n_head": 2}), "format": "pt"}
    save_file({"norm.weight": torch.ones(8)}, tmp_path / "model.safetensors", metadata=text)
    found = open_source(tmp_path / "model.safetensors", purpose="headers")
    assert found.config == {"n_head": 2}
    save_file({"norm.weight": torch.ones(8)}, tmp_path / "other.safetensors", metadata={"config": "[1"})
    assert open_source(tmp_path / "other.safetensors", purpose="headers").config is None


def test_settings_files_are_kept_as_they_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed(*arguments: Any) -> Any:
        raise AssertionError("a file is parsed again")

    every_settings.cache_clear()
    first = every_settings()
    files = found(FOLDER, [shipped_folder()])
    read = [read_settings(load_yaml(Path(file.path), file.label)) for file in files]
    assert first == tuple(replace(one, examples=()) for one in read) and len(first) > 5
    every_settings.cache_clear()
    monkeypatch.setattr(shelf, "parse_yaml", parsed)
    assert every_settings() == first
