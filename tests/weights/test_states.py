from __future__ import annotations

import io
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import mapper
from mapper.errors import FormatError, StructureError, StructureUnavailable, UnsupportedLeaf
from mapper.outputs.temporary import ASIDE, temporary


def test_states_and_aux_come_back(tmp_path: Path) -> None:
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    aux = {
        "step": 3,
        0: "zero",
        "0": ("a", [1.5]),
        "t": torch.arange(3),
        "n": np.float32(0.1),
        "o": {"m": None},
    }
    mapper.save_states(tmp_path / "a", model, aux)
    found = mapper.load_states(tmp_path / "a", other)
    assert torch.equal(found.pop("t"), torch.arange(3))
    assert found == {key: value for key, value in aux.items() if key != "t"}
    assert type(found["n"]) is np.float32 and type(found["0"]) is tuple
    assert torch.equal(other.weight, model.weight)
    assert os.listdir(tmp_path) == ["a"]


def test_without_architecture_a_model_must_be_given(tmp_path: Path) -> None:
    mapper.save_states(tmp_path / "a.safetensors", nn.Linear(3, 2))
    with pytest.raises(StructureUnavailable, match="model="):
        mapper.load(tmp_path / "a.safetensors")


def test_a_file_of_another_tool_has_no_aux(tmp_path: Path) -> None:
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    save_file(model.state_dict(), tmp_path / "a.safetensors")
    assert mapper.load_states(tmp_path / "a.safetensors", other) == {}
    assert torch.equal(other.weight, model.weight)
    with pytest.raises(StructureUnavailable):
        mapper.load(tmp_path / "a.safetensors")


def test_options_are_those_of_load_weights(tmp_path: Path) -> None:
    mapper.save_states(tmp_path / "a", nn.ModuleDict({"old": nn.Linear(3, 2)}), {"n": 1})
    model = nn.ModuleDict({"new": nn.Linear(3, 2)})
    with pytest.raises(StructureError):
        mapper.load_states(tmp_path / "a", model)
    assert mapper.load_states(tmp_path / "a", model, rename={"old": "new"}) == {"n": 1}
    assert mapper.load_states(tmp_path / "a", model, by="order") == {"n": 1}
    with pytest.warns(UserWarning, match="nothing was loaded"):
        assert mapper.load_states(tmp_path / "a", model, strict=False) == {"n": 1}


def test_a_damaged_aux_leaves_the_model_as_it_is(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    mapper.save_states(tmp_path / "a", nn.Linear(3, 2), {"t": torch.ones(2)})
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(data.replace(b"torch.tensor", b"torch.tensox"))
    before = model.weight.clone()
    with pytest.raises(FormatError, match="a: "):
        mapper.load_states(tmp_path / "a", model)
    assert torch.equal(model.weight, before)


def test_what_cannot_be_stored_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    mapper.save_states(tmp_path / "a", nn.Linear(3, 2), {"n": 1})
    before = (tmp_path / "a").read_bytes()
    with pytest.raises(UnsupportedLeaf, match=r"aux\['s'\]"):
        mapper.save_states(tmp_path / "a", nn.Linear(3, 2), {"s": {1, 2}})
    assert (tmp_path / "a").read_bytes() == before
    with pytest.raises(FileExistsError):
        mapper.save_states(tmp_path / "a", nn.Linear(3, 2), overwrite=False)


# ---- training that goes on


class Training:
    """A small run with everything random and stateful that a run has."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.numpy = np.random.default_rng(seed)
        self.model = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.4), nn.ReLU(), nn.Linear(8, 1)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1, amsgrad=True)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.2, total_steps=20)
        self.losses: list[float] = []

    def step(self) -> None:
        x = torch.randn(4, 6) + float(self.numpy.normal()) + random.random() + float(np.random.rand())
        loss = self.model(x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.losses.append(loss.item())

    def aux(self) -> dict[str, Any]:
        return {
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "torch": torch.get_rng_state(),
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "generator": self.numpy.bit_generator.state,
            "losses": self.losses,
        }

    def resume(self, aux: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(aux["optimizer"])
        self.scheduler.load_state_dict(aux["scheduler"])
        torch.set_rng_state(aux["torch"])
        random.setstate(aux["python"])
        np.random.set_state(aux["numpy"])
        self.numpy.bit_generator.state = aux["generator"]
        self.losses = aux["losses"]


@pytest.mark.parametrize("name", ["run", "run.safetensors", "states"])
def test_training_goes_on_bit_for_bit(tmp_path: Path, name: str) -> None:
    whole = Training(1)
    for _ in range(12):
        whole.step()
    first = Training(1)
    for _ in range(5):
        first.step()
    if name == "states":
        mapper.save_states(tmp_path / name, first.model, first.aux())
    else:
        mapper.save(tmp_path / name, first.model, aux=first.aux())
    second = Training(2)
    if name == "states":
        aux = mapper.load_states(tmp_path / name, second.model)
    else:
        aux = mapper.load(tmp_path / name, model=second.model).aux
    second.resume(aux)
    for _ in range(7):
        second.step()
    assert second.losses == whole.losses
    mine, theirs = second.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(mine[key], theirs[key]) for key in theirs)


# ---- saves that are killed

# One process that imports torch once and forks the writers which it kills. A model is all one number, as its aux says.
WRITERS = """
import os, signal, sys, time, torch, mapper
from torch import nn
path, killed = sys.argv[1], sys.argv[2] == "killed"

def write(told):
    number = 0
    while True:
        number += 1
        model = nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 300))
        with torch.no_grad():
            for param in model.parameters():
                param.fill_(number)
        mapper.save(path, model, aux={"number": number, "t": torch.full((300, 300), number)})
        if number == 1:
            os.write(told, b"1")

