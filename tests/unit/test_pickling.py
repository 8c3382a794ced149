"""A built model through pickle: into another process, and back with everything it had."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mapper
from mapper import _compiling
from mapper.errors import FormatError
from tests.checkpoints import write_bert

IDS = torch.arange(14).reshape(2, 7)


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return write_bert(tmp_path / "bert")


def elsewhere(data: bytes, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What another process reads: none of the modules of this one."""
    for name in [name for name in sys.modules if name.startswith("mapper_generated_")]:
        monkeypatch.delitem(sys.modules, name)
    return pickle.loads(data)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_model_comes_back_elsewhere(protocol: int, bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = mapper.build(bert, hidden_states=True).train()
    model.pooler.dense.weight.requires_grad_(False)
    model.register_buffer("mine", torch.ones(2))
    model.note = {"step": 3}  # type: ignore[assignment]
    made = elsewhere(pickle.dumps(model, protocol), monkeypatch)
    assert type(made) is not type(model)
    assert made.training and not made.pooler.dense.weight.requires_grad and made.note == {"step": 3}
    assert list(made.state_dict()) == list(model.state_dict())
    for got, had in zip(made.eval()(IDS).hidden_states, model.eval()(IDS).hidden_states, strict=True):
        assert torch.equal(got, had)


@pytest.mark.parametrize("part", ["a layer", "a loaded model", "an output", "tied"])
def test_parts_outputs_and_what_was_loaded_come_back_too(
    part: str, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = mapper.build(bert, out=tmp_path / "saved")
    if part == "a layer":
        x, layer = torch.ones(1, 3, 8), model.encoder.layer[1]
        made = elsewhere(pickle.dumps(layer), monkeypatch)
        assert torch.equal(made(x, None), layer(x, None))
    elif part == "a loaded model":
        made = elsewhere(pickle.dumps(mapper.load(tmp_path / "saved").model), monkeypatch)
        assert torch.equal(made(IDS).pooler_output, model(IDS).pooler_output)
    elif part == "an output":
        made = elsewhere(pickle.dumps(model(IDS)), monkeypatch)
        assert torch.equal(made.last_hidden_state, model(IDS).last_hidden_state)
    else:
        model.encoder.layer[1].output = model.encoder.layer[0].output
        made = elsewhere(pickle.dumps(model), monkeypatch)
        assert made.encoder.layer[1].output is made.encoder.layer[0].output


def test_a_model_that_came_back_is_saved_with_its_architecture(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = mapper.build(bert)
    mapper.save(tmp_path / "out", elsewhere(pickle.dumps(model), monkeypatch))
    assert torch.equal(mapper.load(tmp_path / "out").model(IDS).pooler_output, model(IDS).pooler_output)


def test_the_source_is_in_a_pickle_once(bert: Path) -> None:
    data = pickle.dumps(mapper.build(bert))
    assert data.count(b"class Model(nn.Module)") == 1


def test_copies_are_of_the_same_class(bert: Path) -> None:
    first, second = mapper.build(bert), mapper.build(bert)  # two modules from one text
    for model in (first, second):
        for made in (copy.deepcopy(model), copy.copy(model), copy.deepcopy([model])[0]):
            assert type(made) is type(model)
            assert torch.equal(made(IDS).pooler_output, model(IDS).pooler_output)
        twin = copy.deepcopy(model)
        assert twin.pooler.dense.weight is not model.pooler.dense.weight
        assert type(twin.encoder.layer[0]) is type(model.encoder.layer[0])


def test_a_subclass_is_pickled_as_its_author_says(bert: Path) -> None:
    model = mapper.build(bert)
    mine = type("Mine", (type(model),), {"__module__": "nowhere"})
    model.__class__ = mine
    with pytest.raises(pickle.PicklingError, match="Mine"):
        pickle.dumps(model)
    assert type(copy.deepcopy(model)) is mine


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.getcwd()\n",
        "raise SystemExit\n",
        "class Model:\n    x = open('/etc/hostname')\n",
        "not python(",
    ],
)
def test_a_text_that_is_no_generated_source_is_not_compiled(text: str) -> None:
    with pytest.raises(FormatError, match="no source of mapper's"):
        _compiling.compiled(text, "bert", "Model")


def test_a_class_that_the_source_does_not_have_is_named(bert: Path) -> None:
    text = mapper.generate(bert)
    for name in ("Other", "nn", "load"):
        with pytest.raises(FormatError, match=name):
            _compiling.compiled(text, "bert", name)


WORKER = """
import sys, multiprocessing, torch
import mapper

def run(model, ids):
    with torch.inference_mode():
        return model(ids), sorted(name for name in sys.modules if name.startswith("mapper_generated_"))

if __name__ == "__main__":
    torch.set_num_threads(1)
    model, ids = mapper.build(sys.argv[1]), torch.arange(14).reshape(2, 7)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        output, modules = pool.apply(run, (model, ids))
    assert type(output) is type(model(ids)) and len(modules) == 1
    assert torch.equal(output.last_hidden_state, model(ids).last_hidden_state)
"""


def test_spawned_workers_have_it(bert: Path, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    command = [sys.executable, str(tmp_path / "worker.py"), str(bert)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_files_of_torch_have_it(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = mapper.build(bert)
    torch.save(model, tmp_path / "model.pt")
    elsewhere(pickle.dumps(None), monkeypatch)
    made = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(made(IDS).pooler_output, model(IDS).pooler_output)


def test_torch_refuses_the_model_where_it_reads_weights_alone(bert: Path) -> None:
    file = io.BytesIO()
    torch.save(mapper.build(bert), file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="mapper"):
        torch.load(file, weights_only=True)
    assert isinstance(mapper.build(bert), nn.Module)
