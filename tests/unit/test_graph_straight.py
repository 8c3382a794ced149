"""What a graph is written as where no flow fits: names, layers, calls and devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mapper

onnx = pytest.importorskip("onnx")
make = onnx.helper
FLOAT = onnx.TensorProto.FLOAT


def saved(path: Path, nodes: list[Any], shape: list[Any], arrays: dict[str, Any], outputs: int = 1) -> Path:
    """A model of one input `x`, whose last nodes give the outputs."""
    ends = [make.make_tensor_value_info(one.output[0], FLOAT, None) for one in nodes[-outputs:]]
    held = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    graph = make.make_graph(nodes, "g", [make.make_tensor_value_info("x", FLOAT, shape)], ends, held)
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 20)], ir_version=10), path)
    return path


def of_onnxruntime(path: Path, *given: torch.Tensor) -> list[torch.Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    feed = {name: one.numpy() for name, one in zip(names, given, strict=True)}
    return [torch.from_numpy(one) for one in session.run(None, feed)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)),
        nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3)),
        nn.Sequential(nn.Sequential(nn.Linear(5, 7), nn.GELU()), nn.LayerNorm(7)),
    ],
    ids=["numbers with gaps", "numbers in a row", "numbers in numbers"],
)
def test_names_that_begin_with_a_number_at_the_root_stay(module: nn.Module, tmp_path: Path) -> None:
    x = torch.randn(4, 5)
    torch.onnx.export(module.eval(), (x,), str(tmp_path / "m.onnx"), dynamo=False, input_names=["x"])
    built = mapper.build(tmp_path / "m.onnx")
    assert built.state_dict().keys() == module.state_dict().keys()
    torch.testing.assert_close(next(iter(built(x=x).values())), module(x))


def test_new_tensors_are_on_the_device_of_the_input(tmp_path: Path) -> None:
    nodes = [
        make.make_node("Shape", ["x"], ["s"]), make.make_node("Gather", ["s", "zero"], ["rows"]),
        make.make_node("Range", ["zero", "rows", "one"], ["at"]), make.make_node("Cast", ["at"], ["place"], to=FLOAT),
        make.make_node("Greater", ["x", "half"], ["big"]), make.make_node("Where", ["big", "half", "least"], ["w"]),
        make.make_node("Unsqueeze", ["place", "axis"], ["column"]), make.make_node("Add", ["w", "column"], ["y"]),
    ]  # fmt: skip
    lowest = np.float32(np.finfo(np.float32).min)  # is no larger as it is written
    arrays = {
        "zero": np.array(0), "one": np.array(1), "half": np.float32(0.5), "least": lowest, "axis": np.array([1])
    }  # fmt: skip
    path = saved(tmp_path / "m.onnx", nodes, ["rows", 3], arrays)
    x = torch.randn(4, 3)
    model = mapper.build(path)
    torch.testing.assert_close(model(x=x)["y"], of_onnxruntime(path, x)[0])
    assert (
        model(x=x.to("meta"))["y"].device.type == "meta"
    )  # a CPU tensor of several numbers would be refused there


def rotary(half: int) -> list[Any]:
    """x cos + (-x2, x1) sin, cut at `half` of 8 channels."""
    return [
        make.make_node("Slice", ["x", "zero", "cut", "last"], ["x1"]), make.make_node("Slice", ["x", "cut", "end", "last"], ["x2"]),
        make.make_node("Neg", ["x2"], ["negated"]), make.make_node("Concat", ["negated", "x1"], ["turned"], axis=-1),
        make.make_node("Mul", ["x", "cos"], ["straight"]), make.make_node("Mul", ["turned", "sin"], ["across"]),
        make.make_node("Add", ["straight", "across"], ["y"]),
    ]  # fmt: skip


@pytest.mark.parametrize("half", [4, 3])
def test_rotary_embeddings_are_one_call_where_halves_are_halves(half: int, tmp_path: Path) -> None:
    angles = np.random.default_rng(0).standard_normal(8).astype(np.float32)
    arrays = {
        "zero": np.array([0]),
        "cut": np.array([half]),
        "end": np.array([2**62]),
        "last": np.array([-1]),
    }
    arrays |= {"cos": np.cos(angles), "sin": np.sin(angles)}
    path = saved(tmp_path / "m.onnx", rotary(half), ["b", 8], arrays)
    text = mapper.generate(path)
    assert ("rotary(x, self.cos, self.sin)" in text, "torch.cat([x[" not in text) == (half == 4, half == 4)
    x = torch.randn(3, 8)
    torch.testing.assert_close(mapper.build(path)(x=x)["y"], of_onnxruntime(path, x)[0])


class Inner(nn.Module):
    """A block with a residual, whose weights have names."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, width), nn.Linear(width, 6)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(x).tanh()) * scale


