"""A tensor lies in memory after a load as it lay before the save, so that products of one row keep every bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import mapper
from mapper.weights.saving.placement import LINE, in_order, laid_out, residue


def _at(residue: int, *shape: int) -> torch.Tensor:
    """Random numbers that start `residue` bytes behind the start of a cache line."""
    values = torch.randn(shape)
    room = torch.empty(values.nbytes + 2 * LINE, dtype=torch.uint8)
    begin = (residue - room.data_ptr()) % LINE
    return room[begin : begin + values.nbytes].view(torch.float32).view(shape).copy_(values)


@pytest.mark.parametrize("bytes_behind", [0, 4, 8, 16, 60])
def test_a_row_gives_the_same_bits_wherever_the_weight_lay(tmp_path: Path, bytes_behind: int) -> None:
    model = nn.Sequential(nn.Linear(72, 10), nn.Linear(10, 13), nn.Linear(13, 5))
    for layer in model:
        layer.weight.data = _at(bytes_behind, *layer.weight.shape)
    mapper.save(tmp_path / "model.safetensors", model)
    again = mapper.load(tmp_path / "model.safetensors").model
    x = torch.randn(1, 72)
    assert torch.equal(model(x), again(x))
    assert [residue(layer.weight) for layer in again] == [bytes_behind] * 3


def test_tensors_of_a_mapped_file_are_stored_as_they_follow_each_other_there() -> None:
    room = torch.empty(4096 + LINE, dtype=torch.uint8)
    begin = (8 - room.data_ptr()) % LINE
    parts, at = {}, begin
    for name, size in zip("cab", (40, 400, 72), strict=True):
        parts[name] = room[at : at + size].view(torch.float32)
        at += size
    assert in_order(parts) == (8, ["c", "a", "b"])


def test_the_strides_of_another_memory_format_come_back(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3)).to(memory_format=torch.channels_last)
    mapper.save(tmp_path / "net", model)
    again = mapper.load(tmp_path / "net").model
    assert again[0].weight.stride() == model[0].weight.stride()
    x = torch.randn(1, 3, 9, 9)
    assert torch.equal(model(x), again(x))


@pytest.mark.parametrize(
    "entry",
    [
        None,
        5,
        {"residue": -1},
        {"residue": 10**9},
        {"residue": "8"},
        {"strides": [0, 0]},
        {"strides": [9, 9]},
        {"strides": 1},
    ],
)
def test_a_placement_that_cannot_be_is_left_out(entry: object) -> None:
    tensor = torch.arange(6.0).view(2, 3)
    assert torch.equal(laid_out(tensor, entry), tensor)
    assert laid_out(tensor, entry).stride() == (3, 1)
