"""The names and arrangements that the graph of an ONNX model gives its weights back."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

import mapper
from mapper.sources import open_source

SCOPES = "pkg.torch.onnx.name_scopes"
W = np.arange(12, dtype=np.float32).reshape(3, 4)  # of a product: [inputs, outputs]


def written(path: Path, nodes: list[onnx.NodeProto], held: dict[str, np.ndarray]) -> Path:
    value = helper.make_tensor_value_info
    last = nodes[-1].output[0]
    graph = helper.make_graph(
        nodes, "g", [value("x", 1, ["n", 3])], [value(last, 1, None)],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path


def weights(path: Path) -> dict[str, np.ndarray]:
    checkpoint = open_source(path, purpose="weights")
    assert checkpoint.read is not None
    read = checkpoint.read(checkpoint.tensors)
    assert {name: tuple(tensor.shape) for name, tensor in read.items()} == {
        name: info.shape for name, info in checkpoint.tensors.items()
    }
    return {name: tensor.numpy() for name, tensor in read.items()}


class Block(nn.Module):
    """Layers with and without biases, one called twice, and two that share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.stack = nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 8, bias=False))
        self.layers = nn.ModuleList([nn.Linear(8, 8, bias=False), nn.Linear(8, 8)])
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.stack(self.table(ids)))
        return self.head(self.layers[1](self.layers[0](self.layers[0](x))))


def test_an_export_has_the_names_shapes_and_numbers_of_the_module(tmp_path: Path) -> None:
    model = Block().eval()
    ids = torch.arange(6).view(2, 3)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (ids,), str(tmp_path / "x.onnx"), opset_version=20, dynamo=False)
    found = weights(tmp_path / "x.onnx")
    wanted = model.state_dict()
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[name], tensor) for name, tensor in wanted.items())


def test_a_bias_names_the_weight_of_its_product(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "MatMul_7"], ["y"], name="MatMul_8"),
        helper.make_node("Add", ["a.q_lin.bias", "y"], ["z"]),
    ]
    found = weights(
        written(tmp_path / "x.onnx", nodes, {"MatMul_7": W, "a.q_lin.bias": np.ones(4, np.float32)})
    )
    assert np.array_equal(found["a.q_lin.weight"], W.T)


def test_weights_of_constants_are_read_and_what_is_beside_the_layers_is_left_out(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["val_1"], value=numpy_helper.from_array(W.T)),
        helper.make_node("Constant", [], ["sizes"], value=numpy_helper.from_array(np.array([-1, 4]))),
        helper.make_node("Transpose", ["val_1"], ["val_2"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "val_2"], ["y"], name="/a/b.0/fc/MatMul"),
        helper.make_node("Reshape", ["y", "sizes"], ["z"], name="/a/b.0/Reshape"),
    ]
    checkpoint = open_source(written(tmp_path / "x.onnx", nodes, {}), purpose="headers")
    assert list(checkpoint.tensors) == ["a.b.0.fc.weight"]
    assert np.array_equal(weights(tmp_path / "x.onnx")["a.b.0.fc.weight"], W.T)


def test_quantised_weights_come_as_their_layer_uses_them(tmp_path: Path) -> None:
    held = {
        "onnx::MatMul_3_quantized": W.astype(np.int8),
        "scale": np.array([0.5, 1, 2, 4], np.float32),
        "zero": np.array([0, 1, 2, 3], np.int8),
    }
    nodes = [
        helper.make_node("DequantizeLinear", list(held), ["w"], axis=1),
        helper.make_node("MatMul", ["x", "w"], ["y"], name="/fc/MatMul"),
    ]
    found = weights(written(tmp_path / "x.onnx", nodes, held))
    assert np.array_equal(found["fc.weight"], ((W - held["zero"]) * held["scale"]).T)


def test_names_that_two_weights_claim_or_that_stand_outside_of_a_layer_are_nobodys(tmp_path: Path) -> None:
    held = {"val_1": W, "val_2": W + 1, "val_3": np.ones((4, 4), np.float32), "a.norm.weight": W[0]}
    nodes = [
        helper.make_node("MatMul", ["x", "val_1"], ["y"], name="/a/fc/MatMul"),
        helper.make_node("MatMul", ["x", "val_2"], ["z"], name="/a/fc/MatMul_1"),
        helper.make_node("Add", ["y", "z"], ["s"], name="/a/Add"),
        helper.make_node("MatMul", ["s", "val_3"], ["t"], name="/a/MatMul"),
        helper.make_node("Mul", ["t", "a.norm.weight"], ["u"], name="/a/norm/Mul"),
    ]
    found = weights(written(tmp_path / "x.onnx", nodes, held))
    assert found.keys() == held.keys()
    assert np.array_equal(found["val_2"], W + 1)


def test_a_container_that_is_not_called_comes_back_from_the_names_beside(tmp_path: Path) -> None:
    held = {"net.h.0.norm.weight": W[0, :3], "val_1": W, "val_2": np.ones((4, 4), np.float32)}
    nodes = [
        helper.make_node("Mul", ["x", "net.h.0.norm.weight"], ["n"], name="/h.0/norm/Mul"),
        helper.make_node("MatMul", ["n", "val_1"], ["y"], name="/h.0/fc/MatMul"),
        helper.make_node(
            "MatMul", ["y", "val_2"], ["z"], name="/head/MatMul"
        ),  # of `net`, too? nothing says it
    ]
    found = weights(written(tmp_path / "x.onnx", nodes, held))
    assert set(found) == {"net.h.0.norm.weight", "net.h.0.fc.weight", "val_2"}


@pytest.mark.parametrize("path", ["../../x", "forward", "self", "a b", "__class__"])
def test_names_are_data_whatever_they_spell(path: str, tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "val_1"], ["y"])
    node.metadata_props.add(key=SCOPES, value=f"['', '{path}', 'linear']")
    file = written(tmp_path / "x.onnx", [node], {"val_1": W})
    assert list(weights(file)) == [f"{path}.weight"]


def test_one_changed_weight_is_what_differs(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "val_1"], ["y"], name="/a/fc/MatMul"),
        helper.make_node("Add", ["y", "a.fc.bias"], ["z"], name="/a/fc/Add"),
    ]
    bias = np.ones(4, np.float32)
    file = written(tmp_path / "x.onnx", nodes, {"val_1": W, "a.fc.bias": bias})
    same = {"a.fc.weight": torch.from_numpy(W.T.copy()), "a.fc.bias": torch.from_numpy(bias)}
    assert mapper.diff(file, same, values=True).common == 2
    same["a.fc.weight"][1, 2] += 1
    found = mapper.diff(file, same, values=True)
    assert (found.common, [entry["path"] for entry in found.changed]) == (1, ["a.fc.weight"])
    assert not (found.only_a or found.only_b or found.renamed or found.layout)


def test_long_chains_and_long_paths_end_in_time(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gather", ["t.weight", "x"], ["y0"], name="/t/Gather")]
    nodes += [helper.make_node("Identity", [f"y{at}"], [f"y{at + 1}"]) for at in range(3000)]
    nodes.append(helper.make_node("MatMul", ["y3000", "val_1"], ["z"], name="MatMul_1"))
    nodes[-1].metadata_props.add(key=SCOPES, value=f"['', '{'a.' * 40_000}a', 'linear']")
    held = {"t.weight": np.ones((5, 3), np.float32), "val_1": W}
    assert set(weights(written(tmp_path / "x.onnx", nodes, held))) == set(held)
