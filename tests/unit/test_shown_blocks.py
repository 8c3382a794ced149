"""Blocks that no word names: a skeleton says of each folder what it holds."""

from __future__ import annotations

import json
import math
import re

import pytest

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.emission import emitted
from mapper.inference import infer
from mapper.inference.families import compiled_vocabulary
from mapper.inference.shown_blocks import shown_folders
from mapper.picture.graph import graph
from mapper.report.as_json import as_json
from mapper.report.text import as_text
from mapper.weights.built.blueprint import as_data
from tests.shipped import RULEBOOK

VOCABULARY = compiled_vocabulary(RULEBOOK)
NORM = ("weight", "bias", "running_mean", "running_var")


def convolution(name: str, *shape: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": shape}


def norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.{tensor}": (width,) for tensor in NORM}


def kinds(tensors: dict[str, tuple[int, ...]]) -> dict[str, str]:
    infos = {name: TensorInfo(shape, "F32") for name, shape in tensors.items()}
    read = infer(Checkpoint("x", "manifest", infos, None), RULEBOOK)
    assert read.reading == "skeleton"
    return {home: block.kind for block in read.root.blocks() for home in block.home.expand()}


def test_a_convolution_with_its_norm_is_a_block_and_several_are_a_layer() -> None:
    pair = {
        **convolution("zig0.zag.a", 8, 3, 3, 3),
        **norm("zig0.zag.b", 8),
        **convolution("zig0.zog.a", 8, 3, 1, 1),
        **norm("zig0.zog.b", 8),
    }
    found = kinds({**pair, **{name.replace("zig0", "zig1"): shape for name, shape in pair.items()}})
    assert found == {
        **dict.fromkeys(("zig0.zag", "zig0.zog", "zig1.zag", "zig1.zog"), "convolution"),
        **dict.fromkeys(("zig0", "zig1"), "layer"),
    }


def test_layers_are_shown_in_the_order_of_the_file() -> None:
    """A set of them has another order in each process."""
    layers = {
        name: shape
        for at in range(9)
        for name, shape in {
            **convolution(f"zig{at}.zag.a", 8 + at, 3, 3, 3),
            **norm(f"zig{at}.zag.b", 8 + at),
            **convolution(f"zig{at}.zog.a", 8 + at, 3, 1, 1),
            **norm(f"zig{at}.zog.b", 8 + at),
        }.items()
    }
    found = [home for home, kind in kinds(layers).items() if kind == "layer"]
    assert found == [f"zig{at}" for at in range(9)]


def test_two_convolutions_that_are_called_fully_connected_are_a_feed_forward_network() -> None:
    row = {name: shape for at in range(5) for name, shape in convolution(f"zig.{at}", 8, 8, 3, 3).items()}
    last = {**convolution("zag.fc1", 20, 8, 7, 7), **convolution("zag.fc2", 20, 20, 1, 1)}
    assert kinds({**row, **last, **convolution("zog.a", 9, 7, 3, 3)})["zag"] == "feed_forward"


def test_a_folder_around_one_convolution_is_a_block() -> None:
    row = {name: shape for at in range(5) for name, shape in convolution(f"zig.{at}", 8, 8, 3, 3).items()}
    branch = {**convolution("zag.conv", 9, 7, 3, 3), **convolution("zog.a", 9, 5, 3, 3)}
    numbered = convolution("zeg.2.conv", 11, 6, 3, 3)
    assert kinds({**row, **branch, **numbered}) == {"zag": "convolution", "zeg.2": "convolution"}


def test_a_block_that_is_shown_has_the_modules_of_the_architecture_and_is_written() -> None:
    tensors = {"zag.conv.weight": TensorInfo((9, 7, 3, 3), "F32"), "zog.a.weight": TensorInfo((9, 5), "F32")}
    read = infer(Checkpoint("x", "manifest", tensors, None), RULEBOOK)
    written = as_data(read, {})
    (block,) = written["root"]["roles"].values()
    assert [written["leaves"][at]["place"] for at in block["roles"].values()] == [["zag", "conv"]]


def test_a_folded_block_of_a_chain_is_called_by_its_kind() -> None:
    block = {f"blocks.{at}.{name}.weight": (8, 8, 3, 3) for at in (0, 1) for name in ("conv1", "conv2")}
    shapes = {"stem.weight": (8, 3, 3, 3), **block, "fc.weight": (4, 8)}
    tensors = {name: TensorInfo(shape, "F32") for name, shape in shapes.items()}
    rows = as_text(infer(Checkpoint("x", "manifest", tensors, None), RULEBOOK), depth=1).splitlines()
    assert [row.split()[1] for row in rows if row.startswith("blocks.")] == ["convolution", "convolution"]


def test_a_folder_around_all_is_no_layer() -> None:
    chain = {"conv1": (8, 3, 3, 3), "conv2": (8, 8, 3, 3), "conv3": (8, 8, 3, 3), "fc": (4, 8)}
    tensors = {f"module.{name}.weight": TensorInfo(shape, "F32") for name, shape in chain.items()}
    read = infer(Checkpoint("x", "manifest", tensors, None), RULEBOOK)
    assert read.forward and not list(read.root.blocks())


def test_experts_with_maps_of_their_own_are_feed_forward_networks() -> None:
    tensors = {
        "wte.weight": (100, 64),
        "h.0.norm_1.weight": (64,),
        "h.0.attn.qkv.weight": (192, 64),
        "h.0.attn.proj.weight": (64, 64),
        "h.0.norm_2.weight": (64,),
        "h.0.mlp.gate.weight": (2, 64),
        **{f"h.0.mlp.experts.{at}.fc_{one}.weight": (96, 64) for at in range(2) for one in (1, 2)},
        **{f"h.0.mlp.experts.{at}.proj.weight": (64, 96) for at in range(2)},
        "ln_f.weight": (64,),
    }
    infos = {f"transformer.{name}": TensorInfo(shape, "F32") for name, shape in tensors.items()}
    read = infer(Checkpoint("x", "manifest", infos, None), RULEBOOK)
    shown = {str(place): kind for place, kind in shown_folders(read, VOCABULARY).items()}
    assert shown["transformer.h.0.mlp.experts.{0..1}"] == "feed_forward"


def test_a_network_in_a_folder_called_attention_weighs_channels() -> None:
    maps = {"attn.fc1.weight": (4, 16, 1, 1), "attn.fc2.weight": (16, 4, 1, 1)}
    pair = {**convolution("conv1", 16, 16, 1, 1), **norm("bn1", 16), **convolution("conv2", 16, 16, 3, 3)}
    names = {f"stages.{at}.{name}": shape for at in range(2) for name, shape in {**pair, **maps}.items()}
    infos = {name: TensorInfo(shape, "F32") for name, shape in names.items()}
    read = infer(Checkpoint("x", "manifest", infos, None), RULEBOOK)
    assert all(block.kind != "attention" for block in read.root.blocks())


def test_a_convolution_alone_is_none_and_many_in_a_row_are_a_network() -> None:
    row = {name: shape for at in range(5) for name, shape in convolution(f"zig.{at}", 8, 8, 3, 3).items()}
    branch = {**convolution("zag.a", 9, 7, 3, 3), **convolution("zog.a", 9, 5, 3, 3)}
    assert kinds({**row, **branch}) == {}


@pytest.mark.parametrize(
    ("maps", "kind"), [([(48, 16), (16, 16)], "attention"), ([(40, 16), (16, 40)], "feed_forward")]
)
def test_two_maps_show_what_they_are(maps: list[tuple[int, int]], kind: str) -> None:
    around = {**convolution("zag.a", 9, 7, 3, 3), **convolution("zog.a", 9, 5, 3, 3)}
    found = kinds({**around, "zig.left.weight": maps[0], "zig.right.weight": maps[1]})
    assert found == {"zig": kind}


def fire(name: str, width: int) -> dict[str, tuple[int, ...]]:
    """A module of a network that is a chain: one convolution, and two side by side of what it gives."""
    return {
        f"{name}.zig.weight": (4, width, 1, 1),
        f"{name}.zag.weight": (8, 4, 1, 1),
        f"{name}.zog.weight": (8, 4, 3, 3),
    }


def read(tensors: dict[str, tuple[int, ...]]) -> Architecture:
    hints = {
        "chain.stride": 1,
        "chain.padding": "half",
        "chain.activation": "relu",
        "chain.pooling": "none",
        "chain.residual": "none",
        "chain.output": "mean",
        "chain.branches": "zag,zog",
    }
    infos = {name: TensorInfo(shape, "F32") for name, shape in tensors.items()}
    asked = infer(Checkpoint("x", "manifest", infos, None), RULEBOOK)
    facts = {question.fact for question in asked.questions}
    known = {name: value for name, value in hints.items() if name in facts}
    return infer(Checkpoint("x", "manifest", infos, None), RULEBOOK, hints=known)


FIRES = {**convolution("features.0", 16, 3, 3, 3), **fire("features.2", 16), **fire("features.3", 16)}


def test_a_folder_of_a_chain_that_runs_is_a_block_too() -> None:
    architecture = read(FIRES)
    assert architecture.reading == "unverified"
    assert not architecture.questions
    assert {str(folder): kind for folder, kind in architecture.shown.items()} == {
        "features.2": "convolution",
        "features.3": "convolution",
    }
    text = as_text(architecture)
    assert re.search(r"features.3 +convolution +3 Conv2d, .* parameters: a block by what it holds", text)
    blocks = json.loads(as_json(architecture))["blocks"]
    assert {"zig", "zag", "zog"} in [set(block["roles"]) for block in blocks]


def test_a_block_of_a_chain_is_drawn_around_its_modules_with_the_data_through_it() -> None:
    architecture = read(FIRES)
    drawn = graph(architecture, emitted(architecture).program)
    node = next(node for node in drawn.nodes if str(node.place) == "features.3")
    assert node.kind == "convolution"
    assert node.bytes == 4 * sum(math.prod(shape) for shape in fire("", 16).values())
    titles = {at: drawn.nodes[at].title for at in node.children}
    assert sum(title.startswith("convolution") for title in titles.values()) == 3
    assert sum(drawn.nodes[at].kind == "port" for at in node.children) == 2
    inside = [edge for edge in drawn.edges if edge.level == node.id]
    assert {edge.start for edge in inside} | {edge.end for edge in inside} == set(node.children)
    around = [edge for edge in drawn.edges if node.id in (edge.start, edge.end)]
    assert all(edge.level == node.parent for edge in around)
    assert {edge.start == node.id for edge in around} == {True, False}


def test_the_list_of_a_whole_network_and_its_branches_are_no_blocks() -> None:
    small = {**convolution("features.0", 8, 3, 3, 3), **convolution("features.3", 16, 8, 3, 3)}
    branches = {
        name: shape
        for at in range(2)
        for branch, count in (("branch1", 1), ("branch2", 2), ("branch3", 1))
        for unit in range(count)
        for name, shape in {
            **convolution(f"zig{at}.{branch}.{unit}.a", 8, 8 + at, 3, 3),
            **norm(f"zig{at}.{branch}.{unit}.b", 8),
        }.items()
    }
    infos = {name: TensorInfo(shape, "F32") for name, shape in {**small, **branches}.items()}
    architecture = infer(Checkpoint("x", "manifest", infos, None), RULEBOOK)
    found = {str(place): kind for place, kind in shown_folders(architecture, VOCABULARY).items()}
    found |= {str(block.home): block.kind for block in architecture.root.blocks()}
    assert "features" not in found
    assert found["zig0"] == found["zig1"] == "layer"
    assert {kind for place, kind in found.items() if place.rpartition(".")[2].startswith("branch")} <= {
        "convolution"
    }


def test_a_norm_in_a_folder_of_its_own_belongs_to_the_convolution_beside_it() -> None:
    tensors = {
        **convolution("zig.first.conv", 8, 3, 3, 3),
        **norm("zig.first.adn.N", 8),
        **convolution("zig.second.conv", 8, 5, 3, 3),
        **norm("zig.second.adn.N", 8),
    }
    found = kinds(tensors)
    assert found["zig.first"] == found["zig.second"] == "convolution"
