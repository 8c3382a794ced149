"""Imported graphs compute what the ONNX backend suite says. `python tools/onnx_suite.py` runs all of it."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mapper
from mapper import limits
from mapper.errors import ArchitectureError
from mapper.graphs.graph import Node
from mapper.graphs.operators import operator, registry
from mapper.graphs.reading import read_model
from mapper.graphs.straight.building import build_straight
from mapper.graphs.straight.source import write_model
from tests.pages import blocks, page

onnx = pytest.importorskip("onnx")
make = onnx.helper
FLOAT = onnx.TensorProto.FLOAT

# Modules of the suite whose cases together take a few seconds, one of each theme.
QUICK = (
    "batch_normalization", "clip", "conv", "depthtospace", "div", "gather", "gathernd", "gru", "layernormalization", "lstm",
    "matmul", "onehot", "qlinearconv", "quantizelinear", "scatterelements", "scatternd", "slice", "split", "topk", "unique",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_cases_of_the_suite_pass_and_none_is_wrong(tmp_path: Path) -> None:
    from tools.onnx_suite import LIST, cases_of, run_case

    listed = set(LIST.read_text(encoding="utf-8").split())
    results = {case.name: run_case(case, tmp_path) for case in cases_of(QUICK)}
    assert len(results.keys() & listed) > 100 and len(listed) >= 1_650
    assert {name: why for name, why in results.items() if why and (name in listed or "WRONG" in why)} == {}


def saved(
    path: Path, nodes: list[Any], inputs: list[Any], arrays: Any = (), opsets: Any = (("", 20),)
) -> Path:
    outputs = [make.make_tensor_value_info("y", FLOAT, None)]
    made = [onnx.numpy_helper.from_array(array, name) for name, array in dict(arrays).items()]
    graph = make.make_graph(
        nodes, "main", [make.make_tensor_value_info(*one) for one in inputs], outputs, made
    )
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid(*one) for one in opsets]), str(path))
    return path


def built(path: Path) -> tuple[torch.nn.Module, str]:
    straight = write_model(read_model(path))
    return build_straight(straight, path.name), straight.text


SQUARE = np.array([[1, 2], [3, 4]], np.float32)
LINE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
GROUPS = np.array([[[1, 1], [3, 3], [0, 4], [4, 0]]], np.float32)
ROI = {"roi": np.array([[0, 0, 3, 3]], np.float32), "which": np.array([0])}
VECTORS: list[tuple[str, int, dict[str, Any], dict[str, Any], Any]] = [
    # operator and version, attributes, inputs, what comes out: functions of which the suite has no case
    ("Equal", 6, {}, {"a": np.array([1, 2]), "b": np.array([1, 3])}, [True, False]),
    ("Hardmax", 12, {"axis": 1}, {"x": np.array([[1, 3, 2], [5, 5, 0]], np.float32)}, [[0, 1, 0], [1, 0, 0]]),
    ("Resize", 10, {}, {"x": LINE[:, :, :1, :2], "by": np.array([1, 1, 2, 2], np.float32)}, [[[[0, 0, 1, 1]] * 2]]),
    ("Upsample", 8, {"scales": [1.0, 1.0, 2.0, 2.0]}, {"x": LINE[:, :, :1, :2]}, [[[[0, 0, 1, 1]] * 2]]),
    ("RoiAlign", 15, {"output_height": 2, "output_width": 2, "sampling_ratio": 1}, {"x": LINE, **ROI}, [[[[3.75, 5.25], [9.75, 11.25]]]]),
    ("TopK", 9, {"k": 2}, {"x": np.array([3, 1, 2], np.float32)}, [3, 2]),
    ("GroupNormalization", 20, {"num_groups": 2, "epsilon": 1e-12}, {"x": GROUPS, "scale": np.array([1, 2], np.float32), "bias": np.array([0, 1], np.float32)}, [[[-1, -1], [1, 1], [-1, 3], [3, -1]]]),
    ("GlobalLpPool", 20, {}, {"x": np.array([[[3, 4]]], np.float32)}, [[[5]]]),
    ("ReduceProd", 17, {"axes": [1]}, {"x": SQUARE}, [[2], [12]]),
    ("ReduceL1", 17, {"axes": [0], "keepdims": 0}, {"x": -SQUARE}, [4, 6]),
    ("ReduceL2", 17, {"axes": [1]}, {"x": np.array([[3, 4]], np.float32)}, [[5]]),
    ("ReduceSumSquare", 17, {"axes": [1]}, {"x": SQUARE}, [[5], [25]]),
    ("ReduceLogSum", 17, {"axes": [1]}, {"x": SQUARE}, np.log([[3], [7]])),
    ("ReduceLogSumExp", 17, {"axes": [1]}, {"x": np.log(SQUARE)}, np.log([[3], [7]])),
    ("Reshape", 4, {"shape": [4]}, {"x": SQUARE}, [1, 2, 3, 4]),
    ("Concat", 3, {}, {"x": SQUARE, "z": SQUARE}, [[1, 2, 1, 2], [3, 4, 3, 4]]),
    ("Pad", 1, {"paddings": [0, 1, 0, 0], "value": 9.0}, {"x": SQUARE}, [[9, 1, 2], [9, 3, 4]]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "version", "said", "given", "wanted"), VECTORS, ids=[one[0] for one in VECTORS]
)
def test_versions_of_which_the_suite_has_no_case(
    name: str, version: int, said: dict[str, Any], given: dict[str, Any], wanted: Any, tmp_path: Path
) -> None:
    outputs = ["y", "places"] if name == "TopK" else ["y"]
    node = make.make_node(name, list(given), outputs, **said)
    declared = [
        (key, onnx.helper.np_dtype_to_tensor_dtype(one.dtype), list(one.shape)) for key, one in given.items()
    ]
    opsets = [("", version)]
    model, _ = built(saved(tmp_path / "m.onnx", [node], declared, opsets=opsets))
    found = model(**{key: torch.from_numpy(np.ascontiguousarray(one)) for key, one in given.items()})["y"]
    np.testing.assert_allclose(found.numpy(), np.asarray(wanted), rtol=1e-5)


def test_an_operator_of_ones_own_takes_few_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = next(text for _, name, text in blocks(page("docs/importing.md")) if name == "my_operators.py")
    assert len(text.splitlines()) < 15
    file = tmp_path / "my_operators.py"
    file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_FOREIGN", {})
    node = make.make_node("Times", ["x"], ["y"], domain="my.company", by=3)
    path = saved(tmp_path / "m.onnx", [node], [("x", FLOAT, [2])], opsets=[("", 20), ("my.company", 1)])
    with pytest.raises(ArchitectureError, match=r"not supported: my.company.Times \(version 1\)"):
        built(path)
    __import__("my_operators")
    model, _ = built(path)
    assert model(x=torch.ones(2))["y"].tolist() == [3, 3]
    registry._parsed.cache_clear()
    del sys.modules["my_operators"]


def test_what_is_not_computed_is_refused_by_name_and_version(tmp_path: Path) -> None:
    for node in (
        make.make_node("StringNormalizer", ["x"], ["y"]),
        make.make_node("Cast", ["x"], ["y"], to=17),
    ):
        path = saved(tmp_path / "m.onnx", [node], [("x", FLOAT, [2])])
        with pytest.raises(ArchitectureError, match=rf"not supported: {node.op_type} \(version 20\)"):
            built(path)
    unknown = make.make_node("Relu", ["x"], ["y"], colour=1)
    with pytest.raises(ArchitectureError, match="has the attribute 'colour'"):
        built(saved(tmp_path / "m.onnx", [unknown], [("x", FLOAT, [2])]))


def test_every_operator_has_one_function_for_a_version() -> None:
    for entries in registry._index().values():
        for version in range(1, limits.OPSET + 1):
            assert sum(one.since <= version <= one.until for one in entries) <= 1, (entries[0].name, version)
    assert isinstance(operator, types.FunctionType) and Node("Conv").domain == ""


def test_shape_arithmetic_becomes_sizes_of_python(tmp_path: Path) -> None:
    nodes = [
        make.make_node("Shape", ["x"], ["s"]),
        make.make_node("Gather", ["s", "zero"], ["b"]),
        make.make_node("Unsqueeze", ["b", "first"], ["b1"]),
        make.make_node("Concat", ["b1", "rest"], ["shape"], axis=0),
        make.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    arrays = {"zero": np.array(0), "first": np.array([0]), "rest": np.array([2, -1])}
    model, text = built(saved(tmp_path / "m.onnx", nodes, [("x", FLOAT, ["b", 6])], arrays))
    assert "x.unflatten(-1, (2, -1))" in text and "torch.tensor" not in text.partition("class Model")[2]
    assert model(x=torch.zeros(5, 6))["y"].shape == (5, 2, 3)


HOSTILE = [
    "self",
    "forward",
    "a.b",
    "a_b",
    "../../x",
    "x):\n import os #",
    "input",
    "torch",
    "__class__",
    "named",
    "open",
]


def test_every_input_name_is_a_keyword_and_no_name_becomes_code(tmp_path: Path) -> None:
    nodes = [make.make_node("Sum", [*HOSTILE, *(f"{name}.weight" for name in HOSTILE)], ["y"])]
    arrays = {f"{name}.weight": np.full(20, 100 + place, np.float32) for place, name in enumerate(HOSTILE)}
    path = saved(tmp_path / "m.onnx", nodes, [(name, FLOAT, [20]) for name in HOSTILE], arrays)
    model = mapper.build(path)
    found = model(**{name: torch.full((20,), 2.0**place) for place, name in enumerate(HOSTILE)})["y"]
    assert found.tolist() == [2 ** len(HOSTILE) - 1 + sum(100 + place for place in range(len(HOSTILE)))] * 20
    assert len(list(model.parameters())) == len(HOSTILE)


def test_a_graph_that_no_flow_fits_is_built_written_and_loaded(tmp_path: Path) -> None:
    nodes = [make.make_node("MatMul", ["x", "mix.weight"], ["h"]), make.make_node("Tanh", ["h"], ["y"])]
    weight = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    path = saved(tmp_path / "m.onnx", nodes, [("x", FLOAT, ["batch", 8])], {"mix.weight": weight})
    report = mapper.inspect(path)
    assert report.architecture.reading == "graph" and "its own graph runs it" in str(report)
    model = mapper.build(path, out=tmp_path / "out")
    x = torch.linspace(0, 1, 24).view(3, 8)
    assert torch.allclose(model(x=x)["y"], torch.tanh(x @ torch.from_numpy(weight)))
    assert model.get_parameter("mix.weight").requires_grad
    namespace: dict[str, Any] = {"__name__": "written"}
    exec(compile((tmp_path / "out" / "model.py").read_text(), "model.py", "exec"), namespace)
    assert torch.equal(namespace["load"](tmp_path / "out" / "model.safetensors")(x=x)["y"], model(x=x)["y"])


def test_what_python_has_a_notation_for_is_written_in_it(tmp_path: Path) -> None:
    nodes = [
        make.make_node("Mul", ["half", "x"], ["scaled"]),
        make.make_node("Add", ["scaled", "x"], ["summed"]),
        make.make_node("Slice", ["summed", "from", "to", "axes"], ["cut"]),
        make.make_node("Cast", ["from"], ["narrow"], to=6),
        make.make_node("Cast", ["narrow"], ["from_again"], to=7),
        make.make_node("ReduceMean", ["cut", "from_again"], ["mean"], keepdims=0),
        make.make_node("Max", ["zero", "mean"], ["y"]),
    ]
    arrays = {
        "half": np.float32(0.5),
        "from": np.array([1]),
        "to": np.array([2**40]),
        "axes": np.array([1]),
        "zero": np.zeros(1, "f4"),
    }
    net, text = built(saved(tmp_path / "a.onnx", nodes, [("x", FLOAT, ["n", 4, 3])], arrays.items()))
    for row in ("0.5 * x + x", "[:, 1:]", ".mean(1)", ".clamp(min=0.0)"):
        assert row in text
    assert "def " not in text.partition("class Model")[0]  # nothing of the operators' functions is needed
    x = torch.randn(2, 4, 3)
    assert torch.equal(net(x=x)["y"], (0.5 * x + x)[:, 1:].mean(1).clamp(min=0))


def test_whole_numbers_are_divided_as_the_graph_does(tmp_path: Path) -> None:
    nodes = [make.make_node("Div", ["x", "two"], ["whole"]), make.make_node("Cast", ["whole"], ["y"], to=1)]
    net, _ = built(
        saved(tmp_path / "a.onnx", nodes, [("x", onnx.TensorProto.INT64, [2])], {"two": np.array(2)}.items())
    )
    assert net(x=torch.tensor([-3, 3]))["y"].tolist() == [-1, 1]


def test_weights_become_layers_under_their_names(tmp_path: Path) -> None:
    arrays = {
        "stem.weight": np.random.rand(4, 3, 3).astype("f4"),
        "stem_bias": np.random.rand(1, 4, 1).astype("f4"),
        "head.kernel": np.random.rand(5, 2).astype("f4"),
        "head.bias": np.random.rand(2).astype("f4"),
        "rnn.W": np.random.rand(1, 20, 4).astype("f4"),
        "rnn.R": np.random.rand(1, 20, 5).astype("f4"),
        "rnn.B": np.random.rand(1, 40).astype("f4"),
    }
    nodes = [
        make.make_node("Conv", ["x", "stem.weight"], ["c"], auto_pad="SAME_UPPER"),
        make.make_node("Add", ["c", "stem_bias"], ["biased"]),
        make.make_node("Transpose", ["biased"], ["steps"], perm=[2, 0, 1]),
        make.make_node("LSTM", ["steps", "rnn.W", "rnn.R", "rnn.B"], ["hidden"], hidden_size=5),
        make.make_node("Squeeze", ["hidden", "one"], ["flat"]),
        make.make_node("MatMul", ["flat", "head.kernel"], ["p"]),
        make.make_node("Add", ["head.bias", "p"], ["y"]),
    ]
    path = saved(
        tmp_path / "a.onnx", nodes, [("x", FLOAT, ["n", 3, "t"])], [*arrays.items(), ("one", np.array([1]))]
    )
    net, text = built(path)
    assert sorted(name for name, _ in net.named_parameters()) == [
        "head.bias", "head.weight", "rnn.bias_hh_l0", "rnn.bias_ih_l0", "rnn.weight_hh_l0", "rnn.weight_ih_l0", "stem.bias", "stem.weight",
    ]  # fmt: skip
    for made in ("nn.Conv1d(3, 4, 3, padding=1)", "nn.LSTM(4, 5)", "nn.Linear(5, 2)"):
        assert made in text
    session = pytest.importorskip("onnxruntime").InferenceSession(str(path))
    x = torch.randn(2, 3, 7)
    torch.testing.assert_close(net(x=x)["y"].detach(), torch.tensor(session.run(None, {"x": x.numpy()})[0]))


@pytest.mark.parametrize(
    "change", [{"clip": 1.0}, {"direction": "reverse"}, {"layout": 1}, {"activations": ["Relu"]}]
)
def test_a_recurrent_layer_that_torch_does_not_have_stays_a_call(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    arrays = {"w": np.ones((1, 5, 4), "f4"), "r": np.ones((1, 5, 5), "f4")}
    node = make.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=5, **change)
    _, text = built(saved(tmp_path / "a.onnx", [node], [("x", FLOAT, [3, 2, 4])], arrays.items()))
    assert ("nn.RNN" in text) == ("activations" in change)


def test_a_value_that_the_next_line_alone_reads_stands_there(tmp_path: Path) -> None:
    nodes = [
        make.make_node("Add", ["x", "w"], ["val_1"]),
        make.make_node("Mul", ["val_1", "x"], ["val_2"]),
        make.make_node("Sub", ["x", "val_2"], ["val_3"]),
        make.make_node("Sub", ["val_3", "val_1"], ["y"]),
    ]
    net, text = built(saved(tmp_path / "a.onnx", nodes, [("x", FLOAT, [2]), ("w", FLOAT, [2])]))
    assert "y = x - add2 * x - add2" in text or "y = x - add * x - add" in text
    x, w = torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0])
    assert torch.equal(net(x=x, w=w)["y"], x - (x + w) * x - (x + w))
