"""Names to a tree: nothing is lost, equal parts are one."""

from __future__ import annotations

import pytest

from mapper.checkpoint import TensorInfo
from mapper.naming.tree import grow, walk
from tests.work import growth

ONE = TensorInfo((1,), "F32")
HOSTILE = [
    "",
    ".",
    "..",
    "a.",
    ".a",
    "a",
    "a.weight",
    "a.weight.b",
    "a..b",
    "." * 4000,
    "é.ü",
    "a/b",
    "0",
    "0.0",
    "00.1",
]


def test_equal_folders_are_the_same_object():
    root = grow({f"layer.{at}.{word}.weight": ONE for at in range(3) for word in ("key", "query")})
    assert root.at("layer", "0") is root.at("layer", "2")
    assert root.at("layer", "0", "key") is root.at("layer", "1", "query")


def test_folders_of_other_shapes_are_not():
    root = grow(
        {
            "layer.0.weight": ONE,
            "layer.1.weight": TensorInfo((2,), "F32"),
            "layer.2.weight": TensorInfo((1,), "F16"),
        }
    )
    assert len({id(root.at("layer", str(at))) for at in range(3)}) == 3


def test_numbers_are_ordered_by_value_before_words():
    root = grow(dict.fromkeys(["l.10", "l.9", "l.a", "l.010"], ONE))
    assert list(root.at("l").children) == ["9", "10", "010", "a"]


def test_equal_elements_fold_and_others_stand_apart():
    names = {f"layer.{at}.weight": TensorInfo((2 if at == 3 else 1,), "F32") for at in range(6)}
    assert [str(place) for place, node in walk(grow(names)) if node.info] == [
        "layer.{0..2,4,5}.weight",
        "layer.3.weight",
    ]


def test_hostile_names_are_kept_to_the_letter():
    root = grow(dict.fromkeys(HOSTILE, ONE))
    assert sorted(place.first() for place, node in walk(root) if node.info) == sorted(HOSTILE)


@pytest.mark.parametrize("word", ["²", "٣", "1e3", "-1", "9" * 40])
def test_only_plain_numbers_are_indices(word):
    part, _ = grow({f"a.{word}.w": ONE}).at("a").distinct()[0]
    assert part == word


def test_twice_the_tensors_take_twice_the_work():
    def grown(experts):
        names = {
            f"layers.{at}.experts.{expert}.up.weight": ONE for at in range(10) for expert in range(experts)
        }
        return lambda: grow(names)

    assert growth(grown, 500) < 2.1


def test_a_hundred_thousand_tensors_make_seven_nodes():
    names = {f"layers.{at}.experts.{expert}.up.weight": ONE for at in range(50) for expert in range(2000)}
    assert len(list(walk(grow(names)))) == 7
