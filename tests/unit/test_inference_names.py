"""Patterns against the names of a whole checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mapper.architecture import Place
from mapper.checkpoint import TensorInfo
from mapper.inference.names import Names, may_show, words_in
from mapper.inference.part import home_of
from mapper.naming.tree import grow
from mapper.rulebook.rulebook import Rulebook
from mapper.rulebook.signs import Signs


def test_either_of_two_patterns_is_enough() -> None:
    names = Names(grow({"layers.0.self_attn.norm_q.weight": TensorInfo((4,), "F32")}))
    assert names.has("{root}.layers.{n}.self_attn.q_norm.weight | {root}.layers.{n}.self_attn.norm_q.weight")
    assert names.has("q_norm.weight | norm_q.weight", [4])
    assert not names.has("q_norm.weight | k_norm.weight")
    assert not names.has("q_norm.weight | norm_q.weight", [8])


@pytest.mark.parametrize(
    ("shape", "stored"), [((4, 12), "[in, out]"), ((12, 4), "[out, in]"), ((12, 12), "")]
)
def test_the_bias_of_a_map_or_what_it_gives_shows_how_it_is_stored(shape, stored) -> None:
    header = {"h.0.c_attn.weight": TensorInfo(shape, "F32"), "h.0.c_attn.bias": TensorInfo((12,), "F32")}
    assert Names(grow(header)).stored(["c_attn"], []) == stored
    assert Names(grow({"h.0.c_attn.weight": TensorInfo(shape, "F32")})).stored(["c_attn"], []) == ""
    assert Names(grow({"h.0.c_attn.weight": TensorInfo(shape, "F32")})).stored([], ["c_attn"]) == stored


def test_where_a_family_stands_and_what_is_beside_it() -> None:
    paths = (
        "a.layers.0.map.weight",
        "a.norm.weight",
        "head.weight",
        "b.blocks.0.other.weight",
        "a.steps.0.weight",
    )
    names = Names(grow({path: TensorInfo((4,), "F32") for path in paths}))
    family = replace(Rulebook().families[0], recognise=("{root}.layers.{n}.map", "{root}.norm"))
    home = home_of(family, names)
    assert (home.folders, set(home.foreign)) == ((("a",),), {("b",)})
    assert [home.holds(Place(path.split("."))) for path in paths] == [True, True, True, False, True]


def test_words_that_are_missing_settle_that_a_family_is_not_meant() -> None:
    words = words_in(["encoder.layer.0.attention.query.weight", "head.bias"])

    def may(*recognise: str) -> bool:
        return may_show(Signs(recognise, {}, ()), words)

    assert may("layer.0.attention", "head.bias")
    assert may("attn.query | attention.query")  # one of them is enough
    assert not may("attention.query", "attention.key")
