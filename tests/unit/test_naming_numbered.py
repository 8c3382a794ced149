"""Folders that are elements of a list by the number at the end of their names."""

from __future__ import annotations

import pytest

from mapper._api import describe
from mapper.architecture import Block, Numbered

SHAPE = {"shape": [8, 8, 3, 3], "dtype": "F32"}


def stages(names: list[str]) -> list[Block]:
    root = describe({"tensors": dict.fromkeys(names, SHAPE)}).root
    return [block for block in root.blocks() if isinstance(block.indices, Numbered)]


def test_lists_side_by_side_that_differ_in_a_number_are_stages() -> None:
    names = [f"body.layer{at}.{index}.conv1.weight" for at in (1, 2, 3) for index in range(2)]
    found = stages(names)
    assert [str(block.home) for block in found] == ["body.layer1", "body.layer2", "body.layer3"]
    assert [block.indices for block in found] == [(0,), (1,), (2,)]
    assert {block.role for block in found} == {"stages"}


@pytest.mark.parametrize("words", [("layer1",), ("layer1", "layer3"), ("fc1", "fc2"), ("layer1", "layer2x")])
def test_a_number_alone_makes_no_list(words: tuple[str, ...]) -> None:
    assert not stages([f"{word}.{index}.conv1.weight" for word in words for index in range(2)])
