"""Nested to flat and back, for every container that may be a source."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import mapper
from tests.weights.snapshots import Holder, two_layers


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Record:
    left: Any
    right: Any


def test_a_nested_dict_becomes_flat() -> None:
    assert mapper.flatten({"a": {"b": 1, "c": {"d": 2}}, "e": 3}) == {"a.b": 1, "a.c.d": 2, "e": 3}


def test_the_separator_may_be_chosen() -> None:
    assert mapper.flatten({"encoder": {"weight": 1}}, sep="/") == {"encoder/weight": 1}


def test_a_flat_dict_becomes_nested() -> None:
    assert mapper.unflatten({"a.b": 1, "a.c.d": 2, "e": 3}) == {"a": {"b": 1, "c": {"d": 2}}, "e": 3}


def test_a_flat_dict_with_another_separator_becomes_nested() -> None:
    assert mapper.unflatten({"encoder/weight": 1, "encoder/bias": 2}, sep="/") == {
        "encoder": {"weight": 1, "bias": 2}
    }


def test_leaves_are_the_same_objects() -> None:
    leaf = torch.ones(2)
    assert mapper.flatten({"a": {"b": leaf}})["a.b"] is leaf
    assert mapper.unflatten({"a.b": leaf})["a"]["b"] is leaf


@pytest.mark.parametrize("leaf", [None, False, True, 0, 1.5, "text", print, 3 + 4j, b""])
def test_leaves_of_every_kind_are_kept(leaf: Any) -> None:
    flat = mapper.flatten({"a": {"b": leaf}})
    assert flat == {"a.b": leaf} and flat["a.b"] is leaf


def test_the_order_of_the_keys_is_kept() -> None:
    assert list(mapper.flatten({"b": {"z": 1, "a": 2}, "a": 3})) == ["b.z", "b.a", "a"]


def test_an_empty_dict_is_empty_both_ways() -> None:
    assert mapper.flatten({}) == {} and mapper.unflatten({}) == {}


@pytest.mark.parametrize(
    "tree", [[{"w": 1}, 2], ({"w": 1}, 2), OrderedDict({"0": {"w": 1}, "1": 2}), UserDict({"0.w": 1, "1": 2})]
)
def test_sequences_and_mappings_become_flat(tree: Any) -> None:
    assert mapper.flatten(tree) == {"0.w": 1, "1": 2}


@pytest.mark.parametrize("kind", [Pair, Record])
def test_records_become_flat_by_field(kind: Any) -> None:
    assert mapper.flatten({"a": kind({"w": 1}, 2)}) == {"a.left.w": 1, "a.right": 2}


def test_a_module_becomes_flat() -> None:
    model = Holder(body=two_layers(), head=nn.Linear(2, 1, bias=False))
    flat = mapper.flatten(model)
    assert set(model.state_dict()) <= set(flat)
    assert flat["head.bias"] is False and flat["body.0.weight"].data_ptr() == model.body[0].weight.data_ptr()


def test_a_mapping_of_nested_and_dotted_keys_becomes_flat() -> None:
    assert mapper.flatten({"a": {"b": 1}, "a.c": 2}) == {"a.b": 1, "a.c": 2}


def test_dotted_and_nested_keys_meet_in_one_branch() -> None:
    assert mapper.unflatten({"a.b": 1, "a": {"c": 2}}) == {"a": {"b": 1, "c": 2}}


def test_the_argument_is_not_changed() -> None:
    tree = {"a": {"b": 1}, "c.d": 2}
    mapper.flatten(tree)
    mapper.unflatten(tree)
    assert tree == {"a": {"b": 1}, "c.d": 2}


def test_a_path_that_is_a_leaf_and_a_branch_is_an_error() -> None:
    for flat in ({"a": 1, "a.b": 2}, {"a.b": 2, "a": 1}):
        with pytest.raises(mapper.StructureError):
            mapper.unflatten(flat)


def test_a_container_that_contains_itself_is_an_error_of_structure() -> None:
    tree: dict[str, Any] = {}
    tree["a"] = {"b": [tree]}
    with pytest.raises(mapper.StructureError):
        mapper.flatten(tree)


def test_a_state_dict_goes_there_and_back() -> None:
    state = dict(two_layers().state_dict())
    again = mapper.flatten(mapper.unflatten(state))
    assert list(again) == list(state) and all(again[key] is state[key] for key in state)


def test_a_tree_goes_there_and_back() -> None:
    tree = mapper.tree(Holder(body=two_layers(), head=nn.Linear(2, 1, bias=False)))
    again = mapper.unflatten(mapper.flatten(tree))
    assert mapper.flatten(again).keys() == mapper.flatten(tree).keys() and set(again) == set(tree)


NAMES = st.text(st.characters(exclude_characters="./", exclude_categories=["Cs"]), min_size=1, max_size=5)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3))
TREES = st.dictionaries(
    NAMES,
    st.recursive(LEAVES, lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3), max_leaves=8),
    max_size=4,
)


QUICK = settings(max_examples=40)


@QUICK
@given(TREES, st.sampled_from([".", "/", "::"]))
def test_every_nested_dict_goes_there_and_back(tree: dict[str, Any], sep: str) -> None:
    if sep == "::" and ":" in repr(tree):
        return
    assert mapper.unflatten(mapper.flatten(tree, sep=sep), sep=sep) == tree


@QUICK
@given(st.dictionaries(NAMES, LEAVES))
def test_a_flat_dict_stays_flat(flat: dict[str, Any]) -> None:
    assert mapper.flatten(flat) == flat
