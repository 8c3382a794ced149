"""Towers of stages, each with sizes of its own: how they are read, and the classes that come out."""

from __future__ import annotations

import re

import pytest

from mapper.architecture import Block, Leaf
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.emission import emit
from mapper.errors import ArchitectureError
from mapper.flows.arithmetic import parse, solve
from mapper.inference import infer
from mapper.rulebook.examples import header
from mapper.rulebook.flows import aligned
from mapper.rulebook.values import checked
from tests.shipped import RULEBOOK


def example(family: str, at: int = 0) -> Checkpoint:
    return header(next(item for item in RULEBOOK.families if item.name == family).examples[at])


def changed(checkpoint: Checkpoint, **config: object) -> Checkpoint:
    return Checkpoint("x", "manifest", checkpoint.tensors, {**(checkpoint.config or {}), **config})


def classes(checkpoint: Checkpoint) -> dict[str, str]:
    """The text of each generated class by its name."""
    text = emit(infer(checkpoint, RULEBOOK))
    found = re.split(r"^class (\w+)", text, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def test_a_square_is_solved() -> None:
    assert solve(parse("(2 * window - 1) ** 2"), 169, {}) == ("window", 7)


def test_what_is_no_square_is_refused() -> None:
    with pytest.raises(ValueError, match="168 is no square"):
        solve(parse("(2 * window - 1) ** 2"), 168, {})


def test_a_side_is_one_number_however_it_is_written() -> None:
    assert checked(16, "side") == checked([16, 16], "side") == 16
    for value in ([16, 8], [], "16", True):
        with pytest.raises(ValueError, match="a list that repeats one"):
            checked(value, "side")


def test_leading_extents_can_be_left_open() -> None:
    assert aligned(("...", "hidden_size"), 3) == ("_", "_", "hidden_size")
    assert aligned(("...", "hidden_size"), 1) == ("hidden_size",)
    assert aligned(("rows", "hidden_size"), 3) == ("rows", "hidden_size")


def test_a_number_that_its_pattern_names_makes_no_list() -> None:
    root = infer(example("resnet"), RULEBOOK).root
    assert isinstance(root.roles["classifier"], Leaf)  # classifier.1
    layers = next(block for block in root.blocks() if block.role == "layers")
    convolution = layers.roles["convolution_2"]
    assert isinstance(convolution, Block)
    assert isinstance(convolution.roles["norm"], Leaf)  # layer.1.normalization


def test_a_list_of_the_config_is_held_against_each_stage() -> None:
    with pytest.raises(
        ArchitectureError, match=r"hidden_sizes\[1\] says hidden_size is 32, but the checkpoint shows 24"
    ):
        infer(changed(example("resnet"), hidden_sizes=[16, 32]), RULEBOOK)
    with pytest.raises(ArchitectureError, match=r"depths\[0\] says layers is 3, but the names show 2"):
        infer(changed(example("resnet"), depths=[3, 1]), RULEBOOK)


def test_one_number_of_the_config_says_nothing_about_a_stage() -> None:
    assert infer(changed(example("swin"), hidden_size=48), RULEBOOK).reading == "exact"


def test_the_config_of_two_towers_serves_the_one_that_is_there() -> None:
    facts = infer(example("clip_classifier"), RULEBOOK).facts
    heads = next(fact for fact in facts if fact.name == "attention.heads")
    assert (heads.value, heads.source) == (4, "vision_config.num_attention_heads")


def test_a_norm_has_both_of_its_statistics() -> None:
    checkpoint = example("resnet")
    tensors = {
        key: info
        for key, info in checkpoint.tensors.items()
        if not key.endswith("embedder.normalization.running_var")
    }
    with pytest.raises(ArchitectureError, match=r"normalization.running_var is missing"):
        infer(Checkpoint("x", "manifest", tensors, checkpoint.config), RULEBOOK)


def test_stages_of_one_kind_are_one_class_with_their_sizes_as_parameters() -> None:
    checkpoint = example("convnext")
    more = {
        key.replace("stages.1", "stages.2"): TensorInfo(tuple(_doubled(info.shape)), info.dtype)
        for key, info in checkpoint.tensors.items()
        if "stages.1" in key
    }
    last = {"convnext.layernorm.weight": 24, "convnext.layernorm.bias": 24}
    tensors = {
        **checkpoint.tensors,
        **more,
        **{key: TensorInfo((size,), "F32") for key, size in last.items()},
    }
    tensors["classifier.weight"] = TensorInfo((5, 24), "F32")
    found = classes(
        Checkpoint(
            "x",
            "manifest",
            tensors,
            {**(checkpoint.config or {}), "hidden_sizes": [8, 12, 24], "depths": [2, 1, 1], "num_stages": 3},
        )
    )
    assert re.search(r"input_size: int,\s+hidden_size: int", found["StageWithDownsampling"])
    assert "StageWithDownsampling(" in found["StagedEncoder"]
    assert not any(re.fullmatch(r"Stage\w*\d", name) for name in found)


def _doubled(shape: tuple[int, ...]) -> list[int]:
    """The extents of the next stage: widths doubled, kernels as they are."""
    return [{8: 12, 12: 24, 48: 96}.get(extent, extent) for extent in shape]


def test_convolutions_of_a_layer_are_one_class_called_by_the_sizes_of_the_layer() -> None:
    found = classes(example("resnet"))
    assert {name for name in found if name.startswith("Convolution")} == {"Convolution"}
    assert (
        "Convolution(in_channels=reduced_size, out_channels=hidden_size, stride=1, kernel_size=1)"
        in found["LayerWithShortcut"]
    )


def test_the_root_takes_no_sizes() -> None:
    for family in ("resnet", "convnext", "swin"):
        assert "def __init__(self, config: Config = Config()):" in classes(example(family))["Model"]
