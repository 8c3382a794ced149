"""Folders that are elements of a list by the number at the end of their names."""

from __future__ import annotations

import pytest

from mapper._api import describe
from mapper.architecture import Block, Numbered
from mapper.naming.vocabulary import Trie
from mapper.rulebook.vocabulary import Entry

SHAPE = {"shape": [8, 3, 3, 3], "dtype": "F32"}


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


def test_blocks_side_by_side_that_differ_in_a_number_are_elements_by_value() -> None:
    matrix = {"shape": [8, 8], "dtype": "F32"}
    names = [
        f"layers.{at}.mlp.experts.expert_{index}.{leaf}.weight"
        for at in (0, 1)
        for index in range(11)
        for leaf in ("wi", "wo")
    ]
    root = describe(
        {"tensors": dict.fromkeys([*names, *(f"layers.{at}.mlp.router.weight" for at in (0, 1))], matrix)}
    ).root
    experts = [block for block in root.blocks() if isinstance(block.indices, Numbered)]
    assert sorted(block.indices[0] for block in experts if block.indices) == list(range(11))
    assert {block.role for block in experts} == {"experts"}
    assert next(str(block.home) for block in experts if block.indices == (10,)).endswith("experts.expert_10")


def test_blocks_by_name_stand_in_the_order_of_their_names() -> None:
    names = [f"layers.0.output.adapter_modules.{word}.dense1.weight" for word in ("en_XX", "de_DE", "is_IS")]
    names += [
        f"layers.0.attention.self.{word}.weight" for word in ("query", "key", "value")
    ]  # more than a chain
    matrix = {"shape": [8, 8], "dtype": "F32"}
    root = describe({"tensors": dict.fromkeys(names, matrix)}).root
    found = {block.home[-1]: block.indices for block in root.blocks() if isinstance(block.indices, Numbered)}
    assert found == {"de_DE": (0,), "en_XX": (1,), "is_IS": (2,)}


def test_blocks_with_a_number_missing_are_no_list() -> None:
    matrix = {"shape": [8, 8], "dtype": "F32"}
    names = [f"layers.0.mlp.experts.expert_{index}.wi.weight" for index in (0, 2)]
    root = describe({"tensors": dict.fromkeys(names, matrix)}).root
    assert not [block for block in root.blocks() if isinstance(block.indices, Numbered)]


def test_what_matches_is_kept_by_the_words_alone() -> None:
    """Lists of any length are one path to patterns, another than a single element or a folder."""
    trie = Trie()
    for target, names in (("any", ("x.{n}.w",)), ("third", ("x.3.w",))):
        trie.add(Entry("roles", target, "any", names))

    def targets(middle: str | tuple[int, ...]) -> list[str]:
        return [match.entry.target for match in trie.matches(("x", middle, "w"))]

    for _ in range(2):
        assert targets((0, 1)) == targets((5, 6, 7)) == targets((4,)) == ["any"]
        assert targets((3,)) == ["third", "any"] and targets("y") == []
    trie.add(Entry("roles", "later", "any", ("y.w",)))
    assert targets("y") == ["later"]
