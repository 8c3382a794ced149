"""NumPy's containers: archives stored and compressed, folders of arrays, and what is refused in them."""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mapper import limits
from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError
from mapper.sources import open_source
from mapper.sources.zips import archive_errors
from tests.memory import PEAK

NUMBERS = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "c8", "c16"]


def saved(path: Path, compressed: bool = False, **arrays: Any) -> Path:
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    return path


def opened(path: Path) -> tuple[Checkpoint, dict[str, torch.Tensor]]:
    checkpoint = open_source(path, purpose="weights")
    assert checkpoint.read is not None
    return checkpoint, checkpoint.read(list(checkpoint.tensors))


def refusal(path: Path) -> str:
    with pytest.raises(FormatError) as caught:
        opened(path)
    text = str(caught.value)
    assert text.startswith(path.name) and "\n" not in text and len(text) < 600
    return text


def array(descr: str, shape: str = "(2,)", data: bytes = bytes(8), order: str = "False") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


def archive(path: Path, records: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as writer:
        for name, data in records.items():
            writer.writestr(name, data)
    return path


@pytest.mark.parametrize("compressed", [False, True])
def test_every_type_shape_and_order_comes_back(compressed: bool, tmp_path: Path) -> None:
    whole = np.arange(24).reshape(2, 3, 4)
    arrays = {
        f"{kind}{order}": whole.astype(np.dtype(kind).newbyteorder(order))
        for kind in NUMBERS
        for order in "<>"
    }
    arrays |= {f"fortran{order}": np.asfortranarray(whole.astype(f"{order}f4")) for order in "<>"}
    arrays |= {"scalar": np.float32(3.5), "empty": np.zeros((0, 4), np.float16), "one": np.ones((1, 1, 1))}
    checkpoint, read = opened(saved(tmp_path / "x.npz", compressed, **arrays))
    assert (checkpoint.container, list(checkpoint.tensors)) == ("npz", list(arrays))
    for key, value in arrays.items():
        native = value.astype(value.dtype.newbyteorder("="))
        assert read[key].is_contiguous()
        assert checkpoint.tensors[key].shape == value.shape
        assert torch.equal(read[key], torch.from_numpy(np.ascontiguousarray(native)).view(value.shape)), key


def test_names_are_as_numpy_has_them(tmp_path: Path) -> None:
    keys = ["layer.0.weight", "bert/encoder/layer_0/kernel", "a.npy", "ü"]
    checkpoint, _ = opened(saved(tmp_path / "x.npz", **{key: np.ones(2) for key in keys}))
    assert list(checkpoint.tensors) == keys == list(np.load(tmp_path / "x.npz"))
    archive(tmp_path / "y.npz", {"bare": array("'<f4'"), "b.npy": array("'<f4'"), "readme.txt": b"text"})
    checkpoint, _ = opened(tmp_path / "y.npz")
    assert list(checkpoint.tensors) == ["bare", "b"]
    assert checkpoint.notes == ["y.npz: 1 records are no arrays and were not read"]


def test_what_ml_dtypes_writes_is_read_where_it_can_be_told(tmp_path: Path) -> None:
    types = pytest.importorskip("ml_dtypes")
    values = np.array([1.5, -2.0, 0.25])
    kinds = {"bfloat16": types.bfloat16, "float8_e5m2": types.float8_e5m2}
    checkpoint, read = opened(
        saved(tmp_path / "x.npz", **{key: values.astype(kind) for key, kind in kinds.items()})
    )
    for key in kinds:
        assert read[key].dtype is getattr(torch, key) and read[key].float().tolist() == values.tolist()
    assert "are taken for bfloat16" in checkpoint.notes[0]
    saved(tmp_path / "y.npz", w=values.astype(types.float8_e4m3fn))
    assert "'w' is of NumPy's type 'V1', which may be one of several 8-bit types" in refusal(
        tmp_path / "y.npz"
    )


def test_bare_arrays_and_a_folder_of_them_are_sources(tmp_path: Path) -> None:
    for key in ("fc.weight", "fc.bias"):
        np.save(tmp_path / f"{key}.npy", np.full(3, 2.0, ">f8"))
    checkpoint, read = opened(tmp_path)
    assert sorted(checkpoint.tensors) == ["fc.bias", "fc.weight"]
    assert read["fc.bias"].tolist() == [2, 2, 2]
    assert list(opened(tmp_path / "fc.bias.npy")[1]) == ["fc.bias"]


def test_a_folder_with_one_archive_is_a_checkpoint(tmp_path: Path) -> None:
    saved(tmp_path / "weights.npz", a=np.ones(2))
    assert list(open_source(tmp_path, purpose="headers").tensors) == ["a"]


def test_texts_are_noted_and_objects_are_never_unpickled(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Loud:
        def __reduce__(self) -> tuple[Any, ...]:
            return print, ("unpickled",)

    checkpoint, _ = opened(saved(tmp_path / "x.npz", a=np.ones(2), names=np.array(["x", "y"])))
    assert list(checkpoint.tensors) == ["a"]
    assert checkpoint.notes == ["x.npz: 'names' holds texts and was not read"]
    saved(tmp_path / "y.npz", a=np.array([Loud()], dtype=object))
    assert "Python objects, a pickle, which is never unpickled" in refusal(tmp_path / "y.npz")
    (tmp_path / "z.npy").write_bytes(array("'|O'", data=pickle.dumps(Loud())))
    assert "never unpickled" in refusal(tmp_path / "z.npy")
    assert "unpickled" not in capfd.readouterr().out


REFUSED = {
    "structured": (array("[('a', '<f4')]"), "of records"),
    "long double": (array("'<f16'", data=bytes(32)), "'f16', which no tensor has"),
    "void": (array("'|V3'"), "'V3', which no tensor has"),
    "nonsense type": (array("'<q9'"), "'q9', which no tensor has"),
    "code": (array("__import__('os')"), "has the header"),
    "code as shape": (array("'<f4'", "(1, __import__('os'))"), "has the header"),
    "another field": (array("'<f4'", "(2,), 'x': True"), "has the header"),
    "a negative extent": (array("'<f4'", "(-2,)"), "has the header"),
    "too few numbers": (array("'<f4'", "(3,)"), "has 136 bytes where F32 [3] needs 140"),
    "too many numbers": (array("'<f4'", "(1,)"), "has 136 bytes where F32 [1] needs 132"),
    "a huge extent": (array("'<f4'", f"({2**62},)"), "a dimension of"),
    "too many dimensions": (array("'<f4'", "(" + "1," * 20 + ")"), "20 dimensions"),
    "a cut header": (array("'<f4'")[:40], "ends within its header"),
    "a header that claims too much": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "a header of 4,294,967,295 bytes"),
    "another version": (b"\x93NUMPY\x09\x00" + bytes(100), "no array of NumPy"),
    "no array": (b"hello", "no array of NumPy: it starts with 'hello'"),
    "nothing": (b"", "no array of NumPy"),
}  # fmt: skip


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("case", REFUSED)
def test_a_damaged_array_is_refused_by_name(case: str, method: int, tmp_path: Path) -> None:
    content, expected = REFUSED[case]
    text = refusal(archive(tmp_path / "x.npz", {"w.npy": content}, method))
    assert expected in text and "'w'" in text


def test_other_ways_of_packing_are_refused(tmp_path: Path) -> None:
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        archive(tmp_path / "x.npz", {"w.npy": array("'<f4'")}, method)
        assert "compressed otherwise than NumPy does" in refusal(tmp_path / "x.npz")
    archive(tmp_path / "y.npz", {"w.npy": array("'<f4'"), "w": array("'<f4'")})
    assert "two arrays have the name 'w'" in refusal(tmp_path / "y.npz")
    archive(tmp_path / "z.npz", {})
    assert "no tensors in it" in refusal(tmp_path / "z.npz")


def test_a_compressed_array_that_was_changed_is_refused(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, 5000, np.uint8)
    data = bytearray(saved(tmp_path / "x.npz", True, w=noise).read_bytes())
    data[3000] ^= 1
    (tmp_path / "x.npz").write_bytes(data)
    assert "'w.npy' is damaged" in refusal(tmp_path / "x.npz")


def test_a_compressed_array_cannot_claim_more_than_it_can_become(tmp_path: Path) -> None:
    data = bytearray(
        archive(tmp_path / "x.npz", {"w.npy": array("'<f4'")}, zipfile.ZIP_DEFLATED).read_bytes()
    )
    at = data.index(b"PK\x01\x02") + 24
    data[at : at + 4] = (2**31).to_bytes(4, "little")
    (tmp_path / "x.npz").write_bytes(data)
    assert "is said to become 2,147,483,648 bytes" in refusal(tmp_path / "x.npz")
    assert limits.DEFLATE_RATIO == 1032


def test_whatever_the_standard_library_says_of_an_archive_names_the_file() -> None:
    for error in (OverflowError("an offset beyond all files"), zipfile.BadZipFile("x"), struct.error("x")):
        with (
            pytest.raises(FormatError, match=r"x\.npz: a damaged zip file") as caught,
            archive_errors("x.npz"),
        ):
            raise error
        assert caught.value.__cause__ is error


@pytest.mark.skipif(sys.platform != "linux", reason="where /proc tells of memory")
def test_a_stored_array_is_not_read_before_it_is_used(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.npz", a=np.zeros(2**26, np.uint8), b=np.zeros(2**26, np.uint8))
    program = PEAK + (
        "import sys, torch; from mapper.sources import open_source; c = open_source(sys.argv[1], purpose='weights')\n"
        "before = peak(); t = c.read(['a', 'b']); print(peak() - before)\n"
        "t['a'].sum(); print(peak() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    read, used = map(int, done.stdout.split())
    assert read < 30_000 < 60_000 < used  # KiB; each has 65,536


def test_headers_need_neither_torch_nor_numpy(tmp_path: Path) -> None:
    saved(tmp_path / "x.npz", True, a=np.ones(3))
    program = (
        "import sys; from mapper.sources import open_source; open_source(sys.argv[1], purpose='headers');"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "x.npz")], check=True)