def check():
    model, aux = mapper.load(path)
    assert all(bool((param == aux["number"]).all()) for param in model.parameters()), "mixed"
    assert bool((aux["t"] == aux["number"]).all()), "mixed"

for attempt in range(12 if killed else 1):
    heard, told = os.pipe()
    child = os.fork()
    if not child:
        write(told)
    os.read(heard, 1)
    try:
        if killed:
            time.sleep(0.0017 * attempt)
        else:
            for _ in range(30):
                check()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    check()
mapper.save(path, nn.Linear(1, 1))
print(sorted(os.listdir(os.path.dirname(path))))
"""


def run_writers(path: Path, how: str) -> None:
    command = [sys.executable, "-c", WRITERS, path, how]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert run.stderr == ""
    assert run.stdout.strip() == str([path.name])


@pytest.mark.parametrize("name", ["run", "run.safetensors"])
def test_a_killed_save_leaves_the_old_or_the_new_and_the_next_one_cleans_up(
    tmp_path: Path, name: str
) -> None:
    run_writers(tmp_path / name, "killed")


@pytest.mark.parametrize("name", ["run", "run.safetensors"])
def test_a_reader_beside_a_writer_sees_one_whole_save(tmp_path: Path, name: str) -> None:
    run_writers(tmp_path / name, "living")


def test_a_folder_put_aside_by_a_killed_save_is_loaded(tmp_path: Path) -> None:
    mapper.save(tmp_path / "run", nn.Linear(1, 7), aux={"n": 1})
    os.rename(tmp_path / "run", temporary(tmp_path / "run", ASIDE))
    model = nn.Linear(1, 7)
    assert mapper.load(tmp_path / "run").model.out_features == 7
    assert mapper.load_weights(model, tmp_path / "run").ok
    assert mapper.load_states(tmp_path / "run", model) == {"n": 1}


def test_a_full_disk_is_an_error_and_leaves_the_old(tmp_path: Path) -> None:
    code = (
        "import resource, sys, torch, mapper\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "for path in sys.argv[1:]:\n"
        "    try: mapper.save(path, torch.nn.Linear(500, 500))\n"
        "    except OSError: print('full')\n"
    )
    paths = [tmp_path / "run", tmp_path / "run.safetensors"]
    for path in paths:
        mapper.save(path, nn.Linear(1, 1))
    run = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["full", "full"]
    assert sorted(os.listdir(tmp_path)) == ["run", "run.safetensors"]
    assert all(mapper.load(path).model.in_features == 1 for path in paths)


def test_the_plain_reader_sees_states_and_aux_apart(tmp_path: Path) -> None:
    mapper.save_states(
        tmp_path / "a.safetensors", nn.Linear(3, 2), {"t": torch.ones(2), "b": io.BytesIO(b"x").read()}
    )
    assert {key.partition(".")[0] for key in load_file(tmp_path / "a.safetensors")} == {
        "weight",
        "bias",
        "__aux__",
    }
