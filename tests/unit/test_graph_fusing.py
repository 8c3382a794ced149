"""Graphs that look like layers and are not, or are otherwise than they look: what is built computes what onnxruntime does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import NodeProto, helper, numpy_helper

import mapper
from mapper.errors import MapperError
from mapper.graphs.reading import read_model
from mapper.graphs.recovery.masks import is_causal
from mapper.graphs.recovery.wiring import Wiring
from mapper.graphs.straight.source import write_model
from mapper.sources import open_source

NUMBERS = np.random.default_rng(0)
SQUARE = NUMBERS.standard_normal((4, 4)).astype(np.float32)
node = helper.make_node


def written(
    path: Path, nodes: Sequence[NodeProto], held: Mapping[str, np.ndarray], opset: int, shape: Sequence[int]
) -> Path:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", 1, shape)], [value(nodes[-1].output[0], 1, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def mean(**attributes: object) -> list[NodeProto]:
    """An RMS norm but for how its mean is taken."""
    return [
        node("Mul", ["x", "x"], ["square"]), node("ReduceMean", ["square"], ["mean"], **attributes), node("Add", ["mean", "eps"], ["sum"]),
        node("Sqrt", ["sum"], ["root"]), node("Div", ["x", "root"], ["normed"]), node("Mul", ["normed", "n.weight"], ["y"]),
    ]  # fmt: skip


NORM = {"eps": np.float32(0.1), "n.weight": SQUARE[0]}
TURNED = [
    node("MatMul", ["x", "onnx::MatMul_1"], ["h"], name="/fc/MatMul"),
    node("Transpose", ["onnx::MatMul_1"], ["t"], perm=[1, 0]),
    node("MatMul", ["h", "t"], ["y"], name="/out/MatMul"),
]
SOFTMAX = [
    node("Transpose", ["x"], ["k"], perm=[0, 1, 3, 2]), node("MatMul", ["x", "k"], ["s"]), node("Softmax", ["s"], ["w"]),
    node("MatMul", ["w", "x"], ["y"]),
]  # fmt: skip
STORED = [
    node("DequantizeLinear", ["fc.weight", "step"], ["w"]),
    node("MatMul", ["x", "w"], ["y"], name="/fc/MatMul"),
]
SCALED = [node("Gemm", ["x", "fc.weight", "fc.bias"], ["y"], alpha=0.5, beta=2.0, transB=1, name="/fc/Gemm")]
NEGATED = [node("Neg", ["fc.weight"], ["w"]), node("MatMul", ["x", "w"], ["y"], name="/fc/MatMul")]
WHOLE = {"fc.weight": np.arange(-8, 8, dtype=np.int8).reshape(4, 4), "step": np.float32(0.5)}
TWICE = [
    node("Cast", ["onnx::MatMul_1"], ["half"], to=10),
    node("Cast", ["half"], ["again"], to=1),
    node("MatMul", ["x", "again"], ["y"], name="/fc/MatMul"),
]


@pytest.mark.parametrize(
    ("nodes", "held", "opset", "shape"),
    [
        pytest.param(TURNED, {"onnx::MatMul_1": SQUARE}, 20, (2, 4), id="one weight from both sides"),
        pytest.param(SOFTMAX, {}, 11, (2, 3, 4, 4), id="a softmax over all that follows the first axis"),
        pytest.param(mean(axes=[-1, -2]), NORM, 17, (2, 4, 4), id="a mean over two axes"),
        pytest.param(mean(axes=[-1], keepdims=0), NORM, 17, (4, 4), id="a mean that lies across"),
        pytest.param(
            SCALED, {"fc.weight": SQUARE, "fc.bias": SQUARE[0]}, 20, (2, 4), id="a layer with factors"
        ),
        pytest.param(NEGATED, {"fc.weight": SQUARE}, 20, (2, 4), id="a weight by way of another operation"),
        pytest.param(STORED, WHOLE, 20, (2, 4), id="whole numbers under a weight's name"),
        pytest.param(TWICE, {"onnx::MatMul_1": SQUARE}, 20, (2, 4), id="digits that are gone"),
    ],
)
def test_what_only_looks_like_a_layer_computes_what_it_says(
    nodes: list[NodeProto], held: dict[str, np.ndarray], opset: int, shape: Sequence[int], tmp_path: Path
) -> None:
    path = written(tmp_path / "m.onnx", nodes, held, opset, shape)
    x = NUMBERS.standard_normal(shape).astype(np.float32)
    options = (
        onnxruntime.SessionOptions()
    )  # the file's own operations: what it makes of them rounds otherwise
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    with torch.no_grad():
        found = mapper.build(path)(x=torch.from_numpy(x))["y"]
    # float32, other kernels; a weight through half is off by 1e-3
    torch.testing.assert_close(found, torch.from_numpy(wanted), rtol=1e-5, atol=1e-5)


def test_a_small_mask_of_constants_may_be_any(tmp_path: Path) -> None:
    nodes = [node("Cast", ["table"], ["mask"], to=1), node("Add", ["x", "mask"], ["y"])]
    for table, causal in ((np.tril(np.ones((4, 4), bool)), None), (np.ones((1, 4), bool), False)):
        path = written(tmp_path / "m.onnx", nodes, {"table": table}, 20, (4, 4))
        assert is_causal(Wiring(read_model(path).graph), "mask") is causal


@pytest.mark.parametrize(
    ("nodes", "held", "opset"),
    [
        ([node("Reshape", ["w", "s"], ["v"]), node("MatMul", ["x", "v"], ["y"])], {"s": np.float32([np.nan, 4])}, 20),
        ([node("Slice", ["p"], ["at"], starts=[0], ends=[2]), node("Gather", ["w", "at"], ["e"]), node("Add", ["x", "e"], ["y"])], {"p": np.arange(4)}, 9),
        ([node("LSTM", ["x", "w", "w"], ["", "y"], hidden_size=1)], {}, 20),
    ],
)  # fmt: skip
def test_odd_nodes_are_no_tracebacks(
    nodes: list[NodeProto], held: dict[str, np.ndarray], opset: int, tmp_path: Path
) -> None:
    path = written(tmp_path / "m.onnx", nodes, {"w": SQUARE, **held}, opset, (4, 4))
    assert "w" in open_source(path, purpose="headers").tensors


def test_what_names_leave_open_the_graph_says_and_inputs_are_as_long_as_it_needs(tmp_path: Path) -> None:
    kernel = NUMBERS.standard_normal((4, 4, 3, 3)).astype(np.float32)
    nodes = [
        node("Conv", ["x", "a.conv.weight"], ["a"], strides=[2, 2]), node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "c.conv.weight"], ["y"], strides=[6, 6]),
    ]  # fmt: skip
    held = {"a.conv.weight": kernel, "c.conv.weight": kernel}
    path = written(tmp_path / "m.onnx", nodes, held, 20, ["n", 4, "height", "width"])  # type: ignore[list-item]
    architecture = mapper.inspect(path).architecture
    assert (architecture.reading, architecture.questions) == ("graph", [])
    assert any("leave open chain." in note or "leave open 'chain." in note for note in architecture.notes)
    found = mapper.verify(path, against="onnxruntime")
    assert found.equal, found


def test_what_draws_at_random_is_refused(tmp_path: Path) -> None:
    drop = [node("Dropout", ["x", "rate", "yes"], ["y"])]
    path = written(tmp_path / "m.onnx", drop, {"rate": np.float32(0.5), "yes": np.bool_(True)}, 20, (2, 4))
    with pytest.raises(MapperError, match="a Dropout of its graph is in training mode"):
        write_model(read_model(path))


def test_pads_that_an_exporter_turned_are_numbers(tmp_path: Path) -> None:
    nodes = [
        node("Reshape", ["pads", "pairs"], ["table"]), node("Slice", ["table", "last", "least", "rows", "last"], ["back"]),
        node("Transpose", ["back"], ["turned"], perm=[1, 0]), node("Reshape", ["turned", "last"], ["flat"]), node("Pad", ["x", "flat"], ["y"]),
    ]  # fmt: skip
    held = {
        "pads": np.array([1, 2, 0, 3]),
        "pairs": np.array([-1, 2]),
        "last": np.array([-1]),
        "least": np.array([-(2**63)]),
        "rows": np.array([0]),
    }
    path = written(tmp_path / "m.onnx", nodes, held, 20, (2, 4))
    assert "F.pad(x, (1, 2, 0, 3))" in write_model(read_model(path)).text
    x = torch.randn(2, 4)
    expected = onnxruntime.InferenceSession(str(path)).run(None, {"x": x.numpy()})[0]
    torch.testing.assert_close(mapper.build(path)(x=x)["y"], torch.from_numpy(expected))


@pytest.mark.parametrize("axis", [-1, 1], ids=["over the last axis", "over another"])
def test_a_layer_norm_of_several_operations_is_one_over_the_last_axis(axis: int, tmp_path: Path) -> None:
    nodes = [
        node("ReduceMean", ["x"], ["mean"], axes=[axis]), node("Sub", ["x", "mean"], ["less"]), node("Pow", ["less", "two"], ["square"]),
        node("ReduceMean", ["square"], ["var"], axes=[axis]), node("Add", ["var", "eps"], ["sum"]), node("Sqrt", ["sum"], ["root"]),
        node("Div", ["less", "root"], ["normed"]), node("Mul", ["normed", "n.weight"], ["scaled"]), node("Add", ["scaled", "n.bias"], ["y"]),
    ]  # fmt: skip
    held = {"two": np.float32(2), "n.bias": SQUARE[1], **NORM}
    path = written(tmp_path / "m.onnx", nodes, held, 14, (2, 4, 4))
    assert ("nn.LayerNorm(4, eps=0.1)" in mapper.generate(path)) == (axis == -1)
    x = torch.randn(2, 4, 4)
    expected = onnxruntime.InferenceSession(str(path)).run(None, {"x": x.numpy()})[0]
    torch.testing.assert_close(mapper.build(path)(x=x)["y"], torch.from_numpy(expected))


@pytest.mark.parametrize(
    ("nodes", "said"), [(NEGATED, "a Neg makes of another"), (SCALED, "an alpha of 0.5")]
)
def test_what_no_layer_does_is_said_to_names(nodes: list[NodeProto], said: str, tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx", nodes, {"fc.weight": SQUARE, "fc.bias": SQUARE[0]}, 20, (2, 4))
    assert said in open_source(path, purpose="headers").nameless
    plain = written(path, [node("MatMul", ["x", "fc.weight"], ["y"])], {"fc.weight": SQUARE}, 20, (2, 4))
    assert open_source(plain, purpose="headers").nameless == ""
