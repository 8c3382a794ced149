"""`mapper.convert`: the same tensors in another container, whole or not at all, a tensor at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import mapper
from mapper.errors import FormatError, MapperError, SourceError
from mapper.sources import open_source
from mapper.weights.converting import origins
from mapper.weights.converting import streaming as converting
from tests.checkpoints import BERT, write_bert, write_manifest
from tests.flax_files import packed
from tests.gguf_files import gguf_bytes
from tests.memory import PEAK
from tests.onnx_files import held, initialiser, model

TENSORS = {
    "a.weight": torch.arange(12.0).view(3, 4),
    "a.bias": torch.arange(3, dtype=torch.bfloat16),
    "b": torch.tensor([True, False]),
    "c": torch.zeros(0, 5),
    "d": torch.tensor(7),
    "e": torch.arange(60.0).view(5, 12).t()[::2],
}


def tensors_of(source: object) -> dict[str, torch.Tensor]:
    checkpoint = open_source(source, purpose="weights")  # type: ignore[arg-type]
    assert checkpoint.read is not None
    return checkpoint.read(list(checkpoint.tensors))


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert set(one) == set(other)
    for name, tensor in one.items():
        assert (tensor.dtype, tensor.shape) == (other[name].dtype, other[name].shape), name
        assert torch.equal(tensor, other[name]), name


def plain() -> dict[str, np.ndarray]:
    return {"a.weight": np.arange(12.0).reshape(3, 4), "b": np.ones(3, ">i2")}


def sources(folder: Path) -> dict[str, Path]:
    """A small file of each container."""
    save_file({name: tensor.contiguous() for name, tensor in TENSORS.items()}, folder / "in.safetensors")
    torch.save(TENSORS, folder / "in.bin")
    torch.save(TENSORS, folder / "in.pt", _use_new_zipfile_serialization=False)
    np.savez(folder / "in.npz", **plain())
    np.savez_compressed(folder / "packed.npz", **plain())
    np.save(folder / "in.npy", np.asfortranarray(plain()["a.weight"]))
    (folder / "in.onnx").write_bytes(
        model(initialiser("a", [2], 1, held(9, bytes(8))), initialiser("b", [2], 7, held(7, b"\x01\xff\x02")))
    )
    (folder / "in.msgpack").write_bytes(packed({"dense": {"kernel": np.ones((2, 3), np.float32)}}))
    (folder / "in.gguf").write_bytes(
        gguf_bytes(
            {"x": 1},
            {"a": np.ones((2, 4), np.float32), "b": np.zeros((2, 34), np.uint8)},
            {"b": 8},
        )
    )
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.parametrize("out", ["out.safetensors", "out.npz", "out"])
@pytest.mark.parametrize(
    "name",
    [
        "in.safetensors",
        "in.bin",
        "in.pt",
        "in.npz",
        "packed.npz",
        "in.npy",
        "in.onnx",
        "in.msgpack",
        "in.gguf",
    ],
)
def test_every_container_becomes_every_output_bit_for_bit(tmp_path: Path, name: str, out: str) -> None:
    (tmp_path / "in").mkdir()
    source = sources(tmp_path / "in")[name]
    done = mapper.convert(source, tmp_path / out)
    assert_same(tensors_of(tmp_path / out), tensors_of(source))
    assert done.tensors == len(tensors_of(source))


def test_a_folder_has_its_config_and_is_read_as_the_same_model(tmp_path: Path) -> None:
    source = write_bert(tmp_path / "bert")
    mapper.convert(source, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == BERT
    before, after = (json.loads(mapper.inspect(path).to_json()) for path in (source, tmp_path / "out"))
    assert {**after, "source": ""} == {**before, "source": ""}


def test_shards_have_an_index_as_the_hub_has_it(tmp_path: Path) -> None:
    source = write_bert(tmp_path / "bert")
    done = mapper.convert(source, tmp_path / "out", shard_size="2 KB")
    names = sorted(os.listdir(tmp_path / "out"))
    count = len(names) - 2
    assert names == [
        "config.json",
        *(f"model-{at:05}-of-{count:05}.safetensors" for at in range(1, count + 1)),
        "model.safetensors.index.json",
    ]
    assert sorted(done.files) == names and count > 3
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    whole = load_file(source / "model.safetensors")
    assert index["metadata"] == {"total_size": sum(tensor.nbytes for tensor in whole.values())}
    found: dict[str, torch.Tensor] = {}
    for name in names[1:-1]:
        part = load_file(tmp_path / "out" / name)
        assert {key for key, file in index["weight_map"].items() if file == name} == set(part)
        assert len(part) == 1 or sum(tensor.nbytes for tensor in part.values()) <= 2_000
        found |= part
    assert_same(found, whole)


def test_what_fits_into_one_file_has_no_index(tmp_path: Path) -> None:
    mapper.convert(TENSORS, tmp_path / "out", shard_size="5GB")
    assert os.listdir(tmp_path / "out") == ["model.safetensors"]


@pytest.mark.parametrize("size", ["5 apples", "", "0", "-3GB", "nan", "1e999", "GB"])
def test_a_size_that_is_none_is_named(tmp_path: Path, size: str) -> None:
    with pytest.raises(MapperError, match="size of a file"):
        mapper.convert(TENSORS, tmp_path / "out", shard_size=size)


@pytest.mark.parametrize(("size", "count"), [("1MiB", 2**20), ("5GB", 5 * 10**9), ("1.5kb", 1500), (77, 77)])
def test_sizes_are_read_as_they_are_written(size: str | int, count: int) -> None:
    assert converting.shard_bytes(size, "out", "") == count


def test_a_file_is_not_split(tmp_path: Path) -> None:
    with pytest.raises(MapperError, match="one file"):
        mapper.convert(TENSORS, tmp_path / "out.safetensors", shard_size="5GB")


def test_tensors_start_at_multiples_of_their_width_and_stand_in_the_order_of_the_source(
    tmp_path: Path,
) -> None:
    tensors = {
        "x": torch.ones(3, dtype=torch.int8),
        "y": torch.ones(3),
        "z": torch.ones(16, dtype=torch.float64),
    }
    mapper.convert(tensors, tmp_path / "a.safetensors")
    read = tensors_of(tmp_path / "a.safetensors")
    assert list(read) == ["x", "y", "z"]
    assert all(tensor.data_ptr() % tensor.itemsize == 0 for tensor in read.values())


def test_an_archive_is_one_that_numpy_writes_and_its_arrays_start_a_cache_line(tmp_path: Path) -> None:
    tensors = {f"layer.{at}.wéight": torch.full((at, 3), float(at)) for at in range(5)}
    mapper.convert(tensors, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
        assert archive.files == list(tensors)
        for name, tensor in tensors.items():
            assert np.array_equal(archive[name], tensor.numpy())
    read = tensors_of(tmp_path / "a.npz")
    assert all(tensor.data_ptr() % 64 == 0 for tensor in read.values() if tensor.numel())


def test_a_record_of_two_gigabytes_has_its_size_in_64_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mapper.weights.converting.archives.LARGE", 200)
    tensors = {"a": torch.ones(3), "b": torch.arange(100.0)}
    mapper.convert(tensors, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as archive:
        assert np.array_equal(archive["b"], tensors["b"].numpy())
    assert all(tensor.data_ptr() % 64 == 0 for tensor in tensors_of(tmp_path / "a.npz").values())


def test_bfloat16_comes_back_from_an_archive(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(5, dtype=torch.bfloat16) / 3}
    mapper.convert(tensors, tmp_path / "a.npz")
    assert_same(tensors_of(tmp_path / "a.npz"), tensors)


def test_types_that_an_output_lacks_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(MapperError, match="'w' is of F8_E4M3, which NumPy has no type for"):
        mapper.convert({"w": torch.ones(2).to(torch.float8_e4m3fn)}, tmp_path / "a.npz")
    with pytest.raises(MapperError, match="'w' is of C128, which safetensors has no name for"):
        mapper.convert({"w": torch.ones(2, dtype=torch.complex128)}, tmp_path / "a.safetensors")
    with pytest.raises(MapperError, match="zero byte"):
        mapper.convert({"w\0": torch.ones(2)}, tmp_path / "a.npz")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["a.bin", "a.gguf", "a.PT", "a.npy", "a.json"])
def test_other_containers_are_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(MapperError, match="written are"):
        mapper.convert(TENSORS, tmp_path / name)


def test_a_manifest_has_nothing_to_convert(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="manifest without weights"):
        mapper.convert(write_manifest(tmp_path / "bert.json"), tmp_path / "out")


# --------------------------------------------------------------------------------------------------------- casting
@pytest.mark.parametrize("name", ["in.safetensors", "in.bin"])
def test_a_cast_changes_floats_and_nothing_else(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    mapper.convert(sources(tmp_path / "in")[name], tmp_path / "out.safetensors", dtype=torch.float16)
    expected = {
        key: tensor.half() if tensor.is_floating_point() else tensor for key, tensor in TENSORS.items()
    }
    assert_same(tensors_of(tmp_path / "out.safetensors"), expected)


def test_a_value_out_of_range_is_an_error_that_names_its_tensor(tmp_path: Path) -> None:
    with pytest.raises(MapperError, match=r"'big' has values out of the range of float16"):
        mapper.convert(
            {"fine": torch.ones(2), "big": torch.tensor([1e6])}, tmp_path / "a.safetensors", dtype="float16"
        )
    assert os.listdir(tmp_path) == []


def test_floats_of_eight_bits_are_not_cast(tmp_path: Path) -> None:
    tensors = {"w": torch.ones(2).to(torch.float8_e4m3fn)}
    mapper.convert(tensors, tmp_path / "a.safetensors", dtype="bfloat16")
    assert tensors_of(tmp_path / "a.safetensors")["w"].dtype == torch.float8_e4m3fn


def test_a_type_that_nothing_is_cast_to_is_named(tmp_path: Path) -> None:
    with pytest.raises(MapperError, match="int8"):
        mapper.convert(TENSORS, tmp_path / "a.safetensors", dtype=torch.int8)


# ------------------------------------------------------------------------------------------- whole, or not at all
def test_nothing_is_replaced_unless_allowed_and_nothing_of_somebody_elses_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    for out in ("a.safetensors", "out"):
        with pytest.raises(FileExistsError):
            mapper.convert(TENSORS, tmp_path / out)
        mapper.convert(TENSORS, tmp_path / out, overwrite=True)
        assert_same(tensors_of(tmp_path / out), TENSORS)
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"
    (tmp_path / "out" / "model.safetensors").write_text("mine")
    with pytest.raises(FileExistsError, match="did not write"):
        mapper.convert(TENSORS, tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "model.safetensors").read_text() == "mine"


def test_shards_of_before_go_when_a_folder_is_replaced(tmp_path: Path) -> None:
    mapper.convert(TENSORS, tmp_path / "out", shard_size=40)
    mapper.convert(TENSORS, tmp_path / "out", overwrite=True)
    assert os.listdir(tmp_path / "out") == ["model.safetensors"]


def test_a_file_may_become_itself(tmp_path: Path) -> None:
    save_file({"a": torch.arange(1000.0)}, tmp_path / "a.safetensors")
    mapper.convert(tmp_path / "a.safetensors", tmp_path / "a.safetensors", dtype="bfloat16", overwrite=True)
    assert torch.equal(tensors_of(tmp_path / "a.safetensors")["a"], torch.arange(1000.0).bfloat16())


def test_a_source_that_is_written_meanwhile_is_refused(tmp_path: Path) -> None:
    save_file({"a": torch.arange(8.0)}, tmp_path / "a.safetensors")
    checkpoint = open_source(tmp_path / "a.safetensors", purpose="weights")
    save_file({"a": torch.arange(8.0) + 1}, tmp_path / "b.safetensors")
    os.replace(tmp_path / "b.safetensors", tmp_path / "a.safetensors")
    with pytest.raises(FormatError, match="written again"), origins.Origins(checkpoint) as made:
        list(made.pieces("a", checkpoint.tensors["a"]))


def test_bytes_are_copied_where_the_system_cannot_do_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(18, "cross-device link")

    (tmp_path / "in").mkdir()
    source = sources(tmp_path / "in")["in.safetensors"]
    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    mapper.convert(source, tmp_path / "out.safetensors")
    assert_same(tensors_of(tmp_path / "out.safetensors"), tensors_of(source))


def test_a_full_disk_is_noticed_before_a_byte_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=10))
    with pytest.raises(SourceError, match="10 bytes are free"):
        mapper.convert(TENSORS, tmp_path / "a.safetensors")
    assert os.listdir(tmp_path) == []


KILLED = """
import os, signal, sys
import mapper
from mapper.weights.converting import origins
system_copy, copied = origins._system_copy, []
def copy(*arguments):
    copied.append(arguments)
    if len(copied) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return system_copy(*arguments)
