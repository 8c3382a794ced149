"""8-bit floats beside their scales: plain weights for a model, and what is stored for everything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import mapper
from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError
from mapper.sources import open_source
from mapper.sources.quantised.part import CONFIG as FIELD
from mapper.sources.quantised.plain import plain
from mapper.sources.quantised.scaled import product
from tests.unit.test_source_gguf import CONFIG, llama

FIELDS = (FIELD, "compression_config", "quantization")  # as the rules have them


def packed(weight: torch.Tensor, block: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight in blocks with one scale each, as DeepSeek-V3 stores it, block by block."""
    rows, columns = (-(-extent // size) for extent, size in zip(weight.shape, block, strict=True))
    scales, small = torch.empty(rows, columns), torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    for row in range(rows):
        for column in range(columns):
            place = (
                slice(row * block[0], (row + 1) * block[0]),
                slice(column * block[1], (column + 1) * block[1]),
            )
            scales[row, column] = weight[place].abs().max() / 448
            small[place] = (weight[place] / scales[row, column]).to(torch.float8_e4m3fn)
    return small, scales


def unpacked(small: torch.Tensor, scales: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """The weight again, element by element."""
    plain = small.float()
    for row in range(plain.shape[0]):
        for column in range(plain.shape[1]):
            plain[row, column] *= scales[row // block[0], column // block[1]]
    return plain


def stored(folder: Path, tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> Path:
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def read(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    assert checkpoint.read is not None
    return checkpoint.read(list(checkpoint.tensors))


@pytest.mark.parametrize("block", [(16, 16), (5, 7), (128, 128)])
def test_a_model_of_blocks_is_the_one_of_plain_weights(block: tuple[int, int], tmp_path: Path) -> None:
    tensors, plain = {}, {}
    for name, weight in llama()[1].items():
        if "_proj" in name:
            tensors[name], tensors[f"{name}_scale_inv"] = packed(weight, block)
            plain[name] = unpacked(tensors[name], tensors[f"{name}_scale_inv"], block)
        else:
            tensors[name] = plain[name] = weight
    quantised = {"quant_method": "fp8", "weight_block_size": list(block)}
    small = stored(tmp_path / "small", tensors, {**CONFIG, "quantization_config": quantised})
    report = mapper.inspect(small)
    assert report.architecture.reading == "exact"
    assert "14 weights of F8_E4M3 are multiplied by their scales, to F32" in str(report)
    ids = torch.tensor([[1, 2, 3, 40]])
    one, other = mapper.build(small), mapper.build(stored(tmp_path / "plain", plain, CONFIG))
    assert torch.equal(one(input_ids=ids).logits, other(input_ids=ids).logits)
    assert set(open_source(small, purpose="headers").tensors) == set(tensors)


@pytest.mark.parametrize("shape", [(), (1,), (6, 1), (6,)])
def test_scales_of_rows_and_of_whole_maps_are_factors(shape: tuple[int, ...], tmp_path: Path) -> None:
    weight, scale = torch.randn(6, 4).to(torch.float8_e4m3fn), torch.rand(shape)
    tensors = {
        "a.weight": weight,
        "a.weight_scale": scale,
        "a.input_scale": torch.ones(()),
        "b": torch.ones(2).bfloat16(),
    }
    checkpoint = plain(open_source(stored(tmp_path / "x", tensors, {}), purpose="weights"), FIELDS)
    found = read(checkpoint)
    assert set(found) == {"a.weight", "b"}
    expected = weight.float() * (scale.reshape(-1, 1) if scale.numel() > 1 else scale)
    assert torch.equal(found["a.weight"], expected.bfloat16())
    assert checkpoint.notes[-1] == "inputs are not rounded to 8 bits; not read: 'a.input_scale'"


def test_stacked_maps_have_stacked_scales() -> None:
    weight, scale = torch.randn(3, 6, 8), torch.rand(3, 2, 2)
    found = product(weight, scale, (4, 4))
    for at in range(3):
        assert torch.equal(found[at], unpacked(weight[at], scale[at], (4, 4)))


def test_a_scale_that_fits_no_blocks_is_refused(tmp_path: Path) -> None:
    tensors = {"a.weight": torch.ones(6, 4).to(torch.float8_e4m3fn), "a.weight_scale_inv": torch.ones(3, 3)}
    with pytest.raises(
        FormatError, match=r"'a.weight_scale_inv' has the shape \[3, 3\], which does not fit \[6, 4\]"
    ):
        mapper.inspect(stored(tmp_path / "x", tensors, {}))


def test_small_floats_without_scales_stay_what_they_are(tmp_path: Path) -> None:
    tensors = {"a.weight": torch.ones(6, 4).to(torch.float8_e4m3fn)}
    checkpoint = open_source(stored(tmp_path / "x", tensors, {}), purpose="weights")
    assert plain(checkpoint, FIELDS) is checkpoint
