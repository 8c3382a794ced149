"""Checkpoint files and folders as sources; files that are not what they claim."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import mapper
from tests.weights.snapshots import Holder, Tied, bits, filled, refused, same_states, two_layers, zeroed


def states() -> dict[str, torch.Tensor]:
    return dict(filled(two_layers()).state_dict())


def as_safetensors(folder: Path) -> Path:
    safetensors.torch.save_file(states(), folder / "weights.safetensors")
    return folder / "weights.safetensors"


def as_npz(folder: Path) -> Path:
    np.savez(folder / "weights.npz", **{key: value.numpy() for key, value in states().items()})
    return folder / "weights.npz"


def as_compressed_npz(folder: Path) -> Path:
    np.savez_compressed(folder / "weights.npz", **{key: value.numpy() for key, value in states().items()})
    return folder / "weights.npz"


def pickled(suffix: str, **options: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        torch.save(states(), folder / f"weights{suffix}", **options)
        return folder / f"weights{suffix}"

    return write


def as_folder(folder: Path) -> Path:
    safetensors.torch.save_file(states(), folder / "model.safetensors")
    return folder


def as_shards(folder: Path) -> Path:
    weights = states()
    index = {}
    for number, keys in enumerate((["0.weight", "2.bias"], ["0.bias", "2.weight"]), 1):
        name = f"model-0000{number}-of-00002.safetensors"
        safetensors.torch.save_file({key: weights[key] for key in keys}, folder / name)
        index |= dict.fromkeys(keys, name)
    text = json.dumps({"metadata": {"total_size": 68}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text)
    return folder


KINDS = {
    "safetensors": as_safetensors,
    "npz": as_npz,
    "npz compressed": as_compressed_npz,
    "bin": pickled(".bin"),
    "pt": pickled(".pt"),
    "pth": pickled(".pth"),
    "pth of old": pickled(".pth", _use_new_zipfile_serialization=False),
    "folder": as_folder,
    "shards": as_shards,
}


@pytest.fixture(params=KINDS)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return KINDS[request.param](tmp_path)


def test_a_model_is_filled_from_every_kind_of_file(file: Path) -> None:
    model = zeroed(two_layers())
    assert mapper.load_weights(model, file).loaded == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert same_states(model, filled(two_layers()))


def test_a_file_may_be_named_by_a_string(file: Path) -> None:
    model = zeroed(two_layers())
    assert mapper.load_weights(model, str(file)).ok
    assert same_states(model, filled(two_layers()))


def test_a_file_may_be_named_by_anything_like_a_path(file: Path) -> None:
    class Named:
        def __fspath__(self) -> str:
            return str(file)

    assert mapper.load_weights(two_layers(), Named()).ok


def test_a_file_fills_a_model_on_meta(file: Path) -> None:
    with torch.device("meta"):
        model = two_layers()
    mapper.load_weights(model, file)
    assert same_states(model, filled(two_layers()))
    model(torch.ones(1, 2)).sum().backward()


def test_a_file_that_does_not_fit_changes_nothing(file: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4))
    with refused(model) as caught:
        mapper.load_weights(model, file)
    assert caught.kinds == {"2.weight": "shape", "2.bias": "shape"}


def test_a_file_is_loaded_leniently(file: Path) -> None:
    model = zeroed(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4)))
    report = mapper.load_weights(model, file, strict=False)
    assert report.loaded == ["0.weight", "0.bias"]


def test_a_file_is_cast_to_the_models_dtype(file: Path) -> None:
    model = two_layers().double()
    report = mapper.load_weights(model, file)
    assert model[0].weight.dtype == torch.float64 and len(report.cast) == 4


def test_a_file_is_as_it_was_after_a_load(file: Path) -> None:
    found = sorted(file.iterdir()) if file.is_dir() else [file]
    before = [path.read_bytes() for path in found]
    model = two_layers()
    mapper.load_weights(model, file, assign=True)
    with torch.no_grad():
        model[0].weight.fill_(55)
    assert [path.read_bytes() for path in found] == before


def test_a_file_can_be_removed_after_a_load(file: Path) -> None:
    model = two_layers()
    mapper.load_weights(model, file)
    for path in sorted(file.iterdir()) if file.is_dir() else [file]:
        os.truncate(path, 0)
        path.unlink()
    assert same_states(model, filled(two_layers()))


def test_a_prefix_is_cut_off_the_paths_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    tensors = {f"bert.{key}": value for key, value in states().items()} | {"head": torch.ones(1)}
    safetensors.torch.save_file(tensors, path)
    model = zeroed(two_layers())
    assert mapper.load_weights(model, path, prefix="bert.").ok
    assert same_states(model, filled(two_layers()))


def test_a_file_written_from_a_wrapped_model_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save(nn.DataParallel(torch.compile(filled(two_layers()), backend="eager")).state_dict(), path)
    model = zeroed(two_layers())
    assert mapper.load_weights(model, path).ok


def test_a_file_says_nothing_about_a_bias_that_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.torch.save_file({"weight": torch.ones(1, 2)}, path)
    model = nn.Linear(2, 1)
    with refused(model) as caught:
        mapper.load_weights(model, path)
    assert caught.report.missing == ["bias"]


def test_a_bias_of_zeros_in_a_file_fits_a_model_without(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.torch.save_file({"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, path)
    assert mapper.load_weights(nn.Linear(2, 1, bias=False), path).absent == ["bias"]


def test_a_bias_of_ones_in_a_file_does_not_fit_a_model_without(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.torch.save_file({"weight": torch.ones(1, 2), "bias": torch.ones(1)}, path)
    model = nn.Linear(2, 1, bias=False)
    with refused(model) as caught:
        mapper.load_weights(model, path)
    assert caught.kinds == {"bias": "absent"}


def test_a_conflict_between_tied_values_in_a_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.torch.save_file(filled(Tied(tied=False)).state_dict(), path)
    model = Tied()
    with refused(model) as caught:
        mapper.load_weights(model, path)
    assert [entry.kind for entry in caught.report.mismatched] == ["tie"]


def test_an_overflow_in_the_last_tensor_of_a_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    source = {**states(), "2.bias": torch.tensor([1.0, 1e6])}
    safetensors.torch.save_file(source, path)
    model = two_layers().half()
    with refused(model) as caught:
        mapper.load_weights(model, path)
    assert caught.kinds == {"2.bias": "overflow"}


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8", "bool", "float64"]
)
def test_a_safetensors_file_gives_the_bits_of_its_dtype(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "m.safetensors"
    value = torch.tensor([[0, 1, 1]]).float().to(getattr(torch, dtype))
    safetensors.torch.save_file({"table": value, "scalar": value[0, 1].clone()}, path)
    model = Holder(table=torch.zeros_like(value), scalar=torch.zeros_like(value[0, 0]))
    report = mapper.load_weights(model, path, casting="no")
    assert report.cast == [] and bits(model.table) == bits(value) and bits(model.scalar) == bits(value[0, 1])


def test_empty_arrays_and_scalars_of_a_file_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.torch.save_file({"none": torch.zeros(0, 3), "count": torch.tensor(4)}, path)
    model = Holder(none=torch.zeros(0, 3), count=torch.tensor(0))
    assert mapper.load_weights(model, path).ok and int(model.count) == 4


def test_an_npz_of_another_byte_and_memory_order_gives_the_values(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    np.savez(path, weight=np.asfortranarray(np.arange(6, dtype=">f4").reshape(2, 3)))
    model = nn.Linear(3, 2, bias=False)
    mapper.load_weights(model, path)
    assert model.weight.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_tensors_that_share_memory_in_a_file_of_torch_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save(filled(Tied()).state_dict(), path)
    model = zeroed(Tied())
    assert mapper.load_weights(model, path).ok and same_states(model, filled(Tied()))


def test_strided_tensors_of_a_file_of_torch_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save({"weight": torch.arange(6.0).reshape(3, 2).t()}, path)
    model = nn.Linear(3, 2, bias=False)
    mapper.load_weights(model, path)
    assert model.weight.tolist() == [[0, 2, 4], [1, 3, 5]]


# what is not there


@pytest.mark.parametrize("name", ["gone.safetensors", "gone.npz", "gone.pt", "gone.bin", "gone.pth", "gone"])
@pytest.mark.parametrize("strict", [True, False])
def test_a_file_that_is_missing_is_a_file_not_found(tmp_path: Path, name: str, strict: bool) -> None:
    model = two_layers()
    with refused(model, FileNotFoundError):
        mapper.load_weights(model, tmp_path / name, strict=strict)


def test_a_string_that_is_no_path_is_a_file_not_found() -> None:
    model = two_layers()
    with refused(model, FileNotFoundError):
        mapper.load_weights(model, "./there is nothing here")


def test_a_shard_that_is_missing_changes_nothing(tmp_path: Path) -> None:
    as_shards(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    model = two_layers()
    with refused(model, (mapper.MapperError, FileNotFoundError)):  # type: ignore[arg-type]
        mapper.load_weights(model, tmp_path)


# what is not what it claims


class Evil:
    """Unpickling it makes a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.mark,)


