"""The two maps of a feed-forward network have their roles by their shapes where no word gives them."""

from __future__ import annotations

import pytest

from mapper.checkpoint import Checkpoint
from mapper.errors import ArchitectureError
from mapper.inference import infer
from mapper.rulebook.examples import header
from mapper.rulebook.rulebook import Rulebook

RULEBOOK = Rulebook()
PHI = header(next(family for family in RULEBOOK.families if family.name == "phi").examples[0])


def renamed(up: str, down: str, **config: object) -> Checkpoint:
    tensors = {
        key.replace("mlp.fc1", f"mlp.{up}").replace("mlp.fc2", f"mlp.{down}"): info
        for key, info in PHI.tensors.items()
    }
    return Checkpoint("x", "manifest", tensors, {**(PHI.config or {}), **config})


@pytest.mark.parametrize(("up", "down"), [("zig", "zag"), ("zag", "zig"), ("0", "2")])
def test_the_wider_side_is_inside_whatever_the_maps_are_called(up: str, down: str) -> None:
    read = infer(renamed(up, down, model_type="unheard_of"), RULEBOOK)
    roles = {
        str(leaf.place).rpartition("mlp.")[2]: leaf.role for leaf in read.leaves if ".mlp." in str(leaf.place)
    }
    assert roles == {up: "up", down: "down"}
    assert read.reading == "unverified"


def test_one_map_more_and_nothing_is_shown() -> None:
    checkpoint = renamed("zig", "zag", model_type="unheard_of")
    more = {key.replace("zig", "zog"): info for key, info in checkpoint.tensors.items() if "zig" in key}
    tensors = {**checkpoint.tensors, **more}
    read = infer(Checkpoint("x", "manifest", tensors, checkpoint.config), RULEBOOK)
    assert {leaf.role for leaf in read.leaves if ".mlp." in str(leaf.place)} == {None}
    assert read.reading == "skeleton"


def test_a_listed_type_is_read_by_its_words_alone() -> None:
    with pytest.raises(ArchitectureError, match="which every phi has"):
        infer(renamed("zig", "zag"), RULEBOOK)
