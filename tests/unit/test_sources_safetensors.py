"""The safetensors reader: what it takes, what it refuses, and how it says so."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mapper import limits
from mapper.errors import FormatError, MapperError, SourceError
from mapper.sources import open_source
from tests.work import growth

Header = dict[str, Any]


def entry(shape: list[int], start: int, end: int, dtype: str = "F32") -> Header:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def contents(header: Header | bytes, data: int = 8) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data)


def refusal(path: Path, data: bytes, name: str = "model.safetensors") -> str:
    """The one line with which the file is refused."""
    file = path / name
    file.write_bytes(data)
    with pytest.raises(MapperError) as caught:
        open_source(file, purpose="headers")
    text = str(caught.value)
    assert text.startswith(name) and "\n" not in text and len(text) < 600
    assert str(path) not in text
    return text


def test_every_dtype_is_read_as_safetensors_reads_it(tmp_path: Path) -> None:
    dtypes = [
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64, torch.float8_e4m3fn,
        torch.float8_e5m2, torch.float8_e8m0fnu,
    ]  # fmt: skip
    made = {str(dtype): torch.randint(0, 2, (3, 4)).to(dtype) for dtype in dtypes}
    made |= {"scalar": torch.tensor(1.5), "none": torch.zeros(0, 3)}
    save_file(made, tmp_path / "model.safetensors")
    checkpoint = open_source(tmp_path, purpose="weights")
    assert checkpoint.read is not None
    read = checkpoint.read(checkpoint.tensors)
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        assert read[name].dtype == tensor.dtype and read[name].shape == tensor.shape
        assert (
            read[name].view(torch.uint8).equal(tensor.view(torch.uint8))
            if tensor.dim()
            else read[name] == tensor
        )


def test_reading_maps_the_file_and_writing_to_a_tensor_leaves_it_alone(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1000), "b": torch.zeros(1000)}, tmp_path / "model.safetensors")
    before = (tmp_path / "model.safetensors").read_bytes()
    checkpoint = open_source(tmp_path, purpose="weights")
    assert checkpoint.read is not None
    tensors = checkpoint.read(["a", "b"])
    assert abs(tensors["a"].data_ptr() - tensors["b"].data_ptr()) == 4000  # one mapping
    tensors["a"].fill_(7)
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_a_tensor_at_an_odd_address_is_read_right(tmp_path: Path) -> None:
    data = contents({"a": entry([1], 0, 1, "U8"), "b": entry([2], 1, 9)}, 0)
    (tmp_path / "model.safetensors").write_bytes(data + b"\1" + struct.pack("<2f", 1.5, -2.0))
    checkpoint = open_source(tmp_path, purpose="weights")
    assert checkpoint.read is not None
    assert checkpoint.read(["b"])["b"].tolist() == [1.5, -2.0]


def test_a_file_that_changes_between_header_and_reading_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(contents({"a": entry([2], 0, 8)}))
    checkpoint = open_source(file, purpose="weights")
    file.write_bytes(contents({"a": entry([1], 0, 4)}, 4))
    assert checkpoint.read is not None
    with pytest.raises(FormatError, match="when its header was read; open it again"):
        checkpoint.read(["a"])


def test_names_that_are_odd_but_lawful_are_kept(tmp_path: Path) -> None:
    names = [
        "class",
        "a b",
        "1.2",
        "__import__('os').system('x')",
        "a..b",
        ".",
        "x" * limits.NAME_CHARACTERS,
        "überall",
        "\n",
        "$(x)",
    ]
    header = {name: entry([2], 8 * at, 8 * at + 8) for at, name in enumerate(names)}
    (tmp_path / "model.safetensors").write_bytes(contents(header, 8 * len(names)))
    assert list(open_source(tmp_path, purpose="headers").tensors) == names


def test_metadata_is_no_tensor_and_a_file_without_tensors_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(contents({"__metadata__": {"format": "pt"}}, 0))
    with pytest.raises(FormatError, match="no tensors in it"):
        open_source(tmp_path, purpose="headers")


GOOD = entry([2], 0, 8)
REFUSED: dict[str, tuple[Header | bytes, int, str]] = {
    "unknown dtype": ({"a": entry([2], 0, 8, "F33")}, 8, "'a' has the dtype 'F33', known are C128"),
    "dtype of another type": ({"a": {**GOOD, "dtype": 3}}, 8, "has the dtype '3'"),
    "dtype that cannot be hashed": ({"a": {**GOOD, "dtype": {}}}, 8, "is described by"),
    "shape and span disagree": ({"a": entry([3], 0, 8)}, 8, "spans 8 bytes (0 to 8) but F32 [3] needs 12"),
    "negative span": ({"a": entry([2], 8, 0)}, 8, "spans -8 bytes"),
    "past the end": ({"a": entry([4], 0, 16)}, 8, "ends at byte"),
    "overlap": ({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, 12, "'a' and 'b' overlap"),
    "same bytes twice": ({"a": entry([2], 0, 8), "b": entry([2], 0, 8)}, 8, "'a' and 'b' overlap"),
    "gap": ({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, 12, "before tensor 'b', belong to no tensor"),
    "left over": ({"a": entry([2], 0, 8)}, 20, "12 bytes follow the last tensor"),
    "negative size": ({"a": entry([-2], 0, 8)}, 8, "not a list of sizes"),
    "size of another type": ({"a": entry(["2"], 0, 8)}, 8, "not a list of sizes"),  # type: ignore[list-item]
    "true as a size": ({"b": entry([1], 0, 4), "a": entry([True], 4, 8)}, 8, "not a list of sizes"),
    "fraction as a size": (b'{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}', 8, "2.0 in its header"),
    "not a number": (b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,8]}}', 8, "NaN in its header"),
    "nested size": ({"a": entry([[2]], 0, 8)}, 8, ""),  # type: ignore[list-item]
    "huge size": ({"a": entry([2**60, 0], 0, 0)}, 0, "a dimension of '1152921504606846976'"),
    "number of 5,000 digits": (b'{"a":{"dtype":"F32","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,8]}}', 8, ""),
    "many dimensions": ({"a": entry([1] * 40, 0, 4)}, 4, "has 40 dimensions, at most 16 are read"),
    "three offsets": ({"a": {**GOOD, "data_offsets": [0, 4, 8]}}, 8, "is described by"),
    "no offsets": ({"a": {"dtype": "F32", "shape": [2]}}, 8, "is described by"),
    "unknown field": ({"a": {**GOOD, "stride": [1]}}, 8, "is described by"),
    "true as an offset": ({"a": {**GOOD, "data_offsets": [False, 8]}}, 8, "is described by"),
    "entry is a list": ({"a": [1]}, 8, "is described by"),
    "entry is null": ({"a": None}, 8, "is described by"),
    "metadata is a list": ({"__metadata__": [1], "a": GOOD}, 8, "'__metadata__' in its header is '[1]'"),
    "a name twice": (b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', 8, "'a' more than once"),
    "a field twice": (b'{"a":{"dtype":"F32","dtype":"F16","shape":[2],"data_offsets":[0,8]}}', 8, "'dtype' more than once"),
    "empty name": ({"": GOOD}, 8, "a tensor has an empty name"),
    "name of 5,000 characters": ({"x" * 5000: GOOD}, 8, "a name of 5,000 characters, at most 4,096 are read"),
    "name of 100 parts": ({".".join("x" * 100): GOOD}, 8, "a name of 100 parts, at most 64 are read"),
    "half a surrogate pair": (b'{"\\ud800":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8, "surrogate pair"),
    "not UTF-8": (b'{"\xff":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8, "not UTF-8 text at byte 2"),
    "not JSON": (b'{"a":' + b"x" * 20, 8, "not JSON: expecting value at line 1, column 6"),
    "a list": (b"[]" + b" " * 20, 8, "its header starts with '[]      '"),
    "deep nesting": (b'{"a":' + b"[" * 200_000, 8, "nested too deeply"),
    "zero bytes": (bytes(40), 8, "its header starts with"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_hostile_header_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    header, data, expected = REFUSED[case]
    assert expected in refusal(tmp_path, contents(header, data))


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = contents({"a": entry([2], 0, 8), "b": entry([2, 2], 8, 24)}, 24)
    for length in range(len(whole)):
        refusal(tmp_path, whole[:length])


def test_a_file_damaged_anywhere_in_its_header_is_refused_or_read_as_it_stands(tmp_path: Path) -> None:
    whole = contents({"a": entry([2], 0, 8), "b": entry([2, 2], 8, 24)}, 24)
    file = tmp_path / "model.safetensors"
    for at in range(len(whole) - 24):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x15]) + whole[at + 1 :])
        try:
            open_source(file, purpose="headers")
        except MapperError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, limits.HEADER_BYTES + 1])
def test_a_huge_header_length_is_refused_before_anything_is_read(length: int, tmp_path: Path) -> None:
    text = refusal(tmp_path, struct.pack("<Q", length) + b"{" + bytes(100))
    assert f"a header of {length:,} bytes, at most 100,000,000 are read" in text


IMPOSTORS = {
    "empty": (b"", "the file is empty; download it again"),
    "git-lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 438011953\n", "a git-lfs pointer to 438,011,953 bytes"),
    "git-crypt": (b"\x00GITCRYPT\x00" + bytes(40), "encrypted by git-crypt"),
    "web page": (b"\n<!DOCTYPE html><html><body>Sign in</body></html>", "a web page, not a checkpoint"),
    "storage error": (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "a web page, not a checkpoint"),
    "hub error": (b"Entry not found", "an error message of the server, 'Entry not found'"),
    "JSON error": (b'{"error":"Repository not found"}', "an error message of the server"),
}  # fmt: skip


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "manifest.json"])
@pytest.mark.parametrize("case", IMPOSTORS)
def test_what_is_commonly_mistaken_for_weights_is_recognised(case: str, name: str, tmp_path: Path) -> None:
    data, expected = IMPOSTORS[case]
    assert expected in refusal(tmp_path, data, name)


def zipped(record: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(record, "x")
    return file.getvalue()


LATER = {
    "tf_model.h5": (b"\x89HDF\r\n\x1a\n" + bytes(40), "HDF5"),
    "model.keras": (zipped("model.weights.h5"), "HDF5"),
}


@pytest.mark.parametrize("name", LATER)
def test_a_container_without_a_reader_is_named(name: str, tmp_path: Path) -> None:
    data, container = LATER[name]
    assert f"{container}, which is recognised but not read yet" in refusal(tmp_path, data, name)


def test_pipes_devices_and_folders_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(SourceError, match="not a regular file"):
        open_source(tmp_path / "model.safetensors", purpose="headers")
    with pytest.raises(SourceError, match="not a regular file"):
        open_source(tmp_path, purpose="headers")
    with pytest.raises(SourceError, match="not a regular file"):
        open_source("/dev/zero", purpose="headers")
    (tmp_path / "deep" / "model.safetensors").mkdir(parents=True)
    with pytest.raises(SourceError, match="is a directory where a file is needed"):
        open_source(tmp_path / "deep", purpose="headers")


def test_a_link_to_nothing_says_so(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "gone")
    with pytest.raises(SourceError, match="is a link to a file that is gone"):
        open_source(tmp_path / "model.safetensors", purpose="headers")


def test_opening_twice_the_tensors_takes_twice_the_work(tmp_path: Path) -> None:
    def opened(count: int) -> Callable[[], Any]:
        header = {
            f"layers.{at // 200}.experts.{at % 200}.weight": entry([1, 2], 8 * at, 8 * at + 8)
            for at in range(count)
        }
        folder = tmp_path / str(count)
        folder.mkdir(exist_ok=True)
        (folder / "model.safetensors").write_bytes(contents(header, 8 * count))
        return lambda: open_source(folder, purpose="headers")

    assert growth(opened, 2_000) < 2.1
