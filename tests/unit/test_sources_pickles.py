"""Pickles that pickle.dump wrote: arrays and tensors whose numbers stand inside of the pickle."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

import mapper
from mapper.errors import FormatError, MapperError
from mapper.sources import open_source


def arrays():
    numbers = np.random.default_rng(0)
    weight = numbers.standard_normal((4, 3)).astype("f4")
    return {
        "fc1.weight": weight,
        "fc1.bias": weight[:, 0].copy(),
        "fc2.weight": np.asfortranarray(weight[:2].T),
    }


def read(path):
    checkpoint = open_source(path, purpose="weights")
    return {name: tensor.numpy() for name, tensor in checkpoint.read(checkpoint.tensors).items()}


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_of_every_protocol_are_read(tmp_path, protocol):
    path, tables = tmp_path / "model.pkl", arrays()
    tables["fc2.bias"] = tables["fc1.bias"][:3].astype(">f4")
    path.write_bytes(pickle.dumps(tables, protocol=protocol))
    found = read(path)
    assert list(found) == list(tables)
    for name, array in tables.items():
        assert np.array_equal(found[name], array), name


@pytest.mark.parametrize("padding", [None, 3])
def test_numbers_between_the_opcodes_are_read(tmp_path, padding):
    """As joblib writes them: a wrapper that says shape and type, bytes that fill up, then the numbers."""
    path, array = tmp_path / "model.pkl", np.arange(6, dtype="f4").reshape(2, 3)
    said = {"shape": (2, 3), "order": "C", "dtype": array.dtype, "numpy_array_alignment_bytes": padding}
    state = pickle.dumps(said, protocol=2)[2:-1]  # without its head and its end
    wrapper = b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81"
    filled = b"" if padding is None else bytes([padding]) + b"\xff" * padding
    table = b"\x80\x02}" + pickle.dumps("fc.weight", protocol=2)[2:-1]
    path.write_bytes(table + wrapper + state + b"b" + filled + array.tobytes() + b"s.")
    assert np.array_equal(read(path)["fc.weight"], array)


def test_a_table_within_other_things_is_found(tmp_path):
    path = tmp_path / "model.pkl"
    held = {
        "epoch": 3,
        "words": np.array(["a", "b"]),
        "state_dict": arrays(),
        "objects": np.array([{}, None]),
    }
    path.write_bytes(pickle.dumps(held))
    report = mapper.inspect(str(path))
    assert set(read(path)) == set(arrays())
    assert "the tensors are those under 'state_dict'" in str(report)
    assert "pickle" in str(report)


def test_arrays_that_stand_under_two_names_are_one(tmp_path):
    path, tables = tmp_path / "model.pkl", arrays()
    tables["head.weight"] = tables["fc1.weight"]
    path.write_bytes(pickle.dumps(tables))
    assert np.array_equal(read(path)["head.weight"], tables["fc1.weight"])


def test_tensors_of_torch_in_a_plain_pickle_are_read(tmp_path):
    path, state = tmp_path / "model.pkl", torch.nn.LSTM(3, 4).state_dict()
    state["half"] = torch.arange(6, dtype=torch.bfloat16).view(2, 3).T
    path.write_bytes(pickle.dumps(state))
    checkpoint = open_source(path, purpose="weights")
    found = checkpoint.read(checkpoint.tensors)
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())


@pytest.mark.parametrize("held", [{"a": 1}, {"a": np.array(["x"])}, [], {"a": np.array([{}])}])
def test_a_pickle_without_numbers_is_refused(tmp_path, held):
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(held))
    with pytest.raises(FormatError, match=r"without arrays of numbers; save a state dict"):
        open_source(path, purpose="weights")


def test_a_pickle_that_is_cut_or_changed_is_refused_or_read(tmp_path):
    path, whole = tmp_path / "model.pkl", pickle.dumps({"a": np.arange(3.0), "b": torch.ones(2)})
    for at in range(2, len(whole)):
        for changed in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]):
            path.write_bytes(changed)
            try:
                read(path)
            except MapperError as error:
                assert "\n" not in str(error)
