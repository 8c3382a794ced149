"""ONNX files as graphs: what is read, lazily, and what is refused by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mapper import limits
from mapper.errors import FormatError, MapperError
from mapper.graphs.graph import Argument, Graph, TensorRef
from mapper.graphs.reading import read_model
from mapper.graphs.tensors import read_texts
from tests.onnx_files import beside, held, initialiser, number

onnx = pytest.importorskip("onnx")
make = onnx.helper
FLOAT, INT4 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT4


def value(name: str, shape: list[Any] | None = None) -> Any:
    return make.make_tensor_value_info(name, FLOAT, shape)


def saved(path: Path, nodes: list[Any], inner: Any = (), **options: Any) -> Path:
    graph = make.make_graph(nodes, "main", [value("x", ["batch", 3])], [value("y")], list(inner))
    options.setdefault("opset_imports", [make.make_opsetid("", 20), make.make_opsetid("own", 1)])
    onnx.save_model(make.make_model(graph, **options), str(path))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(MapperError) as caught:
        read_model(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_is_read_whole_and_its_tensors_later(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2), "layer.weight")
    narrow = make.make_tensor("narrow", INT4, [3], [-8, 7, -1])
    texts = make.make_tensor("texts", onnx.TensorProto.STRING, [2], [b"a", b"\xff"])
    branch = make.make_graph([make.make_node("Identity", ["x"], ["z"])], "then", [], [value("z")])
    nodes = [
        make.make_node("MatMul", ["x", "layer.weight"], ["h"], name="/layer/MatMul"),
        make.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch),
        make.make_node("Resize", ["h", "", "x"], ["p"], mode="edge", axes=[-1, 2**40], value=0.5),
        make.make_node("Act", ["h"], ["q"], domain="own", slope=2.0),
    ]
    flag = onnx.numpy_helper.from_array(np.array(True), "flag")
    inner = make.make_node("LeakyRelu", ["a"], ["b"])
    inner.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=1))
    own = make.make_function("own", "Act", ["a"], ["b"], [inner], [make.make_opsetid("", 20)], ["slope"])
    path = saved(tmp_path / "m.onnx", nodes, [weight, flag, narrow, texts], functions=[own])
    model = read_model(path)
    graph = model.graph
    assert (model.opsets, [node.operator for node in graph.nodes]) == (
        {"": 20, "own": 1},
        ["MatMul", "If", "Resize", "Act"],
    )
    assert (graph.inputs[0].dtype, graph.inputs[0].shape) == ("F32", ("batch", 3))
    assert graph.nodes[2].inputs == ["h", "", "x"]
    assert graph.nodes[2].attributes == {"mode": b"edge", "axes": [-1, 2**40], "value": 0.5}
    then = graph.nodes[1].attributes["then_branch"]
    assert isinstance(then, Graph) and then.free() == {"x"}
    function = model.function(graph.nodes[3])
    assert function is not None and function.nodes[0].attributes == {"alpha": Argument("slope")}
    ref = graph.initialisers["layer.weight"]
    assert isinstance(ref, TensorRef) and ref.packing == "plain"
    assert torch.equal(ref.read(), torch.arange(6.0).view(3, 2))
    assert graph.initialisers["narrow"].read().tolist() == [-8, 7, -1]
    assert read_texts(graph.initialisers["texts"]) == [b"a", b"\xff"]


def test_a_file_written_to_since_is_not_read(tmp_path: Path) -> None:
    ref = read_model(file(tmp_path, initialiser("a", [2], 1, held(9, bytes(8))))).graph.initialisers["a"]
    path = Path(ref.path)
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(1, 1))
    with pytest.raises(FormatError, match="was written again"):
        ref.read()


def file(folder: Path, *tensors: bytes, graph: bytes = b"", more: bytes = b"") -> Path:
    path = folder / "m.onnx"
    inside = graph + b"".join(held(5, tensor) for tensor in tensors)
    path.write_bytes(number(1, 10) + held(7, inside) + held(8, number(2, 20)) + more)
    return path


def node(operator: str, inputs: list[str], outputs: list[str], *more: bytes) -> bytes:
    names = b"".join(held(1, name) for name in inputs) + b"".join(held(2, name) for name in outputs)
    return held(1, names + held(4, operator) + b"".join(more))


def nested(depth: int) -> bytes:
    inside = b""
    for _ in range(depth):
        inside = node("If", ["c"], ["y"], held(5, held(1, "then_branch") + number(20, 5) + held(6, inside)))
    return inside


def calling(*names: str) -> bytes:
    """Functions of which each calls the next twice, and the last nothing."""
    pairs = zip(names, [*names[1:], "Relu"], strict=True)
    return b"".join(
        held(
            25, held(1, name) + held(10, "own" if name else "") + 2 * held(7, held(4, after) + held(7, "own"))
        )
        for name, after in pairs
    )


CHAIN = [f"f{index}" for index in range(15)]


@pytest.mark.parametrize(
    ("why", "graph", "more"),
    [
        ("'b', which only a later node makes", node("Relu", ["b"], ["a"]) + node("Relu", ["a"], ["b"]), b""),
        ("'b', which nothing makes", node("Relu", ["b"], ["a"]), b""),
        ("two nodes make 'a'", 2 * node("Relu", [], ["a"]), b""),
        ("Relu makes 'x', which is given already", held(11, held(1, "x")) + node("Relu", ["x"], ["x"]), b""),
        ("two inputs have the same name", 2 * held(11, held(1, "x")), b""),
        ("Add has 1 inputs, of at least 2", held(11, held(1, "x")) + node("Add", ["x", ""], ["y"]), b""),
        ("Relu has no output", held(11, held(1, "x")) + node("Relu", ["x"], []), b""),
        ("its output 'y' is made by nothing", held(12, held(1, "y")), b""),
        ("graphs lie in graphs more than", nested(2_000), b""),
        ("function 'f' calls itself", b"", held(25, held(1, "f") + held(7, held(4, "f")))),
        ("functions call functions more than", b"", calling(*CHAIN, *"abcdefgh")),
        ("with its functions as often as they are called", 40 * node("f0", [], [], held(7, "own")), calling(*CHAIN)),
        ("uses version 999 of ONNX's operators", b"", held(8, number(2, 999))),
        ("an initialiser is sparse", held(15, b""), b""),
        ("more than the 2,000 numbers", node("Relu", [], ["a"], held(5, held(1, "k") + number(20, 7) + held(8, bytes(3_000)))), b""),
        ("not a list of sizes", held(5, initialiser("a", [2**64 - 1])), b""),
        ("has a dimension of", held(5, initialiser("a", [2**62])), b""),
        ("'x' has the shape '[-2]'", held(11, held(1, "x") + held(2, held(1, number(1, 1) + held(2, held(1, number(1, 2**64 - 2)))))), b""),
        ("has a dimension of", held(11, held(1, "x") + held(2, held(1, number(1, 1) + held(2, held(1, number(1, 2**62)))))), b""),
        ("has 17 dimensions", held(11, held(1, "x") + held(2, held(1, number(1, 1) + held(2, 17 * held(1, number(1, 2)))))), b""),
        ("is no file beside it", held(5, initialiser("a", [2], 1, beside("../data"))), b""),
        ("ends at byte 16 of 'data', which has 8", held(5, initialiser("a", [2], 1, beside("data", offset=8))), b""),
        ("has 4 bytes beside the model", held(5, initialiser("a", [2], 1, beside("data", length=4))), b""),
    ],
)  # fmt: skip
def test_what_is_no_model_is_refused(
    why: str, graph: bytes, more: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").write_bytes(bytes(8))
    monkeypatch.setattr(limits, "ATTRIBUTE_ITEMS", 2_000)
    assert why in refusal(file(tmp_path, graph=graph, more=more))


def test_constants_of_nodes_count_as_deep_as_they_lie(tmp_path: Path) -> None:
    model = read_model(file(tmp_path, graph=held(11, held(1, "c")) + nested(10)))
    assert len(model.graph.nodes) == 1
