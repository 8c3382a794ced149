from __future__ import annotations

import pytest

from mapper._api import describe
from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint
from mapper.errors import ArchitectureError
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK


def experts(lacking: str) -> Checkpoint:
    """A mixture of experts without the tensors whose names hold a text, and without the field that counts them."""
    family = next(family for family in RULEBOOK.families if family.name == "mixtral")
    checkpoint = header(family.examples[0])
    assert checkpoint.config is not None
    checkpoint.config = {key: value for key, value in checkpoint.config.items() if key != "num_local_experts"}
    checkpoint.tensors = {name: info for name, info in checkpoint.tensors.items() if lacking not in name}
    return checkpoint


def read(lacking: str) -> Architecture:
    return infer(experts(lacking), RULEBOOK)


def test_as_many_experts_as_the_router_has_rows_are_read() -> None:
    assert read("nothing").reading == "exact"


@pytest.mark.parametrize(
    ("lacking", "message"),
    [
        (
            "experts.3.",
            r"experts is 4 .*, but the names show 3: model.layers.{0..1}.block_sparse_moe.experts lacks '3'",
        ),
        ("experts.1.", r"the names show 3: model.layers.{0..1}.block_sparse_moe.experts lacks '1'"),
        ("layers.1.block_sparse_moe.experts.0", r"model.layers.1.block_sparse_moe.experts lacks '0'"),
    ],
)
def test_an_expert_that_is_missing_is_named(lacking: str, message: str) -> None:
    with pytest.raises(ArchitectureError, match=message):
        read(lacking)


def sequence() -> Checkpoint:
    """A stem that has number 0 in a list, layers behind it, and a last convolution."""
    family = next(family for family in RULEBOOK.families if family.name == "torchvision_mobilenet_v2")
    return header(family.examples[0])


def test_the_first_layer_behind_a_stem_has_the_first_entry_of_a_list() -> None:
    layers = infer(sequence(), RULEBOOK).root.roles["tower"].roles["layers"]
    strides = {
        index: layer.roles["depthwise"].facts["stride"].value for layer in layers for index in layer.indices
    }
    assert [index for index in sorted(strides) if strides[index] == 2] == [2, 4, 7, 14]


def test_a_layer_that_is_missing_behind_a_stem_is_named() -> None:
    checkpoint = sequence()
    checkpoint.tensors = {
        name: info for name, info in checkpoint.tensors.items() if "features.5." not in name
    }
    with pytest.raises(ArchitectureError, match=r"features\.5 is missing: the list goes on to 18"):
        infer(checkpoint, RULEBOOK)


def test_a_layer_without_expansion_is_added_to_its_input_where_the_channels_are_as_many() -> None:
    family = next(family for family in RULEBOOK.families if family.name == "timm_mobilenetv3")
    stages = infer(header(family.examples[1]), RULEBOOK).root.roles["tower"].roles["stages"]
    first = stages[0].roles["layers"][0]
    assert "expansion" not in first.roles
    assert first.facts["residual"].value is True


def children(also: str = "") -> Checkpoint:
    """A network as a list of its children, whose activation and pooling are numbers 2 and 3; its last stage elsewhere, too."""
    family = next(family for family in RULEBOOK.families if family.name == "resnet_children")
    checkpoint = header(family.examples[0])
    last = {name: info for name, info in checkpoint.tensors.items() if "backbone.5." in name}
    if also:
        checkpoint.tensors |= {name.replace("backbone.5.", also): info for name, info in last.items()}
    return checkpoint


def test_what_has_no_tensors_behind_a_stem_is_not_missing() -> None:
    assert infer(children(), RULEBOOK).root.roles["tower"].roles["stages"][-1].indices == (5,)


def test_a_stage_between_others_is_missing() -> None:
    with pytest.raises(ArchitectureError, match=r"backbone\.6 is missing: the list goes on to 7"):
        infer(children(also="backbone.7."), RULEBOOK)


def test_a_list_that_is_cut_through_a_block_is_not_what_the_names_of_its_blocks_recall() -> None:
    """A detector's backbone (1512.02325) is an EfficientNet's list in two, of which the second begins within a block."""
    norm = {"weight": [8], "bias": [8], "running_mean": [8], "running_var": [8]}
    norms = ("0.0.1", "0.1.block.1.1", "1.2.block.0.1")
    header = {f"backbone.features.{home}.{name}": shape for home in norms for name, shape in norm.items()} | {
        "backbone.features.0.0.0.weight": [8, 3, 3, 3],
        "backbone.features.1.2.block.0.0.weight": [8, 8, 1, 1],
        "backbone.features.1.2.block.2.fc1.weight": [4, 8, 1, 1],
        "backbone.features.1.2.block.2.fc1.bias": [4],
    }
    assert describe(header).family is None