class Stack(nn.Module):
    def __init__(self, widths: tuple[int, ...], twice: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Inner(width) for width in widths)
        self.norm, self.twice = nn.LayerNorm(6), twice

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.mean(1, keepdim=True)
        for block in self.blocks:
            x = block(x, scale)
        return self.norm(self.blocks[0](x, scale) if self.twice else x)


LOOP = "for block in self.blocks:"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("widths", "twice", "classes", "line"),
    [
        pytest.param((5, 5, 5), False, ["Block"], LOOP, id="equal blocks are one class, in a loop"),
        pytest.param((5, 4), False, ["Block", "Block2"], "self.blocks[1](", id="others are not"),
        pytest.param((5, 5), True, ["Block"], LOOP, id="one that is called again"),
    ],
)
def test_a_block_is_a_class(
    widths: tuple[int, ...], twice: bool, classes: list[str], line: str, tmp_path: Path
) -> None:
    module, x = Stack(widths, twice).eval(), torch.randn(4, 6)
    path = tmp_path / "m.onnx"
    torch.onnx.export(
        module, (x,), str(path), dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "rows"}}
    )
    text = mapper.generate(path)
    assert [row.split()[1].partition("(")[0] for row in text.splitlines() if row.startswith("class ")] == [
        *classes,
        "Model",
    ]
    assert line in text and text.count("self.blocks[0](") == twice + (len(classes) > 1)
    x = torch.randn(7, 6)
    model = mapper.build(path)
    torch.testing.assert_close(next(iter(model(x=x).values())), module(x))
    assert model.state_dict().keys() == module.state_dict().keys()


def test_what_goes_through_another_module_and_back_stays_with_the_one_around(tmp_path: Path) -> None:
    """`a` gives to `b`, which gives to `a` again: neither can be called at one place before the other."""
    names = ["/a/one/MatMul", "/b/one/MatMul", "/a/two/MatMul", "/b/two/MatMul"]
    values = ["x", "h1", "h2", "h3", "y"]
    nodes = [
        make.make_node(
            "MatMul", [values[at], f"{name[1:-7].replace('/', '.')}.weight"], [values[at + 1]], name=name
        )
        for at, name in enumerate(names)
    ]
    arrays = {
        one.input[1]: np.random.default_rng(at).standard_normal((3, 3)).astype("f")
        for at, one in enumerate(nodes)
    }
    path = saved(tmp_path / "m.onnx", nodes, ["rows", 3], arrays)
    x = torch.randn(2, 3)
    torch.testing.assert_close(mapper.build(path)(x=x)["y"], of_onnxruntime(path, x)[0])


WORDS = (
    "self", "forward", "F", "torch", "Model", "nn", "Tensor", "device", "given_0", "x", "0", "class", "a b", "../../x", "__class__",
    "load", "super", "range", "Path", "Any", "é", "rotary", "None", "layer", "layers", "Layer",
)  # fmt: skip


def test_blocks_are_called_what_they_are_whatever_that_spells(tmp_path: Path) -> None:
    nodes, arrays, before = [], {}, "x"
    for at, word in enumerate(WORDS):
        for place in ("one", "two"):
            key, path = f"{word}.{place}.weight", f"/{word}/{place}/MatMul"
            arrays[key] = np.random.default_rng(at).standard_normal((3, 3)).astype("f")
            nodes.append(make.make_node("MatMul", [before, key], [path], name=path))
            nodes.append(make.make_node("Tanh", [path], [f"{path}/t"], name=f"/{word}/Tanh_{place}"))
            before = f"{path}/t"
    nodes.append(make.make_node("Identity", [before], ["y"]))
    path = saved(tmp_path / "m.onnx", nodes, ["batch", 3], arrays)
    model, x = mapper.build(path), torch.randn(2, 3)
    torch.testing.assert_close(model(x=x)["y"], of_onnxruntime(path, x)[0])
    assert len(list(model.parameters())) == 2 * len(WORDS)


