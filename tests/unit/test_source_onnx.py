"""ONNX files: what the initialisers are, in the file and beside it, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mapper import limits
from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError, MapperError, MissingSourceError
from mapper.sources import open_source
from tests.onnx_files import beside, held, initialiser, model, number, varint


def opened(path: Path) -> tuple[Checkpoint, dict[str, torch.Tensor]]:
    checkpoint = open_source(path, purpose="weights")
    assert checkpoint.read is not None
    return checkpoint, checkpoint.read(list(checkpoint.tensors))


def refusal(path: Path, *content: bytes, kind: type[MapperError] = FormatError) -> str:
    if content:
        path.write_bytes(b"".join(content))
    with pytest.raises(kind) as caught:
        opened(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def onnx_file(path: Path, arrays: dict[str, Any], **options: Any) -> Path:
    onnx = pytest.importorskip("onnx")
    made = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = onnx.helper.make_graph([], "graph", [], [], made)
    onnx.save_model(onnx.helper.make_model(graph), str(path), **options)
    return path


ARRAYS = {
    "layer.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "onnx::MatMul_12": np.ones((2, 2), np.float64),
    "half": np.array([1.5, -2], np.float16),
    "steps": np.array([-1, 2**40], np.int64),
    "scalar": np.array(3, np.int32),
    "flags": np.array([True, False]),
    "none": np.zeros((0, 3), np.float32),
    "bytes": np.array([0, 255], np.uint8),
}


def test_initialisers_of_every_type_come_back(tmp_path: Path) -> None:
    types = pytest.importorskip("ml_dtypes")
    arrays = {**ARRAYS, "brain": np.array([1.5, -2]).astype(types.bfloat16)}
    checkpoint, read = opened(onnx_file(tmp_path / "model.onnx", arrays))
    assert (checkpoint.container, list(read)) == ("onnx", list(arrays))
    for name, array in ARRAYS.items():
        assert torch.equal(read[name], torch.from_numpy(array)), name
    assert read["brain"].tolist() == [1.5, -2] and read["brain"].dtype is torch.bfloat16


def test_numbers_outside_the_raw_field_are_read(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    kinds, make = onnx.TensorProto, onnx.helper.make_tensor
    made = [
        make("floats", kinds.FLOAT, [3], [1.5, -2.0, 3.0]),
        make("doubles", kinds.DOUBLE, [1], [0.1]),
        make("longs", kinds.INT64, [2], [-1, 2**40]),
        make("bytes", kinds.INT8, [3], [-1, 0, 127]),
        make("ints", kinds.INT32, [2], [-(2**31), 7]),
        make("unsigned", kinds.UINT64, [2], [2**64 - 1, 0]),
        make("half", kinds.FLOAT16, [2], np.array([1.5, -2.0], np.float16)),
        make("flags", kinds.BOOL, [2], [True, False]),
    ]
    graph = onnx.helper.make_graph([], "graph", [], [], made)
    onnx.save_model(onnx.helper.make_model(graph), str(tmp_path / "x.onnx"))
    read = opened(tmp_path / "x.onnx")[1]
    for tensor in made:
        assert torch.equal(read[tensor.name], torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy())), (
            tensor.name
        )


def test_tensors_in_files_beside_the_model_are_read(tmp_path: Path) -> None:
    options = {"save_as_external_data": True, "size_threshold": 0, "convert_attribute": False}
    for name, all_in_one in (("one", True), ("many", False)):
        folder = tmp_path / name
        folder.mkdir()
        arrays = {key.replace(":", "_"): array for key, array in ARRAYS.items() if array.size}
        path = onnx_file(folder / "model.onnx", arrays, all_tensors_to_one_file=all_in_one, **options)
        checkpoint, read = opened(path)
        assert all(torch.equal(read[key], torch.from_numpy(array)) for key, array in arrays.items())
        assert read.keys() == arrays.keys() and len(checkpoint.weights) == 1 + (
            1 if all_in_one else len(arrays)
        )
        assert opened(folder)[1].keys() == arrays.keys()


@pytest.mark.parametrize("location", ["../x", "/etc/passwd", "a/../../x", "", "C:\\x", ".", "x\x00y"])
def test_a_tensor_cannot_lie_outside_the_folder(location: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "x").write_bytes(bytes(8))
    text = refusal(tmp_path / "in" / "m.onnx", model(initialiser("a", [2], 1, beside(location))))
    assert "is no file beside it" in text


def test_a_file_beside_the_model_cannot_link_out(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_bytes(bytes(8))
    os.symlink(tmp_path / "secret", tmp_path / "in" / "data")
    assert "is a link out of its directory" in refusal(tmp_path / "in" / "m.onnx", model(initialiser("a", [2], 1, beside("data"))))  # fmt: skip


def test_what_lies_beside_must_be_there_and_long_enough(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    assert "does not exist" in refusal(
        path, model(initialiser("a", [2], 1, beside("data"))), kind=MissingSourceError
    )
    (tmp_path / "data").write_bytes(bytes(8))
    assert opened(path)[1]["a"].tolist() == [0, 0]
    path.write_bytes(model(initialiser("a", [2], 1, beside("data", offset=""))))
    assert opened(path)[1]["a"].tolist() == [0, 0]
    cases = {
        "ends at byte 9 of 'data', which has 8": beside("data", offset=1),
        "has 4 bytes beside the model where F32 [2] needs 8": beside("data", length=4),
        "lies at \"['-1', '']\"": beside("data", offset=-1),
    }
    for expected, place in cases.items():
        assert expected in refusal(path, model(initialiser("a", [2], 1, place)))
    twice = model(initialiser("a", [2], 1, beside("data")), initialiser("a", [2], 1, held(9, bytes(8))))
    assert "'a' also in an earlier shard" in refusal(path, twice)


def test_sparse_and_text_initialisers_are_noted(tmp_path: Path) -> None:
    graph = (
        held(5, initialiser("a", [1], 1, held(9, bytes(4))))
        + held(15, b"")
        + held(5, initialiser("t", [1], 8))
    )
    (tmp_path / "m.onnx").write_bytes(held(7, graph))
    assert opened(tmp_path / "m.onnx")[0].notes == [
        "m.onnx: 1 initialisers are sparse and were not read",
        "m.onnx: 1 initialisers hold texts and were not read",
        "the graph was not read: m.onnx: an initialiser is sparse, which is not read",
    ]


REFUSED = {
    "nothing of it": (b"hello world", "m.onnx"),
    "no graph": (number(1, 10), "0 graphs where an ONNX model has one"),
    "two graphs": (held(7, b"") * 2, "2 graphs"),
    "no initialisers": (model(), "no tensors in it"),
    "a field that is too long": (varint(7 << 3 | 2) + varint(2**50), "a field of 1,125,899,906,842,624 bytes"),
    "an endless number": (b"\x08" + b"\xff" * 30, "a number without an end"),
    "a group": (b"\x0b" + bytes(30), "a field of the kind 3"),
    "too few bytes": (model(initialiser("a", [3], 1, held(9, bytes(8)))), "has 8 bytes where F32 [3] needs 12"),
    "too many bytes": (model(initialiser("a", [1], 1, held(9, bytes(8)))), "has 8 bytes where F32 [1] needs 4"),
    "no bytes": (model(initialiser("a", [1])), "has 0 bytes where F32 [1] needs 4"),
    "a negative extent": (model(initialiser("a", [2**64 - 1])), "a dimension of"),
    "many dimensions": (model(initialiser("a", [1] * 50)), "50 dimensions"),
    "no name": (model(initialiser("", [1])), "an empty name"),
    "a name twice": (model(*[initialiser("a", [1], 1, held(9, bytes(4)))] * 2), "two initialisers have the name 'a'"),
    "four bits": (model(initialiser("a", [2], 22, held(9, b"x"))), "type INT4, which no tensor has"),
    "an unknown type": (model(initialiser("a", [2], 99, held(9, b"x"))), "type 99"),
    "pieces": (model(initialiser("a", [1], 1, held(9, bytes(4)), held(4, bytes(4)))), "in pieces"),
    "raw bytes twice": (model(initialiser("a", [1], 1, held(9, bytes(4)) * 2)), "in pieces"),
    "another's field": (model(initialiser("a", [1], 1, held(7, b"\x01"))), "of F32 has its numbers in field 7"),
    "too few numbers": (model(initialiser("a", [2], 7, held(7, b"\x81\x01"))), "has 1 numbers, not 2"),
    "an unended number": (model(initialiser("a", [2], 7, held(7, b"\x01\x81"))), "has 1 numbers, not 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_damaged_file_is_refused(case: str, tmp_path: Path) -> None:
    data, expected = REFUSED[case]
    assert expected in refusal(tmp_path / "m.onnx", data)


def test_the_number_of_fields_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WIRE_FIELDS", 10)
    assert "more than 10 fields" in refusal(tmp_path / "m.onnx", number(1, 1) * 20)


def test_headers_need_neither_torch_nor_numpy_nor_onnx(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(model(initialiser("a", [2], 1, held(9, bytes(8)))))
    program = (
        "import sys; from mapper.sources import open_source; open_source(sys.argv[1], purpose='headers');"
        "assert not {'torch', 'numpy', 'onnx'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "m.onnx")], check=True)


def node(operation: str, *attributes: bytes) -> bytes:
    return held(1, held(4, operation) + b"".join(held(5, attribute) for attribute in attributes))


def constant(shape: list[int]) -> bytes:
    return node("Constant", held(1, "value") + held(5, initialiser("", shape)))


def graph_model(*parts: bytes) -> bytes:
    """A model of these parts of a graph: nodes, and initialisers with their tag."""
    return number(1, 10) + held(7, b"".join(parts)) + held(8, number(2, 21))


def zeros(name: str, shape: list[int]) -> bytes:
    return held(5, initialiser(name, shape, 1, held(9, b"\0" * 4 * int(np.prod(shape)))))


def test_weights_in_branches_are_counted_where_there_are_no_others(tmp_path: Path) -> None:
    inner = node("If", held(1, "then_branch") + held(6, zeros("b", [9, 9])))
    whole = graph_model(
        node(
            "If",
            held(1, "then_branch") + held(6, constant([8, 8]) + constant([1])),
            held(1, "else_branch") + held(6, inner),
        )
    )
    text = refusal(tmp_path / "x.onnx", whole)
    assert "no initialisers; its weights lie in the graphs inside of its operations" in text
    assert "If.then_branch (2 constants), If.else_branch (1 initialiser)" in text
    assert "names are the exporter's" in text and "give the weights that it was exported from" in text


def test_weights_in_constants_are_counted_where_there_are_no_others(tmp_path: Path) -> None:
    assert "1 constant of its graph" in refusal(tmp_path / "x.onnx", graph_model(constant([8, 8])))
    assert "no tensors in it" in refusal(tmp_path / "y.onnx", graph_model(constant([2])))


def test_what_else_holds_weights_is_noted(tmp_path: Path) -> None:
    branch = node("Loop", held(1, "body") + held(6, zeros("w", [9, 9])))
    (tmp_path / "x.onnx").write_bytes(graph_model(branch, constant([8, 8]), zeros("a.weight", [4, 4])))
    notes = " ".join(open_source(tmp_path / "x.onnx", purpose="headers").notes)
    assert "were not read: Loop.body (1 initialiser)" in notes
    assert "1 constant of its graph may be weights" in notes
    assert "exporter" not in notes


@pytest.mark.parametrize(
    ("name", "is_counted"),
    [
        ("val_100", True), ("onnx::MatMul_123", True), ("/encoder/Constant_3_output_0", True), ("123", True),
        ("const_fold_opt__155", True), ("/Constant_output_0", True), ("lifted_tensor_0", True), ("model/Const_15:0", True),
        ("layers.0.attn.weight", False), ("embeddings", False), ("conv1", False), ("h.1.mul.weight", False), ("shape", False),
        ("encoder/layer_0/kernel:0", False), ("layer.val_1", False),
    ],
)  # fmt: skip
def test_names_that_an_exporter_counted_up(name: str, is_counted: bool) -> None:
    from mapper.sources import onnx_graph

    assert onnx_graph.is_counted(name) == is_counted


def test_maps_without_names_are_said_and_no_flow_is_chosen_without_them(tmp_path: Path) -> None:
    import mapper

    named = {
        "embed.weight": [20, 8],
        "layers.0.norm.weight": [8],
        "layers.0.norm.bias": [8],
        "layers.1.norm.weight": [8],
    }
    counted = {f"val_{at}": [8, 24] for at in (100, 104)} | {"onnx::MatMul_7": [24, 8]}
    parts = [zeros(name, shape) for name, shape in {**named, **counted}.items()]
    (tmp_path / "x.onnx").write_bytes(graph_model(*parts))
    report = mapper.inspect(tmp_path / "x.onnx")
    assert report.architecture.reading == "skeleton"
    assert "3 of 4 maps have names that the exporter made up" in str(report)
    assert "3 of 7 weights have names that the exporter made up" in str(report)
