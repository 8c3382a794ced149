from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load, load_file
from torch import nn

from mapper.errors import MapperError, UnsupportedLeaf
from mapper.weights.arrays import from_raw, raw_bytes
from mapper.weights.saving import container
from mapper.weights.saving.container import NAMES, check_storable, stored_raw, write_tensors

RAW = ("complex128", "complex32", "float8_e8m0fnu", "float4_e2m1fn_x2", "uint4", "int2", "bits8")


def written(tensors: dict[str, torch.Tensor], **metadata: str) -> bytes:
    file = io.BytesIO()
    write_tensors(file, tensors, metadata)
    return file.getvalue()


def some(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    bits = torch.randint(0, 2 if dtype is torch.bool else 256, (64 * dtype.itemsize,), dtype=torch.uint8)
    return bits.view(dtype).view(*(shape or (8, 8)))


@pytest.mark.parametrize("dtype", NAMES, ids=NAMES.get)
def test_the_reader_of_the_format_reads_every_type_bit_for_bit(dtype: torch.dtype) -> None:
    tensor = some(dtype)
    read = load(written({"a": tensor}))["a"]
    assert (read.dtype, read.shape) == (dtype, tensor.shape)
    assert torch.equal(raw_bytes(read), raw_bytes(tensor))


@pytest.mark.parametrize("name", RAW)
def test_other_types_are_bytes_with_their_name_beside_them(name: str) -> None:
    tensor = some(getattr(torch, name))
    table = stored_raw({"a": tensor, "b": torch.zeros(1)})
    assert table == {"a": {"dtype": name, "shape": [8, 8]}}
    read = load(written({"a": tensor}))["a"]
    assert read.dtype is torch.uint8
    again = from_raw(read, tensor.dtype, table["a"]["shape"])
    assert torch.equal(raw_bytes(again), raw_bytes(tensor))


@pytest.mark.parametrize("piece", [container.PIECE, 64, 7])
def test_any_memory_order_is_written_in_row_order(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "PIECE", piece)
    base = torch.arange(120.0).view(4, 5, 6)
    tensors = {
        "transposed": base.permute(2, 0, 1),
        "steps": base[::2, :, 1::3],
        "one row": base.permute(2, 0, 1)[:1],
        "expanded": torch.ones(1).expand(50),
        "conjugated": torch.complex(base, base).conj(),
        "negative": torch.complex(base, base).conj().imag,
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(2.5),
        "overlap": base[1],
    }
    read = load(written(tensors))
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())
    assert list(read) != []


def test_every_tensor_can_be_used_where_it_lies() -> None:
    tensors = {
        "a": torch.zeros(3, dtype=torch.int8),
        "b": torch.zeros(5, dtype=torch.complex128),
        "c": torch.zeros(1),
        "d": torch.zeros(1, dtype=torch.float64),
        "e": torch.zeros(7, dtype=torch.bfloat16),
    }
    data = written(tensors, note="x")
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert (8 + length) % 64 == 0
    assert list(header) == ["__metadata__", *tensors]
    assert all(header[name]["data_offsets"][0] % tensor.itemsize == 0 for name, tensor in tensors.items())


def test_metadata_of_any_text_is_read_by_others(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(written({"a": torch.ones(1)}, mapper='{"x": "\\ud800"}', other="ö\n🙂"))
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"mapper": '{"x": "\\ud800"}', "other": "ö\n🙂"}
    assert load_file(path)["a"] == 1


def test_a_big_tensor_is_written_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor, seen = torch.ones(2**20), []
    monkeypatch.setattr(container, "_write", lambda file, raw: seen.append(raw.data_ptr()))
    write_tensors(io.BytesIO(), {"a": tensor}, {})
    assert seen == [tensor.data_ptr()]


def test_a_header_beyond_the_limit_of_the_format_is_refused() -> None:
    with pytest.raises(MapperError, match="bytes of JSON"):
        written({}, mapper="x" * 100_000_001)


@pytest.mark.parametrize(
    ("tensor", "word"),
    [
        (torch.empty(2, device="meta"), "meta"),
        (torch.eye(2).to_sparse(), "sparse"),
        (nn.LazyLinear(2).weight, "lazy"),
    ],
)
def test_what_has_no_bytes_of_its_own_is_named(tensor: torch.Tensor, word: str) -> None:
    with pytest.raises(UnsupportedLeaf, match=rf"a\.b: .*{word}") as caught:
        check_storable(tensor, "a.b")
    assert caught.value.path == "a.b"


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_a_quantised_tensor_is_named() -> None:
    with pytest.raises(UnsupportedLeaf, match="quantised"):
        check_storable(torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "a")
