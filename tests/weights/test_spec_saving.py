"""Saves and loads in the surroundings that a caller may have: another default device, an interrupt, a kill."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mapper

NAMES = ("folder", "one.safetensors", "states", "tree")


@pytest.fixture
def elsewhere() -> Iterator[None]:
    """Tensors are made on meta unless a call says otherwise."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def model_of(value: float) -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3, device="cpu"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return model


def write(path: Path, value: float) -> None:
    full = torch.full((3,), value, device="cpu")
    if path.name == "tree":
        mapper.save_tree(path, {"full": full, "value": value})
    elif path.name == "states":
        mapper.save_states(path, model_of(value), {"full": full, "array": np.full(3, value)})
    else:
        mapper.save(path, model_of(value), aux={"full": full, "array": np.full(3, value)})


def read(path: Path) -> tuple[nn.Module, dict[Any, Any]]:
    if path.name == "tree":
        full = torch.zeros(3, device="cpu")
        return nn.Module(), mapper.load_tree(path, {"full": full, "value": 0.0})
    if path.name == "states":
        model = model_of(0)
        return model, mapper.load_states(path, model)
    return tuple(mapper.load(path))


def value_of(path: Path) -> float:
    """The one value that everything at `path` has; fails where old and new are mixed."""
    model, aux = read(path)
    arrays = [*model.state_dict().values(), aux["full"]]
    assert all(array.device.type == "cpu" and array.unique().numel() == 1 for array in arrays)
    (value,) = {float(array.flatten()[0]) for array in arrays}
    return value


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("elsewhere")
def test_the_default_device_of_the_caller_does_not_matter(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, 2.0)
    assert value_of(tmp_path / name) == 2.0


@pytest.mark.parametrize("name", NAMES)
def test_a_save_that_is_interrupted_at_any_sync_leaves_one_whole_content(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sync = tmp_path / name, os.fsync
    write(path, 1.0)
    for at in range(1, 9):
        calls = iter(range(1, 100))

        def interrupted(descriptor: int, at: int = at, calls: Iterator[int] = calls) -> None:
            if next(calls) == at:
                raise KeyboardInterrupt
            sync(descriptor)

        monkeypatch.setattr(os, "fsync", interrupted)
        try:
            write(path, 1.0 + at)
        except KeyboardInterrupt:
            assert os.listdir(tmp_path) == [name]
        monkeypatch.setattr(os, "fsync", sync)
        assert value_of(path) in (1.0, *(1.0 + done for done in range(1, at + 1)))
    assert os.listdir(tmp_path) == [name]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("name", NAMES)
def test_a_save_killed_at_any_of_its_calls_leaves_one_whole_content(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    for at in range(1, 16, 3):
        write(path, 1.0)
        child = os.fork()
        if child == 0:
            _end_at(at)
            try:
                write(path, 2.0)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert value_of(path) in (1.0, 2.0)
    write(path, 3.0)
    assert os.listdir(tmp_path) == [name] and value_of(path) == 3.0


def _end_at(at: int) -> None:
    """Kill this process at that call of the functions that change a folder."""
    calls = iter(range(1, 1000))

    def wrapped(function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(calls) == at:
                os.kill(os.getpid(), 9)
            return function(*arguments, **options)

        return call

    for name in ("fsync", "rename", "replace", "unlink", "mkdir", "rmdir", "chmod", "open"):
        setattr(os, name, wrapped(getattr(os, name)))
