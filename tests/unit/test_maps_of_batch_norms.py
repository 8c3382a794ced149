"""What convolutions and their batch norms show of themselves, whatever family has them."""

from __future__ import annotations

from typing import Any

import pytest

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK

FAMILIES = ["mobilenet_v2", "efficientnet", "torchvision_mobilenet_v3"]


def read(family: str, **config: Any) -> Architecture:
    source = header(next(item for item in RULEBOOK.families if item.name == family).examples[0])
    said = {**(source.config or {}), **config} or None
    return infer(Checkpoint("x", "manifest", source.tensors, said), RULEBOOK)


def known(architecture: Architecture, name: str) -> set[tuple[Any, str]]:
    return {(fact.value, fact.evidence) for fact in architecture.facts if fact.name == name}


@pytest.mark.parametrize("family", FAMILIES)
def test_depthwise_convolutions_are_told_by_what_their_weights_read(family: str) -> None:
    architecture = read(family)
    assert known(architecture, "convolution.grouping") == {("channelwise", "shape")}
    flows = {block.flow for block in architecture.root.blocks() if str(block.role) == "depthwise"}
    assert flows == {"convolution/depthwise"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_norm_as_long_as_what_its_convolution_gives_stands_behind_it(family: str) -> None:
    assert known(read(family, model_type="unheard_of"), "norm.placement") == {("post", "shape")}


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_with_batch_norms_have_maps_with_the_channels_first(family: str) -> None:
    assert {value for value, _ in known(read(family), "stage.channels")} == {"first"}
    asked = {question.fact for question in read(family, model_type="unheard_of").questions}
    assert "stage.channels" not in asked
