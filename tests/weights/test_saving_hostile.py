"""Saves that somebody changed, at random but the same each time: refused by name, or read as what they say."""

from __future__ import annotations

import copy
import json
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mapper
from mapper.errors import FormatError, StructureUnavailable
from tests.checkpoints import write_bert

VALUES: list[Any] = [
    None, True, -1, 0, 1, 2**70, 1.5, 1e308, "", "x", "weight", "0", "\ud800", "__class__", [], {}, [[]], [1],
    {"same": "0"}, {"class": "Linear"}, {"module": {}}, {"float": "nan"}, {"function": "os.system"},
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a JSON document."""
    if path:
        yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def changed(document: dict[str, Any], choose: random.Random) -> dict[str, Any]:
    document = copy.deepcopy(document)
    for _ in range(choose.choice([1, 1, 2, 3])):
        *way, last = choose.choice(list(places(document)))
        at = document
        for key in way:
            at = at[key]
        how = choose.random()
        if how < 0.6:
            at[last] = copy.deepcopy(choose.choice(VALUES))
        elif how < 0.8 or not isinstance(at, dict):
            del at[last]
        else:
            at[choose.choice(["x", "forward", "same", "class", "0", ""])] = at.pop(last)
    return document


def stock_model() -> nn.Module:
    shared = nn.Linear(3, 3)
    layer = nn.TransformerEncoderLayer(3, 1, 4, activation="gelu")
    model = nn.Sequential(shared, layer, nn.LSTM(3, 4, 2), nn.Sequential(shared, nn.BatchNorm1d(3)))
    shared.weight = nn.Parameter(torch.ones(3, 3, dtype=torch.complex128))
    return model


@pytest.fixture(scope="module")
def saves(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("saves")
    aux = {"o": {0: (1, torch.ones(3)), "0": [2.5, None]}, "d": torch.float16, "b": b"x"}
    mapper.save(folder / "stock", stock_model(), aux=aux)
    mapper.save(folder / "built", mapper.build(write_bert(folder / "bert")), aux=aux)
    return {"stock": folder / "stock", "built": folder / "built"}


def loaded_or_refused(path: Path) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's advice on settings and complex modules
            mapper.load(path)
    except (FormatError, StructureUnavailable) as error:
        assert "\n" not in str(error)
        assert path.name in str(error) or "safetensors" in str(error)


@pytest.mark.parametrize("kind", ["stock", "built"])
@pytest.mark.parametrize("seed", range(4))
def test_a_changed_document_is_read_or_refused(saves: dict[str, Path], kind: str, seed: int) -> None:
    path, choose = saves[kind] / "mapper.json", random.Random(seed)
    whole = path.read_text()
    try:
        for _ in range(12):
            path.write_text(json.dumps(changed(json.loads(whole), choose)))
            loaded_or_refused(saves[kind])
    finally:
        path.write_text(whole)


@pytest.mark.parametrize("name", ["mapper.json", "model.safetensors", "aux.safetensors"])
def test_changed_bytes_are_read_or_refused(saves: dict[str, Path], name: str) -> None:
    path, choose = saves["stock"] / name, random.Random(name)
    whole = path.read_bytes()
    try:
        for _ in range(12):
            data = bytearray(whole)
            for _ in range(choose.choice([1, 2, 8])):
                data[choose.randrange(min(len(data), 4000))] = choose.randrange(256)
            path.write_bytes(data[: choose.randrange(len(data))] if choose.random() < 0.2 else data)
            loaded_or_refused(saves["stock"])
    finally:
        path.write_bytes(whole)