origins._system_copy = copy
mapper.convert(sys.argv[1], sys.argv[2], shard_size=sys.argv[3] or None, overwrite=True)
"""


@pytest.mark.parametrize(("out", "size"), [("out.safetensors", ""), ("out", "40")])
def test_a_killed_conversion_leaves_the_old_output_and_a_rerun_completes(
    tmp_path: Path, out: str, size: str
) -> None:
    names = {f"t{at}": torch.full((at + 3,), float(at)) for at in (0, 5, 2, 8, 1, 7)}
    torch.save(names, tmp_path / "in.bin")
    mapper.convert({"old": torch.ones(2)}, tmp_path / out)
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "in.bin", tmp_path / out, size])
    assert done.returncode == -signal.SIGKILL
    assert_same(tensors_of(tmp_path / out), {"old": torch.ones(2)})
    assert len(os.listdir(tmp_path)) == 3  # and what was half written, under another name
    mapper.convert(tmp_path / "in.bin", tmp_path / out, shard_size=size or None, overwrite=True)
    assert_same(tensors_of(tmp_path / out), names)
    assert sorted(os.listdir(tmp_path)) == sorted(["in.bin", out])


# ------------------------------------------------------------------------------------------------------ its cost
MEASURED = f"""
{PEAK}
import sys
import mapper
mapper.convert(sys.argv[1], sys.argv[3] + "warm" + sys.argv[4], dtype=sys.argv[5] or None)
before = peak()
mapper.convert(sys.argv[2], sys.argv[3] + "out" + sys.argv[4], dtype=sys.argv[5] or None)
print((peak() - before) * 1024)
"""
EACH, COUNT = 4 * 2**20, 48


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is told in other units elsewhere")
@pytest.mark.parametrize(
    ("packed", "suffix", "dtype"),
    [
        (False, ".safetensors", ""),
        (False, ".npz", ""),
        (False, ".safetensors", "bfloat16"),
        (True, ".safetensors", ""),
    ],
)
def test_a_conversion_takes_the_memory_of_a_few_tensors(
    tmp_path: Path, packed: bool, suffix: str, dtype: str
) -> None:
    save = np.savez_compressed if packed else np.savez
    array = np.zeros(EACH // 4, np.float32)
    save(tmp_path / "small.npz", a=array[:10])
    save(tmp_path / "big.npz", **{f"t{at}": array for at in range(COUNT)})
    arguments = [tmp_path / "small.npz", tmp_path / "big.npz", f"{tmp_path}/", suffix, dtype]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *arguments], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 12 * EACH  # a cast takes 7 to 10, of 12 tensors as of 72


def test_plain_bytes_are_converted_without_torch(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    whole = load_file(folder / "model.safetensors") | {"none": torch.zeros(0, 3)}
    save_file(whole, folder / "model.safetensors")
    code = "import sys, mapper; mapper.convert(sys.argv[1], sys.argv[2]); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, folder, tmp_path / "out"], capture_output=True, text=True
    )
    assert done.stdout == "False\n", done.stderr


READ_ONE = """
import sys
from mapper.sources import open_source
def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssFile")) * 1024
checkpoint = open_source(sys.argv[1], purpose="weights")
checkpoint.read(["small"])["small"].sum()
before = resident()
kept = checkpoint.read(["one"])
kept["one"].sum()
print(resident() - before)
"""


@pytest.mark.skipif(
    not os.path.exists("/proc/self/status"), reason="the system does not tell what is resident"
)
def test_reading_one_tensor_of_a_shard_reads_that_tensor_alone(tmp_path: Path) -> None:
    each = 2**24
    entries = {"small": [0, 64], "before": [64, 64 + each], "one": [64 + each, 64 + each + 2**20]}
    entries["after"] = [entries["one"][1], entries["one"][1] + each]
    table = {
        name: {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}
        for name, (start, end) in entries.items()
    }
    text = json.dumps(table).encode()
    with open(tmp_path / "a.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + entries["after"][1])
    done = subprocess.run(
        [sys.executable, "-c", READ_ONE, tmp_path / "a.safetensors"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) + 2**16 >= 2**20 and int(done.stdout) < 2 * 2**20


# ---------------------------------------------------------------------------------------------- what mapper saved
def test_a_save_becomes_the_checkpoint_that_its_model_was_read_from(tmp_path: Path) -> None:
    source = write_bert(tmp_path / "bert")
    mapper.save(tmp_path / "saved", mapper.build(source), aux={"step": torch.ones(3)})
    done = mapper.convert(tmp_path / "saved", tmp_path / "out")
    assert_same(tensors_of(tmp_path / "out"), tensors_of(source))
    assert json.loads((tmp_path / "out" / "config.json").read_text())["hidden_size"] == BERT["hidden_size"]
    assert any("aux" in note for note in done.notes)


def test_texts_in_the_header_are_kept(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "a.safetensors", {"format": "pt", "trained": "a week"})
    mapper.convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    with safe_open(tmp_path / "b.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt", "trained": "a week"}


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    source = sources(tmp_path / "in")["in.bin"]
    for suffix in (".safetensors", ".npz"):
        written = []
        for at in "ab":
            mapper.convert(source, tmp_path / (at + suffix))
            written.append((tmp_path / (at + suffix)).read_bytes())
        assert written[0] == written[1]
