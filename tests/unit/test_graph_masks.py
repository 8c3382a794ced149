"""Masks in straight-line source: a padding mask at each row and key, and what a linear layer's views become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

import mapper
from tests.unit.test_graph_straight import of_onnxruntime, saved

AXES = {f"a{axis}": np.array([axis]) for axis in (1, 2, 3)}
NUMBERS = {"zero": np.array(0), "one": np.array(1), "flat": np.array([-1])}
SIZES = [
    helper.make_node("Shape", ["x"], ["shape"]),
    helper.make_node("Gather", ["shape", "zero"], ["rows"], axis=0),
    helper.make_node("Gather", ["shape", "one"], ["width"], axis=0),
]


def counted(name: str, start: str, limit: str, axis: int) -> list[Any]:
    """Whole numbers from a start on, along one axis of four."""
    axes = [f"a{one}" for one in (1, 2, 3)] if axis == 0 else ["zeros", "a1", "a2"]
    nodes = [helper.make_node("Range", [start, limit, "one"], [f"{name}0"])]
    return nodes + [
        helper.make_node("Unsqueeze", [f"{name}{at}", one], [f"{name}{at + 1}"])
        for at, one in enumerate(axes)
    ]


def of_pairs() -> list[Any]:
    make = helper.make_node
    spread = [make("Expand", [f"{name}3", "wide"], [f"{name}4"]) for name in ("r", "k")]
    behind = [make("Unsqueeze", [f"{name}4", "last"], [f"{name}5"]) for name in ("r", "k")]
    parts = [make("Reshape", [name, "flat"], [f"{name}1"]) for name in ("rows", "count")]
    return [
        *parts, make("Concat", ["rows1", "a1", "a1", "count1"], ["wide"], axis=0), *spread, *behind,
        make("Concat", ["r5", "k5"], ["at"], axis=-1), make("GatherND", ["x", "at"], ["y"]),
    ]  # fmt: skip


def of_places() -> list[Any]:
    make = helper.make_node
    return [
        make("Flatten", ["x"], ["all"], axis=2), make("Mul", ["r3", "width"], ["begins"]), make("Add", ["k3", "begins"], ["at"]),
        make("Gather", ["all", "at"], ["found"], axis=0), make("Reshape", ["found", "flat"], ["line"]),
        make("Shape", ["at"], ["whole"]), make("Reshape", ["line", "whole"], ["y"]),
    ]  # fmt: skip


@pytest.mark.parametrize("look", [of_pairs, of_places])
@pytest.mark.parametrize(("start", "is_mask"), [("zero", True), ("one", False)])
def test_a_mask_at_each_row_and_key_is_indexed_once(
    look: Any, start: str, is_mask: bool, tmp_path: Path
) -> None:
    """What counts from another number is looked up as the graph says it."""
    count = helper.make_node("Sub", ["width", start], ["count"])
    nodes = [*SIZES, count, *counted("r", "zero", "rows", 0), *counted("k", start, "width", 3), *look()]
    arrays = {**AXES, **NUMBERS, "zeros": np.array([0]), "last": np.array([-1])}
    path = saved(tmp_path / "m.onnx", nodes, ["rows", "width"], arrays)
    assert ("x[:, None, None]" in mapper.generate(path)) == is_mask
    x = torch.randn(3, 5)
    torch.testing.assert_close(mapper.build(path)(x=x)["y"], of_onnxruntime(path, x)[0])


@pytest.mark.parametrize(("front", "is_joined"), [(["rows", "width"], True), (["width", "rows"], False)])
def test_views_around_a_linear_layer_are_none_where_they_join_and_part_the_same_axes(
    front: list[str], is_joined: bool, tmp_path: Path
) -> None:
    make = helper.make_node
    sizes = [make("Reshape", [name, "flat"], [f"{name}1"]) for name in ("rows", "width")]
    nodes = [
        *SIZES, *sizes, make("Reshape", ["x", "two"], ["joined"]), make("Gemm", ["joined", "w", "b"], ["made"], transB=1),
        make("Concat", [*(f"{name}1" for name in front), "four"], ["apart"], axis=0), make("Reshape", ["made", "apart"], ["y"]),
    ]  # fmt: skip
    arrays = {**NUMBERS, "two": np.array([-1, 2]), "four": np.array([4])}
    arrays |= {"w": np.arange(8, dtype=np.float32).reshape(4, 2), "b": np.ones(4, np.float32)}
    path = saved(tmp_path / "m.onnx", nodes, ["rows", "width", 2], arrays)
    assert (".reshape(" not in mapper.generate(path)) == is_joined
    x = torch.randn(3, 5, 2)
    torch.testing.assert_close(mapper.build(path)(x=x)["y"], of_onnxruntime(path, x)[0])


@pytest.mark.parametrize("name", ["..", ".", "../../x"])
def test_a_tensor_may_be_called_by_dots_alone(name: str, tmp_path: Path) -> None:
    held = [numpy_helper.from_array(np.ones((3, 2), np.float32), name)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", name], ["y"])], "g", [value("x", 1, ["n", 3])], [value("y", 1, None)], held
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "m.onnx")
    found = mapper.build(tmp_path / "m.onnx")(x=torch.ones(2, 3))["y"]
    torch.testing.assert_close(found, torch.full((2, 2), 3.0))