@pytest.mark.parametrize("suffix", [".bin", ".pt", ".pth"])
@pytest.mark.parametrize("new", [True, False])
def test_a_pickle_that_would_run_code_is_refused_and_does_not(tmp_path: Path, suffix: str, new: bool) -> None:
    path, mark = tmp_path / f"evil{suffix}", tmp_path / "ran"
    torch.save({**states(), "x": Evil(mark)}, path, _use_new_zipfile_serialization=new)
    model = two_layers()
    with refused(model, mapper.FormatError) as caught:
        mapper.load_weights(model, path)
    assert path.name in str(caught.error) and not mark.exists()


def test_a_bare_pickle_that_would_run_code_is_refused_and_does_not(tmp_path: Path) -> None:
    path, mark = tmp_path / "evil.bin", tmp_path / "ran"
    path.write_bytes(pickle.dumps({"0.weight": Evil(mark)}))
    model = two_layers()
    with refused(model, mapper.FormatError):
        mapper.load_weights(model, path)
    assert not mark.exists()


def test_a_whole_pickled_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save(two_layers(), path)
    model = two_layers()
    with refused(model, mapper.FormatError):
        mapper.load_weights(model, path)


def test_objects_in_an_npz_are_refused_and_not_unpickled(tmp_path: Path) -> None:
    path, mark = tmp_path / "evil.npz", tmp_path / "ran"
    arrays = {key: value.numpy() for key, value in states().items()}
    np.savez(path, **arrays, x=np.array([Evil(mark)], dtype=object))
    model = two_layers()
    with refused(model, mapper.FormatError):
        mapper.load_weights(model, path)
    assert not mark.exists()


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("keep", [0, 1, 7, 8, 20, 0.5, -1])
def test_a_file_that_is_cut_short_is_an_error_of_format(
    file: Path, keep: float, strict: bool, request: pytest.FixtureRequest
) -> None:
    path = sorted(file.glob("*.safetensors"))[0] if file.is_dir() else file
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)] if keep == 0.5 else data[: int(keep)])
    model = two_layers()
    with refused(model, mapper.FormatError) as caught:
        mapper.load_weights(model, file, strict=strict)
    assert path.name in str(caught.error)


