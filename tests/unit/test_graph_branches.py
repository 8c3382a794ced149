"""Graphs as files of packages have them: branches that the file decides, norms without a counter, sizes and edges of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mapper

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
make = onnx.helper
node = make.make_node
FLOAT, INT = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def saved(path: Path, nodes: list[Any], shape: list[Any], arrays: dict[str, Any], **more: Any) -> Path:
    """A model from `x`, and what else is said with its shape, to `y`."""
    held = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    inputs = [make.make_tensor_value_info("x", FLOAT, shape)]
    inputs += [make.make_tensor_value_info(name, INT, size) for name, size in more.items()]
    graph = make.make_graph(nodes, "g", inputs, [make.make_tensor_value_info("y", FLOAT, None)], held)
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 20)], ir_version=10), path)
    return path


def same(path: Path, **given: torch.Tensor) -> str:
    """The source of a file whose model computes what onnxruntime does."""
    feed = {name: one.numpy() for name, one in given.items()}
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    model = mapper.build(path)
    torch.testing.assert_close(model(**given)["y"], torch.from_numpy(session.run(None, feed)[0]))
    return mapper.generate(path)


def branch(name: str, *nodes: Any) -> Any:
    return make.make_graph(nodes, name, [], [make.make_tensor_value_info(nodes[-1].output[0], FLOAT, None)])


def choice(condition: str) -> Any:
    """By the wide weight where the condition holds, else by the narrow one."""
    wide = branch("wide", node("MatMul", ["x", "wide.weight"], ["up"]), node("Relu", ["up"], ["bent"]))
    narrow = branch("narrow", node("MatMul", ["x", "narrow.weight"], ["down"]))
    return node("If", [condition], ["y"], then_branch=wide, else_branch=narrow)


WEIGHTS = {"wide.weight": np.ones((4, 3), np.float32), "narrow.weight": np.full((4, 3), 2, np.float32)}


@pytest.mark.parametrize("axis", [0, 1])
def test_a_branch_that_the_declared_sizes_decide_is_taken_without_a_question(
    axis: int, tmp_path: Path
) -> None:
    nodes = [
        node("Shape", ["x"], ["sizes"]), node("Gather", ["sizes", "axis"], ["size"]),
        node("Cast", ["size"], ["is_any"], to=onnx.TensorProto.BOOL), node("Not", ["is_any"], ["is_none"]), choice("is_none"),
    ]  # fmt: skip
    path = saved(tmp_path / "m.onnx", nodes, ["rows", 4], {**WEIGHTS, "axis": np.array(axis)})
    text = same(path, x=torch.randn(2, 4))
    assert ("if " in text.partition("def forward")[2], "self.wide" in text) == (axis == 0, axis == 0)
    notes = mapper.verify(path, against="onnxruntime").notes
    assert any("only the branches" in note for note in notes) == (axis == 0)


@pytest.mark.parametrize("rate", [8, 16])
def test_a_choice_between_two_values_is_one_line(rate: int, tmp_path: Path) -> None:
    nodes = [node("Equal", ["rate", "eight"], ["is_eight"]), choice("is_eight")]
    path = saved(tmp_path / "m.onnx", nodes, ["rows", 4], {**WEIGHTS, "eight": np.array(8)}, rate=[])
    text = same(path, x=torch.randn(2, 4), rate=torch.tensor(rate))
    assert "F.relu(self.wide(x)) if rate == 8 else self.narrow(x)" in text
    assert any(
        "only the branches that these take" in note
        for note in mapper.verify(path, against="onnxruntime").notes
    )


def test_no_loop_is_run_at_import(tmp_path: Path) -> None:
    names = [("at", INT, []), ("on", onnx.TensorProto.BOOL, []), ("v", FLOAT, [3])]
    inputs = [make.make_tensor_value_info(*one) for one in names]
    ends = [
        make.make_tensor_value_info("still", onnx.TensorProto.BOOL, []),
        make.make_tensor_value_info("more", FLOAT, [3]),
    ]
    nodes = [node("Identity", ["on"], ["still"]), node("Add", ["v", "x"], ["more"])]
    loop = node("Loop", ["count", "", "x"], ["y"], body=make.make_graph(nodes, "body", inputs, ends))
    for count in (3, 2**62):  # which takes a hundred years
        path = saved(tmp_path / "m.onnx", [loop], [3], {"count": np.array(count)})
        assert "v + x" in mapper.generate(path)
        assert not mapper.build(path).training
    saved(path, [loop], [3], {"count": np.array(3)})
    assert "while step < 3" in same(path, x=torch.ones(3))


def test_a_list_is_gone_through_item_by_item(tmp_path: Path) -> None:
    values = [make.make_tensor_value_info(name, FLOAT, [3]) for name in ("a", "b", "c")]
    body = make.make_graph(
        [node("Mul", ["a", "b"], ["ab"]), node("Sub", ["ab", "c"], ["one"])],
        "body",
        values,
        [make.make_tensor_value_info("one", FLOAT, [3])],
    )
    nodes = [
        node("Neg", ["x"], ["less"]), node("SequenceConstruct", ["x", "less"], ["xs"]), node("SequenceConstruct", ["less", "less"], ["ys"]),
        node("SequenceMap", ["xs", "ys", "x"], ["all"], body=body), node("ConcatFromSequence", ["all"], ["y"], axis=0),
    ]  # fmt: skip
    text = same(saved(tmp_path / "m.onnx", nodes, [3], {}), x=torch.randn(3))
    assert "for step in range(len(" in text


def test_the_sizes_of_a_shape_are_how_many_axes_there_are(tmp_path: Path) -> None:
    squeezed = branch("s", node("Squeeze", ["x", "last"], ["flat"]))
    whole = branch("w", node("Identity", ["x"], ["as_it_is"]))
    nodes = [
        node("Shape", ["x"], ["sizes"]), node("Gather", ["sizes", "last"], ["width"]), node("Equal", ["width", "one"], ["is_one"]),
        node("If", ["is_one"], ["z"], then_branch=squeezed, else_branch=whole), node("Shape", ["z"], ["left"]),
        node("Size", ["left"], ["rank"]), node("Cast", ["rank"], ["number"], to=FLOAT), node("Add", ["z", "number"], ["y"]),
    ]  # fmt: skip
    path = saved(tmp_path / "m.onnx", nodes, ["a", "b"], {"last": np.array([1]), "one": np.array([1])})
    for width in (1, 3):
        assert ".dim()" in same(path, x=torch.randn(2, width))


def test_a_batch_norm_is_built_with_the_counter_that_no_file_has(tmp_path: Path) -> None:
    words = ("weight", "bias", "running_mean", "running_var")
    arrays = {f"n.{word}": np.linspace(0.5, 2, 3).astype(np.float32) for word in words}
    path = saved(
        tmp_path / "m.onnx", [node("BatchNormalization", ["x", *arrays], ["y"])], ["n", 3, 4, 5], arrays
    )
    assert "nn.BatchNorm2d(3)" in same(path, x=torch.randn(2, 3, 4, 5))
    state = mapper.build(path).state_dict()
    assert state["n.num_batches_tracked"] == 0 and len(state) == 5


def sized(**more: Any) -> list[Any]:
    return [node("Resize", ["x", "", "scales"], ["y"], **more)]


INTERPOLATED = [
    ({"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, 'mode="nearest"'),
    ({"mode": "nearest"}, 'mode="nearest"'),
    ({"mode": "nearest", "nearest_mode": "round_prefer_ceil"}, 'mode="nearest"'),
    ({"mode": "linear"}, 'mode="bilinear"'),
    ({"mode": "linear", "coordinate_transformation_mode": "align_corners"}, 'mode="bilinear", align_corners=True'),
    ({"mode": "cubic"}, 'mode="bicubic"'),
    ({"mode": "nearest", "nearest_mode": "ceil"}, ""),  # no function of torch's
    ({"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, ""),
    ({"mode": "cubic", "cubic_coeff_a": -0.5}, ""),
]  # fmt: skip


SIZED = [(2.0, *one) for one in INTERPOLATED]
SIZED += [(3.0, *one) for one in INTERPOLATED[:3]]
SIZED += [
    (1.5, *one) for one in (INTERPOLATED[0], INTERPOLATED[3], INTERPOLATED[5])
]  # no whole number: not for sure


@pytest.mark.parametrize(("times", "said", "words"), SIZED)
def test_a_resize_is_torchs_where_that_is_the_same(
    times: float, said: dict[str, Any], words: str, tmp_path: Path
) -> None:
    scales = np.array([1, 1, times, times], np.float32)
    path = saved(tmp_path / "m.onnx", sized(**said), [2, 3, "h", "w"], {"a.scales": scales, "scales": scales})
    text = same(path, x=torch.randn(2, 3, 5, 6))
    is_torchs = bool(words) and times % 1 == 0
    assert (f"F.interpolate(x, scale_factor={int(times)}, {words})" in text) == is_torchs
    assert not mapper.build(path).state_dict()


@pytest.mark.parametrize(
    "mode, pads, text",
    [
        ("constant", [0, 1, 0, 0, 2, 3], "F.pad(x, (0, 3, 1, 2))"),
        ("constant", [0, 0, -1, 0, 0, 2], "F.pad(x, (-1, 2))"),
        ("reflect", [0, 0, 1, 0, 0, 2], 'F.pad(x, (1, 2), mode="reflect")'),
        ("edge", [0, 1, 1, 0, 0, 2], 'F.pad(x, (1, 2, 1, 0), mode="replicate")'),
        ("reflect", [1, 0, 0, 0, 0, 0], "pad(x, [1, 0, 0, 0, 0, 0], mode='reflect')"),
    ],
)
def test_edges_are_torchs_where_it_has_them(mode: str, pads: list[int], text: str, tmp_path: Path) -> None:
    path = saved(
        tmp_path / "m.onnx",
        [node("Pad", ["x", "pads"], ["y"], mode=mode)],
        [3, 4, 5],
        {"pads": np.array(pads)},
    )
    assert text in same(path, x=torch.randn(3, 4, 5))


@pytest.mark.parametrize("highest", [6.0, 5.0])
def test_a_hard_swish_of_several_operations_is_one(highest: float, tmp_path: Path) -> None:
    nodes = [
        node("Add", ["x", "three"], ["raised"]), node("Clip", ["raised", "none", "top"], ["cut"]),
        node("Mul", ["x", "cut"], ["product"]), node("Div", ["product", "six"], ["y"]),
    ]  # fmt: skip
    numbers = {"three": 3.0, "none": 0.0, "top": highest, "six": 6.0}
    path = saved(
        tmp_path / "m.onnx", nodes, ["n", 4], {name: np.float32(one) for name, one in numbers.items()}
    )
    assert ("F.hardswish(x)" in same(path, x=4 * torch.randn(5, 4))) == (highest == 6.0)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_weight_of_eight_bits_is_a_layers_in_float(axis: int, tmp_path: Path) -> None:
    scale = np.linspace(0.1, 0.4, (3, 4)[axis]).astype(np.float32)
    arrays = {
        "fc.weight_quantized": np.arange(-6, 6, dtype=np.int8).reshape(3, 4),
        "fc.scale": scale,
        "fc.zero": np.ones(scale.shape, np.int8),
    }
    nodes = [
        node("DequantizeLinear", list(arrays), ["fc.weight_DequantizeLinear_Output"], axis=axis),
        node("Gemm", ["x", "fc.weight_DequantizeLinear_Output"], ["y"], transB=1),
    ]
    text = same(path := saved(tmp_path / "m.onnx", nodes, ["n", 4], arrays), x=torch.randn(2, 4))
    assert "self.fc = nn.Linear(4, 3, bias=False)" in text
    assert {name for name, _ in mapper.build(path).named_parameters()} == {"fc.weight"}
