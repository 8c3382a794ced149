"""The slips that are easily made with the functions for weights: each is told in one line that says what to do."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mapper

MODEL = nn.Linear(2, 1)
TREE = {"a": torch.ones(2)}


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: mapper.load_weights(nn.Linear, {}), TypeError, "make an instance of Linear"),
        (lambda: mapper.load_weights(MODEL, MODEL.parameters()), TypeError, "give the model itself"),
        (lambda: mapper.load_weights(MODEL, b"a.safetensors"), TypeError, "give the file's path"),
        (lambda: mapper.load_weights(MODEL, io.BytesIO()), TypeError, "give the file's path"),
        (lambda: mapper.load_weights(MODEL, nn.Linear), TypeError, "make an instance"),
        (lambda: mapper.load_weights(MODEL, MODEL, strict=None), ValueError, "strict is None; it is True, False"),
        (lambda: mapper.load_weights(MODEL, MODEL, strict="missing"), ValueError, "a set of 'missing'"),
        (lambda: mapper.load_weights(MODEL, MODEL, device="gpu"), ValueError, "'cpu' or 'cuda:0'"),
        (lambda: mapper.load_weights(MODEL, MODEL, prefix=3), ValueError, "prefix is 3"),
        (lambda: mapper.load_weights(MODEL, MODEL, rename=[("a", "b")]), ValueError, "a table {old: new} or a function"),
        (lambda: mapper.load_weights(MODEL, MODEL, filter="0"), ValueError, "a function (path, node)"),
        (lambda: mapper.flatten({"a": 1}, sep=""), ValueError, "sep is ''"),
        (lambda: mapper.unflatten({"a": 1}, sep=3), ValueError, "sep is 3"),
        (lambda: mapper.save(MODEL, "a.safetensors"), TypeError, "call save(path, model)"),
        (lambda: mapper.save("", MODEL), ValueError, "the path is empty"),
        (lambda: mapper.save_states(MODEL, "a"), TypeError, "call save_states(path, model)"),
        (lambda: mapper.load(io.BytesIO()), TypeError, "call load(path)"),
        (lambda: mapper.load("a", strict="missing"), ValueError, "strict is 'missing'"),
        (lambda: mapper.load("a", dtype=torch.int8), TypeError, "as torch.float16"),
        (lambda: mapper.load("a", dtype="float17"), mapper.MapperError, "float32, float16, bfloat16"),
        (lambda: mapper.load("a", device="gpu"), ValueError, "device is 'gpu'"),
        (lambda: mapper.load_states(MODEL, "a"), TypeError, "call load_states(path, model)"),
        (lambda: mapper.save_tree(io.BytesIO(), TREE, filter_spec="x"), mapper.StructureError, "it is a function, None"),
        (lambda: mapper.save_tree(io.BytesIO(), TREE, is_leaf=5), TypeError, "is_leaf is of type int"),
        (lambda: mapper.load_tree("not there", TREE), FileNotFoundError, "'not there': no such file; check the path"),
    ],
)  # fmt: skip
def test_a_slip_is_told_with_what_to_do(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_prefix_that_no_path_has_is_told_with_those_they_have() -> None:
    with pytest.raises(
        mapper.StructureError, match=r"no path of the source starts with 'model.*; they start with 'bert'"
    ):
        mapper.load_weights(MODEL, {"bert.weight": torch.ones(1, 2)}, prefix="model.")


def test_a_short_foreign_file_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"hi")
    with pytest.raises(
        mapper.FormatError, match=r"2 bytes are there, and a record of mapper\.save_tree has 36"
    ):
        mapper.load_tree(path, TREE)


def test_a_stream_opened_the_other_way_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t"
    mapper.save_tree(path, TREE)
    with open(path, "rb") as file, pytest.raises(TypeError, match="not opened to write"):
        mapper.save_tree(file, TREE)
    with open(path, "ab") as file, pytest.raises(TypeError, match="not opened to read"):
        mapper.load_tree(file, TREE)


def test_two_names_that_a_separator_makes_one_are_told() -> None:
    with pytest.raises(mapper.StructureError, match="two paths become 'a/b/c'"):
        mapper.flatten({"a/b": {"c": 1}, "a": {"b": {"c": 2}}}, sep="/")


class Packed(nn.Linear):
    """Keeps weights where nobody registered them, as torch's quantised layers do."""

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "packed"] = torch.ones(2)


def test_weights_that_are_not_registered_are_not_lost_in_silence(tmp_path: Path) -> None:
    with pytest.raises(mapper.UnsupportedLeaf, match="'packed' beside its parameters") as caught:
        mapper.save(tmp_path / "m.safetensors", nn.Sequential(Packed(2, 1)))
    assert caught.value.path == "0"
    assert not list(tmp_path.iterdir())