def doubled(count: int) -> tuple[list[Any], dict[str, Any]]:
    """A size added to itself, again and again."""
    sums = [make.make_node("Add", [f"d{at}", f"d{at}"], [f"d{at + 1}"]) for at in range(count)]
    nodes = [make.make_node("Shape", ["x"], ["s"]), make.make_node("Gather", ["s", "zero"], ["d0"]), *sums]
    return [*nodes, make.make_node("Cast", [f"d{count}"], ["last"], to=FLOAT)], {"zero": np.array(0)}


def filled(operator: str, *inputs: str) -> tuple[list[Any], dict[str, Any]]:
    """A tensor that would take terabytes."""
    sizes = {"many": np.array([10**12, 3]), "end": np.array(10**15), "zero": np.array(0), "step": np.array(1)}
    nodes = [
        make.make_node(operator, list(inputs), ["huge"]),
        make.make_node("Cast", ["huge"], ["wide"], to=FLOAT),
    ]
    nodes.append(make.make_node("ReduceSum", ["wide"], ["last"], keepdims=0))
    return nodes, {**sizes, "w.weight": np.ones((1, 3), "f")}


def knotted(count: int) -> tuple[list[Any], dict[str, Any]]:
    """Modules of which each is called, and then each again."""
    names = [f"/c{at}/{place}{turn}/MatMul" for turn in range(2) for at in range(count) for place in "pq"]
    keys = [f"{name[1:-7].replace('/', '.')}.weight" for name in names]
    rows = zip(["x", *names], keys, names, strict=False)
    nodes = [make.make_node("MatMul", [before, key], [name], name=name) for before, key, name in rows]
    return [*nodes, make.make_node("Identity", names[-1:], ["last"])], {
        key: np.ones((3, 3), "f") for key in keys
    }


@pytest.mark.parametrize(
    "made",
    [
        doubled(40), filled("ConstantOfShape", "many"), filled("Range", "zero", "end", "step"),
        filled("Expand", "w.weight", "many"), filled("Tile", "w.weight", "many"), knotted(30),
    ],
    ids=["doubled", "ConstantOfShape", "Range", "Expand", "Tile", "knots"],
)  # fmt: skip
def test_what_a_graph_would_grow_to_is_not_made_at_import(
    made: tuple[list[Any], dict[str, Any]], tmp_path: Path
) -> None:
    import tracemalloc

    nodes, arrays = made
    path = saved(
        tmp_path / "m.onnx", [*nodes, make.make_node("Add", ["x", "last"], ["y"])], ["rows", 3], arrays
    )
    tracemalloc.start()
    assert len(mapper.generate(path)) < 60_000
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
@pytest.mark.parametrize("per", ["tensor", "axis", "block"])
def test_weights_of_four_bits_are_what_onnx_defines(kind: str, per: str, tmp_path: Path) -> None:
    """By the definition: onnxruntime rounds what goes into such a product."""
    drawn, type_ = np.random.default_rng(0), getattr(onnx.TensorProto, kind)
    whole = drawn.integers(*((-8, 8) if kind == "INT4" else (0, 16)), (6, 4))
    shape, more = {
        "tensor": ((), {}),
        "axis": ((4,), {"axis": 1}),
        "block": ((2, 4), {"axis": 0, "block_size": 3}),
    }[per]
    scale, zero = drawn.random(shape).astype("f"), np.broadcast_to(drawn.integers(0, 8, shape), shape)
    held = [
        make.make_tensor(key, type_, one.shape, one.reshape(-1).tolist())
        for key, one in (("w", whole), ("z", zero))
    ]
    nodes = [
        make.make_node("DequantizeLinear", ["w", "s", "z"], ["f"], **more),
        make.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    ends = [make.make_tensor_value_info(key, FLOAT, ["n", width]) for key, width in (("x", 6), ("y", 4))]
    graph = make.make_graph(
        nodes, "g", ends[:1], ends[1:], [*held, onnx.numpy_helper.from_array(np.asarray(scale), "s")]
    )
    onnx.save(
        make.make_model(graph, opset_imports=[make.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx"
    )
    rows = [np.repeat(one, 3, 0) if per == "block" else one for one in (zero, scale)]
    x = torch.randn(2, 6)
    expected = x @ torch.from_numpy(((whole - rows[0]) * rows[1]).astype("f"))
    torch.testing.assert_close(mapper.build(tmp_path / "m.onnx")(x=x)["y"], expected)