@pytest.mark.parametrize("name", ["x.safetensors", "x.npz", "x.bin", "x.pt", "x.pth"])
def test_a_file_of_other_bytes_is_an_error_of_format(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"this is a text and no checkpoint, whatever its name may say\n" * 20)
    model = two_layers()
    with refused(model, mapper.FormatError) as caught:
        mapper.load_weights(model, path)
    assert name in str(caught.error) and "\n" not in str(caught.error)


def test_an_archive_that_holds_something_else_is_an_error_of_format(tmp_path: Path) -> None:
    for name in ("x.npz", "x.pt"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("readme.txt", "nothing")
        model = two_layers()
        with refused(model, mapper.FormatError):
            mapper.load_weights(model, tmp_path / name)


def test_a_damaged_member_of_an_npz_is_an_error_of_format(tmp_path: Path) -> None:
    path = as_compressed_npz(tmp_path)
    data = bytearray(path.read_bytes())
    data[100] ^= 255  # in the first array
    path.write_bytes(bytes(data))
    model = two_layers()
    with refused(model, mapper.FormatError):
        mapper.load_weights(model, path)


def test_a_record_without_a_name_in_an_npz_is_an_error_of_format(tmp_path: Path) -> None:
    path = as_npz(tmp_path)
    data = path.read_bytes()
    at = data.rindex(b"0.weight.npy")  # in the directory of the archive
    path.write_bytes(data[:at] + b"\0" + data[at + 1 :])
    model = two_layers()
    with refused(model, mapper.FormatError):
        mapper.load_weights(model, path)


def test_an_index_that_is_no_json_is_an_error_of_format(tmp_path: Path) -> None:
    as_shards(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("{")
    model = two_layers()
    with refused(model, mapper.FormatError):
        mapper.load_weights(model, tmp_path)
