"""Blocks that no word names: a skeleton says of each folder what it holds."""

from __future__ import annotations

import pytest

from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.inference import infer
from tests.shipped import RULEBOOK

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
